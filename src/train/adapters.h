/* adapters.h - a run that trains adapters (model/adapter.h): what its options mean, and what it loads and writes.
 *
 * The base is read from --model, at the beginning and where a run is resumed, and never written; a checkpoint has the adapter in place of
 * the model, and a sum of the base's weights, by which another base is known.
 */
#ifndef PT_TRAIN_ADAPTERS_H
#define PT_TRAIN_ADAPTERS_H

#include "protrain.h"
#include "model/adapter.h"
#include "run/state.h"

struct companions;

/* Gives the model the adapters that the options ask for. */
int adapters_open(const pt_train_options *o, model *m, pt_error *e);
/* The base from `model_dir`, or random (NULL) by the seed; the adapter from a folder, or new (NULL). */
int adapters_load(state *s, const char *model_dir, const char *folder, uint64_t seed, pt_error *e);
/* adapter_config.json, adapter_model.safetensors and the tokenizer's files. `base`: the name of the base model; `mark`: of its weights
 * (model/base_mark.h). */
int adapters_write(state *s, const struct companions *c, const char *folder, const char *base, const char *mark, pt_error *e);

#endif
