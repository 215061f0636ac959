/* step.h - one step of a run, with all that is due after it: evaluation, metrics, checkpoint, another plan. */
#ifndef PT_STEP_H
#define PT_STEP_H

#include "train/trainer.h"

/* As pt_trainer_step. *hopeless: the step would fail again in the same way. */
int step_take(trainer *t, pt_step *s, bool *hopeless, pt_error *e);
/* *whole: it was not stopped. */
int step_evaluate(trainer *t, double *loss, int64_t *tokens, bool *whole, pt_error *e);

#endif
