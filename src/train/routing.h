/* routing.h - how evenly the experts of a model were used in a step. */
#ifndef PT_ROUTING_H
#define PT_ROUTING_H

#include "train/trainer.h"

/* Sets the step's expert_load_max, experts_idle and aux_loss, from the executor's rows of all ranks. */
void routing_measure(const trainer *trainer, pt_step *step);

#endif
