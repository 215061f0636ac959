/* fetch.h - resuming a run on several machines: those that do not see the checkpoint get it from rank 0. */
#ifndef PT_FETCH_H
#define PT_FETCH_H

#include "train/trainer.h"

/* All ranks call it when they know which checkpoint is used. On each machine without that checkpoint, or with another of that name, the
 * first rank writes what rank 0 sends, piece by piece; it appears complete or not at all. */
int fetch_checkpoint(trainer *t, pt_error *e);
/* May a received file name be used? Only if it stays inside the checkpoint's folder. */
bool fetch_name_is_safe(const char *name);

#endif
