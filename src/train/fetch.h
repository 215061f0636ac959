/* fetch.h - a run of several machines that goes on: those that do not see the checkpoint get it from rank 0. */
#ifndef PT_FETCH_H
#define PT_FETCH_H

#include "train/trainer.h"

/* All ranks call it when they know which checkpoint it is. On each machine that has none of that name, or another one, the first of its
 * ranks writes what rank 0 sends, piece by piece; it appears whole or not at all. */
int fetch_checkpoint(trainer *t, pt_error *e);
/* Whether a name of a checkpoint's file may come from elsewhere: it stays in the folder. */
bool fetch_name_is_safe(const char *name);

#endif
