/* checkpoint.h - writes and reads a run's state and model. Waiting updates run before anything is written. */
#ifndef PT_CHECKPOINT_H
#define PT_CHECKPOINT_H

#include "train/room.h"
#include "train/trainer.h"

int checkpoint_save(trainer *trainer, pt_error *e);
int checkpoint_write(trainer *trainer, pt_error *e); /* the same, and no older checkpoint is removed */
int checkpoint_read_counters(trainer *trainer, const char *path, pt_error *e); /* and compares the settings */
/* Of a run that left its model and no checkpoint: are its settings and steps those of this one? Then it is complete. */
int checkpoint_read_finished(trainer *trainer, pt_error *e);
/* trainer.json without checksums, for counters.step; NULL: out of memory. */
json_t *checkpoint_counters(const trainer *trainer);
/* With the trainer.json of the checkpoint `path`: with adapters, is the base that was loaded the same as before? Is the arithmetic? (A
 * notice.) */
struct state;
int checkpoint_compare_base(const trainer *trainer, const struct state *state, const char *path, pt_error *e);
void checkpoint_compare_arithmetic(const trainer *trainer, const char *path);
/* Into an engine that is EMPTY; it is CURRENT afterwards. */
int checkpoint_load_state(trainer *trainer, const char *path, pt_error *e);
/* The same with the weights alone: other layers are trained from now on, and the optimizer begins anew. */
int checkpoint_load_weights(trainer *trainer, const char *path, pt_error *e);
/* The files with all weights, for those: bf16 if checkpoint_rounds, else fp32. */
struct safetensors;
int checkpoint_open_weights(const trainer *trainer, const char *path, struct safetensors **out, pt_error *e);
bool checkpoint_rounds(const trainer *trainer); /* frozen weights came as bf16, and are saved so */
int model_export(trainer *trainer, pt_error *e); /* into the output folder */

/* The bytes that the run will still write. */
room_need checkpoint_room(const trainer *trainer);

#endif
