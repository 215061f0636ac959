/* output.h - a run's output folder: who owns it, and from where the run starts.
 *
 * A lock lets only one run at a time write there. A run that starts new, or from a checkpoint of another run, needs a folder without a run
 * or a model. A run that cannot begin leaves nothing.
 */
#ifndef PT_OUTPUT_H
#define PT_OUTPUT_H

#include "io/files.h"
#include "protrain.h"

typedef struct output {
    char path[FILE_PATH_BYTES];
    char cache[FILE_PATH_BYTES];       /* folder of the token cache */
    char from[FILE_PATH_BYTES];        /* the checkpoint from which the run continues, or "" */
    struct slots_view *committed;      /* `from` is a step that committed its states (commits.h): those; NULL: it is a checkpoint */
    dir_lock lock;                     /* fd -1: not taken */
    bool finished;                     /* it is to be resumed and has the trained model of a run, but no checkpoint */
    bool made, found_empty;            /* the folder did not exist; it had no files of a run */
    bool found_cache;                  /* tokens of an earlier run */
    bool wrote_profile, wrote_machine, wrote_run; /* these files were written by this run */
} output;

void output_init(output *out);
/* Creates the folder, takes the lock, decides where to start, and removes incomplete files of a killed run. */
int output_claim(output *out, const pt_train_options *o, pt_error *e);
/* Removes what a run wrote if it cannot begin; call it before output_close. */
void output_undo(const output *out, const pt_train_options *o);
void output_close(output *out, bool undo); /* undo: also removes the folder if this run created it and it is empty */

#endif
