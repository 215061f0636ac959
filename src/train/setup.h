/* setup.h - from options to a run before its first step. */
#ifndef PT_SETUP_H
#define PT_SETUP_H

#include "train/trainer.h"

/* t->job.o must be set. The engine is CURRENT afterwards. */
int trainer_setup(trainer *t, pt_error *e);

#endif
