/* commits.h - the disk tier as a checkpoint. With `disk_slots` 2, a step leaves its weights and states in the other of two slots of a file
 * (run/slots.h), and one record commits them. A run that is killed, or loses power, continues from its newest commit as from a checkpoint.
 *
 *   OUT/committed/states.json           {"file": path of the file with the slots}: in `disk_path`, relative if it is below OUT
 *   OUT/committed/trainer/trainer.json  as in a checkpoint; from the record, when a run continues from it
 *
 * Chunks that the plan keeps in memory are written at a commit, too. So that they add no more than a twentieth to what steps write to the
 * disk, a commit is then due only every so many steps.
 *
 * If the updates of step k wait for the next step, its state is on the disk when step k + 1 has run, and is committed then.
 */
#ifndef PT_COMMITS_H
#define PT_COMMITS_H

#include "io/files.h"
#include "run/slots.h"

struct pt_trainer;
struct output;

#define COMMITS_FOLDER "committed"

typedef struct commits {
    slots *slots;              /* NULL: states have one slot */
    bool created;              /* the file is not that of `states.json` yet */
    char old[FILE_PATH_BYTES]; /* a file that goes when this one has a commit; "": none */
    int64_t step;              /* of the newest commit in this file, or -1 */
    int64_t every;             /* steps from one to the next */
    uint64_t frozen;           /* checksum of the weights that are not trained */
} commits;

/* In the folder out->path: the newest commit, if it is of a later step than `after`, becomes what the run continues from. */
int commits_find(struct output *out, int64_t after, pt_error *e);
/* On other ranks than 0, which have its out->from: the same commit. PT_FAILED: they do not see it. */
int commits_find_too(struct output *out, pt_error *e);
/* Bytes of the file that an earlier process left, which this run replaces. */
uint64_t commits_found_bytes(const char *out);
/* Before the engine is opened, on all ranks: decides whether states have two slots, and opens their file. PT_DOES_NOT_FIT: `disk_slots` is
 * 2, and there is no room. */
int commits_open(struct pt_trainer *t, pt_error *e);
/* Instead of checkpoint_load_state. */
int commits_load(struct pt_trainer *t, pt_error *e);
/* The engine has the state of counters.step. */
int commits_begin(struct pt_trainer *t, pt_error *e);
/* The same, after a step: commits it if it is due. */
int commits_step(struct pt_trainer *t, pt_error *e);
/* Between engine_close and commits_open for another plan, while a checkpoint has the state. */
void commits_leave(struct pt_trainer *t);
/* Adds to an error that the run can be continued from its newest commit, if there is no later checkpoint. */
bool commits_add_advice(const struct pt_trainer *t, pt_error *e);
/* After engine_close. undo: the run could not begin. Removes what nothing can be continued from, or what a checkpoint replaces. */
void commits_close(struct pt_trainer *t, bool undo);

#endif
