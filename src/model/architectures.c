#include "model/architectures.h"

#include <stdio.h>
#include <string.h>

const char head_name[] = "lm_head.weight";

static const char *gpt2_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_TOKENS] = {"wte.weight"},
    [PARAM_POSITIONS] = {"wpe.weight"},
    [PARAM_NORM1] = {"h.*.ln_1.weight"},
    [PARAM_NORM1_BIAS] = {"h.*.ln_1.bias"},
    [PARAM_QKV] = {"h.*.attn.c_attn.weight"},
    [PARAM_QKV_BIAS] = {"h.*.attn.c_attn.bias"},
    [PARAM_OUT] = {"h.*.attn.c_proj.weight"},
    [PARAM_OUT_BIAS] = {"h.*.attn.c_proj.bias"},
    [PARAM_NORM2] = {"h.*.ln_2.weight"},
    [PARAM_NORM2_BIAS] = {"h.*.ln_2.bias"},
    [PARAM_UP] = {"h.*.mlp.c_fc.weight"},
    [PARAM_UP_BIAS] = {"h.*.mlp.c_fc.bias"},
    [PARAM_DOWN] = {"h.*.mlp.c_proj.weight"},
    [PARAM_DOWN_BIAS] = {"h.*.mlp.c_proj.bias"},
    [PARAM_NORMF] = {"ln_f.weight"},
    [PARAM_NORMF_BIAS] = {"ln_f.bias"},
    [PARAM_HEAD] = {head_name},
};

/* All but the matrices into the MLP, and the norms of the layers. */
#define LAYER_NAMES(...)                                                                                                        \
    [PARAM_TOKENS] = {"embed_tokens.weight"},                                                                                        \
    [PARAM_QKV] = {"layers.*.self_attn.q_proj.weight", "layers.*.self_attn.k_proj.weight", "layers.*.self_attn.v_proj.weight"},      \
    [PARAM_QKV_BIAS] = {"layers.*.self_attn.q_proj.bias", "layers.*.self_attn.k_proj.bias", "layers.*.self_attn.v_proj.bias"},       \
    [PARAM_QNORM] = {"layers.*.self_attn.q_norm.weight"}, [PARAM_KNORM] = {"layers.*.self_attn.k_norm.weight"},                      \
    [PARAM_OUT] = {"layers.*.self_attn.o_proj.weight"}, [PARAM_OUT_BIAS] = {"layers.*.self_attn.o_proj.bias"},                       \
    [PARAM_DOWN] = {"layers.*.mlp.down_proj.weight"}, [PARAM_DOWN_BIAS] = {"layers.*.mlp.down_proj.bias"},                           \
    [PARAM_NORMF] = {"norm.weight"}, [PARAM_HEAD] = {head_name}, __VA_ARGS__

#define EXPERT_NAMES                                                                                                                  \
    [PARAM_ROUTER] = {"layers.*.mlp.gate.weight"},                                                                                   \
    [PARAM_EXPERTS_UP] = {"layers.*.mlp.experts.#.gate_proj.weight", "layers.*.mlp.experts.#.up_proj.weight"},                        \
    [PARAM_EXPERTS_DOWN] = {"layers.*.mlp.experts.#.down_proj.weight"}

/* The experts as Transformers has them in memory; files may have them, too. */
#define FUSED_NAMES                                                                                                                   \
    [PARAM_ROUTER] = {"layers.*.mlp.gate.weight"}, [PARAM_EXPERTS_UP] = {"layers.*.mlp.experts.gate_up_proj"},                        \
    [PARAM_EXPERTS_DOWN] = {"layers.*.mlp.experts.down_proj"}

#define LLAMA_LAYER_NAMES(...)                                                                                                        \
    LAYER_NAMES([PARAM_UP] = {"layers.*.mlp.gate_proj.weight", "layers.*.mlp.up_proj.weight"},                                       \
                [PARAM_UP_BIAS] = {"layers.*.mlp.gate_proj.bias", "layers.*.mlp.up_proj.bias"}, __VA_ARGS__)

/* Norms before the branches, and layer norms with biases there. */
#define NORM_NAMES \
    [PARAM_NORM1] = {"layers.*.input_layernorm.weight"}, [PARAM_NORM2] = {"layers.*.post_attention_layernorm.weight"}
#define LAYER_NORM_NAMES                                                                                                              \
    NORM_NAMES, [PARAM_NORM1_BIAS] = {"layers.*.input_layernorm.bias"},                                                               \
    [PARAM_NORM2_BIAS] = {"layers.*.post_attention_layernorm.bias"}, [PARAM_NORMF_BIAS] = {"norm.bias"}

/* Llama and its descendants. */
static const char *llama_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES(NORM_NAMES)};

static const char *expert_names[PARAM_ROLES][MODEL_MAX_PARTS] = {LLAMA_LAYER_NAMES(NORM_NAMES, EXPERT_NAMES)};

static const char *mixtral_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES(NORM_NAMES, [PARAM_ROUTER] = {"layers.*.block_sparse_moe.gate.weight"},
                      [PARAM_EXPERTS_UP] = {"layers.*.block_sparse_moe.experts.#.w1.weight",
                                            "layers.*.block_sparse_moe.experts.#.w3.weight"},
                      [PARAM_EXPERTS_DOWN] = {"layers.*.block_sparse_moe.experts.#.w2.weight"})};

static const char *fused_names[PARAM_ROLES][MODEL_MAX_PARTS] = {FUSED_NAMES};

static const char *qwen2_moe_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES(NORM_NAMES, EXPERT_NAMES, [PARAM_SHARED_GATE] = {"layers.*.mlp.shared_expert_gate.weight"},
                      [PARAM_SHARED_UP] = {"layers.*.mlp.shared_expert.gate_proj.weight", "layers.*.mlp.shared_expert.up_proj.weight"},
                      [PARAM_SHARED_DOWN] = {"layers.*.mlp.shared_expert.down_proj.weight"})};

/* GLM 4 MoE, dots 1, ERNIE 4.5 MoE: experts whose choice is corrected, and shared ones. */
static const char *corrected_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES(NORM_NAMES, EXPERT_NAMES, [PARAM_CORRECTION] = {"layers.*.mlp.gate.e_score_correction_bias"})};
static const char *ernie_moe_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES(NORM_NAMES, EXPERT_NAMES, [PARAM_CORRECTION] = {"layers.*.mlp.moe_statics.e_score_correction_bias"})};
static const char *ernie_fused_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    FUSED_NAMES, [PARAM_CORRECTION] = {"layers.*.mlp.gate.moe_statics.e_score_correction_bias"}};
static const char *shared_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_UP] = {"layers.*.mlp.shared_experts.gate_proj.weight", "layers.*.mlp.shared_experts.up_proj.weight"},
    [PARAM_DOWN] = {"layers.*.mlp.shared_experts.down_proj.weight"}};

/* DeepSeek V3: matrices from and to latents. */
static const char *deepseek_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    EXPERT_NAMES, NORM_NAMES, [PARAM_CORRECTION] = {"layers.*.mlp.gate.e_score_correction_bias"},
    [PARAM_TOKENS] = {"embed_tokens.weight"}, [PARAM_NORMF] = {"norm.weight"}, [PARAM_HEAD] = {head_name},
    [PARAM_QKV] = {"layers.*.self_attn.q_a_proj.weight", "layers.*.self_attn.kv_a_proj_with_mqa.weight"},
    [PARAM_QKV_BIAS] = {"layers.*.self_attn.q_a_proj.bias", "layers.*.self_attn.kv_a_proj_with_mqa.bias"},
    [PARAM_Q_LATENT_NORM] = {"layers.*.self_attn.q_a_layernorm.weight"}, [PARAM_Q_EXPAND] = {"layers.*.self_attn.q_b_proj.weight"},
    [PARAM_KV_LATENT_NORM] = {"layers.*.self_attn.kv_a_layernorm.weight"}, [PARAM_KV_EXPAND] = {"layers.*.self_attn.kv_b_proj.weight"},
    [PARAM_OUT] = {"layers.*.self_attn.o_proj.weight"}, [PARAM_OUT_BIAS] = {"layers.*.self_attn.o_proj.bias"},
    [PARAM_UP] = {"layers.*.mlp.gate_proj.weight", "layers.*.mlp.up_proj.weight"}, [PARAM_DOWN] = {"layers.*.mlp.down_proj.weight"}};
static const char *deepseek_direct_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_QKV] = {"layers.*.self_attn.q_proj.weight", "layers.*.self_attn.kv_a_proj_with_mqa.weight"}};

static const char *minimax_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES(NORM_NAMES, [PARAM_ROUTER] = {"layers.*.block_sparse_moe.gate.weight"},
                      [PARAM_CORRECTION] = {"layers.*.block_sparse_moe.e_score_correction_bias"},
                      [PARAM_EXPERTS_UP] = {"layers.*.block_sparse_moe.experts.#.w1.weight",
                                            "layers.*.block_sparse_moe.experts.#.w3.weight"},
                      [PARAM_EXPERTS_DOWN] = {"layers.*.block_sparse_moe.experts.#.w2.weight"})};
static const char *minimax_fused_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    FUSED_NAMES, [PARAM_CORRECTION] = {"layers.*.mlp.e_score_correction_bias"}};

static const char *gpt_oss_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES(NORM_NAMES, [PARAM_SINKS] = {"layers.*.self_attn.sinks"}, [PARAM_ROUTER] = {"layers.*.mlp.router.weight"},
                      [PARAM_ROUTER_BIAS] = {"layers.*.mlp.router.bias"},
                      [PARAM_EXPERTS_UP] = {"layers.*.mlp.experts.gate_up_proj"},
                      [PARAM_EXPERTS_UP_BIAS] = {"layers.*.mlp.experts.gate_up_proj_bias"},
                      [PARAM_EXPERTS_DOWN] = {"layers.*.mlp.experts.down_proj"},
                      [PARAM_EXPERTS_DOWN_BIAS] = {"layers.*.mlp.experts.down_proj_bias"})};

static const char *granite_moe_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES(NORM_NAMES, [PARAM_ROUTER] = {"layers.*.block_sparse_moe.router.layer.weight"},
                      [PARAM_EXPERTS_UP] = {"layers.*.block_sparse_moe.input_linear.weight"},
                      [PARAM_EXPERTS_DOWN] = {"layers.*.block_sparse_moe.output_linear.weight"})};
static const char *granite_fused_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_ROUTER] = {"layers.*.block_sparse_moe.router.weight"},
    [PARAM_EXPERTS_UP] = {"layers.*.block_sparse_moe.experts.gate_up_proj"},
    [PARAM_EXPERTS_DOWN] = {"layers.*.block_sparse_moe.experts.down_proj"}};
static const char *granite_shared_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_UP] = {"layers.*.shared_mlp.input_linear.weight"}, [PARAM_DOWN] = {"layers.*.shared_mlp.output_linear.weight"}};

static const char *stablelm_names[PARAM_ROLES][MODEL_MAX_PARTS] = {LLAMA_LAYER_NAMES(LAYER_NORM_NAMES)};

#define UNGATED \
    [PARAM_UP] = {"layers.*.mlp.up_proj.weight"}, [PARAM_UP_BIAS] = {"layers.*.mlp.up_proj.bias"}
static const char *arcee_names[PARAM_ROLES][MODEL_MAX_PARTS] = {LAYER_NAMES(UNGATED, NORM_NAMES)};
static const char *nemotron_names[PARAM_ROLES][MODEL_MAX_PARTS] = {LAYER_NAMES(UNGATED, LAYER_NORM_NAMES)};

/* Norms after the branches, and before and after them. */
static const char *olmo_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES([PARAM_POST_NORM1] = {"layers.*.post_attention_layernorm.weight"},
                      [PARAM_POST_NORM2] = {"layers.*.post_feedforward_layernorm.weight"})};

static const char *gemma2_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES([PARAM_NORM1] = {"layers.*.input_layernorm.weight"},
                      [PARAM_POST_NORM1] = {"layers.*.post_attention_layernorm.weight"},
                      [PARAM_NORM2] = {"layers.*.pre_feedforward_layernorm.weight"},
                      [PARAM_POST_NORM2] = {"layers.*.post_feedforward_layernorm.weight"})};

static const char *gemma4_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES([PARAM_NORM1] = {"layers.*.input_layernorm.weight"},
                      [PARAM_POST_NORM1] = {"layers.*.post_attention_layernorm.weight"},
                      [PARAM_NORM2] = {"layers.*.pre_feedforward_layernorm.weight"},
                      [PARAM_POST_NORM2] = {"layers.*.post_feedforward_layernorm.weight"},
                      [PARAM_ROUTER] = {"layers.*.router.proj.weight"}, [PARAM_ROUTER_NORM] = {"layers.*.router.scale"},
                      [PARAM_EXPERT_SCALE] = {"layers.*.router.per_expert_scale"},
                      [PARAM_NORM3] = {"layers.*.pre_feedforward_layernorm_2.weight"},
                      [PARAM_EXPERTS_UP] = {"layers.*.experts.gate_up_proj"}, [PARAM_EXPERTS_DOWN] = {"layers.*.experts.down_proj"},
                      [PARAM_POST_MLP] = {"layers.*.post_feedforward_layernorm_1.weight"},
                      [PARAM_POST_EXPERTS] = {"layers.*.post_feedforward_layernorm_2.weight"},
                      [PARAM_LAYER_TOKENS] = {"embed_tokens_per_layer.weight"},
                      [PARAM_INPUTS] = {"per_layer_model_projection.weight"},
                      [PARAM_INPUTS_NORM] = {"per_layer_projection_norm.weight"},
                      [PARAM_INPUT_GATE] = {"layers.*.per_layer_input_gate.weight"},
                      [PARAM_INPUT_OUT] = {"layers.*.per_layer_projection.weight"},
                      [PARAM_INPUT_NORM] = {"layers.*.post_per_layer_input_norm.weight"},
                      [PARAM_SCALE] = {"layers.*.layer_scalar"})};

static const char *glm4_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LAYER_NAMES([PARAM_NORM1] = {"layers.*.input_layernorm.weight"},
                [PARAM_POST_NORM1] = {"layers.*.post_self_attn_layernorm.weight"},
                [PARAM_NORM2] = {"layers.*.post_attention_layernorm.weight"},
                [PARAM_POST_NORM2] = {"layers.*.post_mlp_layernorm.weight"},
                [PARAM_UP] = {"layers.*.mlp.gate_up_proj.weight"})};

static const char *cohere_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LLAMA_LAYER_NAMES([PARAM_NORM1] = {"layers.*.input_layernorm.weight"})};

/* Layers with the gated delta rule among layers with attention, whose q_proj makes queries and gates. */
#define DELTA_NAMES                                                                                                                   \
    [PARAM_QKV] = {"layers.*.self_attn.k_proj.weight", "layers.*.self_attn.q_proj.weight", "layers.*.self_attn.v_proj.weight"},      \
    [PARAM_QKV_BIAS] = {"layers.*.self_attn.k_proj.bias", "layers.*.self_attn.q_proj.bias", "layers.*.self_attn.v_proj.bias"},       \
    [PARAM_CONV] = {"layers.*.linear_attn.conv1d.weight"}, [PARAM_DECAY] = {"layers.*.linear_attn.A_log"},                           \
    [PARAM_DECAY_BIAS] = {"layers.*.linear_attn.dt_bias"}, [PARAM_MIX_NORM] = {"layers.*.linear_attn.norm.weight"},                  \
    [PARAM_MIX_OUT] = {"layers.*.linear_attn.out_proj.weight"}, [PARAM_TOKENS] = {"embed_tokens.weight"},                            \
    [PARAM_QNORM] = {"layers.*.self_attn.q_norm.weight"}, [PARAM_KNORM] = {"layers.*.self_attn.k_norm.weight"},                      \
    [PARAM_OUT] = {"layers.*.self_attn.o_proj.weight"}, [PARAM_OUT_BIAS] = {"layers.*.self_attn.o_proj.bias"},                       \
    [PARAM_NORMF] = {"norm.weight"}, [PARAM_HEAD] = {head_name}, NORM_NAMES

static const char *qwen3_5_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    DELTA_NAMES, [PARAM_UP] = {"layers.*.mlp.gate_proj.weight", "layers.*.mlp.up_proj.weight"},
    [PARAM_DOWN] = {"layers.*.mlp.down_proj.weight"},
    [PARAM_MIX_IN] = {"layers.*.linear_attn.in_proj_qkv.weight", "layers.*.linear_attn.in_proj_z.weight",
                      "layers.*.linear_attn.in_proj_b.weight", "layers.*.linear_attn.in_proj_a.weight"}};

#define MAMBA_NAMES                                                                                                                   \
    [PARAM_MIX_IN] = {"layers.*.mamba.in_proj.weight"}, [PARAM_MIX_IN_BIAS] = {"layers.*.mamba.in_proj.bias"},                       \
    [PARAM_CONV] = {"layers.*.mamba.conv1d.weight"}, [PARAM_CONV_BIAS] = {"layers.*.mamba.conv1d.bias"},                             \
    [PARAM_DECAY] = {"layers.*.mamba.A_log"}, [PARAM_DECAY_BIAS] = {"layers.*.mamba.dt_bias"}, [PARAM_SKIP] = {"layers.*.mamba.D"},  \
    [PARAM_MIX_NORM] = {"layers.*.mamba.norm.weight"}, [PARAM_MIX_OUT] = {"layers.*.mamba.out_proj.weight"},                         \
    [PARAM_MIX_OUT_BIAS] = {"layers.*.mamba.out_proj.bias"}, [PARAM_TOKENS] = {"embed_tokens.weight"},                               \
    [PARAM_QKV] = {"layers.*.self_attn.q_proj.weight", "layers.*.self_attn.k_proj.weight", "layers.*.self_attn.v_proj.weight"},      \
    [PARAM_QKV_BIAS] = {"layers.*.self_attn.q_proj.bias", "layers.*.self_attn.k_proj.bias", "layers.*.self_attn.v_proj.bias"},       \
    [PARAM_OUT] = {"layers.*.self_attn.o_proj.weight"}, [PARAM_OUT_BIAS] = {"layers.*.self_attn.o_proj.bias"},                       \
    [PARAM_NORM1] = {"layers.*.input_layernorm.weight"}, [PARAM_HEAD] = {head_name}

#define SHARED_NAMES                                                                                                                  \
    [PARAM_SHARED_GATE] = {"layers.*.mlp.shared_expert_gate.weight"},                                                                \
    [PARAM_SHARED_UP] = {"layers.*.mlp.shared_expert.gate_proj.weight", "layers.*.mlp.shared_expert.up_proj.weight"},                \
    [PARAM_SHARED_DOWN] = {"layers.*.mlp.shared_expert.down_proj.weight"}

static const char *qwen3_5_moe_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    DELTA_NAMES, EXPERT_NAMES, SHARED_NAMES,
    [PARAM_MIX_IN] = {"layers.*.linear_attn.in_proj_qkv.weight", "layers.*.linear_attn.in_proj_z.weight",
                      "layers.*.linear_attn.in_proj_b.weight", "layers.*.linear_attn.in_proj_a.weight"}};

static const char *qwen3_next_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    DELTA_NAMES, EXPERT_NAMES, SHARED_NAMES, [PARAM_UP] = {"layers.*.mlp.gate_proj.weight", "layers.*.mlp.up_proj.weight"},
    [PARAM_DOWN] = {"layers.*.mlp.down_proj.weight"},
    [PARAM_MIX_IN] = {"layers.*.linear_attn.in_proj_qkvz.weight", "layers.*.linear_attn.in_proj_ba.weight"}};

static const char *granitemoehybrid_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    MAMBA_NAMES, [PARAM_NORM2] = {"layers.*.post_attention_layernorm.weight"},
    [PARAM_ROUTER] = {"layers.*.block_sparse_moe.router.layer.weight"},
    [PARAM_EXPERTS_UP] = {"layers.*.block_sparse_moe.input_linear.weight"},
    [PARAM_EXPERTS_DOWN] = {"layers.*.block_sparse_moe.output_linear.weight"},
    [PARAM_UP] = {"layers.*.shared_mlp.input_linear.weight"}, [PARAM_DOWN] = {"layers.*.shared_mlp.output_linear.weight"},
    [PARAM_NORMF] = {"norm.weight"}};

static const char *nemotron_h_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_TOKENS] = {"embeddings.weight"}, [PARAM_NORM1] = {"layers.*.norm.weight"},
    [PARAM_QKV] = {"layers.*.mixer.q_proj.weight", "layers.*.mixer.k_proj.weight", "layers.*.mixer.v_proj.weight"},
    [PARAM_OUT] = {"layers.*.mixer.o_proj.weight"}, [PARAM_MIX_IN] = {"layers.*.mixer.in_proj.weight"},
    [PARAM_MIX_IN_BIAS] = {"layers.*.mixer.in_proj.bias"}, [PARAM_CONV] = {"layers.*.mixer.conv1d.weight"},
    [PARAM_CONV_BIAS] = {"layers.*.mixer.conv1d.bias"}, [PARAM_DECAY] = {"layers.*.mixer.A_log"},
    [PARAM_DECAY_BIAS] = {"layers.*.mixer.dt_bias"}, [PARAM_SKIP] = {"layers.*.mixer.D"},
    [PARAM_MIX_NORM] = {"layers.*.mixer.norm.weight"}, [PARAM_MIX_OUT] = {"layers.*.mixer.out_proj.weight"},
    [PARAM_MIX_OUT_BIAS] = {"layers.*.mixer.out_proj.bias"}, [PARAM_UP] = {"layers.*.mixer.up_proj.weight"},
    [PARAM_UP_BIAS] = {"layers.*.mixer.up_proj.bias"}, [PARAM_DOWN] = {"layers.*.mixer.down_proj.weight"},
    [PARAM_DOWN_BIAS] = {"layers.*.mixer.down_proj.bias"}, [PARAM_ROUTER] = {"layers.*.mixer.gate.weight"},
    [PARAM_CORRECTION] = {"layers.*.mixer.gate.e_score_correction_bias"},
    [PARAM_EXPERTS_IN] = {"layers.*.mixer.fc1_latent_proj.weight"}, [PARAM_EXPERTS_IN_BIAS] = {"layers.*.mixer.fc1_latent_proj.bias"},
    [PARAM_EXPERTS_UP] = {"layers.*.mixer.experts.#.up_proj.weight"}, [PARAM_EXPERTS_DOWN] = {"layers.*.mixer.experts.#.down_proj.weight"},
    [PARAM_EXPERTS_OUT] = {"layers.*.mixer.fc2_latent_proj.weight"}, [PARAM_EXPERTS_OUT_BIAS] = {"layers.*.mixer.fc2_latent_proj.bias"},
    [PARAM_NORMF] = {"norm_f.weight"}, [PARAM_HEAD] = {head_name}};
static const char *nemotron_h_fused_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_EXPERTS_UP] = {"layers.*.mixer.experts.up_proj"}, [PARAM_EXPERTS_DOWN] = {"layers.*.mixer.experts.down_proj"}};
static const char *nemotron_h_shared_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_UP] = {"layers.*.mixer.shared_experts.up_proj.weight"}, [PARAM_UP_BIAS] = {"layers.*.mixer.shared_experts.up_proj.bias"},
    [PARAM_DOWN] = {"layers.*.mixer.shared_experts.down_proj.weight"},
    [PARAM_DOWN_BIAS] = {"layers.*.mixer.shared_experts.down_proj.bias"}};

static const char *bamba_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    MAMBA_NAMES, [PARAM_NORM2] = {"layers.*.pre_ff_layernorm.weight"},
    [PARAM_UP] = {"layers.*.feed_forward.gate_proj.weight", "layers.*.feed_forward.up_proj.weight"},
    [PARAM_UP_BIAS] = {"layers.*.feed_forward.gate_proj.bias", "layers.*.feed_forward.up_proj.bias"},
    [PARAM_DOWN] = {"layers.*.feed_forward.down_proj.weight"}, [PARAM_DOWN_BIAS] = {"layers.*.feed_forward.down_proj.bias"},
    [PARAM_NORMF] = {"final_layernorm.weight"}};

#define LFM2_NAMES                                                                                                                    \
    [PARAM_TOKENS] = {"embed_tokens.weight"},                                                                                         \
    [PARAM_NORM1] = {"layers.*.operator_norm.weight"},                                                                                \
    [PARAM_QKV] = {"layers.*.self_attn.q_proj.weight", "layers.*.self_attn.k_proj.weight", "layers.*.self_attn.v_proj.weight"},       \
    [PARAM_QNORM] = {"layers.*.self_attn.q_layernorm.weight"},                                                                        \
    [PARAM_KNORM] = {"layers.*.self_attn.k_layernorm.weight"},                                                                        \
    [PARAM_OUT] = {"layers.*.self_attn.out_proj.weight"},                                                                             \
    [PARAM_MIX_IN] = {"layers.*.conv.in_proj.weight"},                                                                                \
    [PARAM_MIX_IN_BIAS] = {"layers.*.conv.in_proj.bias"},                                                                             \
    [PARAM_CONV] = {"layers.*.conv.conv.weight"},                                                                                     \
    [PARAM_CONV_BIAS] = {"layers.*.conv.conv.bias"},                                                                                  \
    [PARAM_MIX_OUT] = {"layers.*.conv.out_proj.weight"},                                                                              \
    [PARAM_MIX_OUT_BIAS] = {"layers.*.conv.out_proj.bias"},                                                                           \
    [PARAM_NORM2] = {"layers.*.ffn_norm.weight"},                                                                                     \
    [PARAM_UP] = {"layers.*.feed_forward.w1.weight", "layers.*.feed_forward.w3.weight"},                                              \
    [PARAM_DOWN] = {"layers.*.feed_forward.w2.weight"},                                                                               \
    [PARAM_NORMF] = {"embedding_norm.weight"},                                                                                        \
    [PARAM_HEAD] = {head_name}

static const char *lfm2_names[PARAM_ROLES][MODEL_MAX_PARTS] = {LFM2_NAMES};

static const char *lfm2_moe_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    LFM2_NAMES, [PARAM_ROUTER] = {"layers.*.feed_forward.gate.weight"}, [PARAM_CORRECTION] = {"layers.*.feed_forward.expert_bias"},
    [PARAM_EXPERTS_UP] = {"layers.*.feed_forward.experts.#.w1.weight", "layers.*.feed_forward.experts.#.w3.weight"},
    [PARAM_EXPERTS_DOWN] = {"layers.*.feed_forward.experts.#.w2.weight"}};
static const char *lfm2_fused_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_EXPERTS_UP] = {"layers.*.feed_forward.experts.gate_up_proj"},
    [PARAM_EXPERTS_DOWN] = {"layers.*.feed_forward.experts.down_proj"}};

static const char *phi3_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_TOKENS] = {"embed_tokens.weight"},
    [PARAM_NORM1] = {"layers.*.input_layernorm.weight"},
    [PARAM_QKV] = {"layers.*.self_attn.qkv_proj.weight"},
    [PARAM_OUT] = {"layers.*.self_attn.o_proj.weight"},
    [PARAM_NORM2] = {"layers.*.post_attention_layernorm.weight"},
    [PARAM_UP] = {"layers.*.mlp.gate_up_proj.weight"},
    [PARAM_DOWN] = {"layers.*.mlp.down_proj.weight"},
    [PARAM_NORMF] = {"norm.weight"},
    [PARAM_HEAD] = {head_name},
};

static const char *gpt_neox_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_TOKENS] = {"embed_in.weight"},
    [PARAM_NORM1] = {"layers.*.input_layernorm.weight"},
    [PARAM_NORM1_BIAS] = {"layers.*.input_layernorm.bias"},
    [PARAM_QKV] = {"layers.*.attention.query_key_value.weight"},
    [PARAM_QKV_BIAS] = {"layers.*.attention.query_key_value.bias"},
    [PARAM_OUT] = {"layers.*.attention.dense.weight"},
    [PARAM_OUT_BIAS] = {"layers.*.attention.dense.bias"},
    [PARAM_NORM2] = {"layers.*.post_attention_layernorm.weight"},
    [PARAM_NORM2_BIAS] = {"layers.*.post_attention_layernorm.bias"},
    [PARAM_UP] = {"layers.*.mlp.dense_h_to_4h.weight"},
    [PARAM_UP_BIAS] = {"layers.*.mlp.dense_h_to_4h.bias"},
    [PARAM_DOWN] = {"layers.*.mlp.dense_4h_to_h.weight"},
    [PARAM_DOWN_BIAS] = {"layers.*.mlp.dense_4h_to_h.bias"},
    [PARAM_NORMF] = {"final_layer_norm.weight"},
    [PARAM_NORMF_BIAS] = {"final_layer_norm.bias"},
    [PARAM_HEAD] = {"embed_out.weight"},
};

static const char *opt_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_TOKENS] = {"decoder.embed_tokens.weight"},
    [PARAM_POSITIONS] = {"decoder.embed_positions.weight"},
    [PARAM_NORM1] = {"decoder.layers.*.self_attn_layer_norm.weight"},
    [PARAM_NORM1_BIAS] = {"decoder.layers.*.self_attn_layer_norm.bias"},
    [PARAM_QKV] = {"decoder.layers.*.self_attn.q_proj.weight", "decoder.layers.*.self_attn.k_proj.weight",
                   "decoder.layers.*.self_attn.v_proj.weight"},
    [PARAM_QKV_BIAS] = {"decoder.layers.*.self_attn.q_proj.bias", "decoder.layers.*.self_attn.k_proj.bias",
                        "decoder.layers.*.self_attn.v_proj.bias"},
    [PARAM_OUT] = {"decoder.layers.*.self_attn.out_proj.weight"},
    [PARAM_OUT_BIAS] = {"decoder.layers.*.self_attn.out_proj.bias"},
    [PARAM_NORM2] = {"decoder.layers.*.final_layer_norm.weight"},
    [PARAM_NORM2_BIAS] = {"decoder.layers.*.final_layer_norm.bias"},
    [PARAM_UP] = {"decoder.layers.*.fc1.weight"},
    [PARAM_UP_BIAS] = {"decoder.layers.*.fc1.bias"},
    [PARAM_DOWN] = {"decoder.layers.*.fc2.weight"},
    [PARAM_DOWN_BIAS] = {"decoder.layers.*.fc2.bias"},
    [PARAM_NORMF] = {"decoder.final_layer_norm.weight"},
    [PARAM_NORMF_BIAS] = {"decoder.final_layer_norm.bias"},
    [PARAM_HEAD] = {head_name},
};

static const char *starcoder2_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_TOKENS] = {"embed_tokens.weight"},
    [PARAM_NORM1] = {"layers.*.input_layernorm.weight"},
    [PARAM_NORM1_BIAS] = {"layers.*.input_layernorm.bias"},
    [PARAM_QKV] = {"layers.*.self_attn.q_proj.weight", "layers.*.self_attn.k_proj.weight", "layers.*.self_attn.v_proj.weight"},
    [PARAM_QKV_BIAS] = {"layers.*.self_attn.q_proj.bias", "layers.*.self_attn.k_proj.bias", "layers.*.self_attn.v_proj.bias"},
    [PARAM_OUT] = {"layers.*.self_attn.o_proj.weight"},
    [PARAM_OUT_BIAS] = {"layers.*.self_attn.o_proj.bias"},
    [PARAM_NORM2] = {"layers.*.post_attention_layernorm.weight"},
    [PARAM_NORM2_BIAS] = {"layers.*.post_attention_layernorm.bias"},
    [PARAM_UP] = {"layers.*.mlp.c_fc.weight"},
    [PARAM_UP_BIAS] = {"layers.*.mlp.c_fc.bias"},
    [PARAM_DOWN] = {"layers.*.mlp.c_proj.weight"},
    [PARAM_DOWN_BIAS] = {"layers.*.mlp.c_proj.bias"},
    [PARAM_NORMF] = {"norm.weight"},
    [PARAM_NORMF_BIAS] = {"norm.bias"},
    [PARAM_HEAD] = {head_name},
};

/* What the Llama-like rows share, and those of them with RMS norms and a gate. */
#define LLAMA_MODEL                                                                                                                   \
    .prefix = "model.", .kv_heads_null_is_heads = true, .position = POSITION_ROTARY, .rope_theta_key = "rope_theta",                 \
    .padding_row = true,                                                                                                              \
    .buffers = {"layers.*.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"}
#define LLAMA_FAMILY LLAMA_MODEL, .norm = NORM_RMS, .eps_key = "rms_norm_eps", .gated = true
#define ONE_ROPE .rope = ROPE_RULE_ONE, .rope_theta = 10000
#define LAYERS(n) .layers = {"num_hidden_layers", 0, n}
#define HEADS(n) .heads = {"num_attention_heads", 0, n}
#define SILU .activation_key = "hidden_act", .activation = "silu"
#define HIDDEN(n) .hidden = {"hidden_size", 0, n}
#define FFN(n) .ffn = {"intermediate_size", 0, n}
#define POSITIONS(n) .positions = {"max_position_embeddings", 0, n}
#define VOCAB(n) .vocab = {"vocab_size", 0, n}
#define BOS_EOS(b, e) .bos = {"bos_token_id", 0, b}, .eos = {"eos_token_id", 0, e}
#define KV_HEADS(n) .kv_heads = {"num_key_value_heads", 0, n}
#define HEAD_DIM(n) .head_dim = {"head_dim", 0, n}

#define ATTENTION_BIASES .qkv_bias = {"attention_bias", false}, .out_bias = {"attention_bias", false}
#define MLP_BIASES .mlp_bias = {"mlp_bias", false}
#define ALL_BIASES(key, yes) .qkv_bias = {key, yes}, .out_bias = {key, yes}, .mlp_bias = {key, yes}
#define ROPE_KEYS "rope_theta", "rope_scaling", "rope_parameters"

/* What Gemma's rows share. */
#define GEMMA_FAMILY                                                                                                             \
    .norm_from_one = true, .embedding_by_width = true, .tied = true, .eps = 1e-6, HEAD_DIM(256), .padding = 0, BOS_EOS(2, 1), \
    ATTENTION_BIASES, .fixed = {{"use_bidirectional_attention", "false"}}

/* What Cohere's rows share. */
#define COHERE_FAMILY                                                                                                                \
    LLAMA_MODEL, SILU, .norm = NORM_LAYER, .norm_unbiased = true, .one_norm = true, .gated = true, .eps_key = "layer_norm_eps",       \
    .eps = 1e-5, HIDDEN(8192), LAYERS(40), HEADS(64), KV_HEADS(-1), HEAD_DIM(-1), FFN(22528), POSITIONS(8192), VOCAB(256000),         \
    BOS_EOS(5, 255001), .padding = 0, .tied = true, .rope_neighbours = true, .logit_scale = {"logit_scale", 0.0625}, ATTENTION_BIASES, \
    .names = cohere_names

/* What rows with experts share. */
#define ROUTER_KEYS "norm_topk_prob", "router_aux_loss_coef", "num_experts_per_tok"
#define NO_ROUTER_LOSS {"output_router_logits", "false"}
#define EXPERT_FFN(n) .expert_ffn = {"moe_intermediate_size", NULL, n}
#define EXPERTS_USED(key, n) .experts_used = {key, NULL, n}

/* Granite's multipliers. */
#define GRANITE_SCALES                                                                                                                \
    .embedding_scale = {"embedding_multiplier", 1}, .score_scale = {"attention_multiplier", 1},                                       \
    .residual_scale = {"residual_multiplier", 1}, .logit_divisor = {"logits_scaling", 1}
#define GRANITE_KEYS ROPE_KEYS, "attention_bias", "embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"

#define GRANITE_MOE                                                                                                                   \
    LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6, LAYERS(32), HEADS(32), .padding = -1, HIDDEN(4096), KV_HEADS(-1), HEAD_DIM(-1),        \
    FFN(11008), POSITIONS(2048), VOCAB(32000), BOS_EOS(1, 2), ATTENTION_BIASES, GRANITE_SCALES, .sparse = SPARSE_ALL,                 \
    .experts = {"num_local_experts", NULL, 8}, EXPERTS_USED("num_experts_per_tok", 2), .router_norm = {NULL, true},                   \
    .names = granite_moe_names, .fused = granite_fused_names, .router_loss = true, .fixed = {NO_ROUTER_LOSS}

/* The choice of Nemotron H, and of GLM 4 MoE and dots 1. */
#define SIGMOID_CHOICE(rule, scale, groups, used)                                                                                     \
    .sparse = rule, .router = ROUTE_SIGMOID, .router_correction = true, .router_groups = groups, .router_groups_used = used,   \
    .router_eps = 1e-20, .router_scale = {"routed_scaling_factor", scale}
#define SIGMOID_ROUTER(rule, scale, groups, used) SIGMOID_CHOICE(rule, scale, groups, used), .fused = fused_names, .shared = shared_names
#define SIGMOID_ROUTER_KEYS                                                                                                           \
    ROUTER_KEYS, "n_routed_experts", "num_local_experts", "n_shared_experts", "moe_intermediate_size", "routed_scaling_factor",       \
    "n_group", "topk_group", "first_k_dense_replace"

/* What models with latent attention share, and those of them with DeepSeek V3's choice of experts. */
#define LATENTS(q, own, value, alias)                                                                                                 \
    .mlp_means_experts = true, LLAMA_FAMILY, ONE_ROPE, SILU, .padding = -1, .rope_neighbours = true,                                  \
    .q_latent = {"q_lora_rank", NULL, q}, .kv_latent = {"kv_lora_rank", NULL, 512}, .own_dim = {"qk_nope_head_dim", NULL, own},       \
    .shared_dim = {"qk_rope_head_dim", alias, 64}, .value_dim = {"v_head_dim", NULL, value}, ATTENTION_BIASES,                        \
    .names = deepseek_names, .direct = deepseek_direct_names
#define LATENT_KEYS "attention_bias", "qk_nope_head_dim", "qk_rope_head_dim", "qk_head_dim", "rope_interleave"
#define DEEPSEEK_V3                                                                                                                   \
    .class_name = "DeepseekV3ForCausalLM", LATENTS(1536, 128, 128, NULL), .eps = 1e-6, LAYERS(61), HEADS(128), HIDDEN(7168),          \
    KV_HEADS(128), FFN(18432), POSITIONS(4096), VOCAB(129280), BOS_EOS(0, 1), SIGMOID_ROUTER(SPARSE_FROM, 2.5, 8, 4),                 \
    EXPERT_FFN(2048), .first_sparse = 3,                                                                                              \
    .experts = {"n_routed_experts", "num_local_experts", 256}, EXPERTS_USED("num_experts_per_tok", 8),                                \
    .router_norm = {"norm_topk_prob", true}, .shared_experts = {"n_shared_experts", NULL, 1}, .further = "layers.",                   \
    .fixed = {NO_ROUTER_LOSS, {"moe_layer_freq", "1"}, {"topk_method", "\"noaux_tc\""}, {"scoring_func", "\"sigmoid\""}},              \
    .keys = {ROPE_KEYS, SIGMOID_ROUTER_KEYS, LATENT_KEYS}

/* What Qwen's models with the gated delta rule share. */
#define QWEN_DELTA                                                                                                                    \
    BOS_EOS(-1, -1), .norm_from_one = true, ATTENTION_BIASES, .qk_norm = QK_NORM_HEAD, .rope_part_key = "partial_rotary_factor",      \
    .rope_part = 0.25, .rope_sections = true, .mixer = MIXER_DELTA, .mixer_type = "linear_attention", .output_gate = true,            \
    .taps = {"linear_conv_kernel_dim", NULL, 4}
#define QWEN_DELTA_KEYS ROPE_KEYS, "partial_rotary_factor", "attention_bias", "full_attention_interval"

/* Defaults are those of Transformers' configuration classes. */
static const architecture table[] = {
    {
        .model_type = "gpt2", .class_name = "GPT2LMHeadModel", .prefix = "transformer.",
        .hidden = {"n_embd", "hidden_size", 768}, .layers = {"n_layer", "num_hidden_layers", 12},
        .heads = {"n_head", "num_attention_heads", 12}, .ffn = {"n_inner", 0, -1},
        .positions = {"n_positions", "max_position_embeddings", 1024}, VOCAB(50257), BOS_EOS(50256, 50256),
        .activation_key = "activation_function", .activation = "gelu_new",
        .eps_key = "layer_norm_epsilon", .eps = 1e-5,
        .norm = NORM_LAYER, .position = POSITION_LEARNED, .tied = true,
        ALL_BIASES(NULL, true),
        .scale_keys = true, .scaled_residual_init = true,
        .dropout = 0.1, .dropout_keys = {"attn_pdrop", "embd_pdrop", "resid_pdrop"},
        .keys = {"scale_attn_weights", "scale_attn_by_inverse_layer_idx"},
        .names = gpt2_names, .transposed = true,
        .buffers = {"h.*.attn.bias", "h.*.attn.masked_bias"},
    },
    {
        .model_type = "llama", .class_name = "LlamaForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(32), HEADS(32), .padding = -1, HIDDEN(4096), KV_HEADS(-1), HEAD_DIM(-1), FFN(11008), POSITIONS(2048), VOCAB(32000),
        BOS_EOS(1, 2),
        ATTENTION_BIASES, MLP_BIASES,
        .names = llama_names, .keys = {ROPE_KEYS, "attention_bias", "mlp_bias"},
    },
    {
        .model_type = "mistral", .class_name = "MistralForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(32), HEADS(32), .padding = -1, HIDDEN(4096), KV_HEADS(8), HEAD_DIM(-1), FFN(14336), POSITIONS(131072), VOCAB(32000),
        BOS_EOS(1, 2),
        .window = WINDOW_ALL, .window_default = 4096, .names = llama_names, .keys = {ROPE_KEYS, "sliding_window", "sliding_window_size"},
    },
    {
        .model_type = "qwen2", .class_name = "Qwen2ForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(32), HEADS(32), .padding = -1, HIDDEN(4096), KV_HEADS(32), HEAD_DIM(-1), FFN(22016), POSITIONS(32768), VOCAB(151936),
        BOS_EOS(-1, -1),
        .qkv_bias = {NULL, true}, .window = WINDOW_LAYERS, .window_default = 4096,
        .names = llama_names, .keys = {ROPE_KEYS, "sliding_window", "use_sliding_window", "max_window_layers"},
    },
    {
        .model_type = "qwen3", .class_name = "Qwen3ForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(32), HEADS(32), .padding = -1, HIDDEN(4096), KV_HEADS(32), HEAD_DIM(128), FFN(22016), POSITIONS(32768), VOCAB(151936),
        BOS_EOS(-1, -1),
        ATTENTION_BIASES, .qk_norm = QK_NORM_HEAD, .window = WINDOW_LAYERS, .window_default = 4096,
        .names = llama_names, .keys = {ROPE_KEYS, "attention_bias", "sliding_window", "use_sliding_window", "max_window_layers"},
    },
    {
        .model_type = "qwen3_moe", .class_name = "Qwen3MoeForCausalLM", .mlp_means_experts = true,
        LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(24), HEADS(32), .padding = -1, HIDDEN(2048), KV_HEADS(4), HEAD_DIM(-1), FFN(6144), POSITIONS(32768), VOCAB(151936),
        BOS_EOS(-1, -1), ATTENTION_BIASES, .qk_norm = QK_NORM_HEAD, .window = WINDOW_SWITCHED, .window_default = 4096,
        .sparse = SPARSE_STEP, .experts = {"num_experts", "num_local_experts", 128}, .experts_used = {"num_experts_per_tok", NULL, 8},
        .expert_ffn = {"moe_intermediate_size", NULL, 768}, .router_norm = {"norm_topk_prob", false}, .names = expert_names,
        .fused = fused_names, .router_loss = true, .fixed = {NO_ROUTER_LOSS},
        .keys = {ROPE_KEYS, "attention_bias", "sliding_window", "use_sliding_window", "max_window_layers", "num_experts",
                 "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step",
                 "mlp_only_layers", "router_aux_loss_coef"},
    },
    {
        .model_type = "olmoe", .class_name = "OlmoeForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-5,
        LAYERS(16), HEADS(16), .padding = 1, HIDDEN(2048), KV_HEADS(-1), HEAD_DIM(-1), FFN(2048), POSITIONS(4096), VOCAB(50304),
        BOS_EOS(-1, 50279), ATTENTION_BIASES, .qk_norm = QK_NORM_WIDE,
        .sparse = SPARSE_ALL, .experts = {"num_experts", "num_local_experts", 64}, .experts_used = {"num_experts_per_tok", NULL, 8},
        .router_norm = {"norm_topk_prob", false}, .names = expert_names, .fused = fused_names,
        .router_loss = true, .fixed = {NO_ROUTER_LOSS, {"clip_qkv", "null"}},
        .keys = {ROPE_KEYS, "attention_bias", "num_experts", "num_local_experts", "num_experts_per_tok", "norm_topk_prob",
                 "router_aux_loss_coef"},
    },
    {
        .model_type = "mixtral", .class_name = "MixtralForCausalLM", LLAMA_FAMILY, .rope = ROPE_RULE_ONE, .rope_theta = 1e6, SILU,
        .eps = 1e-5, LAYERS(32), HEADS(32), .padding = -1, HIDDEN(4096), KV_HEADS(8), HEAD_DIM(-1), FFN(14336), POSITIONS(131072),
        VOCAB(32000), BOS_EOS(1, 2), .window = WINDOW_ALL, .sparse = SPARSE_ALL,
        .experts = {"num_local_experts", "num_experts", 8}, .experts_used = {"num_experts_per_tok", NULL, 2}, .router_norm = {NULL, true},
        .names = mixtral_names, .fused = fused_names, .router_loss = true, .fixed = {NO_ROUTER_LOSS, {"router_jitter_noise", "0.0"}},
        .keys = {ROPE_KEYS, "sliding_window", "sliding_window_size", "num_local_experts", "num_experts", "num_experts_per_tok",
                 "router_aux_loss_coef"},
    },
    {
        .model_type = "qwen2_moe", .class_name = "Qwen2MoeForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(24), HEADS(16), .padding = -1, HIDDEN(2048), KV_HEADS(16), HEAD_DIM(-1), FFN(5632), POSITIONS(32768), VOCAB(151936),
        BOS_EOS(-1, -1), .qkv_bias = {"qkv_bias", true},
        .sparse = SPARSE_STEP, .experts = {"num_experts", "num_local_experts", 60}, EXPERTS_USED("num_experts_per_tok", 4),
        EXPERT_FFN(1408), .router_norm = {"norm_topk_prob", false}, .shared_ffn = {"shared_expert_intermediate_size", NULL, 5632},
        .shared_gate = true, .names = qwen2_moe_names, .fused = fused_names,
        .router_loss = true, .fixed = {NO_ROUTER_LOSS, {"use_sliding_window", "false"}},
        .keys = {ROPE_KEYS, ROUTER_KEYS, "qkv_bias", "sliding_window", "max_window_layers", "num_experts", "num_local_experts",
                 "moe_intermediate_size", "shared_expert_intermediate_size", "decoder_sparse_step", "mlp_only_layers"},
    },
    {
        .model_type = "granitemoe", .class_name = "GraniteMoeForCausalLM", GRANITE_MOE,
        .keys = {GRANITE_KEYS, ROUTER_KEYS, "num_local_experts"},
    },
    {
        .model_type = "granitemoeshared", .class_name = "GraniteMoeSharedForCausalLM", GRANITE_MOE,
        .shared_ffn = {"shared_intermediate_size", NULL, 0}, .shared = granite_shared_names,
        .keys = {GRANITE_KEYS, ROUTER_KEYS, "num_local_experts", "shared_intermediate_size"},
    },
    {
        .model_type = "glm4_moe", .mlp_means_experts = true, .class_name = "Glm4MoeForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-5,
        LAYERS(46), HEADS(96), .padding = -1, HIDDEN(4096), KV_HEADS(8), HEAD_DIM(-1), FFN(10944), POSITIONS(131072), VOCAB(151552),
        BOS_EOS(-1, -1), .rope_part_key = "partial_rotary_factor", .rope_part = 0.5, .qkv_bias = {"attention_bias", false},
        .qk_norm = QK_NORM_HEAD, .qk_norm_flag = {"use_qk_norm", false}, SIGMOID_ROUTER(SPARSE_FROM, 1, 1, 1),
        .experts = {"n_routed_experts", "num_local_experts", 128}, EXPERTS_USED("num_experts_per_tok", 8), EXPERT_FFN(1408),
        .router_norm = {"norm_topk_prob", true}, .shared_experts = {"n_shared_experts", NULL, 1}, .names = corrected_names,
        .further = "layers.", .fixed = {NO_ROUTER_LOSS}, .first_sparse = 1,
        .keys = {ROPE_KEYS, SIGMOID_ROUTER_KEYS, "partial_rotary_factor", "attention_bias", "use_qk_norm"},
    },
    {
        .model_type = "deepseek_v2", .class_name = "DeepseekV2ForCausalLM", LATENTS(1536, 128, 128, NULL), .eps = 1e-6,
        LAYERS(32), HEADS(32), HIDDEN(4096), KV_HEADS(-1), FFN(11008), POSITIONS(2048), VOCAB(102400), BOS_EOS(1, 2), .sparse = SPARSE_FROM,
        .experts = {"n_routed_experts", "num_experts", 64}, EXPERTS_USED("num_experts_per_tok", -1), EXPERT_FFN(1407),
        .router_scale = {"routed_scaling_factor", 1}, .shared_experts = {"n_shared_experts", NULL, 2}, .fused = fused_names,
        .shared = shared_names,
        .fixed = {NO_ROUTER_LOSS, {"moe_layer_freq", "1"}, {"topk_method", "\"greedy\""}, {"scoring_func", "\"softmax\""},
                  {"norm_topk_prob", "false"}, {"mlp_bias", "false"}, {"rope_interleave", "true"}},
        .keys = {ROPE_KEYS, SIGMOID_ROUTER_KEYS, LATENT_KEYS, "num_experts"},
    },
    {.model_type = "deepseek_v3", DEEPSEEK_V3},
    {.model_type = "kimi_k2", DEEPSEEK_V3},
    {
        .model_type = "glm4_moe_lite", .class_name = "Glm4MoeLiteForCausalLM", LATENTS(768, 192, 256, "head_dim"), .eps = 1e-5,
        LAYERS(47), HEADS(20), HIDDEN(2048), KV_HEADS(20), FFN(10240), POSITIONS(202752), VOCAB(154880), BOS_EOS(0, 1),
        SIGMOID_ROUTER(SPARSE_TYPES, 1.8, 1, 1), EXPERT_FFN(1536), .first_sparse = 1,
        .experts = {"n_routed_experts", "num_local_experts", 64}, EXPERTS_USED("num_experts_per_tok", 4),
        .router_norm = {"norm_topk_prob", true}, .shared_experts = {"n_shared_experts", NULL, 1}, .further = "layers.",
        .fixed = {NO_ROUTER_LOSS, {"topk_method", "\"noaux_tc\""}, {"scoring_func", "\"sigmoid\""}, {"first_k_dense_replace", "1"}},
        .keys = {ROPE_KEYS, SIGMOID_ROUTER_KEYS, LATENT_KEYS},
    },
    {
        .model_type = "dots1", .mlp_means_experts = true, .class_name = "Dots1ForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(62), HEADS(32), .padding = -1, HIDDEN(4608), KV_HEADS(32), HEAD_DIM(-1), FFN(10944), POSITIONS(2048), VOCAB(152064),
        BOS_EOS(-1, -1), ATTENTION_BIASES, .qk_norm = QK_NORM_HEAD, .window = WINDOW_FROM, .window_default = 4096, .window_period = 62,
        SIGMOID_ROUTER(SPARSE_FROM, 1, 1, 1), .experts = {"n_routed_experts", "num_local_experts", -1},
        EXPERTS_USED("num_experts_per_tok", -1), EXPERT_FFN(1408), .router_norm = {"norm_topk_prob", false},
        .shared_experts = {"n_shared_experts", NULL, -1}, .names = corrected_names, .fixed = {NO_ROUTER_LOSS, {"moe_layer_freq", "1"}},
        .keys = {ROPE_KEYS, SIGMOID_ROUTER_KEYS, "attention_bias", "sliding_window", "max_window_layers"},
    },
    {
        .model_type = "ernie4_5_moe", .class_name = "Ernie4_5_MoeForCausalLM", .mlp_means_experts = true,
        LLAMA_FAMILY, SILU, .eps = 1e-5, .tied = true,
        HIDDEN(2560), LAYERS(28), HEADS(20), KV_HEADS(4), HEAD_DIM(-1), FFN(12288), POSITIONS(131072), VOCAB(103424), BOS_EOS(1, 2),
        .padding = 0, .rope = ROPE_RULE_ONE, .rope_theta = 5e5, .rope_neighbours = true,
        .sparse = SPARSE_RANGE, .experts = {"moe_num_experts", "num_experts", 64}, .experts_used = {"moe_k", "num_experts_per_tok", 6},
        EXPERT_FFN(1536), .router_norm = {NULL, true}, .router_correction = true, .correction_is_row = true,
        .router_least = {"moe_norm_min", 1e-12}, .shared_experts = {"moe_num_shared_experts", NULL, 2}, .names = ernie_moe_names,
        .shared = shared_names, .fused = ernie_fused_names, .further = "mtp_",
        .router_loss = true, .fixed = {NO_ROUTER_LOSS, {"use_bias", "false"}},
        .keys = {ROPE_KEYS, ROUTER_KEYS, "moe_num_experts", "num_experts", "moe_k", "moe_intermediate_size", "moe_num_shared_experts",
                 "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval", "moe_norm_min", "moe_capacity", "moe_gate",
                 "moe_use_aux_free"},
    },
    {
        .model_type = "minimax_m2", .class_name = "MiniMaxM2ForCausalLM", LLAMA_FAMILY, .rope = ROPE_RULE_ONE, .rope_theta = 5e6, SILU,
        .eps = 1e-6, LAYERS(62), HEADS(48), .padding = -1, HIDDEN(3072), KV_HEADS(8), HEAD_DIM(128), FFN(1536), POSITIONS(196608),
        VOCAB(200064), BOS_EOS(200034, 200020), .rope_part_key = "partial_rotary_factor", .rope_part = 1, .rope_size_key = "rotary_dim",
        .qk_norm = QK_NORM_WIDE, .sparse = SPARSE_ALL, .experts = {"num_local_experts", "num_experts", 256},
        EXPERTS_USED("num_experts_per_tok", 8), .router_norm = {NULL, true}, .router = ROUTE_SIGMOID, .router_correction = true,
        .names = minimax_names, .fused = minimax_fused_names,
        .router_loss = true,
        .fixed = {NO_ROUTER_LOSS, {"router_jitter_noise", "0.0"}, {"use_qk_norm", "true"}, {"qk_norm_type", "\"per_layer\""},
                  {"use_routing_bias", "true"}, {"scoring_func", "\"sigmoid\""}, {"shared_intermediate_size", "0"}},
        .keys = {ROPE_KEYS, ROUTER_KEYS, "rotary_dim", "partial_rotary_factor", "num_local_experts", "num_experts"},
    },
    {
        .model_type = "gpt_oss", .class_name = "GptOssForCausalLM", LLAMA_FAMILY, .rope = ROPE_RULE_ONE, .rope_theta = 150000,
        .rope_required = true, SILU, .eps = 1e-5, LAYERS(36), HEADS(64), .padding = -1, HIDDEN(2880), KV_HEADS(8), HEAD_DIM(64), FFN(2880),
        POSITIONS(131072), VOCAB(201088), BOS_EOS(-1, -1), .qkv_bias = {"attention_bias", true}, .out_bias = {"attention_bias", true},
        .window = WINDOW_PERIOD, .window_default = 128, .window_period = 2, .sinks = true,
        .sparse = SPARSE_ALL, .experts = {"num_local_experts", "num_experts", 128},
        .experts_used = {"num_experts_per_tok", "experts_per_token", 4}, .router_norm = {NULL, true}, .router_bias = true,
        .expert_bias = true, .experts_transposed = true, .expert_alpha = {"swiglu_alpha", 1.702}, .expert_limit = {"swiglu_limit", 7},
        .mxfp4 = true, .names = gpt_oss_names, .router_loss = true, .fixed = {NO_ROUTER_LOSS, {"hidden_act", "\"silu\""}},
        .keys = {ROPE_KEYS, ROUTER_KEYS, "attention_bias", "sliding_window", "num_local_experts", "num_experts", "experts_per_token"},
    },
    {
        .model_type = "opt", .class_name = "OPTForCausalLM", .prefix = "model.",
        HIDDEN(768), LAYERS(12), HEADS(12), .ffn = {"ffn_dim", 0, 3072},
        POSITIONS(2048), VOCAB(50272), BOS_EOS(2, 2),
        .activation_key = "activation_function", .activation = "relu", .eps = 1e-5,
        .norm = NORM_LAYER, .position = POSITION_LEARNED, .position_offset = 2, .tied = true,
        ALL_BIASES("enable_bias", true),
        .init_key = "init_std", .padding_row = true, .padding = 1, .dropout = 0.1, .dropout_keys = {"dropout"},
        .fixed = {{"do_layer_norm_before", "true"}, {"_remove_final_layer_norm", "false"}, {"layer_norm_elementwise_affine", "true"}},
        .width_key = "word_embed_proj_dim", .keys = {"enable_bias"}, .names = opt_names,
    },
    {
        .model_type = "gpt_neox", .class_name = "GPTNeoXForCausalLM", .prefix = "gpt_neox.",
        HIDDEN(6144), LAYERS(44), HEADS(64), FFN(24576),
        POSITIONS(2048), VOCAB(50432), BOS_EOS(0, 2),
        .activation_key = "hidden_act", .activation = "gelu", .eps_key = "layer_norm_eps", .eps = 1e-5,
        .norm = NORM_LAYER, .position = POSITION_ROTARY, .parallel_key = true,
        .rope = ROPE_RULE_ONE, .rope_theta = 10000, .rope_theta_key = "rotary_emb_base", .rope_part_key = "rotary_pct", .rope_part = 0.25,
        .qkv_bias = {"attention_bias", true}, .out_bias = {"attention_bias", true}, .mlp_bias = {NULL, true}, .padding = -1,
        .keys = {"rotary_pct", "rotary_emb_base", "rope_scaling", "rope_parameters", "attention_bias"},
        .names = gpt_neox_names, .head = "embed_out.weight", .interleaved = true,
        .buffers = {"layers.*.attention.bias", "layers.*.attention.masked_bias", "layers.*.attention.rotary_emb.inv_freq"},
    },
    {
        .model_type = "gemma", .class_name = "GemmaForCausalLM", LLAMA_FAMILY, ONE_ROPE, GEMMA_FAMILY,
        HIDDEN(3072), LAYERS(28), HEADS(16), KV_HEADS(16), FFN(24576),
        POSITIONS(8192), VOCAB(256000), .activation_key = "hidden_act", .activation = "gelu_pytorch_tanh", .gelu_is_tanh = true,
        .names = llama_names, .keys = {ROPE_KEYS, "attention_bias"},
    },
    {
        .model_type = "gemma2", .class_name = "Gemma2ForCausalLM", LLAMA_FAMILY, ONE_ROPE, GEMMA_FAMILY, .norms = NORM_AROUND,
        HIDDEN(2304), LAYERS(26), HEADS(8), KV_HEADS(4), FFN(9216),
        POSITIONS(8192), VOCAB(256000), .activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh",
        .score_scalar = {"query_pre_attn_scalar", 256}, .score_softcap = {"attn_logit_softcapping", 50},
        .logit_softcap = {"final_logit_softcapping", 30}, .window = WINDOW_PERIOD, .window_default = 4096, .window_period = 2,
        .keys = {ROPE_KEYS, "attention_bias", "sliding_window", "query_pre_attn_scalar", "attn_logit_softcapping",
                 "final_logit_softcapping"},
        .names = gemma2_names,
    },
    {
        .model_type = "gemma3_text", .class_name = "Gemma3ForCausalLM", LLAMA_FAMILY, GEMMA_FAMILY, .norms = NORM_AROUND,
        HIDDEN(2304), LAYERS(26), HEADS(8), KV_HEADS(4), FFN(9216),
        POSITIONS(131072), VOCAB(262208), .activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh",
        .qk_norm = QK_NORM_HEAD, .score_scalar = {"query_pre_attn_scalar", 256}, .logit_softcap = {"final_logit_softcapping", 0},
        .softcap_alone = true,
        .window = WINDOW_PERIOD, .window_default = 4096, .window_period = 6, .window_period_key = "sliding_window_pattern",
        .rope = ROPE_RULE_TYPES, .rope_theta = 1e6, .rope_local_theta = 10000,
        .keys = {ROPE_KEYS, "rope_local_base_freq", "attention_bias", "sliding_window", "sliding_window_pattern", "_sliding_window_pattern",
                 "query_pre_attn_scalar", "final_logit_softcapping"},
        .names = gemma2_names,
    },
    {
        .model_type = "gemma4_text", .class_name = "Gemma4ForCausalLM", LLAMA_FAMILY, .embedding_by_width = true, .tied = true,
        .norms = NORM_AROUND, HIDDEN(2304), LAYERS(30), HEADS(8), KV_HEADS(4), HEAD_DIM(256), FFN(9216), POSITIONS(131072), VOCAB(262144),
        BOS_EOS(2, 1), .padding = 0, .eps = 1e-6, .activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh",
        .qk_norm = QK_NORM_HEAD, ATTENTION_BIASES, .logit_softcap = {"final_logit_softcapping", 0}, .scores_unscaled = true,
        .window = WINDOW_PERIOD, .window_default = 512, .window_period = 6, .rope = ROPE_RULE_TYPES, .rope_theta = 1e6,
        .rope_local_theta = 10000, .rope_partial = true, .full_heads = true, .value_norm = true, .scaled = true, .names = gemma4_names,
        .sparse = SPARSE_ALL, .experts_key = "enable_moe_block", .experts_beside = true, .experts = {"num_experts", NULL, -1},
        EXPERTS_USED("top_k_experts", -1), EXPERT_FFN(-1), .router_norm = {NULL, true},
        .shared_ffn = {"intermediate_size", NULL, 9216},
        .fixed = {{"use_bidirectional_attention", "\"vision\""}},
        .input_width = {"hidden_size_per_layer_input", NULL, 256},
        .keys = {"rope_parameters", "attention_bias", "sliding_window", "final_logit_softcapping", "per_layer_config",
                 "enable_moe_block", "num_experts", "top_k_experts", "moe_intermediate_size", "vocab_size_per_layer_input",
                 "use_double_wide_mlp", "num_kv_shared_layers",
                 "hidden_size_per_layer_input"},
    },
    {
        .model_type = "qwen3_5_text", .class_name = "Qwen3_5ForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(32), HEADS(16), .padding = -1, HIDDEN(4096), KV_HEADS(4), HEAD_DIM(256), FFN(12288), POSITIONS(32768), VOCAB(248320),
        QWEN_DELTA, .names = qwen3_5_names, .further = "mtp.", .fixed = {{"attn_output_gate", "true"}}, .keys = {QWEN_DELTA_KEYS},
    },
    {
        .model_type = "qwen3_next", .class_name = "Qwen3NextForCausalLM", .mlp_means_experts = true,
        LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(48), HEADS(16), .padding = -1, HIDDEN(2048), KV_HEADS(2), HEAD_DIM(256), FFN(5632), POSITIONS(32768), VOCAB(151936),
        QWEN_DELTA, .sparse = SPARSE_STEP, .experts = {"num_experts", NULL, 512}, EXPERTS_USED("num_experts_per_tok", 10), EXPERT_FFN(512),
        .router_norm = {"norm_topk_prob", true}, .shared_ffn = {"shared_expert_intermediate_size", NULL, 512}, .shared_gate = true,
        .names = qwen3_next_names, .fused = fused_names, .further = "mtp.",
        .router_loss = true, .fixed = {NO_ROUTER_LOSS, {"attn_output_gate", "true"}},
        .keys = {QWEN_DELTA_KEYS, ROUTER_KEYS, "num_experts", "moe_intermediate_size", "shared_expert_intermediate_size",
                 "decoder_sparse_step", "mlp_only_layers"},
    },
    {
        .model_type = "qwen3_5_moe_text", .class_name = "Qwen3_5MoeForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(40), HEADS(16), .padding = -1, HIDDEN(2048), KV_HEADS(2), HEAD_DIM(256), .ffn = {"moe_intermediate_size", NULL, 512},
        POSITIONS(32768), VOCAB(248320), QWEN_DELTA, .sparse = SPARSE_ALL, .experts = {"num_experts", NULL, 256},
        EXPERTS_USED("num_experts_per_tok", 8), .router_norm = {NULL, true}, .shared_ffn = {"shared_expert_intermediate_size", NULL, 512},
        .shared_gate = true, .names = qwen3_5_moe_names, .fused = fused_names, .further = "mtp.",
        .router_loss = true, .fixed = {NO_ROUTER_LOSS, {"attn_output_gate", "true"}},
        .keys = {QWEN_DELTA_KEYS, ROUTER_KEYS, "num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"},
    },
    {
        .model_type = "lfm2_moe", .class_name = "Lfm2MoeForCausalLM", LLAMA_MODEL, .norm = NORM_RMS, .eps_key = "norm_eps", .eps = 1e-5,
        .gated = true, .tied = true, .tied_key = "tie_embedding", .rope = ROPE_RULE_ONE, .rope_theta = 1e6, .activation = "silu",
        LAYERS(32), HEADS(32), .padding = 0, HIDDEN(2048), KV_HEADS(8), HEAD_DIM(-1), FFN(7168), POSITIONS(128000), VOCAB(65536),
        BOS_EOS(1, 2), .qk_norm = QK_NORM_HEAD, .mixer = MIXER_CONV, .mixer_type = "conv", .attention_layers_key = "full_attn_idxs",
        .taps = {"conv_L_cache", NULL, 3}, .sparse = SPARSE_FROM, .first_sparse = 2, .first_sparse_key = "num_dense_layers",
        .experts = {"num_experts", NULL, 32}, EXPERTS_USED("num_experts_per_tok", 4), EXPERT_FFN(1792), .router = ROUTE_SIGMOID,
        .router_correction = true, .router_norm = {"norm_topk_prob", true}, .router_eps = 1e-6,
        .router_scale = {"routed_scaling_factor", 1}, .names = lfm2_moe_names, .fused = lfm2_fused_names,
        .fixed = {NO_ROUTER_LOSS, {"use_expert_bias", "true"}},
        .keys = {ROPE_KEYS, ROUTER_KEYS, "conv_bias", "num_experts", "moe_intermediate_size", "routed_scaling_factor"},
    },
    {
        .model_type = "granitemoehybrid", .class_name = "GraniteMoeHybridForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(32), HEADS(32), .padding = -1, HIDDEN(4096), KV_HEADS(-1), HEAD_DIM(-1), .ffn = {"shared_intermediate_size", NULL, 1024},
        POSITIONS(2048), VOCAB(32000), BOS_EOS(1, 2), ATTENTION_BIASES, .rope_named = true,
        .embedding_scale = {"embedding_multiplier", 1}, .score_scale = {"attention_multiplier", 1},
        .residual_scale = {"residual_multiplier", 1}, .logit_divisor = {"logits_scaling", 1}, .mixer = MIXER_MAMBA,
        .mixer_type = "linear_attention", .mixer_type_old = "mamba", .attention_layers_key = "attn_layer_indices",
        .layer_types_alias = "layers_block_type",
        .taps = {"mamba_d_conv", NULL, 4}, .names = granitemoehybrid_names, .fused = granite_fused_names, .sparse = SPARSE_ALL,
        .experts_optional = true, .experts = {"num_local_experts", NULL, 8}, EXPERTS_USED("num_experts_per_tok", 2),
        .expert_ffn = {"intermediate_size", NULL, 11008}, .router_norm = {NULL, true},
        .shared_ffn = {"shared_intermediate_size", NULL, 1024}, .router_loss = true, .fixed = {NO_ROUTER_LOSS},
        .keys = {ROPE_KEYS, "attention_bias", "embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling",
                 "mamba_conv_bias", "mamba_proj_bias", "num_local_experts", "num_experts_per_tok", "router_aux_loss_coef"},
    },
    {
        .model_type = "bamba", .class_name = "BambaForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-5, LAYERS(32), HEADS(32),
        .padding = 0, HIDDEN(4096), KV_HEADS(8), HEAD_DIM(-1), FFN(14336), POSITIONS(262144), VOCAB(128000), BOS_EOS(1, 2),
        ATTENTION_BIASES, MLP_BIASES, .rope_part_key = "partial_rotary_factor", .rope_part = 0.5, .mixer = MIXER_MAMBA,
        .mixer_type = "linear_attention", .mixer_type_old = "mamba", .attention_layers_key = "attn_layer_indices",
        .taps = {"mamba_d_conv", NULL, 4}, .names = bamba_names, .zero = {"z_loss_coefficient", NULL, 0},
        .fixed = {{"partial_rotary_factor", "0.5"}}, /* Transformers takes another value only from the rope's object */
        .keys = {ROPE_KEYS, "attention_bias", "mlp_bias", "mamba_conv_bias", "mamba_proj_bias", "attn_rotary_emb"},
    },
    {
        .model_type = "falcon_h1", .class_name = "FalconH1ForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-5, LAYERS(32), HEADS(32),
        .padding = 0, HIDDEN(4096), KV_HEADS(8), HEAD_DIM(-1), FFN(14336), POSITIONS(8192), VOCAB(128000), BOS_EOS(1, 2),
        .embedding_scale = {"embedding_multiplier", 1}, .logit_scale = {"lm_head_multiplier", 1}, .mixer = MIXER_MAMBA,
        .attends_beside = true, .scan_wide = {"mamba_d_ssm", NULL, 1024}, .taps = {"mamba_d_conv", NULL, 4}, .names = bamba_names,
        .mix_out_kept = true,
        .fixed = {{"attention_bias", "false"}, {"mlp_bias", "false"}, {"mamba_proj_bias", "false"}, {"projectors_bias", "false"}},
        .keys = {ROPE_KEYS, "mamba_conv_bias", "embedding_multiplier", "lm_head_multiplier", "key_multiplier", "attention_in_multiplier",
                 "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier", "ssm_multipliers", "mlp_multipliers"},
    },
    {
        .model_type = "nemotron_h", .class_name = "NemotronHForCausalLM", .prefix = "backbone.", .module_prefix = "model.",
        .kv_heads_null_is_heads = true, .position = POSITION_ROTARY, .rope = ROPE_RULE_NONE, .norm = NORM_RMS,
        .eps_key = "layer_norm_epsilon", .eps = 1e-5,
        .activation_key = "mlp_hidden_act", .activation = "relu2", LAYERS(52), HEADS(32), .padding = 0, HIDDEN(4096),
        KV_HEADS(8), HEAD_DIM(128), FFN(21504), POSITIONS(4096), VOCAB(131072), BOS_EOS(1, 2), MLP_BIASES, .one_branch = true,
        .mixer = MIXER_MAMBA, .taps = {"conv_kernel", "mamba_d_conv", 4}, .names = nemotron_h_names, .further = "mtp.",
        .mix_out_kept = true,
        SIGMOID_CHOICE(SPARSE_BRANCHES, 1, 1, 1), .fused = nemotron_h_fused_names, .shared = nemotron_h_shared_names,
        .experts = {"n_routed_experts", "num_local_experts", 8}, EXPERTS_USED("num_experts_per_tok", 2), EXPERT_FFN(7688),
        .router_norm = {"norm_topk_prob", true}, .shared_ffn = {"moe_shared_expert_intermediate_size", NULL, 7688},
        .expert_latent = {"moe_latent_size", NULL, 0},
        .fixed = {{"mamba_hidden_act", "\"silu\""}, {"attention_bias", "false"}, NO_ROUTER_LOSS},
        .keys = {SIGMOID_ROUTER_KEYS, "rope_theta", "partial_rotary_factor", "mlp_bias", "use_bias", "use_conv_bias", "mamba_proj_bias",
                 "moe_latent_size", "moe_shared_expert_intermediate_size", "moe_shared_expert_overlap", "num_nextn_predict_layers"},
    },
    {
        .model_type = "lfm2", .class_name = "Lfm2ForCausalLM", LLAMA_MODEL, .norm = NORM_RMS, .eps_key = "norm_eps", .eps = 1e-5,
        .gated = true, .tied = true, .tied_key = "tie_embedding", .rope = ROPE_RULE_ONE, .rope_theta = 1e6, .activation = "silu",
        LAYERS(32), HEADS(32), .padding = 0, HIDDEN(2560), KV_HEADS(8), HEAD_DIM(-1), .ffn = {"intermediate_size", "block_ff_dim", 12288},
        POSITIONS(128000), VOCAB(65536), BOS_EOS(1, 2), .qk_norm = QK_NORM_HEAD, .mixer = MIXER_CONV, .mixer_type = "conv",
        .attention_layers_key = "full_attn_idxs", .taps = {"conv_L_cache", NULL, 3}, .ffn_adjusted = true, .names = lfm2_names,
        .keys = {ROPE_KEYS, "conv_bias"},
    },
    {
        .model_type = "phi3", .class_name = "Phi3ForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-5,
        LAYERS(32), HEADS(32), HIDDEN(3072), KV_HEADS(-1), HEAD_DIM(-1), FFN(8192), POSITIONS(4096), VOCAB(32064), BOS_EOS(1, 32000),
        .padding = 32000,
        .window = WINDOW_ALL, .rope_part_key = "partial_rotary_factor", .rope_part = 1, .rope_long_only = true,
        .keys = {ROPE_KEYS, "partial_rotary_factor", "sliding_window"}, .names = phi3_names,
    },
    {
        .model_type = "olmo2", .class_name = "Olmo2ForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-5, .norms = NORM_AFTER,
        LAYERS(32), HEADS(32), HIDDEN(4096), KV_HEADS(-1), HEAD_DIM(-1), FFN(11008), POSITIONS(2048), VOCAB(50304), BOS_EOS(-1, 50279),
        .padding = 1,
        ATTENTION_BIASES, .qk_norm = QK_NORM_WIDE, .keys = {ROPE_KEYS, "attention_bias"},
        .names = olmo_names,
    },
    {
        .model_type = "olmo3", .class_name = "Olmo3ForCausalLM", LLAMA_FAMILY, SILU, .eps = 1e-5, .norms = NORM_AFTER,
        LAYERS(32), HEADS(32), HIDDEN(4096), KV_HEADS(-1), HEAD_DIM(-1), FFN(11008), POSITIONS(2048), VOCAB(50304), BOS_EOS(-1, 50279),
        .padding = 1,
        ATTENTION_BIASES, .qk_norm = QK_NORM_WIDE,
        .window = WINDOW_PERIOD, .window_default = 4096, .window_period = 4,
        .rope = ROPE_RULE_TYPES, .rope_theta = 5e5, .rope_local_theta = 5e5,
        .keys = {ROPE_KEYS, "attention_bias", "sliding_window"}, .names = olmo_names,
    },
    {
        .model_type = "smollm3", .class_name = "SmolLM3ForCausalLM", LLAMA_FAMILY, SILU, .eps = 1e-6, .tied = true,
        HIDDEN(2048), LAYERS(36), HEADS(16), KV_HEADS(4), HEAD_DIM(-1),
        FFN(11008), POSITIONS(32768), VOCAB(128256), BOS_EOS(128000, 128001), .padding = 128004,
        ATTENTION_BIASES, MLP_BIASES,
        .window = WINDOW_UNROTATED, .rope = ROPE_RULE_SKIPPED, .rope_theta = 2e6,
        .names = llama_names, .keys = {ROPE_KEYS, "attention_bias", "mlp_bias", "sliding_window", "use_sliding_window", "no_rope_layers",
                                       "no_rope_layer_interval"},
    },
    {
        .model_type = "granite", .class_name = "GraniteForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        LAYERS(32), HEADS(32), .padding = -1, HIDDEN(4096), KV_HEADS(-1), HEAD_DIM(-1), FFN(11008), POSITIONS(2048), VOCAB(32000),
        BOS_EOS(1, 2),
        ATTENTION_BIASES, MLP_BIASES, GRANITE_SCALES, .names = llama_names, .keys = {GRANITE_KEYS, "mlp_bias"},
    },
    {
        .model_type = "ministral3", .class_name = "Ministral3ForCausalLM", LLAMA_FAMILY, SILU, .eps = 1e-5,
        HEADS(32), HIDDEN(4096), LAYERS(34), KV_HEADS(8), HEAD_DIM(128), FFN(14336), POSITIONS(262144), VOCAB(131072),
        BOS_EOS(1, 2), .padding = 11, .window = WINDOW_ALL, .rope = ROPE_RULE_QUERY, .rope_theta = 10000,
        .names = llama_names, .keys = {ROPE_KEYS, "sliding_window"},
    },
    {
        .model_type = "starcoder2", .class_name = "Starcoder2ForCausalLM", .prefix = "model.", ONE_ROPE, .rope_theta_key = "rope_theta",
        HIDDEN(3072), LAYERS(30), HEADS(24), KV_HEADS(2), HEAD_DIM(-1), FFN(12288), POSITIONS(4096), VOCAB(49152), BOS_EOS(50256, 50256),
        .activation_key = "hidden_act", .activation = "gelu_pytorch_tanh", .eps_key = "norm_epsilon", .eps = 1e-5,
        .norm = NORM_LAYER, .position = POSITION_ROTARY, .tied = true, .window = WINDOW_ALL, .init = 0.018042, .padding_row = true,
        ALL_BIASES("use_bias", true), .padding = -1,
        .names = starcoder2_names, .keys = {ROPE_KEYS, "sliding_window", "use_bias"},
    },
    {
        .model_type = "seed_oss", .class_name = "SeedOssForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1e-6,
        HIDDEN(4096), LAYERS(64), HEADS(80), KV_HEADS(8), HEAD_DIM(128), FFN(27648), POSITIONS(524288), VOCAB(155136), BOS_EOS(0, 2),
        .padding = 1, .qkv_bias = {"attention_bias", true}, .out_bias = {"attention_out_bias", false}, MLP_BIASES,
        .dropout = 0.1, .dropout_keys = {"attention_dropout", "residual_dropout"},
        .names = llama_names, .keys = {ROPE_KEYS, "attention_bias", "attention_out_bias", "mlp_bias"},
    },
    {
        .model_type = "exaone4", .class_name = "Exaone4ForCausalLM", LLAMA_FAMILY, SILU, .eps = 1e-5, .norms = NORM_AFTER,
        HIDDEN(4096), LAYERS(32), HEADS(32), KV_HEADS(32), HEAD_DIM(-1), FFN(16384), POSITIONS(2048), VOCAB(102400), BOS_EOS(0, 2),
        .padding = -1, .qk_norm = QK_NORM_HEAD, .window = WINDOW_PERIOD, .window_default = 4096, .window_period = 4,
        .window_period_key = "sliding_window_pattern", .rope = ROPE_RULE_WINDOWED, .rope_theta = 10000,
        .names = olmo_names, .keys = {ROPE_KEYS, "sliding_window", "sliding_window_pattern"},
    },
    {
        .model_type = "stablelm", .class_name = "StableLmForCausalLM", LLAMA_MODEL, ONE_ROPE, SILU, .norm = NORM_LAYER, .gated = true,
        HIDDEN(2560), LAYERS(32), HEADS(32), KV_HEADS(32), FFN(6912), POSITIONS(4096), VOCAB(50304), BOS_EOS(0, 0), .padding = -1,
        .eps_key = "layer_norm_eps", .eps = 1e-5, .rope_part_key = "partial_rotary_factor", .rope_part = 0.25,
        .qkv_bias = {"use_qkv_bias", false}, .fixed = {{"qk_layernorm", "false"}, {"use_parallel_residual", "false"}},
        .names = stablelm_names, .keys = {ROPE_KEYS, "partial_rotary_factor", "use_qkv_bias"},
    },
    {
        .model_type = "arcee", .class_name = "ArceeForCausalLM", LLAMA_MODEL, ONE_ROPE, .norm = NORM_RMS, .eps_key = "rms_norm_eps",
        .eps = 1e-5, .activation_key = "hidden_act", .activation = "relu2",
        HIDDEN(2560), LAYERS(32), HEADS(32), KV_HEADS(-1), HEAD_DIM(-1), FFN(18432), POSITIONS(4096), VOCAB(32000),
        BOS_EOS(128000, 128001), .padding = -1, ATTENTION_BIASES, MLP_BIASES,
        .names = arcee_names, .keys = {ROPE_KEYS, "attention_bias", "mlp_bias"},
    },
    {
        .model_type = "nemotron", .class_name = "NemotronForCausalLM", LLAMA_MODEL, ONE_ROPE, .norm = NORM_LAYER, .norm_from_one = true,
        .eps_key = "norm_eps", .eps = 1e-5, .activation_key = "hidden_act", .activation = "relu2",
        HIDDEN(6144), LAYERS(32), HEADS(48), KV_HEADS(-1), HEAD_DIM(-1), FFN(24576), POSITIONS(4096), VOCAB(256000), BOS_EOS(2, 3),
        .padding = -1, .init = 0.0134, .rope_part_key = "partial_rotary_factor", .rope_part = 0.5, ATTENTION_BIASES, MLP_BIASES,
        .names = nemotron_names, .keys = {ROPE_KEYS, "partial_rotary_factor", "attention_bias", "mlp_bias"},
    },
    {
        .model_type = "glm4", .class_name = "Glm4ForCausalLM", LLAMA_FAMILY, ONE_ROPE, SILU, .eps = 1.5625e-7, .norms = NORM_AROUND,
        HIDDEN(4096), LAYERS(40), HEADS(32), KV_HEADS(2), HEAD_DIM(128), FFN(13696), POSITIONS(131072), VOCAB(151552), BOS_EOS(-1, 151329),
        .padding = 151329, .rope_part_key = "partial_rotary_factor", .rope_part = 0.5, .rope_neighbours = true,
        .qkv_bias = {"attention_bias", true}, .names = glm4_names, .keys = {ROPE_KEYS, "partial_rotary_factor", "attention_bias"},
    },
    {
        .model_type = "ernie4_5", .class_name = "Ernie4_5ForCausalLM", LLAMA_FAMILY, SILU, .eps = 1e-5, .tied = true,
        HIDDEN(1024), LAYERS(18), HEADS(16), KV_HEADS(2), HEAD_DIM(128), FFN(3072), POSITIONS(131072), VOCAB(103424), BOS_EOS(1, 2),
        .padding = 0, .rope = ROPE_RULE_ONE, .rope_theta = 5e5, .rope_neighbours = true, ALL_BIASES("use_bias", false),
        .names = llama_names, .keys = {ROPE_KEYS, "use_bias"},
    },
    {
        .model_type = "cohere", .class_name = "CohereForCausalLM", COHERE_FAMILY, .rope = ROPE_RULE_ONE, .rope_theta = 5e5,
        .fixed = {{"use_qk_norm", "false"}}, .keys = {ROPE_KEYS, "attention_bias", "logit_scale"},
    },
    {
        .model_type = "cohere2", .class_name = "Cohere2ForCausalLM", COHERE_FAMILY, .rope = ROPE_RULE_WINDOWED, .rope_theta = 10000,
        .window = WINDOW_PERIOD, .window_default = 4096, .window_period = 4, .window_period_key = "sliding_window_pattern",
        .keys = {ROPE_KEYS, "attention_bias", "logit_scale", "sliding_window", "sliding_window_pattern"},
    },
};

enum { ROWS = sizeof table / sizeof table[0] };

const architecture *architecture_find(const char *model_type)
{
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(table[i].model_type, model_type))
            return &table[i];
    return NULL;
}

const architecture *architecture_find_class(const char *class_name)
{
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(table[i].class_name, class_name))
            return &table[i];
    return NULL;
}

const architecture *architecture_at(int i) { return i < ROWS ? &table[i] : NULL; }

const char *architecture_list(char *buffer, int n)
{
    int used = 0;
    for (int i = 0; i < ROWS && used < n; i++)
        used += snprintf(buffer + used, (size_t)(n - used), "%s%s", i ? ", " : "", table[i].model_type);
    return buffer;
}

const char *const *architecture_names(const architecture *arch, const model_config *config, param_role role, int layer)
{
    const bool sparse = layer >= 0 && config->sparse[layer];
    if (arch->direct && !config->q_latent && arch->direct[role][0])
        return arch->direct[role];
    if (sparse && arch->shared && arch->shared[role][0])
        return arch->shared[role];
    return sparse && config->experts_fused && arch->fused[role][0] ? arch->fused[role] : arch->names[role];
}

void architecture_name(char name[MODEL_NAME], const char *prefix, const char *pattern, int layer, int expert)
{
    int used = snprintf(name, MODEL_NAME, "%s", prefix);
    for (const char *at = pattern; *at && used < MODEL_NAME - 1; at++)
        if (*at == '*' || *at == '#')
            used += snprintf(name + used, (size_t)(MODEL_NAME - used), "%d", *at == '*' ? layer : expert);
        else
            name[used++] = *at;
    name[used < MODEL_NAME ? used : MODEL_NAME - 1] = 0;
}
