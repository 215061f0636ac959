/* inference.h - token-by-token forward of a model, with a KV cache of the tokens so far, so that a new token costs one row instead of the
 * whole sequence. Weights of layers that do not fit pass through the device (streamed.h); the tokens are the same.
 *
 *   weights   [param 0][param 1] ...                    compute type or few bits, each parameter at a multiple of 64 bytes
 *   slots     for the weights of two streamed layers
 *   work      [x][workspace of a layer][last row, normed][logits][ids, positions]     of the rows computed together
 *   rows      of the table of layers' inputs, which stays in host memory beside a GPU
 *   gains     of DoRA's adapters, computed once after loading
 *   cache     [layer 0: k and v of position 0, of position 1 ... context - 1][layer 1] ... [rotary table][states]
 *   slots     of caches in host memory
 *
 * Weights, work and gains are one arena, allocated at open; cache and slots are another, for as many tokens as the caller says. Caches that
 * do not fit beside a GPU's weights pass through the device, too (host_cache.h). The blocks are those of training (block.h), and a row has
 * the same result. Tokens are processed in parts of INFERENCE_ROWS, or of INFERENCE_ROWS_FETCHED where each part may fetch weights or
 * caches; that loop allocates nothing. A GPU always takes the larger parts, so that its bits do not depend on what is fetched.
 */
#ifndef PT_INFERENCE_H
#define PT_INFERENCE_H

#include "device/device.h"
#include "model/model.h"

enum { INFERENCE_ROWS = 256, INFERENCE_ROWS_FETCHED = 1024 };

/* Layers whose KV caches are in host memory, beside a GPU; and into how many blocks of heads each is divided at least, if it has as many
 * heads of k and v. {0}: all are on the device. */
typedef struct cache_plan { int away, blocks; } cache_plan;

struct safetensors;
typedef struct inference inference;

struct stream_place;

/* type: PT_F32 or PT_BF16. threads 0: the device's default. streamed: so many layers do not stay on the device, but are put where `place`
 * says (streamed.h); NULL with 0. The model and the device must outlive it. */
int inference_open(const model *m, device *d, pt_dtype type, int threads, int streamed, const struct stream_place *place, inference **out,
                   pt_error *e);
void inference_close(inference *infer);

/* Memory for a context of so many tokens, including that for loading. */
uint64_t inference_bytes(const model *m, pt_dtype type, const device *d, int streamed, int64_t context, cache_plan cache);
/* Host memory for the caches that are there, and in *fetched what of them passes through the device for a token at the context's end. */
uint64_t inference_cache_bytes(const model *m, pt_dtype type, const device *d, int64_t context, cache_plan cache, uint64_t *fetched);
/* Layers that have a cache, and the most heads of k and v of one. */
int inference_cache_layers(const model *m);
int inference_cache_blocks(const model *m);
/* Of the host's memory beside a GPU: for the table of layers' inputs, which stays there. 0: the model has none. */
uint64_t inference_host_bytes(const model *m, pt_dtype type, const device *d, int streamed);
/* Tokens that are fed together. */
int64_t inference_rows(const inference *infer);
/* After loading: the time in which the weights that do not stay are fetched once, measured; 0: all stay. */
int inference_fetch_s(inference *infer, double *seconds, pt_error *e);

/* Loads weights from a Hugging Face folder, with all threads; st NULL: random ones from `seed`. `progress` (may be NULL) is called from the
 * caller's thread with bytes of weights. adapter: file of the model's adapters, NULL if it has none. */
int inference_load(inference *infer, const struct safetensors *st, const struct safetensors *adapter, uint64_t seed,
                   void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, pt_error *e);

/* Starts a sequence of at most `context` tokens, whose cache is where `cache` says, unless one for as many tokens is there. If kept is not
 * NULL, the new sequence begins with the first *kept tokens of the last one, and inference_feed continues after them. *kept becomes smaller
 * if fewer could be kept: 0 if the cache was allocated again, and at most the length of the last prompt if layers keep a state, which
 * cannot be cut back to any other place. */
int inference_begin(inference *infer, int64_t context, cache_plan cache, int64_t *kept, pt_error *e);
/* The tokens that the cache has room for, and where it is. */
int64_t inference_context(const inference *infer);
cache_plan inference_cache(const inference *infer);
/* Before the first token: the time in which caches in host memory are fetched once when they are full, measured. */
int inference_cache_s(inference *infer, double *seconds, pt_error *e);

/* Feeds the next n tokens of the sequence (ids below the vocabulary's size, within the context), and returns the logits (V) for the token
 * after them, valid until the next call. */
int inference_feed(inference *infer, const int32_t *ids, int64_t n, const float **logits, pt_error *e);

/* The same, and the logits after each of them in `all` (n x V). */
int inference_feed_all(inference *infer, const int32_t *ids, int64_t n, float *all, pt_error *e);

uint64_t inference_params_bytes(const model *m, pt_dtype type); /* of all weights */
/* Bytes of weights that decoding a token reads: all except the tables, of which it reads one row. */
uint64_t inference_weight_bytes(const inference *infer);

#endif
