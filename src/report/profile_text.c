#include "report/profile_text.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the subject ---- */

static void write_subject(FILE *f, const profile_request *req)
{
    const model *m = req->model;
    const step_shape *shape = req->shape;
    const int64_t sequences = shape_sequences(shape), length = shape_length(shape);
    const int threads = req->threads ? req->threads : req->device->info.threads;
    char count[32];
    fprintf(f, "model    %s, %s parameters, %lld layer%s\n", m->config.model_type, count_format(count, (uint64_t)m->parameters),
            (long long)m->config.layers, plural((uint64_t)m->config.layers));
    fprintf(f, "machine  %s, %d thread%s, %s\n", req->device->info.name, threads, plural((uint64_t)threads), req->device->info.arithmetic);
    fprintf(f, "step     %lld sequence%s of %lld token%s, computed in %lld unit%s of %lld token%s, %s\n\n", (long long)sequences,
            plural((uint64_t)sequences), (long long)length, plural((uint64_t)length), (long long)shape->units_n,
            plural((uint64_t)shape->units_n), (long long)shape->unit_rows, plural((uint64_t)shape->unit_rows),
            shape->type == PT_BF16 ? "bf16" : "fp32");
}

/* ---- blocks ---- */

static void write_time(FILE *f, double ns, double flops)
{
    char time[32], rate[32] = "";
    if (flops > 0 && ns > 0)
        snprintf(rate, sizeof rate, "%.0f GFLOP/s", flops / ns);
    fprintf(f, "%11s %13s", seconds_format(time, ns * 1e-9), rate);
}

static void write_warm(FILE *f, const layer_cost *l)
{
    char forward[32], all[32], input[32];
    if (l->warm_forward_ns > 0 || l->warm_backward_ns[SAVE_ALL] > 0 || l->warm_backward_ns[SAVE_INPUT] > 0)
        fprintf(f, "    directly after another unit, with weights still in the cache: forward %s less, backward %s, with the input saved "
                   "%s\n",
                seconds_format(forward, l->warm_forward_ns * 1e-9), seconds_format(all, l->warm_backward_ns[SAVE_ALL] * 1e-9),
                seconds_format(input, l->warm_backward_ns[SAVE_INPUT] * 1e-9));
}

static void write_more(FILE *f, double ns, const char *what)
{
    char time[32];
    if (ns > 0)
        fprintf(f, "    %s more %s\n", seconds_format(time, ns * 1e-9), what);
}

static int layers_of_kind(const profile_request *req, const costs *costs, int kind)
{
    int n = 0;
    for (int64_t i = 0; i < req->model->config.layers; i++)
        n += costs->kind_of_layer[i] == kind;
    return n;
}

static int first_of_kind(const profile_request *req, const costs *costs, int kind)
{
    int64_t i = 0;
    while (i < req->model->config.layers && costs->kind_of_layer[i] != kind)
        i++;
    return (int)i;
}

/* With everything saved, backward takes twice the FLOPs of forward. Recomputation adds to its time, not to its FLOPs. */
static void write_kind(FILE *f, const profile_request *req, const costs *costs, int kind)
{
    static const char *const saved[SAVE_LEVELS] = {"input", "attention", "all"};
    const layer_cost *l = &costs->layer[kind];
    int layer = first_of_kind(req, costs, kind);
    double flops = layer_flops(req->model, layer, req->shape);
    int64_t window = req->model->config.window[layer];
    fprintf(f, "  layer, %d of them%s", layers_of_kind(req, costs, kind), window ? ", window " : "");
    if (window)
        fprintf(f, "%lld", (long long)window);
    fputs("\n", f);
    for (int level = SAVE_LEVELS - 1; level >= 0; level--) {
        fprintf(f, "    %-12s", saved[level]);
        write_time(f, l->forward_ns[level], flops);
        write_time(f, l->backward_ns[level], level == SAVE_ALL ? 2 * flops : 0);
        fputs("\n", f);
    }
    write_warm(f, l);
    write_more(f, l->first_accumulators_ns, "backward with accumulators that begin in memory");
    write_more(f, l->cold_accumulators_ns, "backward with gradients summed over several visits");
}

static void write_blocks(FILE *f, const profile_request *req, const costs *costs)
{
    double head = model_head_flops(req->model, req->shape->unit_rows);
    fprintf(f, "%-16s%11s %13s%11s\n", "one unit, saved:", "forward", "", "backward");
    for (int k = 0; k < costs->kinds_n; k++)
        write_kind(f, req, costs, k);
    fputs("  embedding     ", f);
    write_time(f, costs->embed_ns, 0);
    fputs("\n  head, training", f);
    write_time(f, costs->head_ns, 3 * head);
    fputs("\n  head, loss    ", f);
    write_time(f, costs->head_eval_ns, head);
    fputs("\n", f);
    write_more(f, costs->head_cold_accumulators_ns, "with gradients summed over several visits");
}

/* The computation time of a step if all layers have this save level. */
static double step_s(const profile_request *req, const costs *costs, save_level level)
{
    double ns = costs->embed_ns + costs->head_ns;
    for (int64_t i = 0; i < req->model->config.layers; i++) {
        const layer_cost *l = &costs->layer[costs->kind_of_layer[i]];
        ns += l->forward_ns[level] + l->backward_ns[level];
    }
    return ns * (double)req->shape->units_n * 1e-9;
}

/* ---- curves ---- */

static void write_amounts(FILE *f, const cost_curve *curve)
{
    char size[32];
    fprintf(f, "%-24s", "transfers, GB/s");
    for (int i = 0; i < curve->n; i++) {
        snprintf(size, sizeof size, curve->amount[i] < 1 << 20 ? "%.0f KiB" : "%.0f MiB",
                 curve->amount[i] / (curve->amount[i] < 1 << 20 ? 1 << 10 : 1 << 20));
        fprintf(f, "%9s", size);
    }
    fputs("\n", f);
}

static void write_rates(FILE *f, const char *name, const cost_curve *curve)
{
    if (!curve->n)
        return;
    fprintf(f, "  %-22s", name);
    for (int i = 0; i < curve->n; i++)
        fprintf(f, "%9.2f", curve->ns[i] > 0 ? curve->amount[i] / curve->ns[i] : 0);
    fputs("\n", f);
}

static void write_transfers(FILE *f, const costs *costs)
{
    const cost_curve *all[] = {&costs->to_device, &costs->from_device, &costs->read, &costs->write}, *longest = all[0];
    static const char *const names[] = {"host to device", "device to host", "disk, reading", "disk, writing"};
    for (int i = 0; i < 4; i++)
        longest = all[i]->n > longest->n ? all[i] : longest;
    if (!longest->n)
        return;
    fputs("\n", f);
    write_amounts(f, longest);
    for (int i = 0; i < 4; i++)
        write_rates(f, names[i], all[i]);
}

static bool was_run(const costs *costs, int class)
{
    switch (class) {
    case COST_TO_DEVICE: return costs->to_device.n > 0;
    case COST_FROM_DEVICE: return costs->from_device.n > 0;
    case COST_HOST: return costs->to_device.n > 0 && costs->update_host.n > 0;
    case COST_READ: return costs->read.n > 0;
    case COST_WRITE: return costs->write.n > 0;
    default: return costs->read.n > 0 || costs->to_device.n > 0;
    }
}

/* Contention of classes whose longer tasks lose more or less than short ones. */
static void write_other_lengths(FILE *f, const costs *costs, const char *const names[COST_CLASSES])
{
    char length[32], name[64];
    for (int a = 0; a < COST_CLASSES; a++) {
        if (!was_run(costs, a) || !(costs->slow_ns[a][1] > 0))
            continue;
        snprintf(name, sizeof name, "%s, %s", names[a], seconds_format(length, costs->slow_ns[a][1] * 1e-9));
        fprintf(f, "\n  %-22s", name);
        for (int b = 0; b < COST_CLASSES; b++)
            if (was_run(costs, b) && a == b)
                fprintf(f, "%14s", "");
            else if (was_run(costs, b))
                fprintf(f, "%14.2f", costs->slow[a][b] + costs->slow_more[a][b]);
    }
}

static void write_contention(FILE *f, const costs *costs)
{
    static const char *const names[COST_CLASSES] = {"computation", "device update", "to device", "from device", "host update",
                                                    "disk reading", "disk writing"};
    if (!was_run(costs, COST_MATH))
        return;
    fprintf(f, "\n%-24s", "times as long, beside");
    for (int b = 0; b < COST_CLASSES; b++)
        if (was_run(costs, b))
            fprintf(f, "%14s", names[b]);
    for (int a = 0; a < COST_CLASSES; a++) {
        if (!was_run(costs, a))
            continue;
        fprintf(f, "\n  %-22s", names[a]);
        for (int b = 0; b < COST_CLASSES; b++) {
            bool same_queue = a == b || (a <= COST_MEMORY && b <= COST_MEMORY);
            if (was_run(costs, b) && same_queue)
                fprintf(f, "%14s", "");
            else if (was_run(costs, b))
                fprintf(f, "%14.2f", costs->slow[a][b]);
        }
    }
    write_other_lengths(f, costs, names);
    fputs("\n", f);
}

static void write_quota(FILE *f, const costs *costs)
{
    const cost_quota *q = &costs->quota;
    if (q->period_ns > 0 && q->busy[COST_READ] + q->busy[COST_WRITE] > 0)
        fprintf(f, "  disk transfers use processor quota: reads keep %.2f, writes %.2f of %.3g processors busy; when the quota is used "
                   "up,\n  everything stops until the end of its period of %.0f ms\n", q->busy[COST_READ], q->busy[COST_WRITE],
                q->processors, q->period_ns * 1e-6);
}

static void write_wake_latency(FILE *f, const costs *costs)
{
    char pause[32], lost[32];
    const cost_curve *w = &costs->wake_latency;
    if (w->n && w->ns[w->n - 1] > 0)
        fprintf(f, "  wake-up latency: after a pause of %s computation loses %s\n", seconds_format(pause, w->amount[w->n - 1] * 1e-9),
                seconds_format(lost, w->ns[w->n - 1] * 1e-9));
}

static void write_elements(FILE *f, const char *what, const cost_curve *curve)
{
    char time[32], count[32];
    if (curve->n)
        fprintf(f, "  %-22s %s elements in %s, %.2f G elements/s\n", what, count_format(count, (uint64_t)curve->amount[curve->n - 1]),
                seconds_format(time, curve->ns[curve->n - 1] * 1e-9), curve->amount[curve->n - 1] / curve->ns[curve->n - 1]);
}

static void write_fixed(FILE *f, const costs *costs)
{
    char step[32];
    fprintf(f, "  overhead of a task %.2f us", costs->task_ns * 1e-3);
    if (costs->step_ns > 0)
        fprintf(f, ", of a step %s outside its tasks", seconds_format(step, costs->step_ns * 1e-9));
    fputs("\n", f);
}

/* If half of the threads are nearly as fast, memory bandwidth is the limit. */
static void write_threads(FILE *f, const profile_result *result)
{
    if (!result->threads_n)
        return;
    fputs("  by threads           ", f);
    for (int i = 0; i < result->threads_n; i++)
        fprintf(f, "%s %d: %.2f", i ? "," : "", result->threads[i].threads, (double)result->threads[i].amount / result->threads[i].ns);
    fputs(" G elements/s\n", f);
}

/* Work that takes too long to be run three times gets the uncertainty of shorter runs of the same kind. */
static void write_sureness(FILE *f, const profile_result *result)
{
    const costs *costs = &result->costs;
    double others = 0;
    for (int part = 0; part < PROFILE_PARTS; part++)
        others = result->others[part] > others ? result->others[part] : others;
    fprintf(f, "\nTimes of blocks are certain to %.1f%%", 100 * costs->spread);
    if (costs->curves_spread > 0)
        fprintf(f, ", of updates and transfers to %.1f%%", 100 * costs->curves_spread);
    fputs(" (half the interquartile range,\nfor long ones that of shorter runs).\n", f);
    if (others > PROFILE_DISTURBED)
        fprintf(f, "Other programs kept the processors busy for %.0f%% of the time meanwhile.\n", 100 * others);
}

/* ---- all ---- */

/* What the largest of a layer's parameters that are updated whole is updated with; NULL: there is none. Those of a layer are timed, in one
 * curve. */
static const char *title_of_whole(const model *m, const optimizer *o)
{
    const param *largest = NULL;
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        const bool whole = p->kind->block == BLOCK_LAYER && optimizer_rule(o, p)->whole;
        if (whole && (!largest || p->rows * p->cols > largest->rows * largest->cols))
            largest = p;
    }
    return largest ? optimizer_rule(o, largest)->title : NULL;
}

/* The update of the largest parameter that was timed. */
static void write_whole(FILE *f, const char *title, const char *where, const cost_curve *curve)
{
    char a[32], name[64];
    if (!curve->n)
        return;
    snprintf(name, sizeof name, "%s on the %s", title, where);
    fprintf(f, "  %-22s %s for %.3g GFLOP, %.3g GFLOP/s\n", name, seconds_format(a, curve->ns[curve->n - 1] * 1e-9),
            curve->amount[curve->n - 1] * 1e-9, curve->amount[curve->n - 1] / curve->ns[curve->n - 1]);
}

static void write_updates(FILE *f, const profile_request *req, const costs *costs)
{
    const optimizer *o = shape_optimizer(req->shape);
    const char *whole = title_of_whole(req->model, o);
    char name[64];
    snprintf(name, sizeof name, "%s on the device", o->rules[0]->title);
    write_elements(f, name, &costs->update_device);
    snprintf(name, sizeof name, "%s on the host", o->rules[0]->title);
    write_elements(f, name, &costs->update_host);
    if (!whole)
        return;
    write_whole(f, whole, "device", &costs->whole_device);
    write_whole(f, whole, "host", &costs->whole_host);
}

char *profile_text(const profile_request *req, const profile_result *result)
{
    const costs *costs = &result->costs;
    char *text = NULL, a[32], b[32], when[32];
    size_t n;
    time_t at = (time_t)result->measured_at;
    struct tm local;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    write_subject(f, req);
    write_blocks(f, req, costs);
    fprintf(f, "  a step computes for %s if everything is saved, for %s if only the layers' inputs are\n",
            seconds_format(a, step_s(req, costs, SAVE_ALL)), seconds_format(b, step_s(req, costs, SAVE_INPUT)));
    fputs("\nupdates\n", f);
    write_updates(f, req, costs);
    write_threads(f, result);
    write_elements(f, "gradients rounded", &costs->finish);
    write_elements(f, "of the embedding", &costs->embed_finish);
    write_fixed(f, costs);
    write_transfers(f, costs);
    write_contention(f, costs);
    write_wake_latency(f, costs);
    write_quota(f, costs);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime_r(&at, &local));
    write_sureness(f, result);
    fprintf(f, "Layers and head were measured %s; %s took %s.\n", when, result->cached ? "checking the profile" : "measuring the rest",
            seconds_format(a, result->seconds));
    bool failed = ferror(f);
    if (fclose(f) || failed) {
        free(text);
        return NULL;
    }
    return text;
}
