/* state.h - the state of the training (master weights, first and second moments), parameter by parameter,
 * wherever the plan keeps it. To be used between runs of the executor, when its queues are idle.
 *
 * Chunks in host memory are read and written in place. Of the chunks on the disk one at a time is held in the
 * executor's scratch and written back when another one, or state_close, takes its place. Where there is a host tier, the
 * device's memory is moved, not touched: rows of chunks there come and go through a bounce buffer in the scratch.
 *
 *     scratch  [ window: weights | states ][ bounce ][ spare ]
 */
#ifndef PT_STATE_H
#define PT_STATE_H

#include "model/weights.h"
#include "train/executor.h"

typedef enum state_kind { STATE_MASTER, STATE_EXP_AVG, STATE_EXP_AVG_SQ, STATE_KINDS } state_kind;

typedef struct state {
    executor *x;
    const schedule_input *in;
    int chunk;           /* in the scratch, -1: none */
    bool changed;
    bool *fresh;         /* of each chunk on the disk: begins with zeros, whatever the disk holds; NULL: none does */
    char *window;        /* weights, then states, of that chunk */
    char *bounce;        /* NULL without a host tier */
    char *spare;         /* the rest, for reading and exporting */
    size_t spare_bytes;
} state;

void state_open(state *s, executor *x);
int state_close(state *s, pt_error *e); /* writes back what was changed */

/* Rows row0 .. row0+n_rows of parameter `index`, as fp32 (n_rows, cols); of a frozen one there are only masters. Without training state, masters
 * are the compute weights. */
int state_read(state *s, state_kind kind, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e);
int state_write(state *s, state_kind kind, int index, int64_t row0, int64_t n_rows, const float *in, pt_error *e);

struct safetensors;
/* Weights from a Hugging Face folder, or random ones. Moments become zero. */
int state_load(state *s, const struct safetensors *st, pt_error *e);
/* The same with the trained ones from one folder and the frozen ones from another, which has all. */
int state_load_beside(state *s, const struct safetensors *trained, const struct safetensors *all, pt_error *e);
int state_init(state *s, uint64_t seed, pt_error *e);
/* Moments of what is trained, from files that hold them under the weights' names. */
int state_load_kind(state *s, state_kind kind, const struct safetensors *st, pt_error *e);
/* A sum of each kind's values, the same wherever they lie: tells whether what was loaded is what was exported. */
int state_sums(state *s, uint64_t sums[STATE_KINDS], pt_error *e);
/* One kind of state as Hugging Face tensors into FOLDER/NAME.safetensors (or shards). */
int state_export(state *s, state_kind kind, weights_set set, const char *folder, const char *name, pt_dtype dtype, bool bare, pt_error *e);

#endif
