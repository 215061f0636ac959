/* step.h - one step of a run, with everything that is due after it: evaluation, metrics, checkpoint, another plan. */
#ifndef PT_STEP_H
#define PT_STEP_H

#include "train/trainer.h"

/* As pt_trainer_step. *hopeless: trying again would fail in the same way. */
int step_take(trainer *trainer, pt_step *step, bool *hopeless, pt_error *e);
/* Sets the fields of `s` about an evaluation; not evaluated: it was stopped. tokens: targets. */
int step_evaluate(trainer *trainer, pt_step *step, int64_t *tokens, pt_error *e);

#endif
