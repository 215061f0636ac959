/* room.c - what a run will write into its output folder, and whether the disk has room for it.
 *
 *   checkpoint   weights as exported + two moments in fp32 + fp32 weights, where the exported ones are not + tokenizer files
 *   model        the first and the last of these
 *
 * A checkpoint is complete before an older one goes, so that of --keep N there are N + 1 for a moment. The disk tier's file has
 * its blocks already when this is asked: they are not among the free ones.
 *
 * A disk that fills up later, by whatever else is written there, ends the run when a checkpoint is due: the newest complete one
 * stands, the message names it, and --resume goes on from it to the same bits. Going on without would only put off what is lost.
 */
#include "train/trainer.h"

#include "base/units.h"

#include <sys/stat.h>

enum { TENSOR_HEADER_BYTES = 96 + MODEL_NAME, FILE_BYTES = 8 << 10 }; /* a header's entry for a tensor; a file's odds and ends */

static uint64_t companion_bytes(const trainer *t)
{
    char path[FILE_PATH_BYTES];
    struct stat st;
    uint64_t sum = 0;
    const char *name;
    for (int i = 0; (name = model_companion(i)); i++)
        if (!path_join(path, t->model_dir, name, NULL) && !stat(path, &st))
            sum += (uint64_t)st.st_size + FILE_BYTES;
    return sum;
}

/* All weights as files of this type. */
static uint64_t weights_bytes(const trainer *t, pt_dtype type)
{
    uint64_t tensors = 0;
    for (int i = 0; i < t->model->params_n; i++)
        tensors += (uint64_t)t->model->params[i].parts;
    return (uint64_t)t->model->parameters * dtype_bytes(type) + tensors * TENSOR_HEADER_BYTES + FILE_BYTES;
}

room_need room_of(const trainer *t)
{
    room_need r = {.model_bytes = weights_bytes(t, t->save_type) + companion_bytes(t) + 2 * FILE_BYTES};
    r.checkpoint_bytes = r.model_bytes + 2 * weights_bytes(t, PT_F32) + (t->save_type == PT_F32 ? 0 : weights_bytes(t, PT_F32)) + FILE_BYTES;
    int64_t every = t->o.save_every, there = checkpoint_count(t), most = t->o.keep + 1;
    r.checkpoints = every ? t->steps / every - t->step / every : 0;
    int64_t more = there < most ? most - there : 1; /* at a time */
    if (t->o.keep && r.checkpoints > more)
        r.checkpoints = more;
    uint64_t first = r.checkpoint_bytes > r.model_bytes ? r.checkpoint_bytes : r.model_bytes;
    r.least_bytes = r.checkpoints ? first : r.model_bytes;
    r.bytes = r.checkpoints ? (uint64_t)r.checkpoints * r.checkpoint_bytes + r.model_bytes : first; /* an interrupted run writes one too */
    return r;
}

int room_check(const trainer *t, pt_error *e)
{
    room_need r = room_of(t);
    uint64_t free_bytes;
    char each[32], model[32], all[32], have[32];
    int failed = disk_free_bytes(t->out, &free_bytes, e);
    if (failed || free_bytes >= r.bytes)
        return failed;
    size_format(each, r.checkpoint_bytes);
    size_format(model, r.model_bytes);
    size_format(all, r.bytes);
    size_format(have, free_bytes);
    if (free_bytes < r.least_bytes)
        return pt_fail(e, PT_DOES_NOT_FIT, "%.400s: a checkpoint takes %s there and the trained model %s, and only %s are free: make room for "
                       "%llu bytes more, or choose another --out", t->out, each, model, have,
                       (unsigned long long)(r.least_bytes - free_bytes));
    trainer_notice(t, "%.400s: a checkpoint takes %s there and the trained model %s; this run may want %s at once and only %s are free: make "
                   "room, or lower --keep; where a checkpoint finds no room the run ends, and --resume goes on from the one before", t->out,
                   each, model, all, have);
    return 0;
}
