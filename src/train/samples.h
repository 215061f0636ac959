/* samples.h - what the model writes before and after training, for the prompts of --sample.
 *
 * Text is generated while no memory is allocated for training: before planning, and after the model is written and the executor closed.
 * It does not affect the run. If the model does not fit inference by itself, a notice says so, and the run continues. */
#ifndef PT_TRAIN_SAMPLES_H
#define PT_TRAIN_SAMPLES_H

#include "train/trainer.h"

/* Samples from the given model (with the adapter that the run continues), or from the trained one (the written model, or the adapter with
 * its base), after the completed steps, into samples.jsonl. If the data are chats, each prompt is a user's message. */
void samples_take(trainer *trainer, bool trained);

#endif
