/* groups.h - attention of long sequences by groups of heads.
 *
 * A head of attention needs all rows of its own q, k and v, and of no other head's. In a sequence of more than shape.whole_heads tokens,
 * where attention takes most of the time, the steps from the norm to attention run once for each group of heads, one group after the
 * other: q, k and v, their gradients and the sums of attention's backward exist for one group alone. A group is some heads of k and v,
 * and the heads of q that read them. There are as many groups as keep one from taking more than all heads of shape.whole_heads tokens,
 * while there are heads.
 *
 *   forward    for each group [norm linear head_norm rotate] attention, into its columns of attention's output
 *   backward   for each group [norm linear head_norm rotate] attention' [rotate' head_norm' linear' norm' weights']
 *
 * q, k and v are never saved then: backward makes those of a group again. The norm's backward is linear in the gradient of its output, so
 * it runs for each group, too, and adds to the gradient of the layer's input. The number of groups follows from model and shape alone,
 * and so do the bits.
 */
#ifndef PT_LAYER_GROUPS_H
#define PT_LAYER_GROUPS_H

#include "layer/program.h"

/* Groups of heads of a layer, a divisor of its heads of k and v; 1: all heads together. */
int layer_groups(const model *m, int layer, const step_shape *shape);
/* The first stage that runs for each group; the last one is the layer's attention. */
int layer_first_of_group(const layer_program *program, int attention);

attention_heads group_heads(attention_heads all, int groups);
qkv_columns group_columns(const model_config *config, int layer, int groups);

#endif
