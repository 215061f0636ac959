/* best.h - the best evaluation of a run, by `keep_best`: its checkpoint stays, and its model is exported at the end. Without `keep_best`,
 * the one with the lowest loss, which is only reported. */
#ifndef PT_BEST_H
#define PT_BEST_H

#include "train/trainer.h"

/* What evaluations are compared by. */
double best_value(const pt_train_options *o, const pt_step *step);
/* Call it after each evaluation. */
void best_note(counters *at, const pt_train_options *o, int64_t step, double eval_loss, double value);
bool best_is_now(const trainer *trainer);     /* the step that is done has it, and its checkpoint is to be kept */
bool best_is_earlier(const trainer *trainer); /* the model of an earlier step is to be exported */
bool best_is_past(const trainer *trainer);    /* `patience` ends the run */
int64_t best_due(const trainer *trainer);     /* checkpoints that may still be written for it */
/* After resuming: without its checkpoint, an evaluation of before does not count. Rank 0. */
void best_look_for(trainer *trainer);
/* The same before its model is exported. */
int best_check(trainer *trainer, pt_error *e);
int best_copy(const trainer *trainer, const char *folder, pt_error *e); /* the model of its checkpoint */

#endif
