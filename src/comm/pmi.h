/* pmi.h - what MPICH's mpirun (hydra), and those of its family, tell the processes that they start: the first version of PMI's protocol,
 * lines of text over a descriptor that PMI_FD names. Of it only this is used: a name for the job, and one word from rank 0 to all. */
#ifndef PT_PMI_H
#define PT_PMI_H

#include "base/error.h"

enum { PMI_WORD_BYTES = 256 };

/* job: the same on all ranks of the job, and on no other's. word: rank 0's, to all; all ranks call it once. */
int pmi_exchange(int fd, int rank, char job[PMI_WORD_BYTES], char word[PMI_WORD_BYTES], pt_error *e);
/* The value of "KEY=" in a line of such pairs, "" if there is none. */
void pmi_value(const char *line, const char *key, char *out, size_t room);

#endif
