/* Where a layer's tensors lie: what a step of forward or backward leaves for a later one is still there then. */
#include "model/support.h"

#include "model/layer.h"
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

static uint64_t tensor_bytes(const model *m, const step_shape *s, int region)
{
    return region < REGION_SCRATCH ? layer_tensor_bytes(&m->config, s, (layer_tensor)(region % LAYER_TENSORS)) : 0;
}

static uint64_t plain_scratch_bytes(const model *m, const step_shape *s, const layer_stages *l, int region)
{
    const model_config *c = &m->config;
    if (region >= REGION_STRIPE)
        return stripe_bytes(m, s, l->of[region - REGION_STRIPE].weight);
    if (region >= REGION_ACCUMULATORS)
        return attention_accumulator_bytes(s->unit_seqs, s->seq_len, c->kv_heads, c->head_dim);
    switch (l->of[region - REGION_SCRATCH].kind) {
    case STAGE_ATTENTION: return attention_backward_scratch_bytes(s->unit_rows, c->heads);
    case STAGE_NORM: case STAGE_NORM_ADD: return norm_backward_scratch_bytes(s->unit_rows, 1, c->hidden);
    case STAGE_QKV:
        return c->qk_norm == QK_NORM_NONE ? 0 : c->qk_norm == QK_NORM_HEAD ? norm_backward_scratch_bytes(s->unit_rows, c->heads,
            c->head_dim)
                                                                            : norm_backward_scratch_bytes(s->unit_rows, 1,
                                                                                c->heads * c->head_dim);
    default: return 0;
    }
}

/* With DoRA a linear stage's sum too. */
static uint64_t scratch_bytes(const model *m, const step_shape *s, const layer_stages *l, int region)
{
    const uint64_t plain = plain_scratch_bytes(m, s, l, region);
    const layer_stage *of = &l->of[(region - REGION_SCRATCH) % LAYER_STAGES];
    if (region >= REGION_ACCUMULATORS || of->gain == LAYER_NONE)
        return plain;
    const uint64_t sums = layer_tensor_bytes(&m->config, s, of->kind == STAGE_QKV ? LAYER_QKV : of->out);
    return plain > sums ? plain : sums;
}

static void walk(const model *m, const step_shape *s, const layer_layout *l, const layer_step *steps, int n, const uint64_t *at,
                 uint64_t bytes)
{
    memory work = memory_of(bytes);
    bool before[LAYER_REGIONS] = {false};
    for (int i = 0; i < n; i++) {
        int regions[LAYER_STEP_REGIONS], k = layer_step_regions(&l->stages, steps[i], regions);
        for (int pass = 0; pass < 2; pass++) /* the second time all of them together */
            for (int j = 0; j < k; j++) {
                const int r = regions[j];
                if (r < LAYER_TENSORS && (l->saved[r] || r == LAYER_OUT))
                    continue;
                const uint64_t size = r < REGION_SCRATCH ? tensor_bytes(m, s, r) : scratch_bytes(m, s, &l->stages, r);
                use(&work, r, at[r], size, before[r]);
                before[r] = true;
            }
    }
    free(work.owner);
}

/* Each gradient's step once, in an order in which what a step reads is there. */
static void check_order(const layer_layout *l)
{
    bool input[LAYER_STAGES] = {false}, weights[LAYER_STAGES] = {false};
    for (int i = l->again_n; i < l->backward_n; i++) {
        const layer_step step = l->backward[i];
        const layer_stage *s = &l->stages.of[step.stage];
        bool *seen = step.pass == PASS_INPUT ? input : weights;
        assert_true(step.pass != PASS_FORWARD && !seen[step.stage]);
        seen[step.stage] = true;
        for (int k = 0; k < l->stages.n; k++) { /* the stages that read what this one makes */
            const layer_stage *reader = &l->stages.of[k];
            if (reader->in == s->out && !layer_is_residual(s->out) && reader->kind != STAGE_LOW)
                assert_true(input[k]);
            if (step.pass == PASS_WEIGHTS && reader->out == s->in && layer_is_rewritten(&l->stages, s->in))
                assert_true(input[k]);
        }
    }
    for (int i = 0; i < l->stages.n; i++) {
        const stage_kind kind = l->stages.of[i].kind;
        assert_int_equal(input[i], kind != STAGE_LOW && kind != STAGE_GAIN);
        assert_int_equal(weights[i], kind == STAGE_LINEAR || kind == STAGE_LINEAR_ADD || kind == STAGE_QKV);
    }
}

static void check_layout(const model *m, pt_dtype type, int64_t batch, int64_t seq_len, save_level level)
{
    step_shape s;
    layer_layout l;
    layer_step forward[LAYER_STAGES];
    step_shape_init(&s, m, type, batch, seq_len);
    layer_layout_init(&l, m, &s, level);
    memory saved = memory_of(l.saved_bytes);
    for (int pass = 0; pass < 2; pass++)
        for (int t = 0; t < LAYER_TENSORS; t++)
            if (l.saved[t])
                use(&saved, t, l.saved_at[t], tensor_bytes(m, &s, t), pass > 0);
    free(saved.owner);
    for (int i = 0; i < l.stages.n; i++)
        forward[i] = (layer_step){PASS_FORWARD, i};
    walk(m, &s, &l, forward, l.stages.n, l.forward_at, l.forward_workspace);
    walk(m, &s, &l, l.backward, l.backward_n, l.backward_at, l.backward_workspace);
    check_order(&l);
}

/* Few rows and wide heads or none to speak of, short MLPs and long ones, sequences so long that attention has sums. */
static void what_a_layer_still_needs_is_not_overwritten(void **state)
{
    (void)state;
    static const struct { int hidden, heads, kv_heads, head_dim, ffn; } widths[] = {
        {64, 4, 2, 16, 128}, {64, 1, 1, 8, 8}, {16, 2, 1, 64, 24}, {8, 1, 1, 8, 13}, {256, 4, 4, 64, 16}, {40, 5, 5, 8, 400}};
    static const struct { int64_t batch, seq_len; } steps[] = {{1, 1}, {1, 2}, {1, 3}, {3, 5}, {8, 64}, {1, 3000}, {1, 9000}};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        char json[640];
        snprintf(json, sizeof json, "{'model_type': 'llama', 'vocab_size': 300, 'hidden_size': %d, 'num_attention_heads': %d, "
                 "'num_key_value_heads': %d, 'head_dim': %d, 'num_hidden_layers': 1, 'intermediate_size': %d, "
                 "'max_position_embeddings': 16384}", widths[w].hidden, widths[w].heads, widths[w].kv_heads, widths[w].head_dim,
                 widths[w].ffn);
        model *m = config_open(json);
        for (int kind = 0; kind < 36; kind++) {
            m->config.qk_norm = (qk_norm_kind)(kind % 3);
            m->config.post_norm = kind / 3 % 3 > 0;
            m->config.pre_norm = kind / 3 % 3 < 2;
            m->config.parallel = kind / 9 % 2;
            m->config.one_norm = m->config.parallel && kind % 5 == 0;
            m->config.dora = kind % 2;
            for (int i = 0; i < MODEL_MATRICES; i++)
                m->config.adapter_width[i] = kind < 18 || (i + kind) % 3 == 0 ? 0 : 5 * (i + 1);
            for (int i = 0; i < m->params_n; i++)
                m->params[i].trainable = !i || kind % 4 == 0;
            model_store(m, kind % 4 == 3 ? STORAGE_NF4 : STORAGE_PLAIN, NULL);
            for (size_t k = 0; k < sizeof steps / sizeof *steps - (kind < 18 ? 0 : 2); k++)
                for (int level = 0; level < SAVE_LEVELS; level++)
                    check_layout(m, k % 2 ? PT_F32 : PT_BF16, steps[k].batch, steps[k].seq_len, (save_level)level);
        }
        model_close(m);
    }
}

/* Llama: the input alone, and what attention, and then the MLP, made. */
static void levels_save_what_backward_reads(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'llama', 'vocab_size': 300, 'hidden_size': 64, 'num_attention_heads': 4, "
                           "'num_key_value_heads': 2, "
                           "'num_hidden_layers': 1, 'intermediate_size': 100, 'max_position_embeddings': 64}");
    static const bool saved[SAVE_LEVELS][LAYER_TENSORS] = {
        [SAVE_INPUT] = {[LAYER_X] = true},
        [SAVE_ATTENTION] = {[LAYER_X] = true, [LAYER_QKV] = true, [LAYER_ATT] = true, [LAYER_LSE] = true, [LAYER_XM] = true},
        [SAVE_ALL] = {[LAYER_X] = true, [LAYER_QKV] = true, [LAYER_ATT] = true, [LAYER_LSE] = true, [LAYER_XM] = true, [LAYER_UP] = true}};
    static const int again[SAVE_LEVELS] = {6, 2, 0};
    step_shape s;
    layer_layout l;
    step_shape_init(&s, m, PT_F32, 1, 64);
    for (int level = 0; level < SAVE_LEVELS; level++) {
        layer_layout_init(&l, m, &s, (save_level)level);
        assert_memory_equal(l.saved, saved[level], sizeof l.saved);
        assert_int_equal(l.again_n, again[level]);
    }
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_layer_still_needs_is_not_overwritten),
                                       cmocka_unit_test(levels_save_what_backward_reads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
