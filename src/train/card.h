/* card.h - README.md of a run's folder: the model card that the Hugging Face hub shows. */
#ifndef PT_CARD_H
#define PT_CARD_H

#include "train/trainer.h"

/* Replaces only one that it wrote. */
int card_write(const trainer *trainer, pt_error *e);

#endif
