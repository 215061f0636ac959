/* turn_files.h - the weights of a run that trains its layers by turns, in files while its memory is planned anew (block_turns.h).
 *
 *   OUT/turns/STEP/model.safetensors     the layers that a turn, which ended after STEP steps, has trained, as they go on frozen
 *   OUT/turns/STEP/always/KIND.safetensors   masters and states of what every turn trains; they are of the last turn alone
 *   the base                             everything else: the model that the run began with, or the checkpoint that it continues
 *
 * So a turn writes the weights of its own layers, not the model. A layer's newer file replaces its older one. The files are open while the
 * run goes on, so that a base may be removed meanwhile, and the folder is removed when the run ends. They are no checkpoint: a run that was
 * killed continues from its newest one. Several ranks, which may not see one folder, write a checkpoint for each turn instead.
 */
#ifndef PT_TURN_FILES_H
#define PT_TURN_FILES_H

#include "train/trainer.h"

/* After the state was loaded. */
int turn_files_open(trainer *trainer, pt_error *e);
/* At the end of a turn, in CURRENT: the layers that are trained. */
int turn_files_write(trainer *trainer, pt_error *e);
/* Into an engine that is EMPTY, with other layers trained; it is CURRENT afterwards. */
int turn_files_load(trainer *trainer, pt_error *e);
void turn_files_close(trainer *trainer);

#endif
