/* row_blocks.h - submits the ops that sum gradients of weights over the rows of a unit.
 *
 * Such a sum is accumulated over blocks of gradient_rows() rows, in order, counted from the unit's first row. So a layer may be computed in
 * tiles of whole blocks without any change of the bits (docs/numerics.md).
 */
#ifndef PT_LAYER_ROW_BLOCKS_H
#define PT_LAYER_ROW_BLOCKS_H

#include "device/device.h"
#include "model/shape.h"

void submit_matmul_gradient(queue *q, const step_shape *shape, op_matmul o); /* layout TN: o.k rows */
void submit_bias_gradient(queue *q, const step_shape *shape, op_bias_backward o);
void submit_norm_backward(queue *q, const step_shape *shape, op_norm_backward o);
void submit_gain_backward(queue *q, const step_shape *shape, op_gain_backward o);

#endif
