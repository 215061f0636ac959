#include "train/trainer.h"

#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What was decided, in sentences. */
static void describe_plan(const trainer *t, char *out, size_t n)
{
    const plan *p = trainer_plan(t);
    int homes[TIERS] = {0};
    for (int i = 0; i < p->chunks_n; i++)
        homes[p->chunks[i].home]++;
    char size[32], layers[160];
    size_t used = (size_t)snprintf(out, n, "%d chunk%s of up to %s:", p->chunks_n, p->chunks_n == 1 ? "" : "s",
                                   size_format(size, (uint64_t)p->chunk_bytes));
    for (int k = 0; k < TIERS && used < n; k++)
        if (homes[k])
            used += (size_t)snprintf(out + used, n - used, " %d on the %s,", homes[k], tier_names[k]);
    if (used < n)
        used += (size_t)snprintf(out + used, n - used, " updated %s; micro-batches of %lld sequence%s", update_time_words[p->update],
                                 (long long)p->micro_batch, p->micro_batch == 1 ? "" : "s");
    for (int line = 0; explain_layers(p, line, layers, sizeof layers) && used < n; line++)
        used += (size_t)snprintf(out + used, n - used, "; %s", layers);
}

/* How busy each queue will be, and what that writes to the disk. */
static void describe_limits(const trainer *t, char *out, size_t n)
{
    const forecast *f = &t->forecast;
    size_t used = 0;
    char size[32];
    out[0] = 0;
    for (int q = 0; q < QUEUES && used < n; q++)
        if (f->busy_ns[q] >= 0.01 * f->step_ns && f->step_ns > 0)
            used += (size_t)snprintf(out + used, n - used, "%s%s %.0f%%", used ? ", " : "", queue_names[q], 100 * f->busy_ns[q] / f->step_ns);
    if (f->written_bytes && f->step_ns > 0 && used < n)
        snprintf(out + used, n - used, "; %s written to the disk a step, %.3g TB a day: a disk rated for 600 TB lasts %.3g days",
                 size_format(size, f->written_bytes), (double)f->written_bytes * 86400e-3 / f->step_ns,
                 600e12 * f->step_ns / ((double)f->written_bytes * 86400e9));
}

void pt_trainer_summary(const pt_trainer *t, pt_summary *s)
{
    memset(s, 0, sizeof *s);
    s->model_type = t->model->config.model_type;
    s->parameters = t->model->parameters;
    s->layers = t->model->config.layers;
    s->machine = t->planning.device->info.arithmetic;
    s->threads = t->planning.device->info.threads;
    s->costs = t->planning.source;
    s->steps = t->steps;
    s->first_step = t->first_step;
    s->seq_len = t->shape.seq_len;
    s->batch_size = t->shape.batch;
    s->windows = (int64_t)dataset_windows(t->data);
    s->tokens = (int64_t)dataset_tokens(t->data);
    s->predicted_step_s = t->forecast.step_ns * 1e-9;
    describe_plan(t, s->plan, sizeof s->plan);
    describe_limits(t, s->limits, sizeof s->limits);
    s->memory_n = trainer_memory(t, s->memory);
}

int trainer_memory(const trainer *t, pt_memory out[TIERS])
{
    int n = 0;
    for (int k = 0; k < TIERS && t->x; k++)
        if (executor_bytes(t->x, k))
            out[n++] = (pt_memory){tier_names[k], t->planning.budget[k], executor_bytes(t->x, k), executor_peak_bytes(t->x, k)};
    return n;
}

int pt_trainer_timings(const pt_trainer *t, pt_timing out[PT_TIMINGS])
{
    const forecast *f = &t->forecast;
    step_times s = measured_times(&t->measured, trainer_plan(t)->update);
    double step_s = measured_median_s(&t->measured, MEASURED_STEPS);
    int n = 0;
    if (!(step_s > 0) || !s.runs)
        return 0;
    out[n++] = (pt_timing){"step", f->step_ns * 1e-9, step_s};
    for (int p = 0; p < PHASES; p++)
        out[n++] = (pt_timing){phase_names[p], f->phase_ns[p] * 1e-9, s.phase_ns[p] * 1e-9};
    for (int q = 0; q < QUEUES; q++)
        if (fmax(f->busy_ns[q], s.busy_ns[q]) >= 0.01 * f->step_ns) /* what is beside nothing says nothing */
            out[n++] = (pt_timing){queue_names[q], f->busy_ns[q] * 1e-9, s.busy_ns[q] * 1e-9};
    return n;
}
