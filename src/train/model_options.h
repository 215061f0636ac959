/* model_options.h - makes the model that the options describe, and the shape of its step. */
#ifndef PT_MODEL_OPTIONS_H
#define PT_MODEL_OPTIONS_H

#include "model/model.h"
#include "model/shape.h"
#include "protrain.h"

struct new_tokens;
/* Opens o->model with its trained parameters and the formats of frozen ones (model.h), and finds whether the frozen parameters came as
 * bf16: from the weights, or from config.json if there are none. `added` (may be NULL) gets the tokens of `add_tokens`, to be closed.
 * labels: of the data, with `task` classify; 0: not known. */
int model_of_options(const pt_train_options *o, int64_t labels, struct new_tokens *added, model **out, pt_error *e);
/* Sequence length, batch and type, as on a CPU; sets o->seq_len. */
int shape_of_options(pt_train_options *o, const model *m, step_shape *shape, pt_error *e);
/* Refuses a sequence that is longer than the model's positions. may_exceed: says so instead. */
int length_of_options(const pt_train_options *o, const model *m, bool may_exceed, pt_error *e);

#endif
