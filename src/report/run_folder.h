/* run_folder.h - what a run has left in its folder, for a report: metrics.jsonl has to be there, and each of the others only adds
 * to what can be said. A file that is missing or damaged leaves a note.
 *
 *     metrics.jsonl    curves, totals, memory of the tiers
 *     plan.json        what was run, what each layer does
 *     machine.json     the machine
 *     memory.json      what the memory holds, by the same sums that `protrain plan` shows
 *     samples.jsonl    what the model said
 *     trace.json       the last step, as predicted and as it ran
 *
 * However long the run was, this takes about 400 KB: curves are kept as buckets (series.h), medians are of the newest steps.
 */
#ifndef PT_RUN_FOLDER_H
#define PT_RUN_FOLDER_H

#include "report/samples_file.h"
#include "report/series.h"
#include "predict/forecast.h"
#include "report/timeline.h"

#include <jansson.h>

enum { RUN_NOTES = 8 };

typedef struct run_folder {
    char name[256];                     /* the folder's own, without those above it */
    int64_t first_step, last_step;
    int64_t tokens, learned_tokens;     /* seen when the last step was done */
    double first_loss, last_loss, min_loss; /* nats a token */
    int64_t min_loss_step;
    double eval_loss;                   /* the newest; NAN: never evaluated */
    double seconds;                     /* in steps, without evaluations and checkpoints */
    double predicted_step_s;            /* of the last step; NAN: not known */
    recent step_s, tokens_per_s;        /* since the prediction last changed, which it does with the plan and where a run is resumed;
                                           without the first step since then, if there are more: it touches its memory */
    bool only_first;                    /* there are no more yet */
    series loss, eval, grad_norm, lr, step, predicted, speed;
    series chosen, rejected, margin, accuracy, eval_margin, eval_accuracy; /* of a run on pairs */
    double last_margin, last_accuracy, last_eval_margin, last_eval_accuracy; /* NAN: no such run */
    uint64_t peak[TIERS], predicted_bytes[TIERS], budget[TIERS]; /* of the last step; 0: no such tier, or not known */
    bool planned;                       /* plan is there */
    plan plan;
    char machine[96];                   /* "": not known */
    bool parted;                        /* part is there */
    uint64_t part[TIERS][MEMORY_PARTS]; /* they add up to predicted_bytes */
    timeline *timeline;                 /* NULL: no trace */
    said_samples samples;
    char notes[RUN_NOTES][1024];        /* valid UTF-8 */
    int notes_n;
} run_folder;

/* PT_FAILED names the file, the place and the mend: no such folder, metrics.jsonl missing, empty or damaged before its last line. */
int run_folder_read(const char *folder, run_folder **out, pt_error *e);
void run_folder_free(run_folder *r); /* NULL is fine */

double run_step_error(const run_folder *r); /* measured over predicted step, 0.05: it took 5% longer; NAN: not known */

/* New reference, NULL: out of memory. Its keys stand in docs/man/protrain-report.1; what is not known is null. */
json_t *run_folder_json(const run_folder *r);

#endif
