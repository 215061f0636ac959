/* names.h - how checkpoints spell the names of their tensors, inside model/ only. */
#ifndef PT_NAMES_H
#define PT_NAMES_H

#include "model/architectures.h"
#include "model/weights.h"

enum { SPELLED_NAME = MODEL_NAME + 32 };

/* Spells the name of a part (model.h) as a checkpoint of this naming does. */
const char *names_spell(const architecture *arch, weights_naming naming, const char *name, char out[SPELLED_NAME]);

/* A tensor's name without the prefix or infix that marks the text part of a multimodal model, if it has one. */
const char *names_of_text(const char *name);

/* Is the tensor of a multimodal checkpoint outside the text part? */
bool names_beside(weights_naming naming, const char *name);

#endif
