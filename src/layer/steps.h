/* steps.h - what a layer computes in a step, and what it saves. */
#ifndef PT_LAYER_STEPS_H
#define PT_LAYER_STEPS_H

#include "layer/program.h"

/* Of a layout with its program and groups: forward, backward, saved, rounded, coded, and the groups of the tiles. */
void layer_steps_find(layer_layout *layout, const step_shape *shape, save_level level);
/* Does forward save the tensor's codes after its last step that reads the layer's input? */
bool layer_is_kept_late(const layer_layout *layout, int tensor);

#endif
