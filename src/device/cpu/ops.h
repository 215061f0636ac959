/* ops.h - the CPU's ops: each runs one op to its end on a pool. None can fail. Shapes and meaning: device.h. */
#ifndef PT_CPU_OPS_H
#define PT_CPU_OPS_H

#include "device/cpu/pool.h"
#include "device/device.h"

void cpu_matmul(pool *p, const op_matmul *o);
void cpu_bias_backward(pool *p, const op_bias_backward *o);
void cpu_norm(pool *p, const op_norm *o);
void cpu_norm_backward(pool *p, const op_norm_backward *o);
void cpu_rope(pool *p, const op_rope *o);
void cpu_attention(pool *p, const op_attention *o);
void cpu_attention_backward(pool *p, const op_attention_backward *o);
void cpu_activation(pool *p, const op_activation *o);
void cpu_activation_backward(pool *p, const op_activation_backward *o);
void cpu_embedding(pool *p, const op_embedding *o);
void cpu_embedding_backward(pool *p, const op_embedding_backward *o);
void cpu_cross_entropy(pool *p, const op_cross_entropy *o);
void cpu_gradient_finish(pool *p, const op_gradient_finish *o);
void cpu_adamw(pool *p, const op_adamw *o);
void cpu_adamw8bit(pool *p, const op_adamw8bit *o);
void cpu_muon_momentum(pool *p, const op_muon_momentum *o);
void cpu_muon_scale(pool *p, const op_muon_scale *o);
void cpu_muon_combine(pool *p, const op_muon_combine *o);
void cpu_muon_apply(pool *p, const op_muon_apply *o);

#endif
