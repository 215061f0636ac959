/* samples.h - what the model says before and after training, to the prompts of --sample.
 *
 * Text is generated while no memory is taken for training: before the plan is made, and after the model is written, when the
 * executor is closed. It takes nothing from the run, and where the model does not fit alone, as inference holds it, a line says so and
 * the run goes on. */
#ifndef PT_TRAIN_SAMPLES_H
#define PT_TRAIN_SAMPLES_H

#include "train/trainer.h"

/* Of the model that was given (with the adapter that the run goes on from), or of what was trained (the model that was written, or the
 * adapter beside the model that was given); after the steps that are done, into samples.jsonl. Of chats each prompt is what a user says. */
void samples_take(trainer *t, bool trained);

#endif
