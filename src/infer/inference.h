/* inference.h - a model that is only run forward, token by token: all weights in memory, and the keys and values of
 * the tokens so far, so that a new token costs one row and not the whole sequence again.
 *
 *   weights   [param 0][param 1] ...                    compute type, every parameter from a multiple of 64 bytes
 *   work      [x][workspace of a layer][last row, normed][logits][ids, positions]     INFERENCE_ROWS rows
 *   gains     of DoRA's adapters, measured once behind loading
 *   cache     [layer 0: k and v of position 0, of position 1 ... context - 1][layer 1] ... [rotary table]
 *
 * The first two are one arena, taken at open; the cache is another, taken for as many tokens as the caller says.
 * The blocks are those of training (block.h), a row's result is the same. Tokens are taken in parts of
 * INFERENCE_ROWS; the loop over them allocates nothing.
 */
#ifndef PT_INFERENCE_H
#define PT_INFERENCE_H

#include "device/device.h"
#include "model/model.h"

enum { INFERENCE_ROWS = 256 };

struct safetensors;
typedef struct inference inference;

/* type: PT_F32 or PT_BF16. threads 0: the device's default. The model and the device outlive it. */
int inference_open(const model *m, device *d, pt_dtype type, int threads, inference **out, pt_error *e);
void inference_close(inference *x);

/* Memory for a context of so many tokens, that of loading included. */
uint64_t inference_bytes(const model *m, pt_dtype type, const device *d, int64_t context);

/* Weights from a Hugging Face folder, by all threads; st NULL: random ones from `seed`. `progress` (may be NULL) is
 * called from the caller's thread with bytes of weights. adapter: of the model's adapters, NULL where it has none. */
int inference_load(inference *x, const struct safetensors *st, const struct safetensors *adapter, uint64_t seed,
                   void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, pt_error *e);

/* Starts a sequence of at most `context` tokens. Of the one before, the first *kept tokens (NULL: none) are its beginning, and what
 * inference_feed gets goes on behind them; 0 comes back where they could not be kept, because the memory for the context was taken anew. */
int inference_begin(inference *x, int64_t context, int64_t *kept, pt_error *e);

/* The next n tokens of the sequence (ids below the vocabulary's size, no more than the context has room for), and
 * what they say of the one behind them: logits (V), valid until the next call. */
int inference_feed(inference *x, const int32_t *ids, int64_t n, const float **logits, pt_error *e);

/* Bytes of weights that a decoded token reads: all but the tables of which it takes one row. */
uint64_t inference_weight_bytes(const inference *x);

#endif
