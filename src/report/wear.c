/* wear.c - ways to write less to the disk, counted from what a steady step of the plan writes there:
 *
 *     a step      weights, states, gradients that wait | saved activations        of chunks and layers on the disk
 *     `optimizer` adamw8bit                the states shrink as their packing does
 *     `batch_size` 2 N                     the first part is written once for twice the tokens
 *     `train_blocks` half of the layers    the first part shrinks as the states of the chunks of one turn
 *     `max_grad_norm` 0                    updates run during backward, so that no gradient waits
 *
 * A plan of its own may write less, because what is freed in memory holds what was on the disk; or a little more, where a larger batch
 * takes memory from states.
 */
#include "report/explain.h"

#include <stdio.h>

/* Bytes of states of trained chunks on the disk; packed for another optimizer where one is given. False: its chunks are others. */
static bool states_on_disk(const explanation *x, const optimizer *o, double *bytes)
{
    const plan *plan = &x->in->best->plan;
    step_shape shape = *x->in->search->shape;
    packing packing;
    shape.optimizer = o;
    if (pack(x->in->search->model, &shape, plan->chunk_bytes, &packing, NULL))
        return false;
    const bool same = packing.chunks_n == plan->chunks_n;
    *bytes = 0;
    for (int i = 0; i < plan->chunks_n && same; i++)
        *bytes += plan->chunks[i].placement == TIER_DISK && packing.chunks[i].trained ? (double)chunk_state_bytes(&packing, i) : 0;
    packing_free(&packing);
    return same;
}

/* The largest share of the trained values on the disk that one turn of `layers` neighbouring layers has. */
static double share_of_turn(const explanation *x, int64_t layers)
{
    const model *m = x->in->search->model;
    const packing *packing = &x->in->best->packing;
    double of_turn[2] = {0}, all = 0;
    for (int i = 0; i < packing->pieces_n; i++) {
        const piece *piece = &packing->pieces[i];
        const param *a = &m->params[piece->param];
        const double values = (double)(piece->rows * a->cols);
        const bool counts = x->in->best->plan.chunks[piece->chunk].placement == TIER_DISK && a->trainable;
        all += counts ? values : 0;
        if (counts && a->block >= 1 && a->block <= m->config.layers)
            of_turn[(a->block - 1) / layers] += values;
    }
    const double most = of_turn[0] > of_turn[1] ? of_turn[0] : of_turn[1];
    return all > 0 ? most / all : 0;
}

static void add(wear_way out[WEAR_WAYS], int *n, double now, double bytes, const char *options)
{
    if (bytes >= 0.95 * now)
        return;
    out[*n].bytes_per_token = bytes;
    snprintf(out[(*n)++].options, sizeof out->options, "%s", options);
}

static void add_count(wear_way out[WEAR_WAYS], int *n, double now, double bytes, const char *option, int64_t value)
{
    char options[48];
    snprintf(options, sizeof options, "%s %lld", option, (long long)value);
    add(out, n, now, bytes, options);
}

int explain_wear(const explanation *x, double *now, wear_way out[WEAR_WAYS])
{
    const forecast *f = &x->forecast;
    const search_input *in = x->in->search;
    const model *m = in->model;
    const optimizer *o = shape_optimizer(in->shape);
    const double tokens = (double)(in->shape->batch * in->shape->seq_len);
    const double activations = (double)f->written[PART_ACTIVATIONS], updates = (double)f->written_bytes - activations;
    const double states = (double)f->written[PART_OPTIMIZER];
    double before, after;
    int n = 0;
    *now = (double)f->written_bytes / tokens;
    if (!f->written_bytes || !(updates > 0))
        return 0;
    if (o == &optimizer_adamw && states_on_disk(x, o, &before) && states_on_disk(x, &optimizer_adamw8bit, &after) && before > 0)
        add(out, &n, *now, (activations + updates - states * (1 - after / before)) / tokens, "--optimizer adamw8bit");
    add_count(out, &n, *now, (activations + updates / 2) / tokens, "--batch-size", 2 * shape_sequences(in->shape));
    if (m->config.layers > 1 && model_trains_all(m)) {
        const int64_t layers = (m->config.layers + 1) / 2;
        add_count(out, &n, *now, (activations + updates * share_of_turn(x, layers)) / tokens, "--train-blocks", layers);
    }
    if (in->clipping)
        add(out, &n, *now, ((double)f->written_bytes - (double)f->written[PART_GRADIENTS]) / tokens, "--max-grad-norm 0");
    return n;
}
