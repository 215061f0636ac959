/* pmi.h - asks mpirun of MPICH (hydra), or of an MPI of its family, for the job's name, and passes one word from rank 0 to all ranks. The
 * protocol is version 1 of PMI: lines of text over the descriptor in PMI_FD. */
#ifndef PT_PMI_H
#define PT_PMI_H

#include "base/error.h"

enum { PMI_WORD_BYTES = 256 };

/* job: its name, different for every job. word: rank 0's, which the others receive. All ranks call this once. */
int pmi_exchange(int fd, int rank, char job[PMI_WORD_BYTES], char word[PMI_WORD_BYTES], pt_error *e);
/* The value of "KEY=" in a line of such pairs; "" if there is none. */
void pmi_value(const char *line, const char *key, char *out, size_t room);

#endif
