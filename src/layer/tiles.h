/* tiles.h - the steps of a layer that run in tiles of rows, and the regions that hold one tile.
 *
 * A unit of a long sequence has far more rows than keep a processor busy. Neighbouring steps whose stages work row by row form a run: it
 * computes one tile of rows after the other, each through all of its steps. A region that no other step uses holds one tile; the others
 * hold all rows. So the workspace grows with the length only by what attention, scans and the routing of experts read and write.
 *
 *   [norm linear rotate] attention [linear norm linear activation linear]
 *
 * Steps that run once for each group of heads (groups.h) are runs of their own.
 *
 * Gradients of weights are summed over the same blocks of rows in any case (row_blocks.h): a tile never changes the bits of a step.
 */
#ifndef PT_LAYER_TILES_H
#define PT_LAYER_TILES_H

#include "layer/program.h"

/* Of these steps, in order; out->group is given. Nothing runs by tiles if a unit is one tile. */
void layer_tiles_find(layer_tiles *out, const layer_program *program, const step_shape *shape, const layer_step *steps, int n);

/* The first step of the run that step i belongs to, and the step after its last. The same of neighbouring steps that run for each group of
 * heads, or that do not. */
int layer_run_begin(const layer_tiles *t, int i);
int layer_run_end(const layer_tiles *t, int n, int i);
int layer_groups_begin(const layer_tiles *t, int i);
int layer_groups_end(const layer_tiles *t, int n, int i);
/* Does the step make the region's tensor anew, whatever was in it? */
bool layer_makes(const layer_program *program, layer_step step, int region);

#endif
