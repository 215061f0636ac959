/* setup.h - from options to a run before its first step. */
#ifndef PT_SETUP_H
#define PT_SETUP_H

#include "train/trainer.h"

/* trainer->job.o must be set. The engine is CURRENT afterwards. */
int trainer_setup(trainer *trainer, pt_error *e);
/* Plans for the parameters that are trained now, in what is known of the machine. The engine must be CLOSED. */
int trainer_plan_again(trainer *trainer, pt_error *e);

#endif
