#include "train/trainer.h"

#include "base/units.h"

#include <string.h>

/* What was decided, in a sentence or two. */
static void describe_plan(const trainer *t, char *out, size_t n)
{
    static const char *const levels[SAVE_LEVELS] = {"only its input (the rest is computed again)", "its input and attention",
                                                    "all but norms and activations", "everything"};
    static const char *const times[] = {"during backward", "in the order of the next forward", "at the end of the step"};
    int homes[TIERS] = {0};
    for (int i = 0; i < t->plan.chunks_n; i++)
        homes[t->plan.chunks[i].home]++;
    char size[32];
    int used = snprintf(out, n, "%d chunks of up to %s:", t->plan.chunks_n, size_format(size, (uint64_t)t->plan.chunk_bytes));
    for (int k = 0; k < TIERS; k++)
        if (homes[k])
            used += snprintf(out + used, n - (size_t)used, " %d on the %s,", homes[k], tier_names[k]);
    const plan_block *b = &t->plan.blocks[0];
    snprintf(out + used, n - (size_t)used, " updated %s; each layer saves %s on the %s; micro-batches of %lld sequences", times[t->plan.update],
             levels[b->level], tier_names[b->place], (long long)t->plan.micro_batch);
}

void pt_trainer_summary(const pt_trainer *t, pt_summary *s)
{
    memset(s, 0, sizeof *s);
    s->model_type = t->model->config.model_type;
    s->parameters = t->model->parameters;
    s->layers = t->model->config.layers;
    s->machine = t->device->info.arithmetic;
    s->threads = t->device->info.threads;
    s->steps = t->steps;
    s->first_step = t->first_step;
    s->seq_len = t->shape.seq_len;
    s->batch_size = t->shape.batch;
    s->windows = (int64_t)dataset_windows(t->data);
    s->tokens = (int64_t)dataset_tokens(t->data);
    describe_plan(t, s->plan, sizeof s->plan);
    for (int k = 0; k < TIERS; k++)
        if (executor_bytes(t->x, k))
            s->memory[s->memory_n++] = (pt_memory){tier_names[k], t->budget[k], executor_bytes(t->x, k), executor_peak_bytes(t->x, k)};
}
