/* room.h - what a run will write into its output folder, before there is a run. */
#ifndef PT_ROOM_H
#define PT_ROOM_H

#include "model/model.h"
#include "protrain.h"

typedef struct room_input {
    const pt_train_options *o; /* model, keep */
    const model *model;
    pt_dtype save_type;        /* of exported weights */
    const struct safetensors *source; /* whose other parts are written along (weights_layout); NULL: none are */
    int64_t checkpoints;       /* that will be due */
    int64_t there;             /* that are in the folder */
} room_input;

typedef struct room_need {
    uint64_t checkpoint_bytes, model_bytes; /* each */
    int64_t checkpoints;                    /* that the run adds, at a time */
    uint64_t least_bytes, bytes;            /* for the first of them; for all */
    uint64_t largest_file_bytes;
} room_need;

room_need room_find(const room_input *in);
/* PT_DOES_NOT_FIT where not even the first of them has room on the disk of `out`, which has `free_bytes` (*missing: so many bytes), or
 * where a shell's limit of files' sizes (ulimit -f) is in the way. */
int room_refuse(const room_need *r, const char *out, uint64_t free_bytes, uint64_t *missing, pt_error *e);
/* The same, of o->out as it is now; a notice where it may become tight. */
int room_check(const room_need *r, const pt_train_options *o, pt_error *e);
/* Sets the dtype of exported weights: --save-dtype, or the one that most weights of the model have; fp32 for random weights. */
int room_save_type(const pt_train_options *o, const model *m, bool random_init, pt_dtype *type, pt_error *e);

#endif
