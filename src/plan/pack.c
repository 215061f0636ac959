#include "plan/cut.h"

#include "model/storage.h"

#include <stdlib.h>
#include <string.h>

enum { PARTIAL_ALIGN = 16 };
enum { ALIGN_ELEMENTS = 32, CHUNK_ELEMENTS = 2048, ALIGN_SLAB = 128, PAGE = 4096 };

static int64_t aligned(int64_t n) { return (int64_t)align_up((uint64_t)n, ALIGN_ELEMENTS); }

int64_t piece_elements(const packing *p, const param *a, int64_t row0, int64_t rows)
{
    if (a->storage != STORAGE_PLAIN)
        return (int64_t)(storage_rows_bytes(a, (storage_rows){row0, rows}) / dtype_bytes(p->type));
    return rows * a->cols * (int64_t)(dtype_bytes(param_type(a, p->type)) / dtype_bytes(p->type));
}

/* Of such a table few rows are read. With several ranks, the sums of a trained one are shared as those of other parameters are. */
static bool comes_last(const param *a) { return a->role == PARAM_LAYER_TOKENS; }
static bool is_looked_up(const packing *p, const param *a) { return comes_last(a) && (!a->trainable || p->ranks == 1); }

static int64_t block_elements(const packing *p, const model *m, int block, bool trained)
{
    int64_t n = 0;
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].block == block && m->params[i].trainable == trained && !comes_last(&m->params[i]))
            n += aligned(piece_elements(p, &m->params[i], 0, m->params[i].rows));
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
        k->p->chunks[k->open[trained].chunk] = (chunk_t){.trained = trained, .looked_up = is_looked_up(k->p, a),
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
static void list_pieces(packing *p)
{
    for (int c = 1; c < p->chunks_n; c++)
        p->chunks[c].piece0 = p->chunks[c - 1].piece0 + p->chunks[c - 1].pieces_n;
    for (int c = 0; c < p->chunks_n; c++)
        p->chunks[c].pieces_n = 0;
    for (int i = 0; i < p->pieces_n; i++) {
        chunk_t *c = &p->chunks[p->pieces[i].chunk];
        p->piece_of_chunk[c->piece0 + c->pieces_n++] = i;
    }
}

/* ---- shards ---- */

/* Elements of a piece between two allowed cuts. */
static int64_t cut_grain(const packing *p, const param *a)
{
    return a->storage != STORAGE_PLAIN ? ALIGN_ELEMENTS : piece_elements(p, a, 0, cut_rows(a));
}

/* The place in a piece nearest to `wanted` where its chunk may be cut. */
static int64_t find_cut_in(const packing *p, const model *m, const piece *k, int64_t wanted)
{
    const param *a = &m->params[k->param];
    if (wanted <= k->offset || (a->trainable && optimizer_rule(p->optimizer, a)->whole))
        return k->offset;
    const int64_t size = piece_elements(p, a, k->row0, k->rows), grain = cut_grain(p, a);
    const int64_t inside = (wanted - k->offset + grain / 2) / grain * grain;
    return k->offset + (inside < size ? inside : (size - 1) / grain * grain);
}

/* The same in a chunk. *i: a piece that begins before it, and the last such one afterwards. */
static int64_t find_cut(const packing *p, const model *m, int c, int64_t wanted, int *i)
{
    const int n = p->chunks[c].pieces_n;
    while (*i + 1 < n && chunk_piece(p, c, *i + 1)->offset <= wanted)
        ++*i;
    const int64_t inside = find_cut_in(p, m, chunk_piece(p, c, *i), wanted);
    int64_t best = llabs(wanted - inside) < wanted ? inside : 0;
    const int64_t next = *i + 1 < n ? chunk_piece(p, c, *i + 1)->offset : p->chunks[c].elements;
    best = llabs(wanted - next) < llabs(wanted - best) ? next : best;
    return llabs(wanted - p->chunks[c].elements) < llabs(wanted - best) ? p->chunks[c].elements : best;
}

static void cut_chunk(packing *p, const model *m, int c)
{
    int64_t *cut = p->cuts + c * (p->ranks + 1), most = 0;
    int piece = 0;
    cut[p->ranks] = p->chunks[c].elements;
    for (int r = 1; r < p->ranks; r++)
        cut[r] = find_cut(p, m, c, p->chunks[c].elements * r / p->ranks, &piece);
    for (int r = 0; r < p->ranks; r++)
        most = cut[r + 1] - cut[r] > most ? cut[r + 1] - cut[r] : most;
    p->chunks[c].shard_elements = (int64_t)align_up((uint64_t)most, CHUNK_ELEMENTS);
}

piece_share packing_share(const packing *k, const model *m, const piece *p, int rank)
{
    const param *a = &m->params[p->param];
    if (a->storage != STORAGE_PLAIN)
        return (piece_share){p->row0, 0};
    const int64_t row = piece_elements(k, a, 0, 1), all = p->rows * row;
    int64_t begin = shard_start(k, p->chunk, rank) - p->offset, end = shard_start(k, p->chunk, rank + 1) - p->offset;
    begin = begin < 0 ? 0 : begin > all ? all : begin;
    end = end < begin ? begin : end > all ? all : end;
    return (piece_share){p->row0 + begin / row, (end - begin) / row};
}

static void share_pieces(packing *p, const model *m, int c, int rank)
{
    for (int i = 0; i < p->chunks[c].pieces_n; i++) {
        piece *k = chunk_piece(p, c, i);
        const piece_share own = packing_share(p, m, k, rank);
        k->own_row0 = own.row0;
        k->own_rows = own.rows;
    }
}

/* Is a rank's shard a range of the same piece as the previous rank's shard, and as long? Then it needs no more memory. There may be
 * thousands of ranks. */
static bool is_like_before(const packing *p, int c, int rank)
{
    const int64_t *cut = p->cuts + c * (p->ranks + 1);
    bool like = rank > 0 && cut[rank + 1] - cut[rank] == cut[rank] - cut[rank - 1];
    for (int i = 0; i < p->chunks[c].pieces_n && like; i++) {
        const int64_t offset = chunk_piece(p, c, i)->offset;
        like = offset <= cut[rank - 1] || offset >= cut[rank + 1];
    }
    return like;
}

static int64_t share_floats(const packing *k, const model *m, int block, int chunk, int rank, const piece *before)
{
    int64_t floats = 0;
    for (int i = 0; i < k->chunks[chunk].pieces_n && chunk_piece(k, chunk, i) != before; i++) {
        const piece *p = chunk_piece(k, chunk, i);
        const param *a = &m->params[p->param];
        if (a->block == block && a->trainable)
            floats += (int64_t)align_up((uint64_t)(packing_share(k, m, p, rank).rows * a->cols), PARTIAL_ALIGN);
    }
    return floats;
}

static bool goes_on(const packing *p, const model *m, int c, int i)
{
    return i > 0 && m->params[chunk_piece(p, c, i)->param].block == m->params[chunk_piece(p, c, i - 1)->param].block;
}

/* Sets the partial sums of each block. The pieces of a block are adjacent. */
static void count_partials_of(packing *p, const model *m, int c, int rank)
{
    int64_t floats = 0;
    for (int i = p->chunks[c].pieces_n - 1; i >= 0; i--) {
        piece *k = chunk_piece(p, c, i);
        const param *a = &m->params[k->param];
        if (a->trainable)
            floats += (int64_t)align_up((uint64_t)(packing_share(p, m, k, rank).rows * a->cols), PARTIAL_ALIGN);
        if (goes_on(p, m, c, i))
            continue;
        k->partial = floats > k->partial ? floats : k->partial;
        floats = 0;
    }
}

static void count_partials(packing *p, const model *m, int c)
{
    for (int r = 0; r < p->ranks; r++)
        if (!is_like_before(p, c, r))
            count_partials_of(p, m, c, r);
    for (int i = 1; i < p->chunks[c].pieces_n; i++)
        if (goes_on(p, m, c, i))
            chunk_piece(p, c, i)->partial = chunk_piece(p, c, i - 1)->partial;
}

int64_t partial_floats(const packing *k, const model *m, int block, int chunk)
{
    int i = 0;
    while (i < k->chunks[chunk].pieces_n && m->params[chunk_piece(k, chunk, i)->param].block != block)
        i++;
    return i < k->chunks[chunk].pieces_n ? chunk_piece(k, chunk, i)->partial : 0;
}

uint64_t partial_bytes(const packing *k, const model *m, int block, int chunk)
{
    return (uint64_t)(partial_floats(k, m, block, chunk) * k->ranks) * sizeof(float);
}

bool chunk_has_tied_rows(const packing *k, const model *m, int chunk)
{
    bool has = false;
    for (int i = 0; i < k->chunks[chunk].pieces_n; i++)
        has = has || m->blocks[0].param_of_role[PARAM_TOKENS] == chunk_piece(k, chunk, i)->param;
    return has && head_adds_to_embedding(m);
}

int64_t partial_offset(const packing *k, const model *m, const piece *p, int rank)
{
    return share_floats(k, m, m->params[p->param].block, p->chunk, rank, p);
}

/* ---- states ---- */

static uint64_t lay_low_halves(packing *p, const model *m, int c)
{
    uint64_t at = 0;
    for (int i = 0; p->chunks[c].low && i < p->chunks[c].pieces_n; i++) {
        piece *k = chunk_piece(p, c, i);
        const param *a = &m->params[k->param];
        k->low = at;
        if (param_type(a, p->type) == PT_BF16 && a->storage == STORAGE_PLAIN)
            at += (uint64_t)aligned(k->own_rows * a->cols) * sizeof(uint16_t);
    }
    return at;
}

/* A slab of the pieces with this rule. Entries of single values are aligned like the values; others are contiguous. */
static uint64_t lay_slab(packing *p, const model *m, int c, const update_rule *r, int n, uint64_t at)
{
    const slab *s = &r->slabs[n];
    at = align_up(at, ALIGN_SLAB);
    for (int i = 0; i < p->chunks[c].pieces_n; i++) {
        piece *k = chunk_piece(p, c, i);
        const param *a = &m->params[k->param];
        const int64_t values = k->own_rows * a->cols;
        if (optimizer_rule(p->optimizer, a) != r)
            continue;
        k->slab[n] = at;
        at += (uint64_t)(s->of_part ? values ? slab_of_param(s, a) : 0 : s->values == 1 ? aligned(values) : slab_entries(s, values)) *
              dtype_bytes(s->type);
    }
    return at;
}

static void lay_states(packing *p, const model *m, int c)
{
    chunk_t *h = &p->chunks[c];
    uint64_t at = lay_low_halves(p, m, c);
    for (int r = 0; r < OPTIMIZER_RULES && p->optimizer->rules[r]; r++)
        for (int n = 0; n < rule_slabs(p->optimizer->rules[r]); n++)
            at = lay_slab(p, m, c, p->optimizer->rules[r], n, at);
    h->state_bytes = align_up(at, PAGE) > h->state_bytes ? align_up(at, PAGE) : h->state_bytes;
    for (int i = 0; i < h->pieces_n; i++) {
        const param *a = &m->params[chunk_piece(p, c, i)->param];
        const update_rule *r = optimizer_rule(p->optimizer, a);
        const uint64_t bytes = rule_workspace(r, a) + update_gradient_bytes(p, c);
        h->update_bytes = bytes > h->update_bytes ? bytes : h->update_bytes;
        h->by_device = h->by_device || r->by_device;
    }
}

/* Sizes for any rank's shard, and the places in this rank's. */
static void lay_all_states(packing *p, const model *m, int c)
{
    for (int r = 0; r < p->ranks; r++) {
        if (r == p->rank || is_like_before(p, c, r))
            continue;
        share_pieces(p, m, c, r);
        lay_states(p, m, c);
    }
    share_pieces(p, m, c, p->rank);
    lay_states(p, m, c);
}

/* ---- chunks alike ---- */

static bool is_alike_piece(const packing *p, const model *m, const piece *a, const piece *b)
{
    const param *x = &m->params[a->param], *y = &m->params[b->param];
    return a->offset == b->offset && a->rows == b->rows && x->rows == y->rows && x->cols == y->cols && x->kind == y->kind &&
           x->trainable == y->trainable && x->head_rows == y->head_rows && x->storage == STORAGE_PLAIN && y->storage == STORAGE_PLAIN &&
           param_type(x, p->type) == param_type(y, p->type) && optimizer_rule(p->optimizer, x) == optimizer_rule(p->optimizer, y);
}

/* Have both chunks the same pieces at the same places, as those of equal layers have? Then their shards are equal, too. */
static bool is_alike(const packing *p, const model *m, int a, int b)
{
    const chunk_t *x = &p->chunks[a], *y = &p->chunks[b];
    bool alike = x->pieces_n == y->pieces_n && x->elements == y->elements && x->trained == y->trained && x->low == y->low &&
                 x->looked_up == y->looked_up;
    for (int i = 0; i < x->pieces_n && alike; i++) {
        const piece *k = chunk_piece(p, a, i), *l = chunk_piece(p, b, i);
        alike = is_alike_piece(p, m, k, l) && m->params[k->param].block - m->params[chunk_piece(p, a, 0)->param].block ==
                                                  m->params[l->param].block - m->params[chunk_piece(p, b, 0)->param].block;
    }
    return alike;
}

static void copy_shards(packing *p, int from, int to)
{
    const chunk_t *a = &p->chunks[from];
    chunk_t *b = &p->chunks[to];
    memcpy(p->cuts + to * (p->ranks + 1), p->cuts + from * (p->ranks + 1), (size_t)(p->ranks + 1) * sizeof *p->cuts);
    b->shard_elements = a->shard_elements;
    b->state_bytes = a->state_bytes;
    b->update_bytes = a->update_bytes;
    b->by_device = a->by_device;
    for (int i = 0; i < a->pieces_n; i++) {
        const piece *k = chunk_piece(p, from, i);
        piece *l = chunk_piece(p, to, i);
        l->own_row0 = l->row0 + k->own_row0 - k->row0;
        l->own_rows = k->own_rows;
        l->low = k->low;
        memcpy(l->slab, k->slab, sizeof l->slab);
        l->partial = k->partial;
    }
}

static void share_chunk(packing *p, const model *m, int c)
{
    int like = c - 1;
    while (like >= 0 && !is_alike(p, m, like, c))
        like--;
    if (like >= 0) {
        copy_shards(p, like, c);
        return;
    }
    cut_chunk(p, m, c);
    count_partials(p, m, c);
    lay_all_states(p, m, c);
}

/* ---- together ---- */

int pack(const model *m, const step_shape *s, int64_t chunk_bytes, packing *out, pt_error *e)
{
    int64_t limit = chunk_bytes / (int64_t)dtype_bytes(s->type);
    if (limit < CHUNK_ELEMENTS)
        return pt_fail(e, PT_FAILED, "a chunk of %lld bytes is too small: at least 8 KiB", (long long)chunk_bytes);
    int64_t pieces = 0;
    *out = (packing){.params_n = m->params_n, .type = s->type, .optimizer = shape_optimizer(s), .chunk_bytes = chunk_bytes,
                     .ranks = shape_ranks(s), .rank = s->rank};
    for (int i = 0; i < m->params_n; i++)
        pieces += m->params[i].rows / cut_piece_rows(out, m, s, &m->params[i], limit) + 1;
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
        const int64_t rows = cut_piece_rows(out, m, s, &m->params[i], limit);
        out->pieces_n += (int)((m->params[i].rows + rows - 1) / rows);
    }
    out->piece_of_param[m->params_n] = out->pieces_n;
    for (int last = 0; last < 2; last++) {
        for (int i = 0; i < m->params_n; i++)
            if (comes_last(&m->params[i]) == last)
                add_pieces(&k, i, cut_piece_rows(out, m, s, &m->params[i], limit));
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

void packing_free(packing *p)
{
    free(p->chunks);
    free(p->pieces);
    free(p->piece_of_param);
    free(p->piece_of_chunk);
    free(p->cuts);
    memset(p, 0, sizeof *p);
}

/* Do its values and states follow those of the run? The blocks of a slab start again with each parameter. */
static bool continues(const packing *p, const update_span *run, const param *a, int64_t offset)
{
    bool whole_blocks = !run->rule->whole;
    for (int k = 0; k < rule_slabs(run->rule); k++)
        whole_blocks = whole_blocks && run->values % run->rule->slabs[k].values == 0;
    return a->decay == run->param->decay && param_type(a, p->type) == p->type &&
           param_type(run->param, p->type) == p->type && offset == run->offset + run->values &&
           optimizer_rule(p->optimizer, a) == run->rule && a->always == run->param->always && whole_blocks;
}

bool update_span_next(const model *m, const packing *p, int c, int *at, update_span *out)
{
    const int end = p->chunks[c].trained ? p->chunks[c].piece0 + p->chunks[c].pieces_n : 0;
    *out = (update_span){0};
    for (; *at < end; ++*at) {
        const piece *k = &p->pieces[p->piece_of_chunk[*at]];
        const param *a = &m->params[k->param];
        const int64_t before = k->own_row0 - k->row0, offset = k->offset + (before ? piece_elements(p, a, 0, before) : 0);
        if (!k->own_rows)
            continue;
        if (out->param && !continues(p, out, a, offset))
            break;
        if (!out->param)
            *out = (update_span){.param = a, .piece = k, .rule = optimizer_rule(p->optimizer, a), .offset = offset};
        out->values += k->own_rows * a->cols;
    }
    return out->param;
}

void block_chunks(const model *m, const packing *p, int block, unsigned char *needed)
{
    memset(needed, 0, (size_t)p->chunks_n);
    for (int r = 0; r < PARAM_ROLES; r++) {
        int index = m->blocks[block].param_of_role[r];
        for (int i = index < 0 ? 0 : p->piece_of_param[index]; index >= 0 && i < p->piece_of_param[index + 1]; i++)
            needed[p->pieces[i].chunk] = !p->chunks[p->pieces[i].chunk].looked_up;
    }
}
