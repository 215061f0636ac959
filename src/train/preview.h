/* preview.h - the first examples as they are trained, for people. */
#ifndef PT_PREVIEW_H
#define PT_PREVIEW_H

#include "data/dataset.h"

/* The first n examples in the order of the run (with `pairs`, both replies are one), or of a stream the beginnings of its first windows, at
 * most 300 tokens of each, in the form of pt_trainer_preview. Control characters of the data but newlines are dots. *out is malloc'ed. */
int preview_make(dataset *data, const tokenizer *tok, int64_t seq_len, int64_t n, bool pairs, char **out, pt_error *e);

#endif
