/* fetch.h - resuming a run whose ranks have different folders: those that do not see the checkpoint get it from rank 0. */
#ifndef PT_FETCH_H
#define PT_FETCH_H

#include "train/trainer.h"

/* All ranks call it when they know which checkpoint is used. In each folder without that checkpoint, or with another of that name, a rank
 * writes what rank 0 sends, piece by piece; it appears complete or not at all. Machines are served at once, the folders of one machine
 * one after another. */
int fetch_checkpoint(trainer *trainer, pt_error *e);
/* May a received file name be used? Only if it stays inside the checkpoint's folder. */
bool fetch_name_is_safe(const char *name);

#endif
