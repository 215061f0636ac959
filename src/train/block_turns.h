/* block_turns.h - training some layers at a time (`train_blocks` N, `switch_every` K; Luo, Yu and Li, BAdam, 2024).
 *
 *   steps    1 ... K | K + 1 ... 2 K | ...
 *   layers   6, 7    | 0, 1          | ...     groups of N neighbouring layers; each pass takes all of them, in an order of its own
 *
 * Everything outside the group is frozen, so optimizer states and gradients exist for one group alone. A group's states begin at zero with
 * its turn, and so does the optimizer's count of steps; the learning rate goes on. Weights that came as bf16 are rounded to it when their
 * turn ends, as the run saves them; others keep their fp32 masters.
 *
 * A turn is planned like a run: between two steps the weights pass through files (turn_files.h), memory is freed, and the engine opens with
 * the plan of the next group. A run that is resumed is in the same state, whether it stopped in a turn or between two. Before the first
 * step every group is known to fit.
 *
 * The functions do nothing, or what they do for one group of all layers, where `train_blocks` is 0.
 */
#ifndef PT_BLOCK_TURNS_H
#define PT_BLOCK_TURNS_H

#include "train/trainer.h"

int block_turns_groups(const pt_train_options *o, const model *m);
/* The group that is trained in the step after `step` steps. */
int block_turns_group(const pt_train_options *o, const model *m, int64_t step);
/* Freezes what `freeze` and `train_only` say, and all but the layers of a group. */
int block_turns_freeze(const pt_train_options *o, model *m, int group, pt_error *e);
/* The same for the first group, which takes the longest steps. PT_USAGE: more layers than there are, or nothing to train in a group. */
int block_turns_begin(const pt_train_options *o, model *m, pt_error *e);
/* After planning_make, for group `now`: does every group fit? */
int block_turns_check(const pt_train_options *o, planning *planning, model *m, int now, pt_error *e);

/* The group of the step that comes next. */
int block_turns_take(trainer *trainer, pt_error *e);
/* The checkpoint of counters.step is from the end of a turn, so that its states are another group's. */
bool block_turns_start(const trainer *trainer);
/* Steps since the states were zero, if `step` is the number of this one. */
int64_t block_turns_step(const trainer *trainer, int64_t step);
int64_t block_turns_first_layer(const trainer *trainer); /* of the group that is trained now; -1: there are no turns */
/* 1: the run will write as much as a checkpoint between its turns. */
int64_t block_turns_due(const trainer *trainer);
/* Before a step, on all ranks: changes to the next group if its turn begins. */
int block_turns_switch(trainer *trainer, pt_error *e);

#endif
