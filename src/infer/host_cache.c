#include "infer/host_cache.h"

#include "base/clock.h"

#include <stdlib.h>

/* GRID: fetched rows begin at a multiple of it, as attention's kernels take keys in tiles from the first on. */
enum { SLOTS = 2, LINE = 64, GRID = 256 };

/* What passes through a slot: a block of `owner`'s cache, which `layer` reads. */
typedef struct passage { int layer, owner, block; } passage;

struct host_cache {
    cache_shape s;
    device *device;
    queue *compute, *fetching, *storing;
    char *store, *slot[SLOTS];
    uint64_t store_bytes;
    uint64_t *at;               /* of each layer in the store */
    passage *list;              /* of one pass over the layers */
    int n, fetched, used;       /* of the list */
    int64_t past, rows;
    uint64_t ready[SLOTS], freed[SLOTS], stored; /* values of fetching, of storing, and the last one of storing */
};

/* ---- sizes ---- */

static bool has_cache(const model_config *config, int layer) { return model_attends(config, layer) && !model_reads_kv(config, layer); }

int inference_cache_layers(const model *m)
{
    int n = 0;
    for (int l = 0; l < m->config.layers; l++)
        n += has_cache(&m->config, l);
    return n;
}

int inference_cache_blocks(const model *m)
{
    int64_t most = 1;
    for (int l = 0; l < m->config.layers; l++)
        if (has_cache(&m->config, l) && model_heads(&m->config, l).kv_heads > most)
            most = model_heads(&m->config, l).kv_heads;
    return (int)most;
}

uint64_t cache_row_bytes(const cache_shape *s, int layer)
{
    return layer_cache_bytes(&layer_set_layout(s->layers, layer, SAVE_INPUT)->program, s->model, layer, s->shape);
}

/* n of `of` are taken, spread evenly: is the i-th one? */
static bool is_taken(int i, int n, int of) { return (int64_t)(i + 1) * n / of > (int64_t)i * n / of; }

bool cache_is_away(const cache_shape *s, int layer)
{
    const model_config *config = &s->model->config;
    const int owner = model_kv_layer(config, layer);
    int same = 0, before = 0, windows = 0; /* layers with a cache: with a window, or all without one */
    if (!s->plan.away || !has_cache(config, owner))
        return false;
    for (int l = 0; l < config->layers; l++) {
        if (!has_cache(config, l))
            continue;
        windows += config->window[l] > 0;
        same += !config->window[l] == !config->window[owner];
        before += l < owner && !config->window[l] == !config->window[owner];
    }
    const int first = s->plan.away < windows ? s->plan.away : windows;
    return is_taken(before, config->window[owner] ? first : s->plan.away - first, same);
}

/* The least divisor of the heads of k and v that is not less than s->plan.blocks, and at most their number. */
static int blocks_of(const cache_shape *s, int owner)
{
    const int heads = (int)model_heads(&s->model->config, owner).kv_heads;
    int n = s->plan.blocks < 1 ? 1 : s->plan.blocks > heads ? heads : s->plan.blocks;
    while (heads % n)
        n++;
    return n;
}

static uint64_t block_row_bytes(const cache_shape *s, int owner) { return cache_row_bytes(s, owner) / (uint64_t)blocks_of(s, owner); }

/* The first of `past` rows that the layer may read. */
static int64_t first_row(const cache_shape *s, int layer, int64_t past)
{
    const int64_t window = s->model->config.window[layer];
    return window && past > window ? (past - window) / GRID * GRID : 0;
}

/* Rows of a slot, at most. */
static int64_t slot_rows(const cache_shape *s, int layer)
{
    const int64_t window = s->model->config.window[layer], most = window + GRID + s->rows;
    return window && most < s->context ? most : s->context;
}

static uint64_t one_slot(const cache_shape *s)
{
    uint64_t most = 0;
    for (int l = 0; l < s->model->config.layers; l++) {
        const uint64_t bytes = cache_is_away(s, l)
                                   ? (uint64_t)slot_rows(s, l) * block_row_bytes(s, model_kv_layer(&s->model->config, l)) : 0;
        most = bytes > most ? bytes : most;
    }
    return align_up(most, LINE);
}

uint64_t cache_slot_bytes(const cache_shape *s) { return SLOTS * one_slot(s); }

static bool is_stored(const cache_shape *s, int layer) { return has_cache(&s->model->config, layer) && cache_is_away(s, layer); }

uint64_t cache_store_bytes(const cache_shape *s)
{
    uint64_t sum = 0;
    for (int l = 0; l < s->model->config.layers; l++)
        sum += is_stored(s, l) ? align_up((uint64_t)s->context * cache_row_bytes(s, l), LINE) : 0;
    return sum;
}

uint64_t cache_fetch_bytes(const cache_shape *s)
{
    uint64_t sum = 0;
    for (int l = 0; l < s->model->config.layers; l++)
        if (cache_is_away(s, l))
            sum += (uint64_t)(s->context - first_row(s, l, s->context)) * cache_row_bytes(s, model_kv_layer(&s->model->config, l));
    return sum;
}

/* ---- life ---- */

static int make_list(host_cache *c, pt_error *e)
{
    const model_config *m = &c->s.model->config;
    c->at = calloc((size_t)m->layers, sizeof *c->at);
    c->list = malloc((size_t)(m->layers * inference_cache_blocks(c->s.model)) * sizeof *c->list);
    if (!c->at || !c->list)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int l = 0; l < m->layers; l++) {
        const int owner = model_kv_layer(m, l);
        if (is_stored(&c->s, l)) {
            c->at[l] = c->store_bytes;
            c->store_bytes += align_up((uint64_t)c->s.context * cache_row_bytes(&c->s, l), LINE);
        }
        for (int b = 0; cache_is_away(&c->s, l) && b < blocks_of(&c->s, owner); b++)
            c->list[c->n++] = (passage){l, owner, b};
    }
    return 0;
}

int host_cache_open(const cache_shape *s, device *d, void *slots, host_cache **out, pt_error *e)
{
    void *base;
    host_cache *c = *out = calloc(1, sizeof *c);
    if (!c)
        return pt_fail(e, PT_FAILED, "out of memory");
    *c = (host_cache){.s = *s, .device = d};
    for (int i = 0; i < SLOTS; i++)
        c->slot[i] = (char *)slots + (uint64_t)i * one_slot(s);
    int failed = make_list(c, e);
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_HOST, c->store_bytes, &base, e)))
        c->store = base;
    if (!failed)
        failed = d->table->queue_open(d, "cache", 1, &c->fetching, e);
    if (!failed)
        failed = d->table->queue_open(d, "store", 1, &c->storing, e);
    if (failed) {
        host_cache_close(c);
        *out = NULL;
    }
    return failed;
}

void host_cache_close(host_cache *c)
{
    if (!c)
        return;
    pt_error e;
    queue *const queues[] = {c->fetching, c->storing};
    for (int i = 0; i < 2; i++)
        if (queues[i]) {
            queue_sync(queues[i], queue_signal(queues[i]), &e);
            queues[i]->device->table->queue_close(queues[i]);
        }
    c->device->table->memory_close(c->device, MEMORY_HOST, c->store, c->store_bytes);
    free(c->at);
    free(c->list);
    free(c);
}

/* ---- a pass ---- */

static char *stored_row(const host_cache *c, const passage *p, int64_t row)
{
    const uint64_t bytes = block_row_bytes(&c->s, p->owner);
    return c->store + c->at[p->owner] + ((uint64_t)p->block * (uint64_t)c->s.context + (uint64_t)row) * bytes;
}

static bool reads_other(const passage *p) { return p->layer != p->owner; }

/* Another's block has the rows that are fed, too. */
static void fetch(host_cache *c)
{
    const passage *p = &c->list[c->fetched];
    const int slot = c->fetched % SLOTS;
    const int64_t from = first_row(&c->s, p->layer, c->past), to = c->past + (reads_other(p) ? c->rows : 0);
    const uint64_t free_at = reads_other(p) ? c->stored : c->freed[slot];
    if (free_at)
        queue_wait(c->fetching, c->storing, free_at);
    if (to > from)
        queue_submit(c->fetching, &(op){OP_COPY, .copy = {c->slot[slot], stored_row(c, p, from),
                                                          (size_t)((uint64_t)(to - from) * block_row_bytes(&c->s, p->owner))}});
    c->ready[slot] = queue_signal(c->fetching);
    c->fetched++;
}

/* As far ahead as there are slots; another's block not before its rows were put back. */
static void fetch_ahead(host_cache *c)
{
    while (c->fetched < c->n && c->fetched < c->used + SLOTS && (c->fetched == c->used || !reads_other(&c->list[c->fetched])))
        fetch(c);
}

void host_cache_begin(host_cache *c, queue *compute, int64_t past, int64_t rows)
{
    c->compute = compute;
    c->past = past;
    c->rows = rows;
    c->fetched = c->used = 0;
    fetch_ahead(c);
}

static cache_rows enter(void *arg)
{
    host_cache *c = arg;
    const int slot = c->used % SLOTS;
    fetch_ahead(c);
    queue_wait(c->compute, c->fetching, c->ready[slot]);
    return (cache_rows){c->slot[slot], c->past - first_row(&c->s, c->list[c->used].layer, c->past)};
}

static void leave(void *arg)
{
    host_cache *c = arg;
    const passage *p = &c->list[c->used];
    const int slot = c->used % SLOTS;
    const uint64_t row = block_row_bytes(&c->s, p->owner);
    const int64_t from = first_row(&c->s, p->layer, c->past);
    queue_wait(c->storing, c->compute, queue_signal(c->compute));
    if (!reads_other(p))
        queue_submit(c->storing, &(op){OP_COPY, .copy = {stored_row(c, p, c->past), c->slot[slot] + (uint64_t)(c->past - from) * row,
                                                         (size_t)((uint64_t)c->rows * row)}});
    c->stored = c->freed[slot] = queue_signal(c->storing);
    c->used++;
}

cache_parts host_cache_parts(host_cache *c, int layer)
{
    if (!c || !cache_is_away(&c->s, layer))
        return (cache_parts){0};
    return (cache_parts){.n = blocks_of(&c->s, model_kv_layer(&c->s.model->config, layer)), .enter = enter, .leave = leave, .arg = c};
}

int host_cache_check(host_cache *c, pt_error *e)
{
    const int failed = queue_sync(c->fetching, queue_signal(c->fetching), e);
    return failed ? failed : queue_sync(c->storing, queue_signal(c->storing), e);
}

int host_cache_measure(host_cache *c, queue *compute, double *seconds, pt_error *e)
{
    const double begun = clock_s();
    host_cache_begin(c, compute, c->s.context - 1, 1);
    while (c->used < c->n) {
        enter(c);
        leave(c);
    }
    int failed = queue_sync(compute, queue_signal(compute), e);
    if (!failed)
        failed = host_cache_check(c, e);
    *seconds = clock_s() - begun;
    return failed;
}
