#include "plan/cut.h"

#include "model/storage.h"

#include <stdlib.h>
#include <string.h>

enum { PARTIAL_ALIGN = 16 };
enum { ALIGN_ELEMENTS = 32, CHUNK_ELEMENTS = 2048, ALIGN_SLAB = 128, PAGE = 4096 };

static int64_t aligned(int64_t n) { return (int64_t)align_up((uint64_t)n, ALIGN_ELEMENTS); }

int64_t piece_elements(const packing *packing, const param *a, int64_t row0, int64_t rows)
{
    if (a->storage != STORAGE_PLAIN)
        return (int64_t)(storage_rows_bytes(a, (storage_rows){row0, rows}) / dtype_bytes(packing->type));
    return rows * a->cols * (int64_t)(dtype_bytes(param_type(a, packing->type)) / dtype_bytes(packing->type));
}

/* Of such a table few rows are read. */
static bool comes_last(const param *a) { return a->role == PARAM_LAYER_TOKENS; }

static int64_t block_elements(const packing *packing, const model *m, int block, bool trained)
{
    int64_t n = 0;
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].block == block && m->params[i].trainable == trained && !comes_last(&m->params[i]))
            n += aligned(piece_elements(packing, &m->params[i], 0, m->params[i].rows));
    return n;
}

/* Two chunks are open at a time, one for trained and one for frozen parameters. A chunk gets its number with its first piece. */
typedef struct packer {
    packing *p;
    const model *m;
    int64_t limit;
    struct { int chunk, block, alone; int64_t used; } open[2];
        /* [trained]; chunk -1: none; block: that of its latest piece; alone: the parameter whose ranges it has, -1: none */
} packer;

static void close_chunk(packer *k, bool trained)
{
    if (k->open[trained].chunk >= 0)
        k->p->chunks[k->open[trained].chunk].elements = (int64_t)align_up((uint64_t)k->open[trained].used, CHUNK_ELEMENTS);
    k->open[trained].chunk = -1;
    k->open[trained].used = 0;
}

static void add_piece(packer *k, int at, int index, int64_t row0, int64_t rows)
{
    const param *a = &k->m->params[index];
    const bool trained = a->trainable;
    int64_t elements = aligned(piece_elements(k->p, a, row0, rows));
    const int alone = rows < a->rows && a->kind->use == USE_EXPERTS ? index : -1; /* ranges of experts are read apart from all else */
    if (k->open[trained].used && (k->open[trained].used + elements > k->limit || k->open[trained].alone != alone))
        close_chunk(k, trained);
    k->open[trained].alone = alone;
    if (k->open[trained].chunk < 0) {
        k->open[trained].chunk = k->p->chunks_n++;
        k->p->chunks[k->open[trained].chunk] = (chunk_t){.trained = trained, .looked_up = comes_last(a),
                                                         .low = k->p->type == PT_BF16 && (trained || !k->m->stored_bf16)};
    }
    k->p->pieces[at] =
        (piece){.param = index, .row0 = row0, .rows = rows, .chunk = k->open[trained].chunk, .offset = k->open[trained].used};
    k->p->chunks[k->open[trained].chunk].pieces_n++;
    k->open[trained].used += elements;
    k->open[trained].block = a->block;
}

/* The parameters of a block begin a new chunk if they fit there but not after the contents of the open one. */
static void begin_block(packer *k, const param *a)
{
    const bool trained = a->trainable;
    if (!k->open[trained].used || k->open[trained].block == a->block)
        return;
    const int64_t whole = block_elements(k->p, k->m, a->block, trained);
    if (k->open[trained].used + whole > k->limit && whole <= k->limit)
        close_chunk(k, trained);
}

static void add_pieces(packer *k, int index, int64_t step)
{
    const param *p = &k->m->params[index];
    int at = k->p->piece_of_param[index];
    begin_block(k, p);
    for (int64_t row = 0; row < p->rows; row += step)
        add_piece(k, at++, index, row, p->rows - row < step ? p->rows - row : step);
}

/* The pieces of each chunk, in their order. */
static void list_pieces(packing *packing)
{
    for (int c = 1; c < packing->chunks_n; c++)
        packing->chunks[c].piece0 = packing->chunks[c - 1].piece0 + packing->chunks[c - 1].pieces_n;
    for (int c = 0; c < packing->chunks_n; c++)
        packing->chunks[c].pieces_n = 0;
    for (int i = 0; i < packing->pieces_n; i++) {
        chunk_t *c = &packing->chunks[packing->pieces[i].chunk];
        packing->piece_of_chunk[c->piece0 + c->pieces_n++] = i;
    }
}

/* ---- shards ---- */

/* Elements of a piece between two allowed cuts. */
static int64_t cut_grain(const packing *packing, const param *a)
{
    return a->storage != STORAGE_PLAIN ? ALIGN_ELEMENTS : piece_elements(packing, a, 0, cut_rows(a));
}

/* The place in a piece nearest to `wanted` where its chunk may be cut. */
static int64_t find_cut_in(const packing *packing, const model *m, const piece *piece, int64_t wanted)
{
    const param *a = &m->params[piece->param];
    if (wanted <= piece->offset || (a->trainable && optimizer_rule(packing->optimizer, a)->whole))
        return piece->offset;
    const int64_t size = piece_elements(packing, a, piece->row0, piece->rows), grain = cut_grain(packing, a);
    const int64_t inside = (wanted - piece->offset + grain / 2) / grain * grain;
    return piece->offset + (inside < size ? inside : (size - 1) / grain * grain);
}

/* The same in a chunk. *i: a piece that begins before it, and the last such one afterwards. */
static int64_t find_cut(const packing *packing, const model *m, int c, int64_t wanted, int *i)
{
    const int n = packing->chunks[c].pieces_n;
    while (*i + 1 < n && chunk_piece(packing, c, *i + 1)->offset <= wanted)
        ++*i;
    const int64_t inside = find_cut_in(packing, m, chunk_piece(packing, c, *i), wanted);
    int64_t best = llabs(wanted - inside) < wanted ? inside : 0;
    const int64_t next = *i + 1 < n ? chunk_piece(packing, c, *i + 1)->offset : packing->chunks[c].elements;
    best = llabs(wanted - next) < llabs(wanted - best) ? next : best;
    return llabs(wanted - packing->chunks[c].elements) < llabs(wanted - best) ? packing->chunks[c].elements : best;
}

static void cut_chunk(packing *packing, const model *m, int c)
{
    int64_t *cut = packing->cuts + c * (packing->ranks + 1), most = 0;
    int piece = 0;
    cut[packing->ranks] = packing->chunks[c].elements;
    for (int r = 1; r < packing->ranks; r++)
        cut[r] = find_cut(packing, m, c, packing->chunks[c].elements * r / packing->ranks, &piece);
    for (int r = 0; r < packing->ranks; r++)
        most = cut[r + 1] - cut[r] > most ? cut[r + 1] - cut[r] : most;
    packing->chunks[c].shard_elements = (int64_t)align_up((uint64_t)most, CHUNK_ELEMENTS);
}

piece_share packing_share(const packing *packing, const model *m, const piece *piece, int rank)
{
    const param *a = &m->params[piece->param];
    if (a->storage != STORAGE_PLAIN)
        return (piece_share){piece->row0, 0};
    const int64_t row = piece_elements(packing, a, 0, 1), all = piece->rows * row;
    int64_t begin = shard_start(packing, piece->chunk, rank) - piece->offset,
            end = shard_start(packing, piece->chunk, rank + 1) - piece->offset;
    begin = begin < 0 ? 0 : begin > all ? all : begin;
    end = end < begin ? begin : end > all ? all : end;
    return (piece_share){piece->row0 + begin / row, (end - begin) / row};
}

static void share_pieces(packing *packing, const model *m, int c, int rank)
{
    for (int i = 0; i < packing->chunks[c].pieces_n; i++) {
        piece *piece = chunk_piece(packing, c, i);
        const piece_share own = packing_share(packing, m, piece, rank);
        piece->own_row0 = own.row0;
        piece->own_rows = own.rows;
    }
}

/* Is a rank's shard a range of the same piece as the previous rank's shard, and as long? Then it needs no more memory. There may be
 * thousands of ranks. */
static bool is_like_before(const packing *packing, int c, int rank)
{
    const int64_t *cut = packing->cuts + c * (packing->ranks + 1);
    bool like = rank > 0 && cut[rank + 1] - cut[rank] == cut[rank] - cut[rank - 1];
    for (int i = 0; i < packing->chunks[c].pieces_n && like; i++) {
        const int64_t offset = chunk_piece(packing, c, i)->offset;
        like = offset <= cut[rank - 1] || offset >= cut[rank + 1];
    }
    return like;
}

static int64_t share_floats(const packing *packing, const model *m, int block, int chunk, int rank, const piece *before)
{
    int64_t floats = 0;
    for (int i = 0; i < packing->chunks[chunk].pieces_n && chunk_piece(packing, chunk, i) != before; i++) {
        const piece *piece = chunk_piece(packing, chunk, i);
        const param *a = &m->params[piece->param];
        if (a->block == block && a->trainable)
            floats += (int64_t)align_up((uint64_t)(packing_share(packing, m, piece, rank).rows * a->cols), PARTIAL_ALIGN);
    }
    return floats;
}

static bool goes_on(const packing *packing, const model *m, int c, int i)
{
    return i > 0 && m->params[chunk_piece(packing, c, i)->param].block == m->params[chunk_piece(packing, c, i - 1)->param].block;
}

/* Sets the partial sums of each block. The pieces of a block are adjacent. */
static void count_partials_of(packing *packing, const model *m, int c, int rank)
{
    int64_t floats = 0;
    for (int i = packing->chunks[c].pieces_n - 1; i >= 0; i--) {
        piece *piece = chunk_piece(packing, c, i);
        const param *a = &m->params[piece->param];
        if (a->trainable)
            floats += (int64_t)align_up((uint64_t)(packing_share(packing, m, piece, rank).rows * a->cols), PARTIAL_ALIGN);
        if (goes_on(packing, m, c, i))
            continue;
        piece->partial = floats > piece->partial ? floats : piece->partial;
        floats = 0;
    }
}

/* Of no more rows than are listed. */
static void limit_partial(const packing *packing, const model *m, piece *piece)
{
    const int64_t cols = m->params[piece->param].cols;
    const int64_t most = (int64_t)align_up((uint64_t)(packing->rows_most * cols), PARTIAL_ALIGN);
    piece->partial = piece->partial < most ? piece->partial : most;
}

static void count_partials(packing *packing, const model *m, int c)
{
    for (int r = 0; r < packing->ranks; r++)
        if (!is_like_before(packing, c, r))
            count_partials_of(packing, m, c, r);
    for (int i = 1; i < packing->chunks[c].pieces_n; i++)
        if (goes_on(packing, m, c, i))
            chunk_piece(packing, c, i)->partial = chunk_piece(packing, c, i - 1)->partial;
    for (int i = 0; chunk_has_rows(packing, c) && i < packing->chunks[c].pieces_n; i++)
        limit_partial(packing, m, chunk_piece(packing, c, i));
}

int64_t partial_floats(const packing *packing, const model *m, int block, int chunk)
{
    int i = 0;
    while (i < packing->chunks[chunk].pieces_n && m->params[chunk_piece(packing, chunk, i)->param].block != block)
        i++;
    return i < packing->chunks[chunk].pieces_n ? chunk_piece(packing, chunk, i)->partial : 0;
}

uint64_t partial_bytes(const packing *packing, const model *m, int block, int chunk)
{
    return (uint64_t)(partial_floats(packing, m, block, chunk) * packing->ranks) * sizeof(float);
}

bool chunk_has_tied_rows(const packing *packing, const model *m, int chunk)
{
    bool has = false;
    for (int i = 0; i < packing->chunks[chunk].pieces_n; i++)
        has = has || m->blocks[0].param_of_role[PARAM_TOKENS] == chunk_piece(packing, chunk, i)->param;
    return has && head_adds_to_embedding(m);
}

int64_t partial_offset(const packing *packing, const model *m, const piece *piece, int rank)
{
    return share_floats(packing, m, m->params[piece->param].block, piece->chunk, rank, piece);
}

/* ---- states ---- */

static uint64_t lay_low_halves(packing *packing, const model *m, int c)
{
    uint64_t at = 0;
    for (int i = 0; packing->chunks[c].low && i < packing->chunks[c].pieces_n; i++) {
        piece *piece = chunk_piece(packing, c, i);
        const param *a = &m->params[piece->param];
        piece->low = at;
        if (param_type(a, packing->type) == PT_BF16 && a->storage == STORAGE_PLAIN)
            at += (uint64_t)aligned(piece->own_rows * a->cols) * sizeof(uint16_t);
    }
    return at;
}

/* A slab of the pieces with this rule. Entries of single values are aligned like the values; others are contiguous. */
static uint64_t lay_slab(packing *packing, const model *m, int c, const update_rule *r, int n, uint64_t at)
{
    const slab *slab = &r->slabs[n];
    at = align_up(at, ALIGN_SLAB);
    for (int i = 0; i < packing->chunks[c].pieces_n; i++) {
        piece *piece = chunk_piece(packing, c, i);
        const param *a = &m->params[piece->param];
        const int64_t values = piece->own_rows * a->cols;
        if (optimizer_rule(packing->optimizer, a) != r)
            continue;
        piece->slab[n] = at;
        at += (uint64_t)(slab->of_part       ? values ? slab_of_param(slab, a) : 0
                         : slab->values == 1 ? aligned(values)
                                             : slab_entries(slab, values)) *
              dtype_bytes(slab->type);
    }
    return at;
}

static void lay_states(packing *packing, const model *m, int c)
{
    chunk_t *h = &packing->chunks[c];
    uint64_t at = lay_low_halves(packing, m, c);
    for (int r = 0; r < OPTIMIZER_RULES && packing->optimizer->rules[r]; r++)
        for (int n = 0; n < rule_slabs(packing->optimizer->rules[r]); n++)
            at = lay_slab(packing, m, c, packing->optimizer->rules[r], n, at);
    h->state_bytes = align_up(at, PAGE) > h->state_bytes ? align_up(at, PAGE) : h->state_bytes;
    for (int i = 0; i < h->pieces_n; i++) {
        const param *a = &m->params[chunk_piece(packing, c, i)->param];
        const update_rule *r = optimizer_rule(packing->optimizer, a);
        const uint64_t bytes = rule_workspace(r, a) + update_gradient_bytes(packing, c);
        h->update_bytes = bytes > h->update_bytes ? bytes : h->update_bytes;
        h->by_device = h->by_device || r->by_device;
    }
}

/* Sizes for any rank's shard, and the places in this rank's. */
static void lay_all_states(packing *packing, const model *m, int c)
{
    for (int r = 0; r < packing->ranks; r++) {
        if (r == packing->rank || is_like_before(packing, c, r))
            continue;
        share_pieces(packing, m, c, r);
        lay_states(packing, m, c);
    }
    share_pieces(packing, m, c, packing->rank);
    lay_states(packing, m, c);
}

/* ---- chunks alike ---- */

static bool is_alike_piece(const packing *packing, const model *m, const piece *a, const piece *b)
{
    const param *x = &m->params[a->param], *y = &m->params[b->param];
    return a->offset == b->offset && a->rows == b->rows && x->rows == y->rows && x->cols == y->cols && x->kind == y->kind &&
           x->trainable == y->trainable && x->head_rows == y->head_rows && x->storage == STORAGE_PLAIN && y->storage == STORAGE_PLAIN &&
           param_type(x, packing->type) == param_type(y, packing->type) &&
           optimizer_rule(packing->optimizer, x) == optimizer_rule(packing->optimizer, y);
}

/* Have both chunks the same pieces at the same places, as those of equal layers have? Then their shards are equal, too. */
static bool is_alike(const packing *packing, const model *m, int a, int b)
{
    const chunk_t *x = &packing->chunks[a], *y = &packing->chunks[b];
    bool alike = x->pieces_n == y->pieces_n && x->elements == y->elements && x->trained == y->trained && x->low == y->low &&
                 x->looked_up == y->looked_up;
    for (int i = 0; i < x->pieces_n && alike; i++) {
        const piece *piece = chunk_piece(packing, a, i), *l = chunk_piece(packing, b, i);
        alike =
            is_alike_piece(packing, m, piece, l) && m->params[piece->param].block - m->params[chunk_piece(packing, a, 0)->param].block ==
                                                        m->params[l->param].block - m->params[chunk_piece(packing, b, 0)->param].block;
    }
    return alike;
}

static void copy_shards(packing *packing, int from, int to)
{
    const chunk_t *a = &packing->chunks[from];
    chunk_t *b = &packing->chunks[to];
    memcpy(packing->cuts + to * (packing->ranks + 1), packing->cuts + from * (packing->ranks + 1),
           (size_t)(packing->ranks + 1) * sizeof *packing->cuts);
    b->shard_elements = a->shard_elements;
    b->state_bytes = a->state_bytes;
    b->update_bytes = a->update_bytes;
    b->by_device = a->by_device;
    for (int i = 0; i < a->pieces_n; i++) {
        const piece *k = chunk_piece(packing, from, i);
        piece *l = chunk_piece(packing, to, i);
        l->own_row0 = l->row0 + k->own_row0 - k->row0;
        l->own_rows = k->own_rows;
        l->low = k->low;
        memcpy(l->slab, k->slab, sizeof l->slab);
        l->partial = k->partial;
    }
}

static void share_chunk(packing *packing, const model *m, int c)
{
    int like = c - 1;
    while (like >= 0 && !is_alike(packing, m, like, c))
        like--;
    if (like >= 0) {
        copy_shards(packing, like, c);
        return;
    }
    cut_chunk(packing, m, c);
    count_partials(packing, m, c);
    lay_all_states(packing, m, c);
}

/* ---- together ---- */

int pack(const model *m, const step_shape *shape, int64_t chunk_bytes, packing *out, pt_error *e)
{
    int64_t limit = chunk_bytes / (int64_t)dtype_bytes(shape->type);
    if (limit < CHUNK_ELEMENTS)
        return pt_fail(e, PT_FAILED, "a chunk of %lld bytes is too small: at least 8 KiB", (long long)chunk_bytes);
    int64_t pieces = 0;
    *out = (packing){.params_n = m->params_n, .type = shape->type, .optimizer = shape_optimizer(shape), .chunk_bytes = chunk_bytes,
                     .ranks = shape_ranks(shape), .rank = shape->rank, .rows_most = listed_rows_most(m, shape)};
    for (int i = 0; i < m->params_n; i++)
        pieces += m->params[i].rows / cut_piece_rows(out, m, shape, &m->params[i], limit) + 1;
    out->pieces = calloc((size_t)pieces, sizeof *out->pieces);
    out->chunks = calloc((size_t)pieces, sizeof *out->chunks);
    out->piece_of_param = calloc((size_t)m->params_n + 1, sizeof *out->piece_of_param);
    out->piece_of_chunk = calloc((size_t)pieces, sizeof *out->piece_of_chunk);
    if (!out->pieces || !out->chunks || !out->piece_of_param || !out->piece_of_chunk) {
        packing_free(out);
        return pt_fail(e, PT_FAILED, "out of memory while packing %d parameters", m->params_n);
    }
    packer k = {.p = out, .m = m, .limit = limit, .open = {{.chunk = -1, .alone = -1}, {.chunk = -1, .alone = -1}}};
    for (int i = 0; i < m->params_n; i++) {
        out->piece_of_param[i] = out->pieces_n;
        const int64_t rows = cut_piece_rows(out, m, shape, &m->params[i], limit);
        out->pieces_n += (int)((m->params[i].rows + rows - 1) / rows);
    }
    out->piece_of_param[m->params_n] = out->pieces_n;
    for (int last = 0; last < 2; last++) {
        for (int i = 0; i < m->params_n; i++)
            if (comes_last(&m->params[i]) == last)
                add_pieces(&k, i, cut_piece_rows(out, m, shape, &m->params[i], limit));
        close_chunk(&k, false);
        close_chunk(&k, true);
    }
    list_pieces(out);
    out->cuts = calloc((size_t)out->chunks_n * (size_t)(out->ranks + 1), sizeof *out->cuts);
    if (!out->cuts) {
        packing_free(out);
        return pt_fail(e, PT_FAILED, "out of memory");
    }
    for (int c = 0; c < out->chunks_n; c++)
        share_chunk(out, m, c);
    return 0;
}

void packing_free(packing *packing)
{
    free(packing->chunks);
    free(packing->pieces);
    free(packing->piece_of_param);
    free(packing->piece_of_chunk);
    free(packing->cuts);
    memset(packing, 0, sizeof *packing);
}

/* Do its values and states follow those of the run? The blocks of a slab start again with each parameter. */
static bool continues(const packing *packing, const update_span *run, const param *a, int64_t offset)
{
    bool whole_blocks = !run->rule->whole;
    for (int k = 0; k < rule_slabs(run->rule); k++)
        whole_blocks = whole_blocks && run->values % run->rule->slabs[k].values == 0;
    return a->decay == run->param->decay && param_type(a, packing->type) == packing->type &&
           param_type(run->param, packing->type) == packing->type && offset == run->offset + run->values &&
           optimizer_rule(packing->optimizer, a) == run->rule && a->always == run->param->always && whole_blocks;
}

bool update_span_next(const model *m, const packing *packing, int c, int *at, update_span *out)
{
    const int end = packing->chunks[c].trained ? packing->chunks[c].piece0 + packing->chunks[c].pieces_n : 0;
    *out = (update_span){0};
    for (; *at < end; ++*at) {
        const piece *piece = &packing->pieces[packing->piece_of_chunk[*at]];
        const param *a = &m->params[piece->param];
        const int64_t before = piece->own_row0 - piece->row0, offset = piece->offset + (before ? piece_elements(packing, a, 0, before) : 0);
        if (!piece->own_rows)
            continue;
        if (out->param && !continues(packing, out, a, offset))
            break;
        if (!out->param)
            *out = (update_span){.param = a, .piece = piece, .rule = optimizer_rule(packing->optimizer, a), .offset = offset};
        out->values += piece->own_rows * a->cols;
    }
    return out->param;
}

bool packing_cuts_experts(const packing *packing, const model *m)
{
    bool cuts = false;
    for (int i = 0; i < packing->pieces_n && !cuts; i++)
        cuts = m->params[packing->pieces[i].param].kind->use == USE_EXPERTS && packing->pieces[i].row0 > 0;
    return cuts;
}

void block_chunks(const model *m, const packing *packing, int block, unsigned char *needed)
{
    memset(needed, 0, (size_t)packing->chunks_n);
    for (int r = 0; r < PARAM_ROLES; r++) {
        int index = m->blocks[block].param_of_role[r];
        for (int i = index < 0 ? 0 : packing->piece_of_param[index]; index >= 0 && i < packing->piece_of_param[index + 1]; i++)
            needed[packing->pieces[i].chunk] = !packing->chunks[packing->pieces[i].chunk].looked_up;
    }
}
