/* weights.h - parameters from and to Hugging Face tensors, piece by piece, and random initialisation. */
#ifndef PT_WEIGHTS_H
#define PT_WEIGHTS_H

#include "model/model.h"

struct safetensors;

/* True if the folder has weights (model.safetensors or an index). */
bool weights_present(const char *model_dir);

/* Checks that every part exists with the right shape (a tied model may store either name: the
 * embedding's or lm_head.weight; GPT-2 names come with and without "transformer."), that dtypes are readable;
 * extra tensors that the architecture does not know are an error, except known buffers (attn.bias masks,
 * rotary inv_freq, a tied duplicate). *stored_type is what most of the weights are stored in. */
int weights_check(const model *m, const struct safetensors *st, pt_dtype *stored_type, pt_error *e);

/* out[0 .. n_rows*cols) = rows row0 .. of parameter `index`, as fp32. Bounded memory: `scratch` of
 * scratch_bytes (>= 1 MiB) is all that is used besides `out`. */
int weights_read(const model *m, const struct safetensors *st, int index, int64_t row0, int64_t n_rows, float *out,
                 void *scratch, size_t scratch_bytes, pt_error *e);

/* The architecture's own random initialisation of the same rows (Hugging Face's recipe: normal of
 * initializer_range, GPT-2's scaled residual projections, zeros for biases, ones for norms), from the
 * counter-based generator: element (row, col) depends on (seed, Hugging Face tensor, its logical index) only. */
void weights_init(const model *m, uint64_t seed, int index, int64_t row0, int64_t n_rows, float *out);

#endif
