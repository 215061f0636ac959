/* lighter.h - for what does not fit: less to keep at a time. Options that change what is learned, each planned before it is said. */
#ifndef PT_LIGHTER_H
#define PT_LIGHTER_H

#include "train/planning.h"

/* Of each, 1: written to `out`, and a plan within the same budgets fits; 0: none does, or what was asked for has no such way; negative: an
 * error. Of a run that is resumed only the step would differ, which is refused there by name. */

/* "--batch-size 2": the largest step that fits (search_smaller_step). */
int lighter_step(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e);
/* "--train-only 'model.layers.2[4-9].*'": the most of the last half, quarter, eighth of the layers, or the last, that fits. */
int lighter_layers(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e);
/* "--lora 16" or, where that does not fit, "--lora 16 --base nf4"; "--base nf4" where adapters or some parameters alone are trained. */
int lighter_adapters(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e);
/* "--optimizer adamw8bit", of a run with AdamW. */
int lighter_states(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e);
/* "--lora 16 --base nf4 --batch-size 1": the lightest with a smaller step. */
int lighter_both(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e);

#endif
