/* trainer.h - a run: its parts (inside of pt_trainer, protrain.h).
 *
 *   options --> output --> job --> planning --> engine --> steps --> checkpoints, model
 *                folder    model,   budgets,     executor   counters, metrics
 *                          data     plan
 *
 * Each part has a header of its own and knows none that stands behind it here. What needs several of them takes the trainer, in files
 * that include downwards:
 *
 *   trainer_open.c      from outside
 *   setup  step         before the first step; a step and all that is due after it
 *   replan  summary     another plan; what was predicted and what was measured
 *   checkpoint          the state, written and read back
 *   trainer.c           the functions below
 *
 * What holds between two calls from outside:
 *   1. counters.first_step <= counters.step <= job.steps. checkpoint_read_counters sets both, step_take counts.
 *   2. The engine is CURRENT or WAITING (engine.h), or a call has failed and it is TORN.
 *   3. counters.saved_step is -1 or a step whose checkpoint this process has written, never a later one than counters.step
 *      (checkpoint_write).
 *   4. predicted.now is of planning's plan and costs. replan.c changes the three together, and notes the step in corrected_step, and where
 *      the plan is another one then in moved_step. predicted.first never changes.
 *   5. The last line of metrics.jsonl is of counters.step, but in a run that has just been resumed without its lines.
 *   6. A run that is `complete` has only its output folder, model and data, and the engine is CLOSED.
 */
#ifndef PT_TRAINER_H
#define PT_TRAINER_H

#include "base/command.h"
#include "comm/comm.h"
#include "predict/forecast.h"
#include "train/commits.h"
#include "train/engine.h"
#include "train/events.h"
#include "train/job.h"
#include "train/metrics.h"
#include "train/output.h"
#include "train/patience.h"
#include "train/planning.h"
#include "train/preferences.h"

typedef struct counters {
    int64_t step, first_step;      /* done; done when the run was resumed */
    int64_t saved_step;            /* of the newest checkpoint that this run has written, or -1 */
    int64_t tokens, learned;       /* tokens seen; those of them that were targets */
    uint64_t reference;            /* DPO: checksum of the model that the run began with; 0: not known */
    bool owes_evaluation;          /* of the step that it was resumed from: that one was stopped */
    double eval_loss;              /* of the newest evaluation */
    double best_eval, best_value;  /* of the best one (best.h): its loss, its value of the metric */
    int64_t best_step;             /* of that one; 0: there was no evaluation */
    int64_t since_best;            /* evaluations */
    int64_t model_step;            /* whose model was exported; 0: none yet */
} counters;

typedef struct predicted {
    forecast now, first;           /* of a steady step: as it is known now; as it was before the first step of this process */
    costs first_costs;             /* which `first` was made from */
    int64_t corrected_step, moved_step; /* after which the forecast was last corrected, the plan last moved; 0: never */
    patience patience;             /* with steps that are off it */
    telling telling;
    bool told_off;                 /* that steps are off it, where the plan is given */
} predicted;

/* What a rank reports for the account of the run. */
typedef struct rank_account {
    uint64_t peak[TIERS], process_peak; /* bytes */
    double compute_s;                   /* of a step; NAN: not measured */
    char host[64], device[16];
} rank_account;

struct pt_trainer {
    comm *comm;                    /* to the other ranks; NULL: no other ranks (ranks.h) */
    int ranks_here, ranks_on_gpu;  /* ranks on this machine; ranks on this rank's GPU */
    char gpu[16];                  /* name of this rank's GPU; "": none was chosen */
    uint64_t gpu_id;
    comm *by_host, *device_comm;   /* exchanges of device memory, through the host, and by the best way. NULL: no other ranks */
    step_shape own_shape;          /* this rank's part of the job's; its sequences may be parts of those */
    rank_account accounts[COMM_RANKS_MOST]; /* set when the account of the run is written */
    output out;
    job job;
    planning planning;             /* budgets, costs, the plan */
    commits commits;               /* of states on the disk */
    engine engine;
    counters at;
    int group;                     /* of layers that is trained now (block_turns.h) */
    struct turn_files *turns;      /* turn_files.h; NULL: there are no turns, or several ranks */
    bool complete;                 /* it was resumed after its end, and left no checkpoint: there is no plan and no engine */
    predicted predicted;
    step_lines metrics;
    watch watch;                   /* of rank 0 */
    reference reference, held;     /* DPO: reference losses of the training data and of the evaluation data */
    events events;                 /* TensorBoard's copy of the metrics */
    char started[COMMAND_TIME];              /* when this process began, in UTC */
    pt_memory memory[TIERS];       /* of the executor that was closed to make room for samples */
    int memory_n;
};
typedef struct pt_trainer trainer;

static inline const plan *trainer_plan(const trainer *trainer) { return &trainer->planning.result.best.plan; }
/* The part of a step that this rank computes. */
static inline const step_shape *trainer_shape(const trainer *trainer) { return &trainer->own_shape; }
schedule_input trainer_schedules(const trainer *trainer); /* pointers into the trainer */
/* Opens an executor for the plan, and makes the forecast. The engine is EMPTY afterwards. */
int trainer_open_engine(trainer *trainer, pt_error *e);
int trainer_run(trainer *trainer, schedule_kind kind, float loss_scale, pt_error *e);
/* Runs the updates that wait; an error where the engine is TORN. CURRENT afterwards. */
int trainer_drain(trainer *trainer, pt_error *e);
bool trainer_evaluates(const trainer *trainer); /* after the step that is done */
int trainer_memory(const trainer *trainer, pt_memory out[TIERS]); /* of each tier, used or not; their number, 0 without an executor */
int trainer_write_plan(const trainer *trainer, pt_error *e);      /* plan.json, and memory.json with it */

#endif
