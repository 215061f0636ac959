#include "model/support.h"

#include "base/rng.h"
#include "io/safetensors.h"
#include "io/scratch.h"
#include "model/prequantized.h"
#include "model/quantize.h"
#include "model/weights.h"
#include "seed.h"

#include <math.h>

static uint64_t seed;
static char room[1 << 20];

static safetensors *weights_open(const char *folder)
{
    safetensors *st;
    pt_error e = {0};
    if (safetensors_open(folder, &st, &e))
        fail_msg("%s", e.text);
    return st;
}

static float *tensor_values(const safetensors *st, const char *name, const safetensors_tensor **t)
{
    pt_error e = {0};
    *t = safetensors_find(st, name);
    if (!*t)
        return NULL;
    float *values = malloc(sizeof *values * (*t)->elements);
    assert_non_null(values);
    if (safetensors_read_f32(st, *t, 0, (*t)->elements, values, &e))
        fail_msg("%s", e.text);
    return values;
}

/* Under which of its names does this checkpoint hold the part? */
static float *stored_values(const safetensors *st, const char *name, const safetensors_tensor **t)
{
    char outer[MODEL_NAME + 32], inner[MODEL_NAME + 32];
    const char *names[] = {name, strchr(name, '.') + 1, outer, inner,
                           strstr(name, "embed_tokens") ? "lm_head.weight" : name};
    snprintf(outer, sizeof outer, "language_model.%s", name);
    snprintf(inner, sizeof inner, "model.language_%s", name); /* model.layers...: model.language_model.layers... */
    for (int i = 0; i < 5; i++) {
        float *values = tensor_values(st, names[i], t);
        if (values)
            return values;
    }
    fail_msg("%s is not there", name);
    return NULL;
}

/* GPT-NeoX stores q, k and v head by head. */
static int64_t our_row(const param_part *part, int64_t r)
{
    const int64_t d = part->segment[0];
    return part->heads ? r / d % 3 * (part->rows / 3) + r / (3 * d) * d + r % d : r;
}

static void check_against_file(const model *m, const safetensors *st, int index)
{
    const param *p = &m->params[index];
    pt_error e = {0};
    float *w = malloc(sizeof *w * (size_t)(p->rows * p->cols));
    assert_non_null(w);
    if (weights_read(m, st, index, 0, p->rows, w, room, sizeof room, &e))
        fail_msg("%s", e.text);
    for (int k = 0; k < p->parts; k++) {
        const param_part *part = &p->part[k];
        const safetensors_tensor *t;
        const int64_t whole = part_whole_rows(p, k);
        float *values = stored_values(st, part->name, &t);
        assert_int_equal(t->rank, (part->vector ? 1 : 2) + (part->stacked > 0));
        for (int64_t r = 0; r < part->rows; r++)
            for (int64_t c = 0; c < (part->vector ? 1 : p->cols); c++) {
                const int64_t row = part->row0 + our_row(part, r);
                float ours = part->vector ? w[row] : w[row * p->cols + c];
                int64_t at = part->vector ? r : part->transposed ? r / whole * whole * p->cols + c * whole + r % whole : r * p->cols + c;
                if (ours != values[at])
                    fail_msg("%s (%lld, %lld): %g is not %g", part->name, (long long)r, (long long)c,
                             (double)ours, (double)values[at]);
            }
        free(values);
    }
    free(w);
}

static weights_naming naming_of_fixture(const char *name)
{
    static const struct { const char *name; weights_naming naming; } special[] = {
        {"gpt2_original_names", NAMES_BARE}, {"opt_bare", NAMES_BARE},  {"gemma3_multimodal", NAMES_INNER},
        {"mistral3", NAMES_OUTER},           {"mistral3_ministral3", NAMES_OUTER},
    };
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (!strcmp(special[i].name, name))
            return special[i].naming;
    return NAMES_WHOLE;
}

static void every_element_of_every_fixture_finds_its_place(void **state)
{
    (void)state;
    for (int i = 0; i < FIXTURES; i++) {
        model *m = folder_open(fixture_path(fixtures[i]));
        safetensors *st = weights_open(fixture_path(fixtures[i]));
        pt_error e = {0};
        pt_dtype type;
        if (weights_check(m, st, &type, &e))
            fail_msg("%s", e.text);
        assert_int_equal(type, m->config.stored_type);
        assert_int_equal(weights_naming_of(m, st), naming_of_fixture(fixtures[i]));
        for (int k = 0; k < m->params_n; k++)
            check_against_file(m, st, k);
        safetensors_close(st);
        model_close(m);
    }
}

/* The names that Transformers itself gives the parameters, from the gradients that it computed, and what has none. */
static void names_are_those_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < FIXTURES; i++) {
        model *m = folder_open(fixture_path(fixtures[i]));
        char path[600];
        snprintf(path, sizeof path, "%s/reference.safetensors", fixture_path(fixtures[i]));
        safetensors *st = weights_open(path);
        size_t trained = 0, gradients = 0;
        for (size_t k = 0; k < safetensors_count(st); k++)
            gradients += !strncmp(safetensors_at(st, k)->name, "grad.", 5);
        for (int k = 0; k < m->params_n; k++)
            for (int j = 0; j < m->params[k].parts; j++, trained += m->params[k].trainable) {
                const param *p = &m->params[k];
                char name[MODEL_NAME + 8];
                const bool neox_head = !strcmp(p->part[j].name, "embed_out.weight"); /* so called in files alone */
                snprintf(name, sizeof name, "%s.%s", p->trainable ? "grad" : "after", neox_head ? "lm_head.weight" : p->part[j].name);
                const safetensors_tensor *t = safetensors_find(st, name);
                if (!t)
                    fail_msg("%s: %s is unknown", fixtures[i], name);
                assert_int_equal(t->elements, p->part[j].rows * (p->part[j].vector ? 1 : p->cols));
            }
        assert_int_equal(trained, gradients);
        safetensors_close(st);
        model_close(m);
    }
}

static void any_rows_through_any_scratch_are_the_same(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "llama_linear_rope", "qwen3_window"};
    for (int i = 0; i < 3; i++) {
        model *m = folder_open(fixture_path(names[i]));
        safetensors *st = weights_open(fixture_path(names[i]));
        for (int k = 0; k < m->params_n; k++) {
            const param *p = &m->params[k];
            float *whole = malloc(sizeof *whole * (size_t)(p->rows * p->cols)),
                  *piece = malloc(sizeof *piece * (size_t)(p->rows * p->cols));
            assert_true(whole && piece);
            assert_int_equal(weights_read(m, st, k, 0, p->rows, whole, room, sizeof room, NULL), 0);
            for (int trial = 0; trial < 20; trial++) {
                uint32_t r[4];
                rng_words(seed, RNG_TEST, (uint32_t)k, (uint64_t)trial, r);
                int64_t row0 = r[0] % p->rows, n = 1 + r[1] % (p->rows - row0);
                size_t bytes = sizeof(float) << r[2] % 12;
                assert_int_equal(weights_read(m, st, k, row0, n, piece, room, bytes, NULL), 0);
                assert_memory_equal(piece, whole + row0 * p->cols, sizeof *piece * (size_t)(n * p->cols));
            }
            free(whole);
            free(piece);
        }
        safetensors_close(st);
        model_close(m);
    }
}

/* ---- checkpoints with something wrong ------------------------------------------------------- */

#define TINY                                                                                       \
    "{'model_type': 'llama', 'hidden_size': 4, 'num_hidden_layers': 1, 'num_attention_heads': 2, " \
    "'vocab_size': 6,"                                                                             \
    " 'intermediate_size': 3, 'tie_word_embeddings': "

typedef struct damage {
    const char *drop, *reshape, *retype, *extra, *empty, *broken; /* names */
    bool head_differs, head_equal;
    float shift; /* of the broken one's values */
} damage;

static void write_tensor(safetensors_writer *w, int number, int64_t elements, float shift, bool bytes)
{
    float values[64];
    assert_true(elements <= 64);
    for (int64_t i = 0; i < elements; i++)
        values[i] = (float)i + shift;
    assert_int_equal(bytes ? safetensors_append(w, number, values, (uint64_t)elements, NULL)
                           : safetensors_append_f32(w, number, values, (uint64_t)elements, NULL), 0);
}

static bool is_named(const char *name, const char *wanted) { return wanted && !strcmp(name, wanted); }

static void write_checkpoint(const model *m, const char *folder, const damage *d)
{
    safetensors_writer *w;
    const int64_t four[2] = {4, 1}, table[2] = {m->config.vocab, m->config.hidden};
    int64_t elements[32];
    bool bytes[32];
    int n = 0, broken = -1;
    assert_int_equal(safetensors_writer_open(folder, "model", 0, &w, NULL), 0);
    for (int i = 0; i < m->params_n; i++)
        for (int k = 0; k < m->params[i].parts; k++) {
            const param *p = &m->params[i];
            const param_part *part = &p->part[k];
            int64_t shape[2] = {part->rows + is_named(part->name, d->reshape), p->cols};
            if (is_named(part->name, d->drop))
                continue;
            bytes[n] = is_named(part->name, d->retype);
            broken = is_named(part->name, d->broken) ? n : broken;
            elements[n] = shape[0] * (part->vector ? 1 : shape[1]);
            assert_int_equal(safetensors_declare(w, part->name, bytes[n] ? PT_U8 : PT_F32,
                                                 part->vector ? 1 : 2, shape, NULL),
                             n);
            n++;
        }
    if (d->extra) {
        elements[n] = 4;
        bytes[n] = false;
        assert_int_equal(safetensors_declare(w, d->extra, PT_F32, 2, four, NULL), n);
        n++;
    }
    if (d->empty) {
        elements[n] = 0;
        bytes[n] = false;
        assert_int_equal(safetensors_declare(w, d->empty, PT_F32, 2, (const int64_t[]){0, 4}, NULL), n);
        n++;
    }
    if (d->head_differs || d->head_equal) {
        elements[n] = table[0] * table[1];
        bytes[n] = false;
        assert_int_equal(safetensors_declare(w, "lm_head.weight", PT_F32, 2, table, NULL), n);
        n++;
    }
    assert_int_equal(safetensors_begin(w, NULL), 0);
    for (int i = 0; i < n; i++)
        write_tensor(w, i, elements[i], i == n - 1 && d->head_differs ? 1 : i == broken ? d->shift : 0, bytes[i]);
    assert_int_equal(safetensors_finish(w, NULL), 0);
    safetensors_writer_close(w);
}

static void check_damage(const model *m, const damage *d, const char *first, const char *second)
{
    pt_error e = {0};
    write_checkpoint(m, scratch, d);
    assert_true(weights_present(scratch));
    safetensors *st = weights_open(scratch);
    int status = weights_check(m, st, NULL, &e);
    if (!first)
        assert_int_equal(status, 0);
    else if (status != PT_FAILED || !strstr(e.text, first) || !strstr(e.text, second) ||
             !strstr(e.text, "model.safetensors"))
        fail_msg("status %d: %s", status, e.text);
    safetensors_close(st);
}

static void checkpoints_that_do_not_match_are_refused_with_the_tensors_name(void **state)
{
    (void)state;
    model *m = config_open(TINY "false}");
    check_damage(m, &(damage){0}, NULL, NULL);
    check_damage(m, &(damage){.drop = "model.layers.0.self_attn.k_proj.weight"},
                 "layers.0.self_attn.k_proj.weight", "missing");
    check_damage(m, &(damage){.drop = "lm_head.weight"}, "lm_head.weight", "tie_word_embeddings");
    check_damage(m, &(damage){.reshape = "model.layers.0.mlp.up_proj.weight"}, "mlp.up_proj.weight",
                 "(4, 4)");
    check_damage(m, &(damage){.reshape = "model.norm.weight"}, "model.norm.weight", "(5)");
    check_damage(m, &(damage){.retype = "model.norm.weight"}, "model.norm.weight", "U8");
    check_damage(m, &(damage){.extra = "model.layers.0.self_attn.q_proj.bias"}, "q_proj.bias", "(4, 1)");
    check_damage(m, &(damage){.extra = "model.layers.1.mlp.up_proj.weight"}, "layers.1.mlp.up_proj.weight",
                 "not part");
    check_damage(m, &(damage){.extra = "score.weight"}, "score.weight", "not part");
    check_damage(m, &(damage){.extra = "model.layers.0.self_attn.rotary_emb.inv_freq"}, NULL, NULL);
    check_damage(m, &(damage){.extra = "layers.0.self_attn.rotary_emb.inv_freq"}, NULL, NULL);
    check_damage(m, &(damage){.extra = "model.layers.x.self_attn.rotary_emb.inv_freqs"}, "layers.x",
                 "not part");
    model_close(m);
}

/* Of a file with both forms of experts, the tensor of the form that layer 0 does not have. */
static void experts_in_two_forms_are_refused_with_the_other_form(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'mixtral', 'vocab_size': 6, 'hidden_size': 4, 'num_hidden_layers': 2, 'num_attention_heads': 2,"
                           " 'num_key_value_heads': 1, 'head_dim': 2, 'intermediate_size': 2, 'num_local_experts': 2,"
                           " 'num_experts_per_tok': 1}");
    const char *own = "model.layers.1.block_sparse_moe.experts.0.w1.weight", *together = "model.layers.1.mlp.experts.gate_up_proj";
    check_damage(m, &(damage){0}, NULL, NULL);
    check_damage(m, &(damage){.drop = own}, own, "missing");
    check_damage(m, &(damage){.drop = own, .extra = together}, together, "in tensors of their own");
    model_close(m);
}

static void a_tied_head_may_be_stored_if_it_is_the_embedding(void **state)
{
    (void)state;
    model *m = config_open(TINY "true}");
    check_damage(m, &(damage){0}, NULL, NULL);
    check_damage(m, &(damage){.head_equal = true}, NULL, NULL);
    check_damage(m, &(damage){.head_differs = true}, "lm_head.weight", "tie_word_embeddings");
    check_damage(m, &(damage){.head_equal = true, .drop = "model.embed_tokens.weight"}, NULL, NULL);
    check_damage(m, &(damage){.drop = "model.embed_tokens.weight"}, "model.embed_tokens.weight", "missing");
    model_close(m);
}

/* Whichever rows are read, and however they are stored. */
static void a_value_that_is_not_finite_is_refused_with_its_tensor(void **state)
{
    (void)state;
    static const char *const names[] = {"model.norm.weight", "model.embed_tokens.weight", "model.layers.0.self_attn.v_proj.weight"};
    static char spare[1 << 20];
    model *m = config_open(TINY "false}");
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        const char *name = names[i / 2];
        float values[256];
        int refused = 0;
        write_checkpoint(m, scratch, &(damage){.broken = name, .shift = i % 2 ? INFINITY : NAN});
        safetensors *st = weights_open(scratch);
        for (int k = 0; k < m->params_n; k++) {
            pt_error e = {0};
            if (!weights_read(m, st, k, 0, m->params[k].rows, values, spare, sizeof spare, &e))
                continue;
            assert_non_null(strstr(e.text, name));
            assert_non_null(strstr(e.text, "not finite"));
            assert_non_null(strstr(e.text, "model.safetensors"));
            refused++;
        }
        assert_int_equal(refused, 1);
        safetensors_close(st);
    }
    model_close(m);
}

static void keep_notice(void *arg, const char *sentence) { snprintf(arg, 1024, "%s", sentence); }

/* What a checkpoint with this leaves unread is said, or nothing is. */
static void check_notice(const model *m, const damage *d, const char *said)
{
    char noted[1024] = "";
    check_damage(m, d, NULL, NULL);
    safetensors *st = weights_open(scratch);
    weights_notice_unused(m, st, keep_notice, noted);
    if (!said != !noted[0] || (said && !strstr(noted, said)))
        fail_msg("said: %s", noted);
    safetensors_close(st);
}

static void leftovers_are_ignored_with_a_notice(void **state)
{
    (void)state;
    model *m = config_open(TINY "false}");
    check_notice(m, &(damage){0}, NULL);
    check_notice(m, &(damage){.extra = "model.layers.0.self_attn.rotary_emb.inv_freq"}, NULL); /* its own */
    check_notice(m, &(damage){.extra = "transformer.h.0.attn.masked_bias"},
                 "\"transformer.h.0.attn.masked_bias\" is not part of a llama model and is ignored: it is a buffer and "
                 "holds no weights");
    check_notice(m, &(damage){.extra = "model.layers.0.self_attn.rotary_emb.cos_cached"}, "it is a buffer and holds no weights");
    check_notice(m, &(damage){.extra = "model.embeddings.position_ids"}, "it is a buffer and holds no weights");
    check_notice(m, &(damage){.empty = "model.layers.0.mlp.g_idx"},
                 "\"model.layers.0.mlp.g_idx\" is not part of a llama model and is ignored: it is empty");
    check_damage(m, &(damage){.extra = "transformer.h.0.attn.weight"}, "transformer.h.0.attn.weight", "not part");
    check_damage(m, &(damage){.extra = "model.no_position_ids"}, "model.no_position_ids", "not part");
    model_close(m);
}

/* The layers beyond the last that predict further tokens: GLM's file. */
static void layers_that_predict_further_tokens_are_dropped_with_a_notice(void **state)
{
    (void)state;
    char noted[1024] = "";
    model *m = folder_open(fixture_path("glm4_moe"));
    safetensors *st = weights_open(fixture_path("glm4_moe"));
    assert_int_equal(weights_check(m, st, NULL, NULL), 0);
    weights_notice_unused(m, st, keep_notice, noted);
    assert_non_null(strstr(noted, "model.layers.46.enorm.weight"));
    m->config.layers = 47; /* then it would be a tensor of a layer */
    weights_notice_unused(m, st, keep_notice, strcpy(noted, ""));
    assert_string_equal(noted, "");
    m->config.layers = m->blocks_n - 2;
    safetensors_close(st);
    model_close(m);
}

/* ---- experts in MXFP4 ---- */

enum { MX_BYTES_MOST = 1 << 14 };

static uint8_t mx_code(int64_t i) { return (uint8_t)(i * 37 + i / 7 * 11); }

/* gpt-oss as published: bytes of codes and scales, of which one is `last_scale`. */
static void write_mx(const model *m, int last_scale)
{
    static const char *const ends[] = {"_blocks", "_scales"};
    safetensors_writer *w;
    int64_t elements[64];
    bool bytes[64];
    int n = 0;
    assert_int_equal(safetensors_writer_open(scratch, "model", 0, &w, NULL), 0);
    for (int i = 0; i < m->params_n; i++)
        for (int k = 0; k < m->params[i].parts; k++) {
            const param *p = &m->params[i];
            const param_part *part = &p->part[k];
            const bool mx = p->kind->use == USE_EXPERTS;
            for (int j = 0; j < 1 + mx; j++) {
                char name[MODEL_NAME + 8];
                const int64_t rows = part->rows / (part->stacked ? part->stacked : 1);
                const int64_t whole[4] = {part->stacked ? part->stacked : rows, part->stacked ? rows : p->cols, p->cols / 32, 16};
                const int rank = mx ? 4 - j : (part->vector ? 1 : 2) + (part->stacked > 0);
                snprintf(name, sizeof name, "%s%s", part->name, mx ? ends[j] : "");
                bytes[n] = mx;
                elements[n] = mx ? part->rows * p->cols / 2 / (j ? 16 : 1) : part->rows * (part->vector ? 1 : p->cols);
                assert_int_equal(safetensors_declare(w, name, mx ? PT_U8 : PT_F32, rank, whole, NULL), n);
                n++;
            }
        }
    assert_int_equal(safetensors_begin(w, NULL), 0);
    for (int i = 0; i < n; i++) {
        static float zeros[MX_BYTES_MOST];
        uint8_t codes[MX_BYTES_MOST];
        assert_true(elements[i] <= MX_BYTES_MOST);
        for (int64_t k = 0; k < elements[i]; k++)
            codes[k] = i && bytes[i - 1] && bytes[i] && elements[i] < elements[i - 1] ? (uint8_t)(120 + k % 9) : mx_code(k);
        if (bytes[i] && elements[i] * 16 == elements[i - 1])
            codes[elements[i] - 1] = (uint8_t)(last_scale ? last_scale : codes[elements[i] - 1]);
        assert_int_equal(bytes[i] ? safetensors_append(w, i, codes, (uint64_t)elements[i], NULL)
                                  : safetensors_append_f32(w, i, zeros, (uint64_t)elements[i], NULL), 0);
    }
    assert_int_equal(safetensors_finish(w, NULL), 0);
    safetensors_writer_close(w);
}

/* As a base in their own codes: rows from `from` on have the values `want`. */
static void check_kept(const model *m, const safetensors *st, int index, int64_t from, const float *want)
{
    static char piece[MX_BYTES_MOST];
    static float values[3 * 64 * 64];
    const param *p = &m->params[index];
    pt_error e = {0};
    prequantized q;
    assert_true(p->storage == STORAGE_MXFP4 && storage_bytes(p) <= sizeof piece);
    for (int k = 0; k < p->parts; k++) {
        assert_int_equal(weights_in_few_bits(m, st, index, k, &q, &e), 1);
        for (int s = 0; s < STORAGE_SLABS; s++)
            assert_int_equal(prequantized_take(&q, s, 0, storage_slab_bytes(p, k, s), piece + storage_slab_at(p, k, s), &e), 0);
    }
    dequantize_rows(p, piece, from, p->rows - from, values);
    assert_memory_equal(values, want, (size_t)((p->rows - from) * p->cols) * sizeof *want);
}

static void experts_in_mxfp4_are_decoded(void **state)
{
    (void)state;
    static const float level[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    model *m = config_open("{'model_type': 'gpt_oss', 'vocab_size': 11, 'hidden_size': 64, 'intermediate_size': 32, 'num_hidden_layers': 1,"
                           " 'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 8, 'num_local_experts': 3,"
                           " 'num_experts_per_tok': 1, 'rope_scaling': {'rope_type': 'yarn', 'factor': 2},"
                           " 'quantization_config': {'quant_method': 'mxfp4'}}");
    pt_error e = {0};
    write_mx(m, 0);
    safetensors *st = weights_open(scratch);
    if (weights_check(m, st, NULL, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < m->params_n; i++)
        m->params[i].trainable = false;
    assert_int_equal(weights_store_like(m, st, &e), 0);
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        float w[3 * 64 * 64];
        if (p->kind->use != USE_EXPERTS)
            continue;
        assert_int_equal(weights_read(m, st, i, 5, p->rows - 5, w, room, sizeof room, &e), 0); /* rows are outputs, expert after expert */
        for (int64_t k = 5 * p->cols; k < p->rows * p->cols; k++) {
            const uint8_t byte = mx_code(k / 2);
            assert_true(w[k - 5 * p->cols] == ldexpf(level[k % 2 ? byte >> 4 : byte & 15], (int)(120 + k / 32 % 9) - 127));
        }
        check_kept(m, st, i, 5, w);
    }
    safetensors_close(st);
    write_mx(m, 253);
    st = weights_open(scratch);
    const int down = m->blocks[1].param_of_role[PARAM_EXPERTS_DOWN];
    float w[64];
    assert_int_equal(weights_read(m, st, down, m->params[down].rows - 1, 1, w, room, sizeof room, &e), PT_FAILED);
    assert_true(strstr(e.text, "252") && strstr(e.text, "down_proj"));
    safetensors_close(st);
    model_close(m);
}

/* A model of text and images whose config does not say whether its tables are tied: those that are stored do. */
static void two_tables_that_differ_are_not_tied(void **state)
{
    (void)state;
    static const struct { const char *says; bool two, tied; } each[] = {
        {"", false, true}, {"", true, false}, {"\"tie_word_embeddings\": true, ", true, true}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char config[512];
        snprintf(config, sizeof config, "{\"model_type\": \"mistral3\", %s\"text_config\": {\"hidden_size\": 4, \"vocab_size\": 6, "
                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 2, "
                 "\"intermediate_size\": 3}}", each[i].says);
        model *tied = config_open(config);
        write_checkpoint(tied, scratch, &(damage){.head_differs = each[i].two});
        scratch_put("config.json", config, strlen(config));
        model *m = folder_open(scratch);
        assert_int_equal(m->config.tied, each[i].tied);
        model_close(m);
        model_close(tied);
    }
}

/* As Transformers takes it: the index was written before the head was tied. */
static void an_index_may_name_a_tied_head_that_no_shard_has(void **state)
{
    (void)state;
    static const struct { const char *tied, *named; bool taken; } each[] = {
        {"true}", "lm_head.weight", true}, {"true}", "model.norm.bias", false}, {"false}", "lm_head.weight", false}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char config[400], map[4096], index[300];
        pt_error e = {0};
        snprintf(config, sizeof config, TINY "%s", each[i].tied);
        model *m = config_open(config);
        write_checkpoint(m, scratch, &(damage){.drop = "lm_head.weight"});
        size_t used = (size_t)snprintf(map, sizeof map, "{\"weight_map\": {\"%s\": \"model.safetensors\"", each[i].named);
        safetensors *st = weights_open(scratch);
        for (size_t k = 0; k < safetensors_count(st); k++)
            used += (size_t)snprintf(map + used, sizeof map - used, ", \"%s\": \"model.safetensors\"", safetensors_at(st, k)->name);
        snprintf(map + used, sizeof map - used, "}}");
        safetensors_close(st);
        scratch_put("tied.safetensors.index.json", map, strlen(map));
        snprintf(index, sizeof index, "%s", scratch_path("tied.safetensors.index.json"));
        st = weights_open(index);
        int status = weights_check(m, st, NULL, &e);
        if (!status != each[i].taken || (status && !strstr(e.text, each[i].named)))
            fail_msg("%s: %d %s", each[i].named, status, e.text);
        safetensors_close(st);
        model_close(m);
    }
}

static void real_checkpoints_are_read(void **state)
{
    (void)state;
    static const char *const real[] = {PT_SHARED_DATA "/checkpoints/TinyStories-656K",
                                       PT_SHARED_DATA "/checkpoints/tiny-gpt2"};
    if (access(real[0], R_OK)) {
        print_message("skipped: no shared/data beside the project\n");
        skip();
    }
    for (int i = 0; i < 2; i++) {
        model *m = folder_open(real[i]);
        safetensors *st = weights_open(real[i]);
        pt_error e = {0};
        if (weights_check(m, st, NULL, &e))
            fail_msg("%s", e.text);
        for (int k = 0; k < m->params_n; k++)
            check_against_file(m, st, k);
        safetensors_close(st);
        model_close(m);
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_of_every_fixture_finds_its_place),
        cmocka_unit_test(names_are_those_of_transformers),
        cmocka_unit_test(any_rows_through_any_scratch_are_the_same),
        cmocka_unit_test(checkpoints_that_do_not_match_are_refused_with_the_tensors_name),
        cmocka_unit_test(experts_in_two_forms_are_refused_with_the_other_form),
        cmocka_unit_test(a_tied_head_may_be_stored_if_it_is_the_embedding),
        cmocka_unit_test(a_value_that_is_not_finite_is_refused_with_its_tensor),
        cmocka_unit_test(leftovers_are_ignored_with_a_notice),
        cmocka_unit_test(layers_that_predict_further_tokens_are_dropped_with_a_notice),
        cmocka_unit_test(experts_in_mxfp4_are_decoded),
        cmocka_unit_test(two_tables_that_differ_are_not_tied),
        cmocka_unit_test(an_index_may_name_a_tied_head_that_no_shard_has),
        cmocka_unit_test(real_checkpoints_are_read),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
