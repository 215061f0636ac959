/* lighter.h - for what does not fit: the same step with less to keep. Options that change what is learned, each planned before it is
 * said. */
#ifndef PT_LIGHTER_H
#define PT_LIGHTER_H

#include "train/planning.h"

/* "`train_only` 'model.layers.2[4-9].*'": the most of the last half, quarter, eighth of the layers, or the last, that fits. 1: written to
 * `out`, 0: none fits, or what is trained was chosen already; negative: an error. */
int lighter_layers(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e);
/* "`optimizer` adamw8bit", of a run with AdamW. */
int lighter_states(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e);

#endif
