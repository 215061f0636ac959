/* sequences.h - loads the sequences of a step of which a rank has rows: its own, or its parts of one that it shares with other ranks. */
#ifndef PT_SEQUENCES_H
#define PT_SEQUENCES_H

#include "data/dataset.h"
#include "run/executor.h"

/* Loads sequence 0 .. shape_sequences() - 1 of the step into a whole row. */
typedef int sequence_loader(void *arg, uint64_t sequence, const dataset_row *row, dataset_counts *counts, pt_error *e);
/* Into the executor's inputs. counts: a sequence counts on the rank that has its first rows. */
int sequences_load(executor *exec, sequence_loader *load, void *arg, dataset_counts *counts, pt_error *e);

#endif
