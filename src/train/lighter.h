/* lighter.h - suggestions for a run that does not fit: options that train less or differently. Each is planned before it is suggested. */
#ifndef PT_LIGHTER_H
#define PT_LIGHTER_H

#include "train/planning.h"

/* Each returns 1: written to `out`, and a plan within the same budgets fits; 0: none does, or it does not apply to the options; negative:
 * an error. For a resumed run only the smaller step would be possible, and resuming refuses it by name. */

/* "--batch-size 2": the largest step that fits (search_smaller_step). */
int lighter_step(const planning *planning, char out[MISFIT_CHANGE_BYTES], pt_error *e);
/* "--train-blocks 8": half, a quarter or an eighth of the layers a turn, or one, the most that fit. */
int lighter_layers(const planning *planning, char out[MISFIT_CHANGE_BYTES], pt_error *e);
/* "--lora 16" or, if that does not fit, "--lora 16 --base nf4"; "--base nf4" if the run already trains adapters or some parameters only. */
int lighter_adapters(const planning *planning, char out[MISFIT_CHANGE_BYTES], pt_error *e);
/* "--optimizer adamw8bit", else "--optimizer apollo_mini", for a run with AdamW. */
int lighter_states(const planning *planning, char out[MISFIT_CHANGE_BYTES], pt_error *e);
/* "--lora 16 --base nf4 --batch-size 1": the lightest options, with a smaller step. */
int lighter_both(const planning *planning, char out[MISFIT_CHANGE_BYTES], pt_error *e);

/* The longest sequence of which a step of one for each rank fits within the budgets, to about 3%; 0: none of LENGTH_GRANULE does. `near`: a
 * guess. */
enum { LENGTH_GRANULE = 1024 };
int lighter_longest(const planning *planning, int64_t near, int64_t *out, pt_error *e);

#endif
