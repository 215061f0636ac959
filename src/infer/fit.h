/* fit.h - what of a generator's weights and KV cache stays on the device.
 *
 * Weights and KV cache of the whole context are on the device if they fit. If not, the caches of some layers are in host memory (on a GPU
 * with memory of its own), the weights of some layers are fetched, or both: whichever is the least to fetch for a token at the context's
 * end.
 */
#ifndef PT_INFER_FIT_H
#define PT_INFER_FIT_H

#include "infer/generator.h"

/* false: the context does not fit. */
bool fit_find(const pt_generator *g, int64_t context, generator_fit *out);
/* The cache's place beside the weights of `fit`, as they are loaded. false: the context does not fit there. */
bool fit_cache(const pt_generator *g, const generator_fit *fit, int64_t context, cache_plan *out);

/* PT_DOES_NOT_FIT: for a context that does not fit, and if the host has no room for what is always there. */
int fit_refuse(const pt_generator *g, int64_t context, pt_error *e);
int fit_check_host(const pt_generator *g, pt_error *e);

const char *generator_disk_folder(const pt_generator *g);

#endif
