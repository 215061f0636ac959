#include "search/space.h"

#include "layer/sequence.h"
#include "search/stride.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY_CHUNKS = 1200 };

/* ---- sizes of chunks ---- */

/* A chunk's share of the tasks that finish gradients: one for each block with pieces in it. Those of one rank's listed rows are one for all
 * chunks. */
static double finish_ns(const search_input *in, const packing *packing, int chunk)
{
    const bool finishes = packing->chunks[chunk].trained && (packing->ranks > 1 || !packing->chunks[chunk].looked_up);
    double ns = 0;
    for (int i = 0, last = -1; i < packing->chunks[chunk].pieces_n && finishes; i++) {
        const int block = in->model->params[chunk_piece(packing, chunk, i)->param].block;
        if (block != last)
            ns += block_finish_ns(in->costs, in->model, packing, chunk, block) +
                  ranks_sums_ns(in->costs, in->model, packing, chunk, block) + in->costs->task_ns;
        last = block;
    }
    return ns;
}

static void insert_largest(uint64_t to[SPACE_LARGEST], const uint64_t others[SPACE_LARGEST], uint64_t bytes)
{
    for (int k = 0; k < SPACE_LARGEST; k++) {
        const uint64_t other = others[k];
        to[k] = bytes > other ? bytes : other;
        bytes = bytes > other ? other : bytes;
    }
}

static void fill_largest(const search_input *in, chunking *g)
{
    uint64_t trained_weights = 0, trained_states = 0, trained_gradients = 0, gradients_weights = 0;
    for (int c = g->packing.chunks_n - 1; c >= 0; c--) {
        const uint64_t update = g->packing.chunks[c].update_bytes;
        const uint64_t weights = chunk_weight_bytes(&g->packing, c), states = in->training ? chunk_state_bytes(&g->packing, c) : 0;
        const bool trained = g->packing.chunks[c].trained;
        const bool in_no_buffer = g->packing.chunks[c].looked_up && !trained; /* those of a trained one are for its update */
        insert_largest(g->largest[c], g->largest[c + 1], in_no_buffer ? 0 : weights);
        insert_largest(g->trained[c], g->trained[c + 1], trained ? weights : 0);
        g->window[c] = weights + states > g->window[c + 1] ? weights + states : g->window[c + 1];
        const uint64_t listed = g->packing.ranks > 1 && chunk_has_rows(&g->packing, c) ? partial_bytes(&g->packing, in->model, 0, c) : 0;
        g->update_bytes = update > g->update_bytes ? update : g->update_bytes;
        g->listed_bytes = listed > g->listed_bytes ? listed : g->listed_bytes;
        trained_weights += trained ? weights : 0;
        trained_states += trained ? chunk_state_bytes(&g->packing, c) : 0;
        trained_gradients += chunk_gradient_bytes(&g->packing, c);
        gradients_weights += chunk_gradient_bytes(&g->packing, c) ? weights : 0;
    }
    g->gradients = gradients_weights ? (double)trained_gradients / (double)gradients_weights : 0;
    g->states = (double)trained_states / (double)trained_weights; /* nonzero, because something is trained */
}

/* Layers before the first trained one are not read again in backward. */
static void fill_back(const search_input *in, chunking *g)
{
    const int first = model_first_trained(in->model);
    g->back0 = first > 0 ? g->packing.chunks_n : 0;
    for (int i = 0; i < g->packing.pieces_n; i++) {
        const int block = in->model->params[g->packing.pieces[i].param].block, chunk = g->packing.pieces[i].chunk;
        if (block >= first && block < in->model->blocks_n - 1 && chunk < g->back0)
            g->back0 = chunk;
    }
}

/* The head's sums of a tied table are of all rows, and those of the embedding are sent, too. */
static double scatter_ns(const search_input *in, const packing *packing, int chunk)
{
    const costs *costs = in->costs;
    const double all = (double)packing->chunks[chunk].elements * sizeof(float),
                 part = all - untouched_bytes(in->model, in->shape, packing, chunk);
    const bool tied = chunk_has_tied_rows(packing, in->model, chunk);
    if (packing->ranks > 1 && chunk_has_rows(packing, chunk))
        return cost_at(&costs->scatter, listed_bytes(in->model, in->shape, packing, chunk)) + costs->task_ns;
    return packing->ranks > 1
               ? (tied ? cost_at(&costs->scatter, all) + costs->task_ns : 0) + cost_at(&costs->scatter, part) + costs->task_ns
               : 0;
}

static void fill_sums(const search_input *in, chunking *g)
{
    const costs *costs = in->costs;
    static const bool of_frozen[CHUNK_SUMS] = {[SUM_WEIGHT_IN] = true, [SUM_WEIGHT_READ] = true, [SUM_GATHER] = true,
                                               [SUM_SHARD_IN] = true, [SUM_SHARD_READ] = true, [SUM_WEIGHT_BYTES] = true,
                                               [SUM_SHARD_BYTES] = true, [SUM_STATE_BYTES] = true};
    const int ranks = g->packing.ranks;
    const cost_curve *curves[4] = {&costs->to_device, &costs->from_device, &costs->read, &costs->write};
    for (int i = 0; i < g->packing.chunks_n; i++) {
        const bool looked_up = g->packing.chunks[i].looked_up; /* it is moved for its update alone, and never sharded */
        const bool rows = chunk_has_rows(&g->packing, i);
        double weights = (double)chunk_weight_bytes(&g->packing, i), states = (double)chunk_state_bytes(&g->packing, i);
        double shard = looked_up ? weights : (double)chunk_shard_bytes(&g->packing, i);
        double gradient = (double)chunk_gradient_bytes(&g->packing, i);
        double one[CHUNK_SUMS];
        for (int k = 0; k < 4; k++) {
            const bool comes = curves[k] == &costs->to_device || curves[k] == &costs->read;
            const double moved = cost_at(curves[k], weights) + costs->task_ns;
            one[SUM_WEIGHT_IN + k] = looked_up && comes ? 0 : moved;
            one[SUM_STATE_IN + k] = cost_at(curves[k], states) + costs->task_ns + (rows && comes ? moved : 0);
            one[SUM_GRADIENT_IN + k] = rows ? 0 : cost_at(curves[k], gradient) + costs->task_ns;
            one[SUM_SHARD_IN + k] = looked_up ? one[SUM_WEIGHT_IN + k] : cost_at(curves[k], shard) + costs->task_ns;
        }
        one[SUM_GATHER] = ranks > 1 && !looked_up ? cost_at(&costs->gather, weights) + costs->task_ns : 0;
        one[SUM_GATHER_ROWS] = ranks > 1 && rows ? cost_at(&costs->gather, weights) + costs->task_ns : 0;
        one[SUM_SCATTER] = scatter_ns(in, &g->packing, i);
        one[SUM_UPDATE_HOST] = chunk_update_ns(costs, in->model, &g->packing, i, true) + costs->task_ns;
        one[SUM_UPDATE_DEVICE] = chunk_update_ns(costs, in->model, &g->packing, i, false) + costs->task_ns;
        one[SUM_FINISH] = finish_ns(in, &g->packing, i);
        one[SUM_WEIGHT_BYTES] = weights;
        one[SUM_STATE_BYTES] = states;
        one[SUM_SHARD_BYTES] = shard;
        one[SUM_GRADIENT_BYTES] = gradient;
        for (int k = 0; k < CHUNK_SUMS; k++)
            g->sum[k][i + 1] = g->sum[k][i] + (g->packing.chunks[i].trained || of_frozen[k] ? one[k] : 0);
    }
    fill_largest(in, g);
    fill_back(in, g);
}

/* The most chunks that one task of a block reads. Counts its tasks. */
static int chunks_of_task(const search_input *in, chunking *g, int block, const unsigned char *needed)
{
    const plan ranges = {.ranges = g->ranges};
    const schedule_input s = {.model = in->model, .shape = in->shape, .packing = &g->packing, .plan = &ranges};
    layer_layout layout;
    layer_parts parts = {1, {{.whole = true}}};
    int most = 0;
    if (g->ranges && block && block < in->model->blocks_n - 1) {
        layer_layout_init(&layout, in->model, block - 1, in->shape, SAVE_INPUT);
        schedule_parts(&s, &layout, block, true, &parts);
    }
    for (int part = 0; part < parts.n; part++) {
        int n = 0;
        for (int c = 0; c < g->packing.chunks_n; c++)
            n += needed[c] && schedule_part_reads(&s, &parts.part[part], c);
        most = n > most ? n : most;
    }
    g->layer_tasks += 2 * parts.n;
    return most;
}

static int fill_at_once(const search_input *in, chunking *g)
{
    g->ranges = in->by_ranges && packing_cuts_experts(&g->packing, in->model);
    for (int c = 0; c < g->packing.chunks_n; c++)
        g->looked_up += g->packing.chunks[c].looked_up;
    unsigned char *needed = malloc((size_t)g->packing.chunks_n + 1);
    for (int block = 0; needed && block < in->model->blocks_n; block++) {
        block_chunks(in->model, &g->packing, block, needed);
        const int n = chunks_of_task(in, g, block, needed);
        g->at_once = n > g->at_once ? n : g->at_once;
        if (block && block < in->model->blocks_n - 1)
            g->per_layer = n > g->per_layer ? n : g->per_layer;
    }
    free(needed);
    return needed ? 0 : -1;
}

static void chunking_close(chunking *g)
{
    packing_free(&g->packing);
    free(g->sum[0]);
    free(g->largest);
    free(g->trained);
    free(g->window);
    memset(g, 0, sizeof *g);
}

bool space_same_chunks(const packing *a, const packing *b)
{
    bool same = a->chunks_n == b->chunks_n;
    for (int i = 0; i < a->chunks_n && same; i++)
        same = a->chunks[i].elements == b->chunks[i].elements && a->chunks[i].piece0 == b->chunks[i].piece0;
    return same;
}

static void fill_slow(const costs *costs, chunking *g)
{
    const cost_curve *const moves[COST_CLASSES] = {[COST_TO_DEVICE] = &costs->to_device, [COST_FROM_DEVICE] = &costs->from_device,
                                                   [COST_READ] = &costs->read, [COST_WRITE] = &costs->write};
    for (int a = 0; a < COST_CLASSES; a++)
        for (int b = 0; b < COST_CLASSES; b++)
            g->slow[a][b] = costs_slow(costs, (cost_class)a, (cost_class)b,
                                       moves[a] ? cost_at(moves[a], (double)g->largest[0][0]) : costs->slow_ns[a][0]);
}

/* Adds a size of chunk, unless it gives the same chunks as another size, or too many. */
static int add_chunking(space *space, int64_t chunk_bytes, pt_error *e)
{
    const search_input *in = space->in;
    chunking *g = &space->chunkings[space->chunkings_n];
    if (space->chunkings_n == SPACE_CHUNKINGS || chunk_bytes < PLAN_MIN_CHUNK_BYTES || chunk_bytes > PLAN_MAX_CHUNK_BYTES)
        return 0;
    memset(g, 0, sizeof *g);
    int failed = pack(in->model, in->shape, chunk_bytes, &g->packing, e);
    if (failed)
        return failed;
    bool known = space->chunkings_n > 0 && g->packing.chunks_n > MANY_CHUNKS;
    for (int i = 0; i < space->chunkings_n && !known; i++)
        known = space_same_chunks(&space->chunkings[i].packing, &g->packing);
    if (known) {
        chunking_close(g);
        return 0;
    }
    size_t n = (size_t)g->packing.chunks_n + 1;
    g->sum[0] = calloc(n * CHUNK_SUMS, sizeof **g->sum);
    g->largest = calloc(n, sizeof *g->largest);
    g->trained = calloc(n, sizeof *g->trained);
    g->window = calloc(n, sizeof *g->window);
    for (int k = 1; k < CHUNK_SUMS && g->sum[0]; k++)
        g->sum[k] = g->sum[0] + n * (size_t)k;
    if (!g->sum[0] || !g->largest || !g->trained || !g->window || fill_at_once(in, g) < 0) {
        chunking_close(g);
        return pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    }
    fill_sums(in, g);
    fill_slow(in->costs, g);
    space->chunkings_n++;
    return 0;
}

/* Bytes of one layer's weights in its own chunk. */
static int64_t layer_bytes(const search_input *in)
{
    const packing type = {.type = in->shape->type};
    int64_t elements = 0;
    for (int i = 0; i < in->model->params_n; i++) {
        const param *p = &in->model->params[i];
        if (p->block == 1)
            elements += (int64_t)align_up((uint64_t)piece_elements(&type, p, 0, p->rows), 32);
    }
    return elements * (int64_t)dtype_bytes(in->shape->type);
}

static int add_chunkings(space *space, pt_error *e)
{
    int64_t layer = layer_bytes(space->in);
    const int64_t sizes[] = {layer, 64 << 20, layer * 4, layer / 2, 16 << 20, 256 << 20, layer / 4, 1 << 30, 4 << 20, layer * 2,
                             layer / 8, 1 << 20};
    int failed = space->in->chunk_bytes ? add_chunking(space, space->in->chunk_bytes, e) : 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !failed && !space->in->chunk_bytes; i++)
        failed = add_chunking(space, sizes[i], e);
    if (!failed && !space->chunkings_n) /* layers smaller than the smallest chunk */
        failed = add_chunking(space, PLAN_MIN_CHUNK_BYTES, e);
    return failed;
}

/* ---- the step ---- */

bool space_is_asked_for(const search_input *in, int64_t units)
{
    return !in->micro_batch || units * in->shape->unit_seqs == in->micro_batch;
}

static int divisors(int64_t n)
{
    int count = 0;
    for (int64_t d = 1; d <= n; d++)
        count += n % d == 0;
    return count;
}

bool space_divides(const search_input *in, int64_t units)
{
    return in->shape->units_n % units == 0 && in->part_of_units % units == 0 && units % shape_together(in->shape) == 0;
}

/* Visits of all `micros` micro-batches of a step, of fewer and fewer, down to one: `most` of them, including both ends. */
static void add_visits(space *space, int64_t micro, int micros, int most)
{
    const int64_t units = micro / space->in->shape->unit_seqs;
    for (int visit = micros, n = 0; visit > 0; visit--) {
        if (!space_divides(space->in, units * visit) || (visit > 1 && (!space->in->training || n >= most - 1)))
            continue;
        space->splits[space->splits_n++] = (split){micro, visit};
        n++;
    }
}

/* From the largest micro-batch to the smallest. If a step can be divided in more ways than the table holds, some micro-batches and visits
 * in between are left out. */
static void add_splits(space *space)
{
    enum { SIZES = SPACE_SPLITS / 2 };
    const step_shape *shape = space->in->shape;
    int sizes = 0, ways = 0, size = 0;
    for (int64_t units = shape->units_n; units > 0; units--)
        if (space_divides(space->in, units) && space_is_asked_for(space->in, units)) {
            sizes++;
            ways += space->in->training ? divisors(shape->units_n / units) : 1;
        }
    const bool all = ways <= SPACE_SPLITS;
    const int kept = all || sizes < SIZES ? sizes : SIZES, most = all ? SPACE_SPLITS : SPACE_SPLITS / kept;
    for (int64_t units = shape->units_n; units > 0; units--) {
        if (!space_divides(space->in, units) || !space_is_asked_for(space->in, units))
            continue;
        if (kept == sizes || size * (kept - 1) / (sizes - 1) != (size - 1) * (kept - 1) / (sizes - 1) || !size)
            add_visits(space, units * shape->unit_seqs, (int)(shape->units_n / units), most);
        size++;
    }
}

static uint64_t paged(uint64_t bytes) { return align_up(bytes, 4096); }

static void fill_sizes(space *space)
{
    const model *m = space->in->model;
    const step_shape *shape = space->in->shape;
    uint64_t tokens = (uint64_t)(shape->batch * shape->seq_len);
    head_layout_init(&space->head, m, shape);
    space->placement_bytes = paged(tokens * batch_token_bytes(m, shape)) + paged(loss_bytes(shape)) +
                    paged((uint64_t)sumsq_count(m) * sizeof(double)) + paged(routing_bytes(m, shape)) +
                    paged((uint64_t)(shape_length(shape) * m->config.head_dim) * sizeof(float));
    space->input_bytes = paged((uint64_t)(shape->unit_rows * m->config.hidden) * dtype_bytes(shape->type));
    space->residual_bytes = residual_bytes(m, shape);
    carried_layout_init(&space->carries, m, shape);
    space->rows_bytes = schedule_rows_bytes(m, shape);
    space->rows_gradient_bytes = space->in->training && inputs_are_trained(m) ? schedule_rows_gradient_bytes(m, shape) : 0;
    space->rows_sums_bytes = space->rows_gradient_bytes && space_is_shared(space) ? schedule_rows_sums_bytes(m, shape) : 0;
    space->rows_finish_ns = space->rows_gradient_bytes ? rows_finish_ns(space->in->costs, m, shape) + space->in->costs->task_ns : 0;
    for (int block = 1; block < m->blocks_n; block++) {
        const uint64_t bytes = paged(accumulator_bytes(m, shape, block));
        space->accumulator_all += bytes;
        if (block <= space->layers)
            space->accumulator_layer = bytes > space->accumulator_layer ? bytes : space->accumulator_layer;
        else
            space->accumulator_head = bytes;
    }
}

/* Chooses the stride by the rates of chunks of the first size; rates hardly depend on the size. */
static int model_stride(const space *space)
{
    double elements = (double)space->chunkings[0].packing.chunk_bytes / (double)dtype_bytes(space->in->shape->type);
    const stride_rates r = stride_rates_of(space->in->costs, elements);
    return stride_choose(&r);
}

bool search_has_ranges(const search_input *in)
{
    bool has = false;
    if (in->costs->network_ns || shape_parts(in->shape) > 1)
        return false;
    for (int i = 0; i < in->model->config.layers && !has; i++)
        has = layer_parts_are_possible(in->model, i);
    return has;
}

static void add_heads(const space *space, int layer, const layer_layout *layout, bool backward, heads_bytes *out)
{
    layer_parts parts;
    sequence_parts(&parts, space->in->model, layer, space->in->shape, layout, backward);
    for (int i = 0; i < parts.n; i++)
        if (parts.part[i].kind == PART_EXCHANGE) {
            out->backward[out->n] = backward;
            out->bytes[out->n++] = parts.part[i].bytes;
        }
}

static int list_heads(space *space)
{
    const layer_set *all = &space->layouts;
    if (shape_sharers(space->in->shape) < 2)
        return 0;
    space->heads = calloc((size_t)all->kinds_n, sizeof *space->heads);
    for (int layer = 0; space->heads && layer < space->layers; layer++)
        for (int level = 0; level < SAVE_LEVELS; level++) {
            heads_bytes *of = &space->heads[all->kind[layer]][level];
            if (of->n)
                continue; /* a layer of the kind is listed */
            add_heads(space, layer, layer_set_layout(all, layer, (save_level)level), false, of);
            add_heads(space, layer, layer_set_layout(all, layer, (save_level)level), true, of);
        }
    return space->heads ? 0 : -1;
}

int space_open(space *space, const search_input *in, pt_error *e)
{
    memset(space, 0, sizeof *space);
    space->given = *in;
    space->given.layouts = &space->layouts;
    space->in = &space->given;
    space->layers = (int)in->model->config.layers;
    space->first_trained = model_first_trained(in->model);
    space->passing = model_passing_layers(in->model);
    memcpy(space->budget, in->budget, sizeof space->budget);
    if (!in->host_tier)
        space->budget[TIER_HOST] = 0;
    memcpy(space->fill, space->budget, sizeof space->fill);
    if (layer_set_init(&space->layouts, in->model, in->shape, e))
        return PT_FAILED;
    fill_sizes(space);
    if (list_heads(space))
        return pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    add_splits(space);
    space->memory = memory_open();
    int failed = !space->memory    ? pt_fail(e, PT_FAILED, "out of memory while searching for a plan")
                 : space->splits_n ? add_chunkings(space, e)
                               : pt_fail(e, PT_FAILED, "no micro-batch of %lld sequences divides the batch of %lld in units of %lld",
                                       (long long)in->micro_batch, (long long)in->shape->batch, (long long)in->shape->unit_seqs);
    if (failed)
        space_close(space);
    else if (in->host_tier && in->training)
        space->stride = model_stride(space);
    return failed;
}

void space_close(space *space)
{
    for (int i = 0; i < space->chunkings_n; i++)
        chunking_close(&space->chunkings[i]);
    space->chunkings_n = 0;
    memory_close(space->memory);
    space->memory = NULL;
    layer_set_free(&space->layouts);
    free(space->heads);
    space->heads = NULL;
}

void space_correct(space *space, const candidate *cand, const uint64_t needs[TIERS])
{
    estimate about;
    candidate_estimate(space, cand, &about);
    for (int t = 0; t < TIERS; t++) {
        uint64_t have = space->budget[t] + about.bytes[t];
        space->fill[t] = have > needs[t] ? have - needs[t] : 0;
    }
}

/* ---- candidates ---- */

void candidate_blocks(const space *space, candidate *cand, int first, int end, save_level level, tier place)
{
    for (int i = first < space->passing ? space->passing : first; i < end && i < space->layers; i++) {
        cand->level[i] = (unsigned char)level;
        cand->place[i] = (unsigned char)place;
    }
}

void candidate_init(const space *space, candidate *cand, int chunking)
{
    memset(cand, 0, sizeof *cand);
    cand->chunking = chunking;
    cand->persist = cand->whole = candidate_chunks(space, cand);
    cand->n_buffer = space->chunkings[chunking].at_once;
    cand->n_update = 2;
    cand->n_swap = 3;
    cand->stride = space->in->host_tier ? UPDATE_STRIDE_NONE : 1;
    cand->micro_batch = space->splits[space->splits_n - 1].micro_batch;
    cand->visit = 1;
    cand->update = search_first_update(space->in);
}

static int clamp_int(int n, int low, int high) { return n > high ? high : n < low ? low : n; }

void candidate_normalise(const space *space, candidate *cand)
{
    const chunking *g = &space->chunkings[cand->chunking];
    int chunks = g->packing.chunks_n, swapped = 0;
    cand->persist = clamp_int(cand->persist, 0, chunks);
    cand->on_host = space->in->host_tier ? clamp_int(cand->on_host, 0, chunks - cand->persist) : 0;
    cand->whole = space_is_shared(space) ? clamp_int(cand->whole, 0, chunks) : chunks;
    cand->n_buffer = clamp_int(cand->n_buffer, g->at_once, chunks < PLAN_MAX_SLOTS ? chunks : PLAN_MAX_SLOTS);
    cand->n_update = clamp_int(cand->n_update, 1, 16);
    for (int i = 0; i < space->passing; i++)
        cand->level[i] = SAVE_INPUT, cand->place[i] = TIER_DEVICE;
    for (int i = 0; i < space->layers; i++)
        swapped += cand->place[i] != TIER_DEVICE;
    cand->n_swap = clamp_int(cand->n_swap, 2, 2 + swapped * cand->visit < PLAN_MAX_SLOTS ? 2 + swapped * cand->visit : PLAN_MAX_SLOTS);
    if (candidate_resident(cand) == chunks)
        cand->n_buffer = g->at_once;
    if (cand->persist == chunks) {
        cand->n_update = 2;
        cand->stride = 0;
    }
    if (!space_updates_on_host(space))
        cand->stride = 1;
    if (!swapped)
        cand->n_swap = 2;
}

static uint64_t mix(uint64_t h, uint64_t n) { return (h ^ n) * 0x9e3779b97f4a7c15u ^ (h >> 29); }

uint64_t candidate_kind(const candidate *cand)
{
    const int numbers[] = {cand->chunking, cand->n_buffer, cand->n_update, cand->n_swap, cand->stride, cand->visit, (int)cand->update};
    uint64_t h = mix(0x8d1f3a77u, (uint64_t)cand->micro_batch);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        h = mix(h, (uint64_t)numbers[i]);
    return h ? h : 1;
}

uint64_t candidate_hash(const space *space, const candidate *cand)
{
    uint64_t h = mix(mix(mix(candidate_kind(cand), (uint64_t)cand->persist), (uint64_t)cand->on_host), (uint64_t)cand->whole);
    for (int i = 0; i < space->layers; i++)
        h = mix(h, (uint64_t)(cand->level[i] * TIERS + cand->place[i]));
    return h ? h : 1;
}

static tier update_place(const space *space, const candidate *cand, int chunk)
{
    int away = chunk - cand->persist;
    bool on_device = away < 0 || !space_updates_on_host(space) || (cand->stride && away % cand->stride == cand->stride - 1);
    return on_device ? TIER_DEVICE : TIER_HOST;
}

int candidate_plan(const space *space, const candidate *cand, plan *plan, pt_error *e)
{
    const packing *packing = &space->chunkings[cand->chunking].packing;
    int failed = plan_alloc(plan, packing->chunks_n, space->layers, e);
    if (failed)
        return failed;
    plan->chunk_bytes = packing->chunk_bytes;
    plan->n_buffer = cand->n_buffer;
    plan->n_update = cand->n_update;
    plan->n_swap = cand->n_swap;
    plan->micro_batch = cand->micro_batch;
    plan->visit = cand->visit;
    plan->update = cand->update;
    plan->ranges = space->chunkings[cand->chunking].ranges;
    for (int i = 0; i < packing->chunks_n; i++) {
        tier placement = i < cand->persist ? TIER_DEVICE : i < cand->persist + cand->on_host ? TIER_HOST : TIER_DISK;
        plan->chunks[i] = (plan_chunk){placement, packing->chunks[i].trained ? update_place(space, cand, i) : TIER_DEVICE,
                                      i >= cand->whole && !packing->chunks[i].looked_up};
    }
    for (int i = 0; i < space->layers; i++)
        plan->blocks[i] = (plan_block){(save_level)cand->level[i], (tier)cand->place[i]};
    return 0;
}

int space_priced_plan(const space *space, const priced *x, const char *name, priced_plan *out, pt_error *e)
{
    const packing *packing = &space->chunkings[x->candidate.chunking].packing;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", name);
    int failed = pack(space->in->model, space->in->shape, packing->chunk_bytes, &out->packing, e);
    if (!failed)
        failed = candidate_plan(space, &x->candidate, &out->plan, e);
    out->step_ns = x->step_ns;
    memcpy(out->bytes, x->bytes, sizeof out->bytes);
    if (failed)
        priced_plan_free(out);
    return failed;
}
