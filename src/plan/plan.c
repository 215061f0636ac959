#include "plan/plan.h"

#include "base/units.h"

#include <stdlib.h>
#include <string.h>

const char *const update_time_words[] = {"during backward", "in the order of the next forward", "at the end of the step"};

const char *const tier_names[TIERS] = {"device", "host", "disk"};

int plan_alloc(plan *p, int chunks_n, int blocks_n, pt_error *e)
{
    *p = (plan){.chunks_n = chunks_n, .blocks_n = blocks_n};
    p->chunks = calloc((size_t)chunks_n + 1, sizeof *p->chunks);
    p->blocks = calloc((size_t)blocks_n + 1, sizeof *p->blocks);
    if (p->chunks && p->blocks)
        return 0;
    plan_free(p);
    return pt_fail(e, PT_FAILED, "out of memory for a plan of %d chunks and %d layers", chunks_n, blocks_n);
}

void plan_free(plan *plan)
{
    free(plan->chunks);
    free(plan->blocks);
    memset(plan, 0, sizeof *plan);
}

int plan_copy(plan *to, const plan *from, pt_error *e)
{
    plan copy;
    int failed = plan_alloc(&copy, from->chunks_n, from->blocks_n, e);
    if (failed)
        return failed;
    memcpy(copy.chunks, from->chunks, (size_t)from->chunks_n * sizeof *copy.chunks);
    memcpy(copy.blocks, from->blocks, (size_t)from->blocks_n * sizeof *copy.blocks);
    plan_chunk *chunks = copy.chunks;
    plan_block *blocks = copy.blocks;
    *to = *from;
    to->chunks = chunks;
    to->blocks = blocks;
    return 0;
}

/* ---- validate ---- */

static int validate_number(const char *key, long long made, long long given, pt_error *e)
{
    if (made == given)
        return 0;
    return pt_fail(e, PT_FAILED, "the plan was made for \"%s\" %lld, but here it is %lld: plan again", key, made, given);
}

/* A value that the file does not have is not compared. */
static int validate_dimensions(const plan_target *t, const model_config *config, pt_error *e)
{
    const struct {
        const char *key;
        int64_t made, here;
    } all[] = {{"hidden", t->hidden, config->hidden},
               {"heads", t->heads, config->heads},
               {"kv_heads", t->kv_heads, config->kv_heads},
               {"ffn", t->ffn, config->ffn},
               {"vocab", t->vocab, config->vocab}};
    int failed = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all && !failed; i++)
        if (all[i].made)
            failed = validate_number(all[i].key, all[i].made, all[i].here, e);
    return failed;
}

static int validate_trained(const plan_target *t, const model *m, pt_error *e)
{
    const int64_t here = model_trained_parameters(m);
    if (t->frozen == model_frozen_hash(m))
        return 0;
    if (t->trained == here)
        return pt_fail(e, PT_FAILED, "the plan was made for other frozen parameters (`freeze`, `train_only`): plan again");
    return pt_fail(e, PT_FAILED,
                   "the plan was made for training %lld of %lld parameters, but here it is %lld (`freeze`, `train_only`): plan again",
                   (long long)t->trained, (long long)t->parameters, (long long)here);
}

static int validate_target(const plan_target *t, const model *m, const step_shape *shape, pt_error *e)
{
    if (!t->model_type[0])
        return 0;
    if (strcmp(t->model_type, m->config.model_type))
        return pt_fail(e, PT_FAILED, "the plan was made for a model of type %s, but this one is %s: plan again", t->model_type,
                       m->config.model_type);
    if (t->parts != shape_parts(shape))
        return pt_fail(e, PT_FAILED,
                       "the plan was made for sequences in %lld part%s, but here they have %lld: give as many `lanes` for each sequence of "
                       "`batch_size`, or plan again",
                       (long long)t->parts, plural((uint64_t)t->parts), (long long)shape_parts(shape));
    if (t->type != shape->type)
        return pt_fail(e, PT_FAILED, "the plan was made for %s, but this run computes in %s: plan again, or give the other `precision`",
                       t->type == PT_BF16 ? "bf16" : "fp32", shape->type == PT_BF16 ? "bf16" : "fp32");
    if (t->optimizer && t->optimizer != shape_optimizer(shape))
        return pt_fail(e, PT_FAILED,
                       "the plan was made for `optimizer` %s, but this run has %s, which has other states: plan again, or give the other "
                       "one",
                       t->optimizer->name, shape_optimizer(shape)->name);
    if (t->gpu >= 0 && t->gpu != shape->gpu)
        return pt_fail(e, PT_FAILED, "the plan was made for %s, but this run computes on %s, which divides a step differently: plan again",
                       t->gpu ? "a GPU" : "a CPU", shape->gpu ? "a GPU" : "a CPU");
    int failed = validate_number("parameters", t->parameters, m->parameters, e);
    if (!failed)
        failed = validate_number("layers", t->layers, m->config.layers, e);
    if (!failed)
        failed = validate_dimensions(t, &m->config, e);
    if (!failed)
        failed = validate_trained(t, m, e);
    if (!failed)
        failed = validate_number("seq_len", t->seq_len, shape->seq_len, e);
    if (!failed)
        failed = validate_number("batch", t->batch, shape->batch, e);
    return failed;
}

static int validate_batch(const plan *plan, const step_shape *shape, pt_error *e)
{
    if (plan->micro_batch < 1 || plan->micro_batch % shape_least_micro(shape) || shape->batch % plan->micro_batch)
        return pt_fail(e, PT_FAILED,
                       "the plan's \"micro_batch\" is %lld; it must be a multiple of the %lld %s that are computed "
                       "together and divide the batch of %lld",
                       (long long)plan->micro_batch, (long long)shape_least_micro(shape),
                       shape_parts(shape) > 1 ? "parts of a sequence" : "sequences", (long long)shape->batch);
    int64_t micros = shape->batch / plan->micro_batch;
    if (plan->visit < 1 || micros % plan->visit)
        return pt_fail(e, PT_FAILED, "the plan's \"visit\" is %d; it must divide the %lld micro-batches of a step", plan->visit,
                       (long long)micros);
    return 0;
}

/* `needed`: something passes through these buffers, so there must be at least one. */
static int validate_slots(const char *key, int n, bool needed, pt_error *e)
{
    if (n >= (needed ? 1 : 0) && n <= PLAN_MAX_SLOTS)
        return 0;
    return pt_fail(e, PT_FAILED, "the plan's \"%s\" is %d; it must be from %d to %d", key, n, needed ? 1 : 0, PLAN_MAX_SLOTS);
}

static int validate_chunk(const plan *plan, const packing *packing, int c, pt_error *e)
{
    const plan_chunk *k = &plan->chunks[c];
    if ((unsigned)k->placement >= TIERS || ((unsigned)k->update != TIER_DEVICE && (unsigned)k->update != TIER_HOST))
        return pt_fail(e, PT_FAILED,
                       "the plan's chunk %d has an unknown \"home\" or \"update\": homes are device, host and disk, updates run on device "
                       "or host", c);
    if (k->placement == TIER_DEVICE && k->update == TIER_HOST)
        return pt_fail(e, PT_FAILED, "the plan's chunk %d has its \"home\" on the device and its \"update\" on the host, but a chunk on "
                                     "the device is updated there", c);
    if (k->sharded && packing->ranks < 2)
        return pt_fail(e, PT_FAILED, "the plan's chunk %d is \"sharded\", and there is one rank; plan again", c);
    return 0;
}

/* Layers without backward need not save anything. */
static int validate_passing(const plan *plan, const model *m, pt_error *e)
{
    for (int b = 0; b < model_passing_layers(m) && b < plan->blocks_n; b++)
        if (plan->blocks[b].level != SAVE_INPUT || plan->blocks[b].place != TIER_DEVICE)
            return pt_fail(e, PT_FAILED,
                           "the plan's layer %d comes before everything that is trained, so that backward does not reach it: its \"save\" "
                           "must be input and its \"place\" device", b);
    return 0;
}

static int validate_placements(const plan *plan, const packing *packing, pt_error *e)
{
    bool elsewhere = false, sharded = false, swapped = false;
    for (int c = 0; c < plan->chunks_n; c++) {
        int failed = validate_chunk(plan, packing, c, e);
        if (failed)
            return failed;
        elsewhere |= plan->chunks[c].placement != TIER_DEVICE;
        sharded |= plan->chunks[c].sharded;
    }
    for (int b = 0; b < plan->blocks_n; b++) {
        if ((unsigned)plan->blocks[b].level >= SAVE_LEVELS || (unsigned)plan->blocks[b].place >= TIERS)
            return pt_fail(e, PT_FAILED, "the plan's layer %d has an unknown \"save\" or \"place\": plan again", b);
        swapped |= plan->blocks[b].place != TIER_DEVICE;
    }
    int failed = validate_slots("n_buffer", plan->n_buffer, elsewhere || sharded, e);
    if (!failed)
        failed = validate_slots("n_update", plan->n_update, elsewhere, e);
    if (!failed)
        failed = validate_slots("n_swap", plan->n_swap, swapped, e);
    return failed;
}

static int validate_updates(const plan *plan, const step_shape *shape, const packing *packing, pt_error *e)
{
    for (int c = 0; c < plan->chunks_n && shape->gpu; c++)
        if (packing->chunks[c].by_device && plan->chunks[c].update == TIER_HOST)
            return pt_fail(e, PT_FAILED,
                           "the plan updates chunk %d on the host, but with `optimizer` %s the update multiplies matrices, which gives "
                           "other bits on the host than on the GPU: set its \"update\" to device, or plan again",
                           c, packing->optimizer->name);
    return 0;
}

static int validate_ranges(const plan *plan, const model *m, const packing *packing, pt_error *e)
{
    if (!plan->ranges || packing_cuts_experts(packing, m))
        return 0;
    return pt_fail(e, PT_FAILED, "the plan's \"ranges\" has no effect: no matrix of experts is larger than \"chunk_bytes\" %lld, so none "
                                 "is cut; remove \"ranges\", or plan again", (long long)plan->chunk_bytes);
}

int plan_validate(const plan *plan, const model *m, const step_shape *shape, const packing *packing, bool clipping, pt_error *e)
{
    int failed = validate_target(&plan->made_for, m, shape, e);
    if (failed)
        return failed;
    if (plan->chunk_bytes != packing->chunk_bytes)
        return pt_fail(e, PT_FAILED, "the plan's \"chunk_bytes\" is %lld, but the parameters were packed with %lld; pack them as the "
                                     "plan says", (long long)plan->chunk_bytes, (long long)packing->chunk_bytes);
    if (plan->chunks_n != packing->chunks_n)
        return pt_fail(e, PT_FAILED, "the plan has %d chunks, but the model's parameters make %d of \"chunk_bytes\" %lld; plan again",
                       plan->chunks_n, packing->chunks_n, (long long)plan->chunk_bytes);
    if (plan->blocks_n != m->config.layers)
        return pt_fail(e, PT_FAILED, "the plan has %d layers in \"blocks\", but the model has %lld; plan again", plan->blocks_n,
                       (long long)m->config.layers);
    if ((unsigned)plan->update > UPDATE_END)
        return pt_fail(e, PT_FAILED, "the plan's \"update\" is unknown: it must be backward, next_forward or end");
    if (plan->update == UPDATE_BACKWARD && clipping)
        return pt_fail(e, PT_FAILED,
                       "the plan updates during backward (\"update\": \"backward\"), but clipping needs the norm of all gradients first: "
                       "use next_forward or end, or turn clipping off with `max_grad_norm` 0");
    failed = validate_batch(plan, shape, e);
    if (!failed)
        failed = validate_placements(plan, packing, e);
    if (!failed)
        failed = validate_passing(plan, m, e);
    if (!failed)
        failed = validate_updates(plan, shape, packing, e);
    return failed ? failed : validate_ranges(plan, m, packing, e);
}
