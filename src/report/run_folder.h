/* run_folder.h - reads a run's folder for a report. metrics.jsonl is required; each of the other files adds something. A missing or damaged
 * file leaves a note.
 *
 *     metrics.jsonl    curves, totals, memory of the tiers
 *     summary.json     the settings, the command, the time
 *     plan.json        the plan, what each layer does
 *     machine.json     the machine
 *     memory.json      the contents of the memory, as in `protrain plan`
 *     samples.jsonl    texts of the model
 *     trace.json       the last step, predicted and measured
 *
 * However long the run was, this takes about 400 KB: curves are kept as buckets (series.h), medians are of the newest steps.
 */
#ifndef PT_RUN_FOLDER_H
#define PT_RUN_FOLDER_H

#include "report/metrics_file.h"
#include "report/samples_file.h"
#include "report/series.h"
#include "predict/forecast.h"
#include "report/timeline.h"

#include <jansson.h>

enum { RUN_NOTES = 8, RUN_WARNINGS = 8 };

typedef struct run_folder {
    char name[256];                     /* the folder's own name, without its parents */
    int64_t first_step, last_step;
    int64_t tokens, learned_tokens;     /* at the end of the last step */
    double first_loss, last_loss, min_loss; /* nats per token */
    int64_t min_loss_step;
    double eval_loss, best_eval_loss;   /* the newest and the lowest; NAN: never evaluated */
    int64_t best_step;                  /* of the lowest; 0: never evaluated */
    json_t *summary;                    /* an object; NULL: there is none */
    char checkpoints[256];              /* their steps: "10, 20, 30" */
    double seconds;                     /* in steps, without evaluations and checkpoints */
    double predicted_step_s;            /* of the last step; NAN: unknown */
    recent step_s, tokens_per_s;        /* since the prediction last changed (by a new plan or a resume),
                                           without the first step after that, if there are more: it touches its memory */
    bool only_first;                    /* there is only that first step yet */
    series loss, eval, grad_norm, lr, step, predicted, speed;
    series chosen, rejected, margin, accuracy, eval_margin, eval_accuracy; /* of a run on pairs */
    double last_margin, last_accuracy, last_eval_margin, last_eval_accuracy; /* NAN: no such run */
    series right, eval_right;           /* of a run on classes */
    double last_right, last_eval_right; /* NAN: no such run */
    series kl, eval_kl;                 /* of a run on labelled replies */
    double last_kl;                     /* NAN: no such run */
    series expert_load, experts_idle, aux_loss; /* of a model with experts */
    double last_load, last_idle;        /* NAN: the model has none */
    uint64_t peak[TIERS], predicted_bytes[TIERS], budget[TIERS]; /* of the last step; 0: no such tier, or not known */
    bool planned;                       /* `plan` is set */
    plan plan;
    char machine[96];                   /* "": unknown */
    bool parted;                        /* `part` is set */
    uint64_t part[TIERS][MEMORY_PARTS]; /* their sums are predicted_bytes */
    timeline *timeline;                 /* NULL: no trace */
    said_samples samples;
    char warnings[RUN_WARNINGS][METRICS_WARNING_BYTES]; /* valid UTF-8, like the notes */
    int warnings_n;
    char notes[RUN_NOTES][1024];
    int notes_n;
} run_folder;

/* PT_FAILED names the file, the place and the fix: no such folder, metrics.jsonl missing, empty or damaged before its last line. */
int run_folder_read(const char *folder, run_folder **out, pt_error *e);
void run_folder_free(run_folder *rf); /* accepts NULL */

double run_step_error(const run_folder *rf); /* relative error of the prediction; 0.05: the step took 5% longer; NAN: unknown */

/* New reference, NULL: out of memory. docs/man/protrain-report.1 lists its keys; unknown values are null. */
json_t *run_folder_json(const run_folder *rf);

#endif
