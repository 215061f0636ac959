/* trainer.h - a run: what its parts are and how they hang together (inside of pt_trainer, protrain.h).
 *
 *   model, data --> shape --> budgets --> packing + plan --> executor --> steps --> checkpoints, model
 *
 * Unless the plan updates during backward, the updates of a step wait for the norm of its gradient, and in the order of the next
 * forward until that needs the weights (`pending`), or until something else wants the newest state: saving, evaluation and the
 * end drain them first. Nothing that a step computes depends on when that happens.
 */
#ifndef PT_TRAINER_H
#define PT_TRAINER_H

#include "base/json.h"
#include "data/dataset.h"
#include "io/files.h"
#include "train/adapters.h"
#include "train/companions.h"
#include "run/executor.h"
#include "train/measured.h"
#include "train/patience.h"
#include "train/planning.h"
#include "train/room.h"
#include "run/state.h"

#include <stdio.h>

struct pt_trainer {
    pt_train_options o;
    char model_dir[FILE_PATH_BYTES], out[FILE_PATH_BYTES];
    model *model;
    companions companions;
    tokenizer *tokenizer;
    dataset *data, *eval;
    step_shape shape;
    planning planning;             /* budgets, costs, the plan */
    forecast forecast, first;      /* of a steady step: as it is known now; as it was before the first step of this process */
    costs first_costs;             /* which `first` was made from */
    int64_t corrected_step, moved_step; /* after which the forecast was last corrected, the plan last moved; 0: never */
    measured measured;
    patience patience;             /* with steps that are off it */
    bool told_off;                 /* that steps are off it, where the plan is given */
    executor *x;
    dir_lock lock;
    FILE *metrics;
    bool random_init;
    weights_layout layout;         /* of the weights that are written; owns its source */
    bool wrote_profile, wrote_machine; /* profile.json, machine.json are this run's */
    bool last_whole;               /* the last step ended well, its updates too */
    bool owes_evaluation;          /* of the step that it was resumed from: that one was stopped */
    bool made_out, found_empty;    /* the output folder was not there before; no run had written into it */
    pt_dtype save_type;            /* of adapters fp32 */
    uint64_t base_sum;             /* of the model that adapters stand beside, as it was loaded */
    int64_t steps, epoch_windows;  /* windows of an epoch that are used: a multiple of the batch */
    int64_t step, first_step;      /* done; done when the run was resumed */
    int64_t saved_step;            /* of the newest checkpoint that this run has written, or -1 */
    int64_t tokens;                /* target tokens seen */
    schedule_kind last;            /* what the last step ran */
    bool pending;                  /* updates of step `step` wait */
    bool broken;                   /* a step went wrong: some weights may be updated and others not */
    update_params update;          /* their parameters */
};
typedef struct pt_trainer trainer;

static inline const plan *trainer_plan(const trainer *t) { return &t->planning.result.best.plan; }
schedule_input trainer_schedules(const trainer *t); /* pointers into the trainer */

/* options.c */
int options_check(const pt_train_options *o, pt_error *e);
int options_check_plan(const pt_train_options *o, pt_error *e); /* those that planning alone looks at, and all ranges */
double lr_of_step(const pt_train_options *o, int64_t step, int64_t steps);

/* trainer.c */
void trainer_notice(const trainer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void trainer_progress(const trainer *t, const char *stage, uint64_t done, uint64_t total);
bool trainer_evaluates(const trainer *t);   /* after the step that is done */
int trainer_drain(trainer *t, pt_error *e); /* runs the waiting updates; an error where the state is broken */

/* summary.c */
int trainer_memory(const trainer *t, pt_memory out[TIERS]); /* of each tier, used or not; their number, 0 without an executor */
int summary_write(const trainer *t, pt_error *e);           /* summary.json: predicted, corrected and measured */

/* setup.c */
int trainer_setup(trainer *t, pt_error *e);
int trainer_open_executor(trainer *t, pt_error *e); /* for the plan; its forecast is made too */
int trainer_write_plan(const trainer *t, pt_error *e);

/* checkpoint.c */
int checkpoint_save(trainer *t, pt_error *e);
int checkpoint_write(trainer *t, pt_error *e); /* the same, and none of the older ones is removed */
int checkpoint_path(const trainer *t, int64_t step, char path[FILE_PATH_BYTES], pt_error *e); /* in the output folder */
int64_t checkpoint_step(const char *name);    /* of a folder named checkpoint-STEP; -1: it is not */
int checkpoint_count(const trainer *t);       /* complete ones, up to the run's step */
int checkpoint_put_later_away(const trainer *t, pt_error *e);                   /* of later steps than the run starts from: renamed */
bool checkpoint_of_others(const trainer *t, char path[FILE_PATH_BYTES]);        /* `out` has a checkpoint-N that is another program's */
void checkpoint_add_advice(const trainer *t, pt_error *e); /* adds from where --resume goes on */
int checkpoint_newest(const trainer *t, char path[FILE_PATH_BYTES], pt_error *e); /* complete, in the output folder; "": none */
int checkpoint_present(const char *path, pt_error *e);                         /* or PT_FAILED, and says so */
int checkpoint_read_counters(trainer *t, const char *path, pt_error *e);        /* and compares the settings */
int checkpoint_load_state(trainer *t, const char *path, pt_error *e);
int model_export(trainer *t, pt_error *e);                                      /* into the output folder */

/* settings.c */
json_t *model_json(const model_config *c); /* new references */
json_t *settings_json(const trainer *t);
int settings_compare(const trainer *t, const char *path, const json_source *file, pt_error *e); /* file: trainer.json of the checkpoint `path` */

/* room.c */
room_need room_of(const trainer *t);
int room_check(const trainer *t, pt_error *e); /* PT_DOES_NOT_FIT, or a notice where it may become tight */

/* trace.c: of the last step, beside what was predicted of it. Nothing where none was taken under the plan. */
int trace_write(const trainer *t, pt_error *e);

/* replan.c: after each step. An error only where the state could not be brought back into memory; it is saved then. */
int replan_look(trainer *t, pt_error *e);
/* Takes the state over to the plan next->best, between two steps. next gets what is not used any more. *moved: whether the state
 * was put aside at all; where it could not be, the plan stays. Where `next` finds no memory, the old plan, or one for what is left. */
int replan_move(trainer *t, search_result *next, bool *moved, pt_error *e);

/* metrics.c */
int metrics_open(trainer *t, pt_error *e); /* cut back to the step that the run starts from */
int metrics_add_evaluation(trainer *t, double loss, pt_error *e); /* to the last line, which has none */
int metrics_sync(const trainer *t, pt_error *e); /* what is written so far outlasts the machine */
int metrics_write(trainer *t, const pt_step *s, pt_error *e);

#endif
