/* task.h - tasks of training, one file each: what a run learns from its data (docs/adding-a-task.md).
 *
 * Data, batches, losses, metrics and settings follow from the row of the task. Its formulas are those of device/preference.h. */
#ifndef PT_TASK_H
#define PT_TASK_H

#include "device/device.h"
#include "protrain.h"

typedef enum task_plane {  /* what the batch has for each target, besides the target itself */
    TASK_PLANE_NONE,
    TASK_PLANE_REFERENCE,  /* its loss under the model before training, computed before the first step */
    TASK_PLANE_MARGIN,     /* the margin of its pair, "margin" in the record, on the chosen reply; else 0 */
    TASK_PLANE_OWN         /* chosen replies and their prompts: 1 / the mean number of such targets of a pair, negative in prompts, whose
                            * tokens are targets too; rejected replies: 0 */
} task_plane;

enum { TASK_READS_BETA = 1, TASK_READS_GAMMA = 2, TASK_READS_DPO_LOSS = 4, TASK_READS_LABEL_WEIGHTS = 8, TASK_READS_SMOOTHING = 16,
       TASK_READS_CENTER = 32 };

typedef enum task_scores { SCORES_NONE, SCORES_ONE /* a number */, SCORES_LABELS /* of each label */ } task_scores;

typedef struct train_task {
    const char *name;  /* as for --task */
    bool pairs;        /* an example is a chosen and a rejected reply, and metrics are the rewards of both; else the loss of each target */
    task_scores scores; /* a head scores whole examples by their last token, instead of predicting tokens */
    bool labels;       /* pairs, of which one reply may be missing: the other is labelled as desirable, or as undesirable. The mean loss is
                        * over replies; the step's baseline is computed before it (docs/preferences.md) */
    task_plane plane;
    unsigned reads;    /* options that only some tasks read */
    double lr;         /* the default; 0: that of the model */
    preference_rule (*rule)(const pt_train_options *o); /* of the pairs; NULL: none */
} train_task;

extern const train_task task_sft, task_dpo, task_orpo, task_simpo, task_kto, task_reward, task_classify;
extern const train_task *const train_tasks[];
extern const int train_tasks_n;

static inline const train_task *task_of(const pt_train_options *o) { return train_tasks[o->task]; }
preference_rule task_rule(const pt_train_options *o);

#endif
