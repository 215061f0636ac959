#include "random_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef void (*check_packing)(const model *m, const step_shape *s, const packing *k);

static void on_random_packings_from(uint64_t first, check_packing check)
{
    random_source all = random_open();
    for (uint64_t i = first; i < first + 300; i++) {
        random_source r = random_fork(&all, i);
        model *m;
        step_shape s;
        packing k;
        pt_error e = {0};
        if (random_model(&r, random_from(&r, 1, 6), &m, &e))
            fail_msg("%s", e.text);
        random_freeze(&r, m);
        random_shape(&r, m, &s);
        s.optimizer = random_optimizer(&r);
        if (random_packing(&r, m, &s, &k, &e))
            fail_msg("%s", e.text);
        check(m, &s, &k);
        packing_free(&k);
        model_close(m);
    }
}

static void on_random_packings(check_packing check) { on_random_packings_from(0, check); }

static void check_rows(const model *m, const step_shape *s, const packing *k)
{
    (void)s;
    assert_int_equal(k->piece_of_param[0], 0);
    assert_int_equal(k->piece_of_param[m->params_n], k->pieces_n);
    for (int p = 0; p < m->params_n; p++) {
        int64_t row = 0;
        for (int i = k->piece_of_param[p]; i < k->piece_of_param[p + 1]; i++) {
            assert_int_equal(k->pieces[i].param, p);
            assert_int_equal(k->pieces[i].row0, row);
            assert_true(k->pieces[i].rows > 0);
            row += k->pieces[i].rows;
        }
        assert_int_equal(row, m->params[p].rows);
    }
}

static void every_row_of_every_parameter_is_packed_once(void **state)
{
    (void)state;
    on_random_packings(check_rows);
}

static void check_chunks(const model *m, const step_shape *s, const packing *k)
{
    (void)s;
    int next = 0;
    for (int c = 0; c < k->chunks_n; c++) {
        const chunk_t *chunk = &k->chunks[c];
        int64_t end = 0;
        assert_int_equal(chunk->piece0, next);
        assert_true(chunk->pieces_n > 0);
        assert_int_equal(chunk->elements % 2048, 0);
        for (int i = 0; i < chunk->pieces_n; i++) {
            const piece *p = chunk_piece(k, c, i);
            assert_int_equal(p->chunk, c);
            assert_int_equal(m->params[p->param].trainable, chunk->trained);
            assert_int_equal(p->offset % 32, 0);
            assert_true(p->offset >= end);
            end = p->offset + piece_elements(k, &m->params[p->param], p->row0, p->rows);
        }
        assert_true(end <= chunk->elements && chunk->elements - end < 2048 + 32);
        next += chunk->pieces_n;
    }
    assert_int_equal(next, k->pieces_n);
}

static void pieces_of_a_chunk_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    on_random_packings(check_chunks);
}

/* Its rule takes more than one parameter at once, and no block of its slabs is cut short at its end. */
static bool may_go_on(const update_span *one)
{
    if (one->rule->whole)
        return false;
    for (int i = 0; i < rule_slabs(one->rule); i++)
        if (one->values % one->rule->slabs[i].values)
            return false;
    return true;
}

/* Each value is in one span, among others of its kind, and no two neighbours could be one. */
static void check_spans(const model *m, const step_shape *s, const packing *k)
{
    for (int c = 0; c < k->chunks_n; c++) {
        update_span one, before = {0};
        int at = k->chunks[c].piece0, first = at;
        for (; update_span_next(m, k, c, &at, &one); first = at, before = one) {
            int64_t offset = one.offset;
            const pt_dtype type = param_type(one.param, k->type);
            for (int i = first; i < at; i++) {
                const piece *p = &k->pieces[k->piece_of_chunk[i]];
                const param *a = &m->params[p->param];
                assert_int_equal(p->offset, offset);
                assert_true(a->decay == one.param->decay && param_type(a, k->type) == type);
                offset += p->rows * a->cols;
            }
            assert_int_equal(offset, one.offset + one.values);
            assert_true(type == k->type || at == first + 1);
            for (int i = first; i < at; i++)
                assert_ptr_equal(s->optimizer->rule_of(&m->params[k->pieces[k->piece_of_chunk[i]].param]), one.rule);
            if (before.param && before.param->decay == one.param->decay && param_type(before.param, k->type) == k->type &&
                type == k->type &&
                before.rule == one.rule && may_go_on(&before))
                assert_true(one.offset > before.offset + before.values);
        }
        assert_int_equal(first, k->chunks[c].piece0 + (k->chunks[c].trained ? k->chunks[c].pieces_n : 0));
    }
}

static void an_update_takes_all_neighbours_of_a_kind(void **state)
{
    (void)state;
    on_random_packings(check_spans);
}

/* Of a piece's values: rules that count by parts have pieces of whole parameters. */
static int64_t entries_of(const slab *s, const param *p, int64_t values)
{
    return s->of_part ? slab_of_param(s, p) : slab_entries(s, values);
}

/* Each piece has its states, inside of the chunk's, and shares them with no other; of what one op updates they lie side by side. */
static void check_states(const model *m, const step_shape *s, const packing *k)
{
    for (int c = 0; c < k->chunks_n; c++) {
        const uint64_t bytes = chunk_state_bytes(k, c);
        unsigned char *taken = calloc(bytes + 1, 1);
        uint64_t sum = 0;
        assert_non_null(taken);
        const bool trained = k->chunks[c].trained, low = s->type == PT_BF16 && (trained || !m->stored_bf16);
        assert_int_equal(k->chunks[c].low, low);
        for (int i = 0; i < k->chunks[c].pieces_n; i++) {
            const piece *p = chunk_piece(k, c, i);
            const param *a = &m->params[p->param];
            const update_rule *r = shape_optimizer(s)->rule_of(a);
            const int64_t values = p->rows * a->cols;
            for (int j = low ? -1 : 0; j < (trained ? rule_slabs(r) : 0); j++) {
                const uint64_t at = j < 0 ? p->low : p->slab[j];
                const uint64_t n = j >= 0 ? (uint64_t)entries_of(&r->slabs[j], a, values) * dtype_bytes(r->slabs[j].type)
                                          : param_type(a, k->type) == PT_BF16 && a->storage == STORAGE_PLAIN ? 2 * (uint64_t)values : 0;
                assert_true(at + n <= bytes && (j < 0 || r->slabs[j].of_part || p->row0 * a->cols % r->slabs[j].values == 0));
                for (uint64_t b = at; b < at + n; b++)
                    assert_int_equal(taken[b]++, 0);
                sum += n;
            }
        }
        free(taken);
        assert_true(sum || !bytes);
        assert_true(bytes < sum + 4096 + 128 * (uint64_t)(k->chunks[c].pieces_n + 8) * 6); /* but for gaps of alignment */
        update_span one;
        for (int at = k->chunks[c].piece0, first = at; update_span_next(m, k, c, &at, &one);) {
            uint64_t next[OPTIMIZER_SLABS];
            for (; first < at; first++)
                for (int j = 0; j < rule_slabs(one.rule); j++) {
                    const piece *p = &k->pieces[k->piece_of_chunk[first]];
                    assert_true(p == one.piece || p->slab[j] == next[j]);
                    next[j] = p->slab[j] + (uint64_t)entries_of(&one.rule->slabs[j], &m->params[p->param],
                                                                p->rows * m->params[p->param].cols) *
                              dtype_bytes(one.rule->slabs[j].type);
                }
        }
    }
}

static void states_of_pieces_do_not_overlap_and_lie_as_their_updates_go(void **state)
{
    (void)state;
    on_random_packings(check_states);
}

/* Each value belongs to one rank, whose states of it lie where no other's do; where a sum of squares or a block of states lies in two
 * shards, or a matrix that is updated whole, there is no cut. The rooms are those of the largest shard, and so the same on all ranks. */
static void check_shards(const model *m, const step_shape *s, const packing *one)
{
    enum { RANKS = 4 };
    packing of[RANKS];
    pt_error e = {0};
    for (int r = 0; r < RANKS; r++) {
        step_shape shape = *s;
        shape.ranks = RANKS;
        shape.rank = r;
        assert_int_equal(pack(m, &shape, one->chunk_bytes, &of[r], &e), 0);
        assert_int_equal(of[r].chunks_n, one->chunks_n);
    }
    for (int i = 0; i < one->pieces_n; i++) {
        const piece *p = &one->pieces[i];
        const param *a = &m->params[p->param];
        int64_t next = p->row0;
        for (int r = 0; r < RANKS; r++) {
            const piece *own = &of[r].pieces[i];
            if (!own->own_rows)
                continue;
            assert_int_equal(own->own_row0, next);
            assert_int_equal((own->own_row0 - p->row0) % SUMSQ_ROWS, 0);
            assert_int_equal((own->own_row0 - p->row0) * a->cols % ADAMW8BIT_BLOCK, 0);
            assert_true(!a->trainable || !optimizer_rule(one->optimizer, a)->whole || own->own_rows == p->rows);
            next += own->own_rows;
        }
        assert_int_equal(next, a->storage == STORAGE_PLAIN ? p->row0 + p->rows : p->row0);
    }
    for (int c = 0; c < one->chunks_n; c++)
        for (int r = 1; r < RANKS; r++) {
            assert_int_equal(chunk_state_bytes(&of[r], c), chunk_state_bytes(&of[0], c));
            assert_int_equal(chunk_gradient_bytes(&of[r], c), chunk_gradient_bytes(&of[0], c));
            assert_true(chunk_state_bytes(&of[r], c) <= chunk_state_bytes(one, c) + 4096);
        }
    for (int r = 0; r < RANKS; r++)
        packing_free(&of[r]);
}

static void shards_of_ranks_have_everything_once(void **state)
{
    (void)state;
    on_random_packings(check_shards);
}

static void check_sizes(const model *m, const step_shape *s, const packing *k)
{
    int64_t limit = k->chunk_bytes / (int64_t)dtype_bytes(s->type);
    for (int c = 0; c < k->chunks_n; c++) {
        assert_int_equal(chunk_weight_bytes(k, c) % 4096, 0);
        assert_int_equal(chunk_state_bytes(k, c) % 4096, 0);
        assert_int_equal(chunk_gradient_bytes(k, c), k->chunks[c].trained && !k->chunks[c].looked_up ? chunk_weight_bytes(k, c) : 0);
        if (k->chunks[c].pieces_n > 1)
            assert_true(k->chunks[c].elements < limit + 2048);
    }
}

static void only_a_single_parameter_exceeds_the_size_that_was_asked_for(void **state)
{
    (void)state;
    on_random_packings(check_sizes);
}

static int experts_cut;

/* All ranges of a layer's experts but the last have as many, and only matrices larger than a chunk are cut. */
static void check_ranges(const model *m, const packing *k, const piece *p)
{
    const param *of = &m->params[p->param];
    const piece *first = &k->pieces[k->piece_of_param[p->param]];
    const int64_t limit = k->chunk_bytes / (int64_t)dtype_bytes(k->type), each = of->rows / m->config.experts;
    assert_int_equal(p->row0 % each, 0);
    assert_int_equal(p->rows % each, 0);
    assert_true(p->rows == first->rows || p->row0 + p->rows == of->rows);
    if (p->rows == of->rows)
        return;
    assert_true(piece_elements(k, of, 0, of->rows) > limit);
    experts_cut++;
}

static void check_slices(const model *m, const step_shape *s, const packing *k)
{
    for (int i = 0; i < k->pieces_n; i++) {
        const piece *p = &k->pieces[i];
        const param *of = &m->params[p->param];
        if (of->role == PARAM_EXPERTS_UP || of->role == PARAM_EXPERTS_DOWN) {
            check_ranges(m, k, p);
            continue;
        }
        bool cut = of->kind->use == USE_VOCABULARY;
        assert_int_equal(p->row0 % (cut ? s->slice_rows : of->rows), 0);
        if (p->row0 + p->rows < of->rows)
            assert_int_equal(p->rows, s->slice_rows);
    }
}

static void only_the_vocabulary_is_cut_between_slices_and_experts_between_experts(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20 && (!i || !experts_cut); i++)
        on_random_packings_from(300 * i, check_slices);
    assert_true(experts_cut > 0);
}

static void check_layer(const model *m, const packing *k, int block, bool trained, int64_t limit)
{
    int64_t elements = 0; /* norms count twice beside bf16 */
    int first = -1, last = -1;
    for (int p = 0; p < m->params_n; p++) {
        if (m->params[p].block != block || m->params[p].trainable != trained)
            continue;
        elements += (int64_t)align_up((uint64_t)piece_elements(k, &m->params[p], 0, m->params[p].rows), 32);
        first = first < 0 ? k->pieces[k->piece_of_param[p]].chunk : first;
        last = k->pieces[k->piece_of_param[p + 1] - 1].chunk;
    }
    if (elements <= limit && first != last)
        fail_msg("layer %d of %lld elements is spread over chunks %d .. %d of %lld", block, (long long)elements, first, last,
                 (long long)limit);
}

static void check_layers(const model *m, const step_shape *s, const packing *k)
{
    for (int block = 1; block < m->blocks_n - 1; block++)
        for (int trained = 0; trained < 2; trained++)
            check_layer(m, k, block, trained, k->chunk_bytes / (int64_t)dtype_bytes(s->type));
}

static void a_layer_that_fits_into_a_chunk_stays_together(void **state)
{
    (void)state;
    on_random_packings(check_layers);
}

static void check_needed(const model *m, const step_shape *s, const packing *k)
{
    (void)s;
    unsigned char *needed = malloc((size_t)k->chunks_n);
    assert_non_null(needed);
    for (int block = 0; block < m->blocks_n; block++) {
        block_chunks(m, k, block, needed);
        for (int c = 0; c < k->chunks_n; c++) {
            bool reads = false;
            for (int i = 0; i < k->chunks[c].pieces_n && !k->chunks[c].looked_up; i++) {
                const param *p = &m->params[chunk_piece(k, c, i)->param];
                reads |= p->block == block || (block == m->blocks_n - 1 && m->config.tied && p->role == PARAM_TOKENS);
            }
            assert_int_equal(needed[c], reads);
        }
    }
    free(needed);
}

static void a_block_needs_the_chunks_of_its_parameters_and_a_tied_head_the_embedding(void **state)
{
    (void)state;
    on_random_packings(check_needed);
}

static int tables_looked_up[2]; /* frozen, trained */

static bool is_looked_up(const packing *k, const param *p)
{
    return p->role == PARAM_LAYER_TOKENS;
}

static void check_looked_up(const model *m, const step_shape *s, const packing *k)
{
    (void)s;
    for (int c = 0; c < k->chunks_n; c++) {
        for (int i = 0; i < k->chunks[c].pieces_n; i++)
            assert_int_equal(k->chunks[c].looked_up, is_looked_up(k, &m->params[chunk_piece(k, c, i)->param]));
        assert_true(k->chunks[c].looked_up || c == 0 || !k->chunks[c - 1].looked_up);
        assert_true(k->chunks[c].update_bytes >= (chunk_has_rows(k, c) ? chunk_weight_bytes(k, c) : 0));
    }
    tables_looked_up[k->chunks[k->chunks_n - 1].trained] += k->chunks[k->chunks_n - 1].looked_up;
}

static void a_table_of_inputs_comes_last_in_chunks_of_its_own(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20 && !(tables_looked_up[0] && tables_looked_up[1]); i++)
        on_random_packings_from(300 * i, check_looked_up);
    assert_true(tables_looked_up[0] > 0 && tables_looked_up[1] > 0);
}

static void a_chunk_smaller_than_a_page_of_elements_is_refused(void **state)
{
    (void)state;
    random_source r = random_open();
    model *m;
    step_shape s;
    packing k;
    pt_error e = {0};
    assert_int_equal(random_model(&r, 2, &m, &e), 0);
    random_shape(&r, m, &s);
    static const int64_t sizes[] = {0, -1, INT64_MIN, 4095};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        e = (pt_error){0};
        assert_int_equal(pack(m, &s, sizes[i], &k, &e), PT_FAILED);
        assert_non_null(strstr(e.text, "8 KiB"));
    }
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_every_parameter_is_packed_once),
        cmocka_unit_test(a_table_of_inputs_comes_last_in_chunks_of_its_own),
        cmocka_unit_test(an_update_takes_all_neighbours_of_a_kind),
                                       cmocka_unit_test(states_of_pieces_do_not_overlap_and_lie_as_their_updates_go),
        cmocka_unit_test(pieces_of_a_chunk_are_aligned_and_do_not_overlap),
        cmocka_unit_test(shards_of_ranks_have_everything_once),
        cmocka_unit_test(only_a_single_parameter_exceeds_the_size_that_was_asked_for),
        cmocka_unit_test(only_the_vocabulary_is_cut_between_slices_and_experts_between_experts),
        cmocka_unit_test(a_layer_that_fits_into_a_chunk_stays_together),
        cmocka_unit_test(a_block_needs_the_chunks_of_its_parameters_and_a_tied_head_the_embedding),
        cmocka_unit_test(a_chunk_smaller_than_a_page_of_elements_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
