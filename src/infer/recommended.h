/* recommended.h - how a model's folder says that its text is sampled: generation_config.json. */
#ifndef PT_INFER_RECOMMENDED_H
#define PT_INFER_RECOMMENDED_H

#include "protrain.h"

/* Sets the fields that are PT_OF_MODEL as the file says, else to the usual values; a notice names those of the file. */
int recommended_apply(pt_generate_options *o, pt_error *e);

#endif
