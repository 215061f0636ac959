/* adapters.h - runs that train adapters (model/adapter.h): their options, and what they load and write.
 *
 * The base is read from --model when a run begins or resumes, and is never written. A checkpoint has the adapter instead of the model, and
 * a checksum of the base's weights, so that another base is refused.
 */
#ifndef PT_TRAIN_ADAPTERS_H
#define PT_TRAIN_ADAPTERS_H

#include "protrain.h"
#include "model/adapter.h"
#include "run/state.h"

struct companions;

/* Adds the adapters that the options ask for to the model. */
int adapters_open(const pt_train_options *o, model *m, pt_error *e);
/* Loads the base from `model_dir`, or at random (NULL) from the seed; the adapter from a folder, or a new one (NULL). */
int adapters_load(state *state, const char *model_dir, const char *folder, uint64_t seed, pt_error *e);
/* adapter_config.json, adapter_model.safetensors and the tokenizer's files. `base`: the name of the base model; `mark`: of its weights
 * (model/base_mark.h). */
int adapters_write(state *state, const struct companions *companions, const char *folder, const char *base, const char *mark, pt_error *e);

#endif
