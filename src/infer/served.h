/* served.h - what a server asks of a generator beyond pt_generator: whole conversations, and how each reply is sampled. */
#ifndef PT_INFER_SERVED_H
#define PT_INFER_SERVED_H

#include "protrain.h"

#include <jansson.h>

/* As pt_generator_say, but of all messages at once, {"role", "content"}; earlier calls are forgotten. `system` of the options is put before
 * messages that do not begin with one. */
int generator_converse(pt_generator *g, const json_t *messages, int64_t max_new_tokens, pt_error *e);

typedef struct reply_sampling { double temperature, top_p; int64_t top_k; uint64_t seed; } reply_sampling;
/* Of the options, or of the model where they leave it to it. */
reply_sampling generator_sampling(const pt_generator *g);
/* From the next text on. */
void generator_sample_as(pt_generator *g, reply_sampling s);

bool generator_is_cut(const pt_generator *g); /* the text ended at its limit of tokens */

#endif
