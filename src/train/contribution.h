/* contribution.h - how much the training of each tensor would lower the loss at first, measured with the model as it is.
 *
 * A few steps of a run go forward and backward through the user's data without changing a weight. g_1 .. g_N are their gradients, m the
 * mean of g, v the mean of g^2. A step of AdamW with the learning rate lr moves a weight by -lr m / (sqrt(v) + eps) once its moments have
 * settled, so it lowers the loss by lr times
 *
 *     contribution of a tensor = sum over its weights of  s / (sqrt(v) + eps),  s = (N m^2 - v) / (N - 1)
 *
 * to first order. s is the square of the expected gradient, without bias: m^2 is larger by the noise of N gradients. The contributions of
 * several tensors add up. One below 0 is noise alone.
 */
#ifndef PT_CONTRIBUTION_H
#define PT_CONTRIBUTION_H

#include "model/model.h"
#include "protrain.h"

enum { CONTRIBUTION_STEPS = 16, CONTRIBUTION_STEPS_LEAST = 2, CONTRIBUTION_STEPS_MOST = 1000 };

/* Sets out[i] for each trained parameter of a model of these options, 0 for others. Writes into a folder of its own, which is removed. The
 * memory is that of a run of these options with AdamW. */
int contributions_measure(const pt_train_options *o, const model *m, int64_t steps, double *out, pt_error *e);

#endif
