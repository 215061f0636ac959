/* output.h - a run's output folder: whose it is, and where the run starts by what lies there.
 *
 * One run at a time writes there (the lock). A run that starts anew, or from the checkpoint of another run, wants a folder without a run
 * or a model. Of a run that could not begin nothing stays but the cache of its tokens, so that the same command may follow.
 */
#ifndef PT_OUTPUT_H
#define PT_OUTPUT_H

#include "io/files.h"
#include "protrain.h"

typedef struct output {
    char path[FILE_PATH_BYTES];
    char from[FILE_PATH_BYTES];        /* the checkpoint that the run goes on from, or "" */
    dir_lock lock;                     /* fd -1: not taken */
    bool made, found_empty;            /* the folder was not there before; no run had written into it */
    bool wrote_profile, wrote_machine; /* profile.json, machine.json are this run's */
} output;

void output_init(output *out);
/* Makes the folder, takes the lock, chooses where to start, and removes what a killed run left half-written. */
int output_claim(output *out, const pt_train_options *o, pt_error *e);
/* Removes what a run wrote that could not begin; before output_close. */
void output_undo(const output *out, const pt_train_options *o);
void output_close(output *out, bool undo); /* undo: the folder goes too, where it was made and is empty */

#endif
