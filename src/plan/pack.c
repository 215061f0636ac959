#include "plan/pack.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN_ELEMENTS = 32, CHUNK_ELEMENTS = 2048, ALIGN_SLAB = 128, PAGE = 4096 };

static bool may_be_cut(const param *p) { return p->kind->use == USE_VOCABULARY; }

static int64_t aligned(int64_t n) { return (int64_t)align_up((uint64_t)n, ALIGN_ELEMENTS); }

int64_t piece_elements(const packing *p, const param *a, int64_t values)
{
    return values * (int64_t)(dtype_bytes(param_type(a, p->type)) / dtype_bytes(p->type));
}

static int64_t block_elements(const packing *p, const model *m, int block)
{
    int64_t n = 0;
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].block == block)
            n += aligned(piece_elements(p, &m->params[i], m->params[i].rows * m->params[i].cols));
    return n;
}

typedef struct packer { packing *p; int64_t limit; int64_t used; } packer;

static void close_chunk(packer *k)
{
    if (!k->used)
        return;
    chunk_t *c = &k->p->chunks[k->p->chunks_n++];
    c->elements = (int64_t)align_up((uint64_t)k->used, CHUNK_ELEMENTS);
    c->pieces_n = k->p->pieces_n - c->piece0;
    k->p->chunks[k->p->chunks_n] = (chunk_t){.piece0 = k->p->pieces_n};
    k->used = 0;
}

static void add_piece(packer *k, const struct param *a, int param, int64_t row0, int64_t rows)
{
    int64_t elements = aligned(piece_elements(k->p, a, rows * a->cols));
    if (k->used && k->used + elements > k->limit)
        close_chunk(k);
    k->p->pieces[k->p->pieces_n++] =
        (piece){.param = param, .row0 = row0, .rows = rows, .chunk = k->p->chunks_n, .offset = k->used};
    k->used += elements;
}

/* ---- states ---- */

static const param *param_of(const packing *p, const model *m, int piece) { return &m->params[p->pieces[piece].param]; }

static int64_t values_of(const packing *p, const model *m, int piece) { return p->pieces[piece].rows * param_of(p, m, piece)->cols; }

static uint64_t lay_low_halves(packing *p, const model *m, const chunk_t *c)
{
    uint64_t at = 0;
    for (int i = c->piece0; i < c->piece0 + c->pieces_n; i++) {
        p->pieces[i].low = at;
        if (param_type(param_of(p, m, i), p->type) == PT_BF16)
            at += (uint64_t)aligned(values_of(p, m, i)) * sizeof(uint16_t);
    }
    return at;
}

/* A slab of the pieces with this rule. Entries of single values are aligned as the values are, those of blocks follow each other. */
static uint64_t lay_slab(packing *p, const model *m, const chunk_t *c, const update_rule *r, int k, uint64_t at)
{
    const slab *s = &r->slabs[k];
    at = align_up(at, ALIGN_SLAB);
    for (int i = c->piece0; i < c->piece0 + c->pieces_n; i++) {
        const int64_t values = values_of(p, m, i);
        if (p->optimizer->rule_of(param_of(p, m, i)) != r)
            continue;
        p->pieces[i].slab[k] = at;
        at += (uint64_t)(s->values == 1 ? aligned(values) : slab_entries(s, values)) * dtype_bytes(s->type);
    }
    return at;
}

static void lay_states(packing *p, const model *m, chunk_t *c)
{
    uint64_t at = lay_low_halves(p, m, c);
    for (int r = 0; r < OPTIMIZER_RULES && p->optimizer->rules[r]; r++)
        for (int k = 0; k < rule_slabs(p->optimizer->rules[r]); k++)
            at = lay_slab(p, m, c, p->optimizer->rules[r], k, at);
    c->state_bytes = align_up(at, PAGE);
    for (int i = c->piece0; i < c->piece0 + c->pieces_n; i++) {
        const param *a = param_of(p, m, i);
        const update_rule *r = p->optimizer->rule_of(a);
        const uint64_t bytes = rule_workspace(r, a);
        c->update_bytes = bytes > c->update_bytes ? bytes : c->update_bytes;
        c->by_device = c->by_device || r->by_device;
    }
}

/* ---- together ---- */

int pack(const model *m, const step_shape *s, int64_t chunk_bytes, packing *out, pt_error *e)
{
    int64_t limit = chunk_bytes / (int64_t)dtype_bytes(s->type);
    if (limit < CHUNK_ELEMENTS)
        return pt_fail(e, PT_FAILED, "a chunk of %lld bytes is too small: at least 8 KiB", (long long)chunk_bytes);
    int64_t pieces = 0;
    for (int i = 0; i < m->params_n; i++)
        pieces += may_be_cut(&m->params[i]) ? m->params[i].rows / s->slice_rows + 1 : 1;
    *out = (packing){.params_n = m->params_n, .type = s->type, .optimizer = shape_optimizer(s), .chunk_bytes = chunk_bytes};
    out->pieces = calloc((size_t)pieces, sizeof *out->pieces);
    out->chunks = calloc((size_t)pieces + 1, sizeof *out->chunks);
    out->piece_of_param = calloc((size_t)m->params_n + 1, sizeof *out->piece_of_param);
    if (!out->pieces || !out->chunks || !out->piece_of_param) {
        packing_free(out);
        return pt_fail(e, PT_FAILED, "out of memory while packing %d parameters", m->params_n);
    }
    packer k = {.p = out, .limit = limit};
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        bool first_of_block = i == 0 || m->params[i - 1].block != p->block;
        int64_t whole = first_of_block && k.used ? block_elements(out, m, p->block) : 0;
        if (k.used + whole > limit && whole && whole <= limit)
            close_chunk(&k);
        out->piece_of_param[i] = out->pieces_n;
        int64_t step = may_be_cut(p) ? s->slice_rows : p->rows;
        for (int64_t row = 0; row < p->rows; row += step)
            add_piece(&k, p, i, row, p->rows - row < step ? p->rows - row : step);
    }
    out->piece_of_param[m->params_n] = out->pieces_n;
    close_chunk(&k);
    for (int c = 0; c < out->chunks_n; c++)
        lay_states(out, m, &out->chunks[c]);
    return 0;
}

void packing_free(packing *p)
{
    free(p->chunks);
    free(p->pieces);
    free(p->piece_of_param);
    memset(p, 0, sizeof *p);
}

/* Its values and states follow those of the run. A slab's blocks begin anew with each parameter. */
static bool continues(const packing *p, const update_span *run, const param *a, int64_t offset)
{
    bool whole_blocks = !run->rule->whole;
    for (int k = 0; k < rule_slabs(run->rule); k++)
        whole_blocks = whole_blocks && run->values % run->rule->slabs[k].values == 0;
    return a->trainable && a->decay == run->param->decay && param_type(a, p->type) == p->type &&
           param_type(run->param, p->type) == p->type && offset == run->offset + run->values &&
           p->optimizer->rule_of(a) == run->rule && whole_blocks;
}

bool update_span_next(const model *m, const packing *p, int c, int *at, update_span *out)
{
    const int end = p->chunks[c].piece0 + p->chunks[c].pieces_n;
    *out = (update_span){0};
    for (; *at < end; ++*at) {
        const piece *k = &p->pieces[*at];
        const param *a = &m->params[k->param];
        if (out->param && !continues(p, out, a, k->offset))
            break;
        if (!a->trainable)
            continue;
        if (!out->param)
            *out = (update_span){.param = a, .piece = k, .rule = p->optimizer->rule_of(a), .offset = k->offset};
        out->values += k->rows * a->cols;
    }
    return out->param;
}

void block_chunks(const model *m, const packing *p, int block, unsigned char *needed)
{
    memset(needed, 0, (size_t)p->chunks_n);
    for (int r = 0; r < PARAM_ROLES; r++) {
        int index = m->blocks[block].param_of_role[r];
        for (int i = index < 0 ? 0 : p->piece_of_param[index]; index >= 0 && i < p->piece_of_param[index + 1]; i++)
            needed[p->pieces[i].chunk] = 1;
    }
}
