/* random_plan.h - random small models, shapes, packings and valid plans for tests. Everything follows from the seed.
 *
 *     random_source r = random_open();            // prints the seed; PT_TEST_SEED=n repeats a run
 *     random_case c;
 *     if (random_case_open(&r, &c, &e)) ...        // a model, a step, a packing and a plan, with c.input over them
 *     random_case_close(&c);
 *
 * A plan is valid, but it may have too few buffers for what one block needs at once: schedule_build then says
 * PT_DOES_NOT_FIT, which is a legal outcome.
 */
#ifndef PT_RANDOM_PLAN_H
#define PT_RANDOM_PLAN_H

#include "base/rng.h"
#include "layer/sequence.h"
#include "model/adapter.h"
#include "model/architectures.h"
#include "model/storage.h"
#include "schedule/schedule.h"
#include "seed.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct random_source { uint64_t seed, n; } random_source;

static inline random_source random_open(void) { return (random_source){test_seed(), 0}; }

/* Source number i of a seed: cases of a run can be repeated one by one. */
static inline random_source random_fork(const random_source *r, uint64_t i) { return (random_source){r->seed, i << 32}; }

static inline uint32_t random_bits(random_source *r)
{
    uint32_t w[4];
    rng_words(r->seed, RNG_TEST, 1, r->n++, w);
    return w[0];
}

static inline int random_below(random_source *r, int n) { return (int)(random_bits(r) % (uint32_t)n); }
static inline int random_from(random_source *r, int low, int high) { return low + random_below(r, high - low + 1); }
static inline bool random_one_in(random_source *r, int n) { return random_below(r, n) == 0; }

static inline int random_divisor(random_source *r, int n)
{
    int d = random_from(r, 1, n);
    while (n % d)
        d--;
    return d;
}

/* Architectures whose sizes have Llama's names, and what makes their layers particular. */
static const struct { const char *type, *more; } random_llamas[] = {
    {"llama", ""}, {"qwen3", ""}, {"gemma", ""}, {"olmo2", ""}, {"smollm3", ""}, {"phi3", ", \"partial_rotary_factor\": 0.5"},
    {"mistral", ", \"sliding_window\": 7"}, {"gemma2", ", \"sliding_window\": 7, \"query_pre_attn_scalar\": 5"},
    {"gemma3_text", ", \"sliding_window\": 7, \"sliding_window_pattern\": 2, \"final_logit_softcapping\": 3"},
    {"olmo3", ", \"sliding_window\": 7"}, {"ministral3", ""}, {"starcoder2", ", \"sliding_window\": 7"},
    {"seed_oss", ", \"attention_out_bias\": true"},
    {"exaone4", ", \"sliding_window\": 7"},
    {"stablelm", ", \"use_qkv_bias\": true"},
    {"arcee", ""}, {"nemotron", ", \"mlp_bias\": true"},
    {"glm4", ""}, {"ernie4_5", ", \"use_bias\": true"},
    {"cohere", ", \"attention_bias\": true"}, {"cohere2", ", \"sliding_window\": 7, \"logit_scale\": 0.4"},
    {"olmoe", ", \"num_experts\": 5, \"num_experts_per_tok\": 2"},
    {"mixtral", ", \"num_local_experts\": 4, \"num_experts_per_tok\": 3, \"sliding_window\": 7"},
    {"qwen3_moe", ", \"num_experts\": 9, \"num_experts_per_tok\": 4, \"moe_intermediate_size\": 16, \"mlp_only_layers\": [0]"},
    {"qwen3_moe", ", \"num_experts\": 9, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 64"}, /* which are cut into ranges */
    {"qwen3_moe", ", \"num_experts\": 3, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 24, \"decoder_sparse_step\": 2"},
    {"lfm2", ", \"full_attn_idxs\": [0], \"block_multiple_of\": 8, \"conv_bias\": true"}, {"lfm2", ", \"full_attn_idxs\": []"},
    {"gemma4_text", ", \"sliding_window\": 7, \"hidden_size_per_layer_input\": 0, \"global_head_dim\": 16, "
                    "\"num_global_key_value_heads\": 1, \"attention_k_eq_v\": true, \"final_logit_softcapping\": 3"},
    {"gemma4_text", ", \"sliding_window\": 7, \"hidden_size_per_layer_input\": 4, \"global_head_dim\": 16, "
                    "\"use_double_wide_mlp\": true"},
    {"gemma4_text", ", \"sliding_window\": 7, \"hidden_size_per_layer_input\": 0, \"global_head_dim\": 16, "
                    "\"enable_moe_block\": true, \"num_experts\": 5, \"top_k_experts\": 2, \"moe_intermediate_size\": 16"},
    {"qwen3_5_text", ", \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, "
                     "\"linear_key_head_dim\": 8, \"linear_value_head_dim\": 12"},
    {"granitemoehybrid", ", \"attn_layer_indices\": [0], \"mamba_n_heads\": 4, \"mamba_n_groups\": 2, \"mamba_d_state\": 8, "
                         "\"shared_intermediate_size\": 24, \"num_local_experts\": 0, \"residual_multiplier\": 0.4"},
    {"falcon_h1", ", \"mamba_d_ssm\": 32, \"mamba_n_heads\": 4, \"mamba_n_groups\": 2, \"mamba_d_state\": 8, \"key_multiplier\": 0.7, "
                  "\"attention_in_multiplier\": 1.1, \"ssm_out_multiplier\": 0.8, \"ssm_multipliers\": [0.9, 1.1, 0.8, 1.2, 0.7], "
                  "\"mlp_multipliers\": [0.6, 0.9]"},
    {"falcon_h1", ", \"mamba_d_ssm\": 24, \"mamba_n_heads\": 3, \"mamba_d_state\": 12, \"mamba_rms_norm\": true"},
    {"nemotron_h", ", \"mamba_num_heads\": 4, \"mamba_head_dim\": 8, \"n_groups\": 2, \"ssm_state_size\": 8"},
    {"nemotron_h", ", \"mamba_num_heads\": 2, \"mamba_head_dim\": 12, \"n_groups\": 1, \"ssm_state_size\": 8, \"n_routed_experts\": 6,"
                   " \"num_experts_per_tok\": 2, \"n_group\": 3, \"topk_group\": 2, \"moe_intermediate_size\": 8,"
                   " \"moe_shared_expert_intermediate_size\": 16"},
    {"nemotron_h", ", \"mamba_num_heads\": 2, \"mamba_head_dim\": 12, \"n_groups\": 1, \"ssm_state_size\": 8, \"n_routed_experts\": 5,"
                   " \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 8, \"moe_shared_expert_intermediate_size\": 16,"
                   " \"moe_latent_size\": 14, \"mlp_bias\": true"},
    {"qwen2_moe", ", \"num_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 16,"
                  " \"shared_expert_intermediate_size\": 24, \"decoder_sparse_step\": 2"},
    {"granitemoeshared", ", \"num_local_experts\": 4, \"shared_intermediate_size\": 24, \"residual_multiplier\": 0.4"},
    {"glm4_moe", ", \"n_routed_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 16, \"use_qk_norm\": true,"
                 " \"routed_scaling_factor\": 1.5"},
    {"dots1", ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"n_group\": 4, \"topk_group\": 2, \"n_shared_experts\": 2,"
              " \"moe_intermediate_size\": 8, \"sliding_window\": 7, \"max_window_layers\": 1"},
    {"deepseek_v3", ", \"q_lora_rank\": 12, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 4, \"v_head_dim\": 7,"
                    " \"n_routed_experts\": 8, \"num_experts_per_tok\": 3, \"n_group\": 4, \"topk_group\": 2,"
                    " \"moe_intermediate_size\": 8, \"first_k_dense_replace\": 1, \"attention_bias\": true"},
    {"deepseek_v3", ", \"q_lora_rank\": null, \"kv_lora_rank\": 8, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 4, \"v_head_dim\": 8,"
                    " \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"n_group\": 1, \"topk_group\": 1,"
                    " \"moe_intermediate_size\": 16, \"first_k_dense_replace\": 0, \"rope_interleave\": false"},
    {"deepseek_v2", ", \"kv_lora_rank\": 12, \"q_lora_rank\": 6, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 6, \"v_head_dim\": 10,"
                    " \"n_routed_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8,"
                    " \"routed_scaling_factor\": 1.5"},
    {"ernie4_5_moe", ", \"moe_num_experts\": 5, \"moe_k\": 2, \"moe_num_shared_experts\": 1, \"moe_intermediate_size\": 16,"
                     " \"moe_layer_interval\": 2"},
    {"minimax_m2", ", \"num_local_experts\": 7, \"num_experts_per_tok\": 3"},
    {"gpt_oss", ", \"num_local_experts\": 6, \"num_experts_per_tok\": 2, \"sliding_window\": 7, \"swiglu_limit\": 0.5,"
                " \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"truncate\": false,"
                " \"original_max_position_embeddings\": 64}"},
    {"qwen3_next", ", \"full_attention_interval\": 2, \"linear_num_key_heads\": 1, \"linear_num_value_heads\": 2, "
                   "\"linear_key_head_dim\": 8, \"linear_value_head_dim\": 8, \"num_experts\": 5, \"num_experts_per_tok\": 2, "
                   "\"moe_intermediate_size\": 16, \"shared_expert_intermediate_size\": 24"},
    {"lfm2_moe", ", \"full_attn_idxs\": [0], \"num_dense_layers\": 1, \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                 "\"moe_intermediate_size\": 16"},
    {"granite", ", \"embedding_multiplier\": 3, \"attention_multiplier\": 0.2, \"residual_multiplier\": 0.4, \"logits_scaling\": 1.5"}};
enum { RANDOM_LLAMAS = sizeof random_llamas / sizeof *random_llamas };

/* Layers with inputs of their own, of which the last half reads keys and values of earlier ones, if each kind has one. */
static inline void random_shared(int layers, int vocab, char *out, size_t n)
{
    size_t at = (size_t)snprintf(out, n, ", \"vocab_size_per_layer_input\": %d, \"num_kv_shared_layers\": %d, \"layer_types\": [", vocab,
                                 layers < 4 ? 0 : layers / 2);
    for (int i = 0; i < layers; i++)
        at += (size_t)snprintf(out + at, n - at, "%s\"%s_attention\"", i ? ", " : "", i % 3 == 1 && i < layers - 1 ? "sliding" : "full");
    snprintf(out + at, n - at, "]");
}

/* Layers of one branch, which come again and again. */
static inline void random_pattern(int layers, const char *branches, char *out, size_t n)
{
    size_t at = (size_t)snprintf(out, n, ", \"hybrid_override_pattern\": \"");
    for (int i = 0; i < layers; i++)
        at += (size_t)snprintf(out + at, n - at, "%c", branches[(size_t)i % strlen(branches)]);
    snprintf(out + at, n - at, "\"");
}

static bool random_scores; /* some models score classes instead of tokens */

/* Of a model that has such a head, one of four. */
static inline void random_head(random_source *r, const char *type, char *out, size_t n)
{
    const char *name = random_scores ? architecture_scorer(type) : NULL;
    if (name && random_one_in(r, 4))
        snprintf(out, n, ", \"architectures\": [\"%s\"], \"num_labels\": %d", name, random_one_in(r, 2) ? 1 : random_from(r, 2, 9));
}

/* Any architecture, tied or not, `layers` layers. */
static inline int random_model(random_source *r, int layers, model **out, pt_error *e)
{
    char json[1 << 14];
    int heads = 1 << random_below(r, 3), hidden = heads * 8 * random_from(r, 1, 3), vocab = random_from(r, 20, 700);
    int kind = random_below(r, RANDOM_LLAMAS + 3), ffn = 8 * random_from(r, 2, 16);
    const bool latent = kind > 2 && !strncmp(random_llamas[kind - 3].type, "deepseek", 8);
    const char *tied = random_one_in(r, 2) ? "true" : "false";
    char branches[12 << 10] = "", head[160] = "";
    random_head(r, kind > 2 ? random_llamas[kind - 3].type : kind == 0 ? "gpt2" : kind == 1 ? "opt" : "gpt_neox", head, sizeof head);
    if (kind > 2 && !strcmp(random_llamas[kind - 3].type, "nemotron_h"))
        random_pattern(layers, strstr(random_llamas[kind - 3].more, "moe") ? "EM*E-MEM*-E*EM-EM*E--E*M" : "M-*M-M*-*-MM-*M--M*M-*M-",
                       branches, sizeof branches);
    if (kind > 2 && strstr(random_llamas[kind - 3].more, "input\": 4"))
        random_shared(layers, vocab, branches, sizeof branches);
    if (kind == 0)
        snprintf(json, sizeof json,
                 "{\"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_positions\": %d, \"n_embd\": %d, \"n_head\": %d, \"n_layer\": %d, "
                 "\"n_inner\": %d, \"tie_word_embeddings\": %s, \"bos_token_id\": 0, \"eos_token_id\": 0%s}",
                 vocab, random_from(r, 64, 300), hidden, heads, layers, ffn, tied, head);
    else if (kind <= 2)
        snprintf(json, sizeof json,
                 "{\"model_type\": \"%s\", \"vocab_size\": %d, \"max_position_embeddings\": %d, \"hidden_size\": %d, "
                 "\"num_attention_heads\": %d, \"num_hidden_layers\": %d, \"%s\": %d, \"tie_word_embeddings\": %s, \"bos_token_id\": 0, "
                 "\"eos_token_id\": 0%s}",
                 kind == 1 ? "opt" : "gpt_neox", vocab, random_from(r, 64, 300), hidden, heads, layers,
                 kind == 1 ? "ffn_dim" : "intermediate_size",
                 ffn, tied, head);
    else
        snprintf(json, sizeof json,
                 "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_attention_heads\": %d, "
                 "\"num_key_value_heads\": %d, \"num_hidden_layers\": %d, \"intermediate_size\": %d, \"max_position_embeddings\": 256, "
                 "\"head_dim\": %d, \"tie_word_embeddings\": %s, \"bos_token_id\": 0, \"eos_token_id\": 0%s%s%s}",
                 random_llamas[kind - 3].type, vocab, hidden, heads, latent ? heads : random_divisor(r, heads), layers, ffn,
                 hidden / heads, tied,
                 random_llamas[kind - 3].more, branches, head);
    return model_from_json("random model", json, strlen(json), NULL, NULL, out, e);
}

/* Of any modules of any layers, each of its own rank and scale. */
static inline void random_adapters(random_source *r, model *m)
{
    adapters *a;
    pt_error e = {0};
    if (adapters_new(m, &a, &e))
        abort();
    for (int b = 1; b < m->blocks_n - 1; b++)
        for (int i = 0; i < MODEL_MATRICES; i++)
            for (int k = 0; k < adapter_parts(m, b, i); k++)
                if (!random_one_in(r, 3))
                    a->of[b - 1][i][k] = (adapter_module){random_from(r, 1, 9), random_one_in(r, 2) ? 2 : 0.7f};
    const int layer = random_below(r, m->blocks_n - 2);
    int matrix = random_below(r, MODEL_MATRICES);
    while (!adapter_parts(m, layer + 1, matrix))
        matrix = (matrix + 1) % MODEL_MATRICES;
    a->of[layer][matrix][0] = (adapter_module){random_from(r, 1, 20), 0.5f};
    a->dora = random_one_in(r, 3);
    a->dropout = !a->dora && random_one_in(r, 2) ? 0.25 : 0;
    a->config = json_object();
    if (adapters_attach(m, a, &e))
        abort();
}

/* Now and then some parameters are frozen: all before a block, all but one, or any; or all, and there are adapters. Those that stay came
 * as bf16 or not, or their matrices are kept in few bits. */
static inline void random_freeze(random_source *r, model *m)
{
    const int style = random_below(r, 7), block = random_below(r, m->blocks_n);
    int kept = random_below(r, m->params_n);
    kept = m->params[kept].trainable ? kept : 0;
    for (int i = 0; i < m->params_n && style > 1 && style < 5; i++)
        m->params[i].trainable = m->params[i].trainable &&
                                 (i == kept || (style == 2 ? m->params[i].block >= block : style == 3 && random_one_in(r, 2)));
    for (int i = 0; i < m->params_n && !model_trained_parameters(m); i++) /* not only constants, which have no gradient */
        m->params[i].trainable = m->params[i].kind->use != USE_CORRECTION;
    m->stored_bf16 = random_one_in(r, 2);
    if (style >= 5)
        random_adapters(r, m);
    if (style > 1 && !random_one_in(r, 3))
        model_store(m, (param_storage)random_from(r, STORAGE_NF4, STORAGE_MXFP4), NULL); /* where no matrix is frozen, none is */
}

/* The source goes on as if nothing had been drawn. */
static inline const optimizer *random_optimizer(const random_source *r)
{
    random_source other = {r->seed + 1, r->n};
    int n = 0;
    while (optimizers[n])
        n++;
    return optimizers[random_below(&other, n)];
}

/* Of low-rank states; also above the sides of small matrices. The source goes on as if nothing had been drawn. */
static inline void random_low_rank(const random_source *r, model *m)
{
    const int rank = 1 + random_below(&(random_source){r->seed + 6, r->n}, 20);
    for (int i = 0; i < m->params_n; i++)
        m->params[i].low_rank = rank;
}

/* Often one. The source goes on as if nothing had been drawn. */
static inline int random_lanes(const random_source *r, int units)
{
    random_source other = {r->seed + 2, r->n};
    return random_one_in(&other, 2) ? 1 : random_divisor(&other, units);
}

/* Half of the steps have tiles of a few rows, and half attention by groups of heads. The source goes on as if nothing had been drawn. */
static inline void random_tiles(const random_source *r, step_shape *s)
{
    random_source other = {r->seed + 6, r->n};
    if (random_one_in(&other, 2))
        s->tile_rows = random_from(&other, 1, 50);
    if (random_one_in(&other, 2))
        s->whole_heads = 0;
}

static bool random_whole; /* no sequence is divided */

/* A fifth of the steps have one or two sequences, each divided into two or four parts. The source goes on as if nothing had been drawn. */
static inline void random_parts(const random_source *r, const model *m, step_shape *s)
{
    random_source other = {r->seed + 13, r->n};
    const int parts = random_one_in(&other, 2) ? 2 : 4, batch = random_from(&other, 1, 2);
    if (random_whole || !random_one_in(&other, 5) || sequence_check(m, s, INT_MAX, "lanes", NULL))
        return;
    s->seq_len = parts * random_from(&other, 1, 40 / parts);
    s->batch = batch;
    s->lanes = parts * batch;
    step_shape_divide(s);
}

/* A batch of up to 8 short sequences; units, tiles, head parts and vocabulary slices smaller than a real step's, so that there are
 * several of each. */
static inline void random_shape(random_source *r, const model *m, step_shape *s)
{
    int batch = random_from(r, 1, 8), seq_len = random_from(r, 1, 40);
    step_shape_init(s, m, random_one_in(r, 2) ? PT_F32 : PT_BF16, batch, seq_len);
    s->unit_seqs = random_divisor(r, batch);
    s->units_n = batch / s->unit_seqs;
    s->unit_rows = s->unit_seqs * seq_len;
    s->head_rows = s->unit_rows < 16 ? s->unit_rows : 16;
    s->slice_rows = SUMSQ_ROWS * random_from(r, 1, 96);
    s->gpu = random_one_in(r, 2); /* whose head has odd words apart */
    s->lanes = random_lanes(r, (int)s->units_n);
    random_tiles(r, s);
    random_parts(r, m, s);
}

static inline int random_packing(random_source *r, const model *m, const step_shape *s, packing *k, pt_error *e)
{
    return pack(m, s, (int64_t)PLAN_MIN_CHUNK_BYTES << random_below(r, 8), k, e);
}

/* The most chunks that one block reads. */
static inline int random_chunks_at_once(const model *m, const packing *k)
{
    int most = 0;
    unsigned char *needed = malloc((size_t)k->chunks_n + 1);
    for (int block = 0; needed && block < m->blocks_n; block++) {
        int n = 0;
        block_chunks(m, k, block, needed);
        for (int c = 0; c < k->chunks_n; c++)
            n += needed[c];
        most = n > most ? n : most;
    }
    free(needed);
    return most;
}

/* The same where layers are computed by ranges of experts. */
static inline int random_chunks_of_part(const model *m, const step_shape *s, const packing *k)
{
    const plan p = {.ranges = true};
    const schedule_input in = {.model = m, .shape = s, .packing = k, .plan = &p};
    unsigned char *needed = malloc((size_t)k->chunks_n + 1);
    int most = 0;
    for (int block = 0; needed && block < m->blocks_n; block++) {
        layer_parts parts = {1, {{.whole = true}}};
        layer_layout l;
        if (block && block < m->blocks_n - 1) {
            layer_layout_init(&l, m, block - 1, s, SAVE_INPUT);
            schedule_parts(&in, &l, block, true, &parts);
        }
        block_chunks(m, k, block, needed);
        for (int part = 0; part < parts.n; part++) {
            int n = 0;
            for (int c = 0; c < k->chunks_n; c++)
                n += needed[c] && schedule_part_reads(&in, &parts.part[part], c);
            most = n > most ? n : most;
        }
    }
    free(needed);
    return most;
}

static inline tier random_tier(random_source *r, bool host_tier)
{
    return host_tier ? (tier)random_below(r, TIERS) : random_one_in(r, 2) ? TIER_DEVICE : TIER_DISK;
}

/* Any valid plan for the model, the step and the packing. */
static inline int random_plan(random_source *r, const model *m, const step_shape *s, const packing *k, bool clipping, bool host_tier,
                              plan *p, pt_error *e)
{
    int failed = plan_alloc(p, k->chunks_n, (int)m->config.layers, e);
    if (failed)
        return failed;
    const int together = (int)shape_together(s);
    int units = together * random_divisor(r, (int)s->units_n / together), micros = (int)s->units_n / units;
    p->chunk_bytes = k->chunk_bytes;
    p->micro_batch = units * s->unit_seqs;
    p->visit = random_divisor(r, micros);
    p->update = clipping ? (update_time)random_from(r, UPDATE_NEXT_FORWARD, UPDATE_END) : (update_time)random_below(r, 3);
    p->ranges = packing_cuts_experts(k, m) && shape_parts(s) == 1 && random_one_in(&(random_source){r->seed + 12, r->n}, 2);
    p->n_buffer = (p->ranges ? random_chunks_of_part(m, s, k) : random_chunks_at_once(m, k)) +
                  random_from(r, random_one_in(r, 8) ? -1 : 0, 3);
    p->n_buffer = p->n_buffer < 1 ? 1 : p->n_buffer;
    p->n_update = random_from(r, 1, 4);
    p->n_swap = random_from(r, random_one_in(r, 8) ? 1 : 2, 5);
    const int sharded = k->ranks < 2 ? 0 : random_below(r, 3); /* of how many halves of the chunks ranks keep shards */
    int style = random_below(r, 4); /* everywhere, all in one tier, persistent first, mixed */
    tier one = random_tier(r, host_tier);
    for (int c = 0; c < k->chunks_n; c++) {
        tier placement = style == 1 ? one : style == 2 && c < k->chunks_n / 2 ? TIER_DEVICE : random_tier(r, host_tier);
        const bool on_host = placement != TIER_DEVICE && host_tier && random_one_in(r, 2) && !(s->gpu && k->chunks[c].by_device);
        p->chunks[c] = (plan_chunk){placement, on_host ? TIER_HOST : TIER_DEVICE, sharded == 2 || (sharded && random_one_in(r, 2))};
    }
    style = random_below(r, 3);
    plan_block same = {(save_level)random_below(r, SAVE_LEVELS), random_tier(r, host_tier)};
    for (int b = 0; b < p->blocks_n; b++)
        p->blocks[b] = style == 0 ? same
                                  : (plan_block){(save_level)random_below(r, SAVE_LEVELS),
                                                 style == 1 ? TIER_DEVICE : random_tier(r, host_tier)};
    for (int b = 0; b < p->blocks_n && b + 1 < model_first_trained(m); b++)
        p->blocks[b] = (plan_block){SAVE_INPUT, TIER_DEVICE};
    return 0;
}

typedef struct random_case {
    model *model;
    step_shape shape;
    packing packing;
    plan plan;
    schedule_input input;
    bool clipping;
} random_case;

static inline void random_case_close(random_case *c)
{
    plan_free(&c->plan);
    packing_free(&c->packing);
    model_close(c->model);
    memset(c, 0, sizeof *c);
}

/* c->input points into c, which must not move. */
static inline int random_case_of_layers(random_source *r, int layers, random_case *c, pt_error *e)
{
    memset(c, 0, sizeof *c);
    int failed = random_model(r, layers, &c->model, e);
    bool host_tier = !random_one_in(r, 3);
    c->clipping = random_one_in(r, 2);
    if (!failed) {
        random_freeze(r, c->model);
        random_shape(r, c->model, &c->shape);
        if (c->model->config.router_loss && random_one_in(&(random_source){r->seed + 6, r->n}, 2))
            c->shape.router_aux = 0.3f;
        c->shape.saved = (saved_form)random_below(&(random_source){r->seed + 11, r->n}, 3);
        c->shape.optimizer = random_optimizer(r);
        random_low_rank(r, c->model);
    }
    if (!failed)
        failed = random_packing(r, c->model, &c->shape, &c->packing, e);
    if (!failed)
        failed = random_plan(r, c->model, &c->shape, &c->packing, c->clipping, host_tier, &c->plan, e);
    if (failed)
        random_case_close(c);
    c->input = (schedule_input){.model = c->model, .shape = &c->shape, .packing = &c->packing, .plan = &c->plan, .training = true,
                                .host_tier = host_tier};
    return failed;
}

/* Another packing and plan for the same model and step. */
static inline int random_case_pack(random_source *r, random_case *c, pt_error *e)
{
    plan_free(&c->plan);
    packing_free(&c->packing);
    int failed = random_packing(r, c->model, &c->shape, &c->packing, e);
    return failed ? failed : random_plan(r, c->model, &c->shape, &c->packing, c->clipping, c->input.host_tier, &c->plan, e);
}

/* The same step as that of one of some ranks. */
static inline int random_share(random_source *r, random_case *c, pt_error *e)
{
    c->shape.ranks = random_from(r, 2, 5);
    if (c->shape.parts > 1) { /* ranks that share sequences, or have whole ones */
        c->shape.ranks = 1 << random_from(r, 1, 2);
        c->shape.batch = c->shape.units_n = c->shape.lanes = 1 << random_below(r, 3);
    }
    c->shape.rank = random_below(r, c->shape.ranks);
    return random_case_pack(r, c, e);
}

static inline int random_case_open(random_source *r, random_case *c, pt_error *e)
{
    return random_case_of_layers(r, random_from(r, 1, 5), c, e);
}

/* The plan that everything is compared with: all on the device, everything saved. */
static inline void random_case_plain(random_case *c)
{
    c->plan.micro_batch = c->shape.batch;
    c->plan.visit = 1;
    c->plan.update = UPDATE_END;
    for (int i = 0; i < c->plan.chunks_n; i++)
        c->plan.chunks[i] = (plan_chunk){.placement = TIER_DEVICE, .update = TIER_DEVICE};
    for (int i = 0; i < c->plan.blocks_n; i++)
        c->plan.blocks[i] = (plan_block){i + 1 < model_first_trained(c->model) ? SAVE_INPUT : SAVE_ALL, TIER_DEVICE};
}

/* Trains or freezes the table of layers' inputs. false: there is none, or nothing would be trained. */
static inline bool random_case_train_table(random_source *r, random_case *c, bool trained, pt_error *e)
{
    const int at = c->model->blocks[0].param_of_role[PARAM_LAYER_TOKENS];
    param *table = c->model->config.input_width ? &c->model->params[at] : NULL;
    if (!table || (!trained && table->trainable && model_trained_parameters(c->model) == table->rows * table->cols))
        return false;
    table->trainable = trained;
    return !random_case_pack(r, c, e);
}

/* A kind of schedule that the plan has. */
static inline schedule_kind random_kind(random_source *r, const random_case *c)
{
    static const schedule_kind all[] = {SCHEDULE_STEP, SCHEDULE_EVAL, SCHEDULE_STEP_UPDATE, SCHEDULE_DRAIN};
    return all[random_below(r, c->plan.update == UPDATE_BACKWARD ? 2 : 4)];
}

#endif
