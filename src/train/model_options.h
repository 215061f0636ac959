/* model_options.h - the model that options name, and the shape of the step that they ask for. */
#ifndef PT_MODEL_OPTIONS_H
#define PT_MODEL_OPTIONS_H

#include "model/model.h"
#include "model/shape.h"
#include "protrain.h"

/* o->model with what is trained of it and how the rest is kept (model.h), and whether the frozen parameters came as bf16: by its weights,
 * or by what its config.json says where there are none. */
int model_of_options(const pt_train_options *o, model **out, pt_error *e);
/* Sequence length, batch and type, as on a CPU; o->seq_len is filled in. */
int shape_of_options(pt_train_options *o, const model *m, step_shape *s, pt_error *e);

#endif
