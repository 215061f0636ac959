/* Where a layer's tensors lie: what a step of forward or backward leaves for a later one is still there then. */
#include "model/support.h"

#include "layer/stage.h"
#include "layer/tiles.h"
#include "model/adapter.h"
#include "model/storage.h"

enum { GRANULE = 64 };

/* Who wrote last to each granule of a memory: a region, or -1. */
typedef struct memory { int *owner; uint64_t granules; } memory;

static memory memory_of(uint64_t bytes)
{
    memory m = {malloc((bytes / GRANULE + 1) * sizeof(int)), bytes / GRANULE};
    assert_non_null(m.owner);
    for (uint64_t i = 0; i < m.granules; i++)
        m.owner[i] = -1;
    return m;
}

/* A region that was used before must be its own still. */
static void use(memory *m, int region, uint64_t at, uint64_t bytes, bool before)
{
    for (uint64_t i = at / GRANULE; i < (at + bytes + GRANULE - 1) / GRANULE; i++) {
        assert_true(i < m->granules);
        if (before)
            assert_int_equal(m->owner[i], region);
        m->owner[i] = region;
    }
}

/* A layer's memory while its steps are walked: the tiles of those that run by tiles, and whether a region was used before. */
typedef struct walker {
    const model *model;
    const step_shape *shape;
    const layer_layout *layout;
    const layer_tiles *tiles;
    const uint64_t *at;
    memory work;
    bool before[LAYER_REGIONS];
} walker;

static void walk_step(walker *w, layer_step step)
{
    const layer_layout *l = w->layout;
    step_shape tile = *w->shape;
    int regions[LAYER_STEP_REGIONS], k = layer_step_regions(&l->program, step, regions);
    tile.unit_rows = tile.tile_rows;
    for (int pass = 0; pass < 2; pass++) /* the second time all of them together */
        for (int j = 0; j < k; j++) {
            const int r = regions[j];
            if (r < LAYER_TENSORS && (r == LAYER_OUT || layer_finds_saved(l, step.pass, r)))
                continue;
            const step_shape *of = w->tiles->region[r] ? &tile : w->shape;
            use(&w->work, r, w->at[r], layer_region_bytes(&l->program, w->model, 0, of, r), w->before[r]);
            w->before[r] = true;
        }
}

/* Backward rounds before the first step of the gradients that reads a tensor, once for each group of heads at most, and nothing in place
 * that is computed again after it or for several groups. Forward saves codes of what it has made to the end. */
static void check_rounding(const layer_layout *l)
{
    bool ready[LAYER_TENSORS] = {false}, kept[LAYER_TENSORS] = {false};
    for (int i = 0; i < l->backward_n; i++) {
        const layer_step step = l->backward[i];
        int regions[LAYER_STEP_REGIONS], k = layer_step_regions(&l->program, step, regions);
        if (step_is_of_tensor(step)) {
            assert_true(i >= l->again_n && l->rounded[step.stage] && !ready[step.stage]);
            assert_int_equal(step.pass, l->saved[step.stage] ? PASS_READ : PASS_ROUND);
            assert_true(step.pass == PASS_READ || !l->backward_tiles.group[i]);
            ready[step.stage] = true;
            continue;
        }
        for (int j = 0; j < k; j++)
            if (regions[j] < LAYER_TENSORS && l->rounded[regions[j]])
                assert_true(step.pass == PASS_FORWARD ? !l->coded[regions[j]] && (l->saved[regions[j]] || !ready[regions[j]])
                                                      : ready[regions[j]]);
    }
    for (int i = 0; i < l->forward_n; i++) {
        const layer_step step = l->forward[i];
        if (step_is_of_tensor(step)) {
            assert_true(step.pass == PASS_KEEP && l->coded[step.stage] && !kept[step.stage]);
            kept[step.stage] = true;
            continue;
        }
        for (int k = 0; k < STAGE_OUTPUTS; k++)
            assert_true(l->program.stage[step.stage].out[k] == LAYER_NONE || !kept[l->program.stage[step.stage].out[k]]);
    }
    assert_memory_equal(kept, l->coded, sizeof kept);
}

/* Each run for two tiles. The second finds nothing of the first in regions that hold one. */
static void walk_runs(walker *w, const layer_step *steps, int begin, int n)
{
    for (int i = begin, end; i < n; i = end) {
        end = layer_run_end(w->tiles, n, i);
        for (int tile = 0; tile < (w->tiles->step[i] ? 2 : 1); tile++) {
            for (int r = 0; r < LAYER_REGIONS; r++)
                w->before[r] = w->before[r] && !w->tiles->region[r];
            for (int k = i; k < end; k++)
                walk_step(w, steps[k]);
        }
    }
}

static bool of_group(const walker *w, int region)
{
    return region >= REGION_SCRATCH || w->layout->program.tensor[region % LAYER_TENSORS].of_heads;
}

/* Two groups of heads alike. */
static void walk(walker w, const layer_step *steps, int n, uint64_t bytes)
{
    w.work = memory_of(bytes);
    for (int i = 0, end; i < n; i = end) {
        end = layer_groups_end(w.tiles, n, i);
        for (int group = 0; group < (w.tiles->group[i] ? 2 : 1); group++) {
            for (int r = 0; r < LAYER_REGIONS; r++)
                w.before[r] = w.before[r] && !(group && of_group(&w, r));
            walk_runs(&w, steps, i, end);
        }
    }
    free(w.work.owner);
}

/* Forward writes codes where nothing lies that it or backward reads later; the input lies at the beginning. */
static void check_saved(const layer_layout *l, const step_shape *s)
{
    enum { INPUT = LAYER_TENSORS };
    const uint64_t input = layer_tensor_bytes(&l->program, s, LAYER_X);
    memory saved = memory_of(l->saved_bytes);
    use(&saved, INPUT, 0, input, false);
    for (int t = 0; t < l->program.tensors_n; t++)
        if (l->saved[t] && !l->coded[t] && t != LAYER_X)
            use(&saved, t, l->saved_at[t], layer_saved_bytes(l, s, t), false);
    for (int i = 0; i < l->forward_n; i++) {
        int regions[LAYER_STEP_REGIONS], k = layer_step_regions(&l->program, l->forward[i], regions);
        for (int j = 0; j < k; j++)
            if (regions[j] == LAYER_X)
                use(&saved, INPUT, 0, input, true);
        if (l->forward[i].pass == PASS_KEEP)
            use(&saved, l->forward[i].stage, l->saved_at[l->forward[i].stage], layer_saved_bytes(l, s, l->forward[i].stage), false);
    }
    for (int t = 0; t < l->program.tensors_n; t++)
        if (l->saved[t])
            use(&saved, t == LAYER_X && !l->coded[t] ? (int)INPUT : t, l->saved_at[t], layer_saved_bytes(l, s, t), true);
    free(saved.owner);
}

/* Each gradient's step once, in an order in which what a step reads is there. */
static void check_order(const layer_layout *l)
{
    const layer_program *p = &l->program;
    bool input[LAYER_STAGES] = {false}, weights[LAYER_STAGES] = {false};
    for (int i = l->again_n; i < l->backward_n; i++) {
        const layer_step step = l->backward[i];
        const layer_stage *s = &p->stage[step.stage];
        if (step_is_of_tensor(step) || (step.pass == PASS_FORWARD && l->backward_tiles.group[i]))
            continue;
        bool *seen = step.pass == PASS_INPUT ? input : weights;
        assert_true(step.pass != PASS_FORWARD && !seen[step.stage]);
        seen[step.stage] = true;
        for (int k = step.stage + 1; k < p->stages_n; k++) /* the stages that read what this one makes */
            if (p->stage[k].in[0] == s->out[0] && !p->tensor[s->out[0]].residual && stage_type_of(p->stage[k].kind)->pass[PASS_INPUT])
                assert_true(input[k]);
        for (int k = 0; k < step.stage && step.pass == PASS_WEIGHTS; k++)
            if (p->stage[k].out[0] == s->in[0] && layer_is_rewritten(p, s->in[0]))
                assert_true(input[k]);
    }
    for (int i = 0; i < p->stages_n; i++) {
        assert_int_equal(input[i], stage_type_of(p->stage[i].kind)->pass[PASS_INPUT] != NULL);
        assert_int_equal(weights[i], stage_type_of(p->stage[i].kind)->pass[PASS_WEIGHTS] != NULL);
    }
}

static void check_layout(const model *m, pt_dtype type, int64_t batch, int64_t seq_len, save_level level, bool groups,
                         saved_form form)
{
    step_shape s;
    layer_layout l;
    step_shape_init(&s, m, type, batch, seq_len);
    s.saved = form;
    s.tile_rows = seq_len == 64 ? 20 : s.tile_rows;
    s.whole_heads = groups ? 0 : s.whole_heads;
    layer_layout_init(&l, m, 0, &s, level);
    check_saved(&l, &s);
    walker w = {.model = m, .shape = &s, .layout = &l, .tiles = &l.forward_tiles, .at = l.forward_at};
    walk(w, l.forward, l.forward_n, l.forward_workspace);
    w.tiles = &l.backward_tiles, w.at = l.backward_at;
    walk(w, l.backward, l.backward_n, l.backward_workspace);
    check_order(&l);
    check_rounding(&l);
}

/* Few rows and wide heads or none to speak of, short MLPs and long ones, sequences so long that attention has sums. */
static void what_a_layer_still_needs_is_not_overwritten(void **state)
{
    (void)state;
    static const struct { int hidden, heads, kv_heads, head_dim, ffn; } widths[] = {
        {64, 4, 2, 16, 128}, {64, 1, 1, 8, 8}, {16, 2, 1, 64, 24}, {8, 1, 1, 8, 13}, {256, 4, 4, 64, 16}, {40, 5, 5, 8, 400}};
    static const char *const targets[] = {"all-linear", "attention", "q_proj,down_proj"};
    static const struct { int64_t batch, seq_len; } steps[] = {{1, 1}, {1, 2}, {1, 3}, {3, 5}, {8, 64}, {1, 3000}, {1, 9000}};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        char json[640];
        snprintf(json, sizeof json, "{'model_type': 'llama', 'vocab_size': 300, 'hidden_size': %d, 'num_attention_heads': %d, "
                 "'num_key_value_heads': %d, 'head_dim': %d, 'num_hidden_layers': 1, 'intermediate_size': %d, "
                 "'max_position_embeddings': 16384}", widths[w].hidden, widths[w].heads, widths[w].kv_heads, widths[w].head_dim,
                 widths[w].ffn);
        for (int kind = 0; kind < 36; kind++) {
            model *m = config_open(json);
            m->config.qk_norm = (qk_norm_kind)(kind % 3);
            m->config.post_norm = kind / 3 % 3 > 0;
            m->config.pre_norm = kind / 3 % 3 < 2;
            m->config.parallel = kind / 9 % 2;
            m->config.one_norm = m->config.parallel && kind % 5 == 0;
            if (kind >= 18)
                assert_int_equal(model_adapt(m, &(adapter_options){.rank = 5, .dora = kind % 2, .targets = targets[kind % 3]}, NULL), 0);
            for (int i = 0; i < m->params_n; i++)
                m->params[i].trainable = !i || kind % 4 == 0;
            model_store(m, kind % 4 == 3 ? STORAGE_NF4 : STORAGE_PLAIN, NULL);
            for (size_t k = 0; k < sizeof steps / sizeof *steps - (kind < 18 && kind % 4 == (int)w % 4 ? 0 : kind < 18 ? 1 : 2); k++)
                for (int level = 0; level < SAVE_LEVELS; level++)
                    for (int groups = 0; groups < (steps[k].seq_len > 64 ? 1 : 2); groups++)
                        check_layout(m, k % 2 ? PT_F32 : PT_BF16, steps[k].batch, steps[k].seq_len, (save_level)level, groups,
                                     (saved_form)((k + (size_t)level + (size_t)kind) % 2));
            model_close(m);
        }
    }
}

/* Llama: the input alone, and what attention, and then the MLP, made. */
static void levels_save_what_backward_reads(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'llama', 'vocab_size': 300, 'hidden_size': 64, 'num_attention_heads': 4, "
                           "'num_key_value_heads': 2, "
                           "'num_hidden_layers': 1, 'intermediate_size': 100, 'max_position_embeddings': 64}");
    static const char *const saved[] = {"x", "qkv", "attention", "statistics", "xm", "up"};
    static const int saved_n[SAVE_LEVELS] = {1, 5, 6}, again[SAVE_LEVELS] = {7, 2, 0};
    step_shape s;
    layer_layout l;
    step_shape_init(&s, m, PT_F32, 1, 64);
    for (int level = 0; level < SAVE_LEVELS; level++) {
        layer_layout_init(&l, m, 0, &s, (save_level)level);
        int n = 0;
        for (int t = 0; t < l.program.tensors_n; t++)
            n += l.saved[t];
        assert_int_equal(n, saved_n[level]);
        for (int i = 0; i < n; i++)
            assert_true(l.saved[layer_tensor_named(&l.program, saved[i])]);
        assert_int_equal(l.again_n, again[level]);
    }
    s.whole_heads = 63; /* q, k and v of two groups of heads are made again, and never saved */
    layer_layout_init(&l, m, 0, &s, SAVE_ALL);
    assert_true(l.groups == 2 && !l.again_n && !l.saved[layer_tensor_named(&l.program, "qkv")]);
    assert_true(l.saved[layer_tensor_named(&l.program, "attention")]);
    model_close(m);
}

/* Llama in codes: a level has what it does not compute again from the middle of the residual stream in codes, and the input never. */
static void codes_are_saved_of_what_is_not_computed_from(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'llama', 'vocab_size': 300, 'hidden_size': 64, 'num_attention_heads': 4, "
                           "'num_key_value_heads': 2, "
                           "'num_hidden_layers': 1, 'intermediate_size': 128, 'max_position_embeddings': 64}");
    static const char *const coded[SAVE_LEVELS][6] = {{NULL}, {"qkv", "attention", NULL}, {"x", "qkv", "attention", "xm", "up", NULL}};
    static const char *const rounded[] = {"x", "qkv", "attention", "xm", "up"};
    step_shape s;
    layer_layout l;
    step_shape_init(&s, m, PT_BF16, 1, 64);
    s.saved = SAVED_INT8;
    for (int level = 0; level < SAVE_LEVELS; level++) {
        layer_layout_init(&l, m, 0, &s, (save_level)level);
        int codes = 0, roundings = 0;
        for (int t = 0; t < l.program.tensors_n; t++)
            codes += l.coded[t], roundings += l.rounded[t];
        for (int i = 0; coded[level][i]; i++, codes--)
            assert_true(l.coded[layer_tensor_named(&l.program, coded[level][i])]);
        for (int i = 0; i < 5; i++, roundings--)
            assert_true(l.rounded[layer_tensor_named(&l.program, rounded[i])]);
        assert_true(codes == 0 && roundings == 0);
    }
    /* 64 rows: statistics of 4 heads; x, qkv, attention, xm and up in codes, with 2 bytes for each 64 */
    assert_int_equal(l.saved_bytes, align_up(64 * (4 * 4 + (64 + 128 + 64 + 64 + 256) * 66 / 64), 4096));
    model_close(m);
}

/* With a shared expert, whose tensors of higher levels come before those of lower ones. */
static void what_a_level_saves_lies_where_all_higher_ones_have_it(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'glm4_moe', 'vocab_size': 300, 'hidden_size': 64, 'num_attention_heads': 4, "
                           "'num_key_value_heads': 2, 'num_hidden_layers': 2, 'intermediate_size': 100, 'n_routed_experts': 8}");
    step_shape s;
    layer_layout low, high;
    step_shape_init(&s, m, PT_F32, 1, 64);
    layer_layout_init(&low, m, 1, &s, SAVE_ATTENTION);
    layer_layout_init(&high, m, 1, &s, SAVE_ALL);
    assert_true(low.saved[layer_tensor_named(&low.program, "order")] && high.saved[layer_tensor_named(&low.program, "up")]);
    for (int t = 0; t < low.program.tensors_n; t++)
        if (low.saved[t])
            assert_true(high.saved[t] && high.saved_at[t] == low.saved_at[t]);
    model_close(m);
}

/* Rope in some layers, adapters in some: layers of a kind have one program, and layers of different kinds have not. */
static void layers_that_differ_have_programs_of_their_own(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'smollm3', 'vocab_size': 300, 'hidden_size': 64, 'num_attention_heads': 4, "
                           "'num_key_value_heads': 2, 'num_hidden_layers': 8, 'intermediate_size': 100, 'max_position_embeddings': 64, "
                           "'no_rope_layers': [1, 1, 1, 0, 1, 1, 1, 0]}");
    step_shape s;
    layer_set all;
    pt_error e;
    step_shape_init(&s, m, PT_F32, 1, 64);
    assert_int_equal(layer_set_init(&all, m, &s, &e), 0);
    assert_int_equal(all.kinds_n, 2);
    for (int i = 0; i < 8; i++) {
        const layer_program *p = &layer_set_layout(&all, i, SAVE_INPUT)->program;
        int rotations = 0;
        for (int k = 0; k < p->stages_n; k++)
            rotations += p->stage[k].kind == STAGE_ROTATE;
        assert_int_equal(rotations, i % 4 != 3);
    }
    layer_set_free(&all);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_layer_still_needs_is_not_overwritten),
                                       cmocka_unit_test(codes_are_saved_of_what_is_not_computed_from),
                                       cmocka_unit_test(levels_save_what_backward_reads),
                                       cmocka_unit_test(what_a_level_saves_lies_where_all_higher_ones_have_it),
                                       cmocka_unit_test(layers_that_differ_have_programs_of_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
