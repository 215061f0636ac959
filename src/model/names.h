/* names.h - how checkpoints spell the names of their tensors, inside model/ only. */
#ifndef PT_NAMES_H
#define PT_NAMES_H

#include "model/architectures.h"
#include "model/weights.h"

enum { SPELLED_NAME = MODEL_NAME + 32 };

/* `name`, which is a part's own (model.h), in a checkpoint of this naming. */
const char *names_spell(const architecture *a, weights_naming naming, const char *name, char out[SPELLED_NAME]);

/* A tensor's name without what tells that it is of the text part, where that stands there. */
const char *names_of_text(const char *name);

/* True of a tensor that is not of the text part, in a multimodal checkpoint. */
bool names_beside(weights_naming naming, const char *name);

#endif
