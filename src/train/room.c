/* room.c - what a run will write into its output folder, and whether the disk has room for it.
 *
 *   checkpoint   weights as exported + what the optimizer keeps + fp32 weights, where the exported ones are not + tokenizer files; with the
 *                weights goes what a multimodal model has beside them
 *   model        the first and the last of these
 *
 * A checkpoint is complete before an older one goes, so that of --keep N there are N + 1 for a moment, and with
 * --keep-best another. The disk tier's file has
 * its blocks already when this is asked: they are not among the free ones.
 *
 * A disk that fills up later, by whatever else is written there, ends the run when a checkpoint is due: the newest complete one
 * stands, the message names it, and --resume goes on from it to the same bits. Going on without would only put off what is lost.
 */
#include "train/room.h"

#include "base/units.h"
#include "io/disk.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "model/weights.h"
#include "optimizer/optimizer.h"
#include "train/companions.h"
#include "train/options.h"

enum { TENSOR_HEADER_BYTES = 96 + MODEL_NAME, FILE_BYTES = 8 << 10 }; /* a header's entry for a tensor; a file's odds and ends */

/* Weights as files of this type: all, or masters, or what is trained. */
typedef enum which { ALL_WEIGHTS, MASTERS, TRAINED } which;

static bool counts(const param *p, which w) { return w == ALL_WEIGHTS || p->trainable || (w == MASTERS && p->storage == STORAGE_PLAIN); }

static uint64_t weights_bytes(const model *m, which w, pt_dtype type)
{
    uint64_t tensors = 0, values = 0;
    for (int i = 0; i < m->params_n; i++)
        if (counts(&m->params[i], w)) {
            tensors += (uint64_t)m->params[i].parts;
            values += (uint64_t)(m->params[i].rows * m->params[i].cols);
        }
    return values * dtype_bytes(type) + tensors * TENSOR_HEADER_BYTES + FILE_BYTES;
}

/* Bytes of the optimizer's states, one file per name. */
static uint64_t states_bytes(const model *m, const optimizer *o)
{
    const char *names[OPTIMIZER_STATES];
    uint64_t bytes = 0;
    for (int n = optimizer_states(o, names); n-- > 0; bytes += FILE_BYTES)
        for (int i = 0; i < m->params_n; i++) {
            const param *p = &m->params[i];
            const update_rule *r = optimizer_rule(o, p);
            const int k = rule_find(r, names[n]);
            if (k >= 0)
                bytes += (uint64_t)slab_of_param(&r->slabs[k], p) * dtype_bytes(r->slabs[k].type) +
                         (uint64_t)p->parts * TENSOR_HEADER_BYTES;
        }
    return bytes;
}

static uint64_t beside_bytes(const room_input *in)
{
    const weights_beside b = in->source ? weights_find_beside(in->model, in->source) : (weights_beside){0};
    return b.bytes + b.tensors * TENSOR_HEADER_BYTES;
}

room_need room_find(const room_input *in)
{
    const bool adapters = in->model->adapters; /* these alone are written */
    const which masters = adapters || (in->model->stored_bf16 && in->save_type == PT_BF16) ? TRAINED : MASTERS;
    const uint64_t fp32 = weights_bytes(in->model, masters, PT_F32);
    const uint64_t saved = weights_bytes(in->model, adapters ? TRAINED : ALL_WEIGHTS, in->save_type) + (adapters ? 0 : beside_bytes(in));
    room_need r = {.model_bytes = saved + companions_bytes(in->o->model, FILE_BYTES) + 2 * FILE_BYTES,
                   .checkpoints = in->checkpoints};
    r.checkpoint_bytes = r.model_bytes + states_bytes(in->model,
                                                      optimizers[in->o->optimizer]) + (in->save_type == PT_F32 ? 0 : fp32) + FILE_BYTES;
    int64_t most = in->o->keep + 1 + (in->o->keep_best != PT_KEEP_BEST_NO), more = in->there < most ? most - in->there : 1; /* at a time */
    if (in->o->keep && r.checkpoints > more)
        r.checkpoints = more;
    uint64_t first = r.checkpoint_bytes > r.model_bytes ? r.checkpoint_bytes : r.model_bytes;
    r.least_bytes = r.checkpoints ? first : r.model_bytes;
    const uint64_t largest = r.checkpoints && fp32 > saved ? fp32 : saved;
    r.largest_file_bytes = largest < SAFETENSORS_SHARD_BYTES ? largest : SAFETENSORS_SHARD_BYTES;
    r.bytes = r.checkpoints ? (uint64_t)r.checkpoints * r.checkpoint_bytes + r.model_bytes : first; /* an interrupted run writes one too */
    return r;
}

int room_save_type(const pt_train_options *o, const model *m, bool random_init, pt_dtype *type, pt_error *e)
{
    static const pt_dtype types[] = {PT_F32, PT_F32, PT_BF16, PT_F16};
    *type = types[o->save_type];
    if (o->save_type != PT_SAVE_AS_STORED || random_init)
        return 0;
    safetensors *st;
    int failed = safetensors_open(o->model, &st, e);
    if (failed)
        return failed;
    failed = weights_check(m, st, type, e);
    safetensors_close(st);
    return failed;
}

/* A shell may have said how large a file may become. */
static int refuse_limit(const room_need *r, const char *out, pt_error *e)
{
    const uint64_t limit = disk_file_limit();
    char file[32], most[32];
    if (limit >= r->largest_file_bytes)
        return 0;
    return pt_fail(e, PT_DOES_NOT_FIT, "%.400s: the run will write a file of %s there, but the limit for files is %s (ulimit -f): raise "
                                       "it in the shell with ulimit -f unlimited", out, size_format(file, r->largest_file_bytes),
                   size_format(most, limit));
}

int room_refuse(const room_need *r, const char *out, uint64_t free_bytes, uint64_t *missing, pt_error *e)
{
    char each[32], model[32], have[32], more[32];
    *missing = r->least_bytes > free_bytes ? r->least_bytes - free_bytes : 0;
    if (!*missing)
        return refuse_limit(r, out, e);
    return pt_fail(e, PT_DOES_NOT_FIT,
                   "%.400s: a checkpoint takes %s and the trained model %s, but only %s are free: make room for %s more, or choose "
                   "another `out`",
                   out, size_format(each, r->checkpoint_bytes), size_format(model, r->model_bytes), size_format(have, free_bytes),
                   size_option(more, *missing));
}

int room_check(const room_need *r, const pt_train_options *o, pt_error *e)
{
    uint64_t free_bytes, missing;
    char each[32], model[32], all[32], have[32];
    int failed = disk_free_bytes(o->out, &free_bytes, e);
    if (!failed)
        failed = room_refuse(r, o->out, free_bytes, &missing, e);
    if (failed || free_bytes >= r->bytes)
        return failed;
    size_format(each, r->checkpoint_bytes);
    size_format(model, r->model_bytes);
    size_format(all, r->bytes);
    size_format(have, free_bytes);
    options_notice(o,
                   "%.400s: a checkpoint takes %s and the trained model %s; this run may need %s at once, but only %s are free: make "
                   "room%s. If a checkpoint does not fit, the run ends, and `resume` continues from the one before",
                   o->out, each, model, all, have, o->keep == 1 ? "" : o->keep ? ", or give `keep` 1" : ", or give `keep` 2");
    return 0;
}
