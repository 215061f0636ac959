/* aside.h - the state in a checkpoint while the memory of the run is planned anew, between two steps. The memory of both plans does not fit
 * at once. */
#ifndef PT_ASIDE_H
#define PT_ASIDE_H

#include "train/trainer.h"

typedef struct aside {
    char path[FILE_PATH_BYTES]; /* of the checkpoint */
    int64_t saved;              /* counters.saved_step before */
    bool wanted;                /* the run has it anyway, and it stays */
} aside;

/* All three on all ranks: before checkpoint_write; after it, copies the checkpoint to ranks that do not see its folder; and after the state
 * was loaded again, removes it, unless it is wanted. */
int aside_begin(aside *a, trainer *trainer, pt_error *e);
int aside_spread(const aside *a, trainer *trainer, pt_error *e);
int aside_end(const aside *a, trainer *trainer, pt_error *e);

#endif
