/* params.c - the blocks and parameters that follow from a configuration. */
#include "model/adapter.h"
#include "model/architectures.h"

#include <stdlib.h>
#include <string.h>

/* Far above any model; with 16 bytes each they still fit 63 bits. */
#define MAX_PARAMETERS 1e15

/* ---- the table ---- */

typedef enum extent {
    ONE, VOCABULARY, OUTPUTS, POSITIONS, HIDDEN, QKV, QKV_FIRST, QKV_SECOND, Q, KV, QNORM, KNORM, UP, FFN, EXPERTS, EXPERTS_UP,
    EXPERTS_DOWN, EXPERT_FFN, EXPERT_WIDTH, HEADS, Q_LATENT, KV_LATENT, KV_EXPAND, VALUES, INPUT, INPUTS, MIX_IN, MIX_VALUES, CHANNELS,
    TAPS, VALUE_HEADS, MIX_NORM
} extent;

/* layer: -1 outside the layers. */
static int64_t extent_of(const model_config *config, int layer, extent x)
{
    const attention_heads h = model_heads(config, layer);
    const int64_t q = h.q_wide, kv = h.kv_wide;
    const int64_t ffn = layer < 0 ? 0 : model_ffn(config, layer);
    switch (x) {
    case VOCABULARY: return config->vocab;
    case OUTPUTS: return model_outputs(config);
    case POSITIONS: return config->max_positions + config->position_offset;
    case HIDDEN: return config->hidden;
    case QKV: return h.made;
    case QKV_FIRST: return config->kv_latent ? h.made - config->kv_latent - config->shared_dim : config->output_gate ? kv : q;
    case QKV_SECOND: return config->kv_latent ? config->kv_latent + config->shared_dim : config->output_gate ? 2 * q : kv;
    case Q: return q;
    case KV: return kv;
    case QNORM: return config->qk_norm == QK_NORM_WIDE ? q : h.dim;
    case KNORM: return config->qk_norm == QK_NORM_WIDE ? kv : h.dim;
    case UP: return config->gated ? 2 * ffn : ffn;
    case FFN: return ffn;
    case EXPERTS: return config->experts;
    case EXPERTS_UP: return config->experts * (config->gated ? 2 : 1) * config->expert_ffn;
    case EXPERTS_DOWN: return config->experts * model_expert_width(config);
    case EXPERT_WIDTH: return model_expert_width(config);
    case EXPERT_FFN: return config->expert_ffn;
    case HEADS: return config->heads;
    case Q_LATENT: return config->q_latent;
    case KV_LATENT: return config->kv_latent;
    case KV_EXPAND: return config->heads * (config->head_dim - config->shared_dim + config->value_dim);
    case VALUES: return model_value_columns(config, layer);
    case INPUT: return config->input_width;
    case INPUTS: return config->layers * config->input_width;
    case MIX_IN: return model_mix_columns(config, layer).all;
    case MIX_VALUES: return model_mix_values(config, layer);
    case CHANNELS: return model_mix_columns(config, layer).channels;
    case TAPS: return config->taps;
    case VALUE_HEADS: return config->scan_heads;
    case MIX_NORM: return config->mixer[layer] == MIXER_DELTA ? config->scan_dim : model_mix_values(config, layer);
    default: return 1;
    }
}

static bool always(const model_config *config, int layer) { return config->hidden > 0; }
static bool never(const model_config *config, int layer) { return config->hidden < 0; }
static bool learned_positions(const model_config *config, int layer) { return config->position == POSITION_LEARNED; }
static bool pre_norm(const model_config *config, int layer) { return config->pre_norm; }
static bool pre_norm_bias(const model_config *config, int layer) { return config->pre_norm && config->norm_bias; }
static bool second_norm(const model_config *config, int layer) { return config->pre_norm && !config->one_norm && !config->one_branch; }
static bool second_norm_bias(const model_config *config, int layer) { return second_norm(config, layer) && config->norm_bias; }
static bool post_norm(const model_config *config, int layer) { return config->post_norm; }
static bool final_norm_bias(const model_config *config, int layer) { return config->norm_bias; }
static bool attention(const model_config *config, int layer) { return layer >= 0 && model_attends(config, layer); }
static bool mixer(const model_config *config, int layer)
{
    return layer >= 0 && config->mixer[layer] != MIXER_ATTENTION && config->mixer[layer] != MIXER_NONE;
}
static bool scans(const model_config *config, int layer) { return layer >= 0 && model_scans(config, layer); }
static bool mix_norm(const model_config *config, int layer) { return config->mix_norm && scans(config, layer); }
static bool mamba(const model_config *config, int layer) { return layer >= 0 && config->mixer[layer] == MIXER_MAMBA; }
static bool mix_bias(const model_config *config, int layer) { return config->mix_bias && mixer(config, layer); }
static bool conv_bias(const model_config *config, int layer) { return config->conv_bias && mixer(config, layer); }
static bool qkv_bias(const model_config *config, int layer) { return config->qkv_bias && attention(config, layer); }
static bool q_latent(const model_config *config, int layer) { return config->q_latent > 0 && attention(config, layer); }
static bool kv_latent(const model_config *config, int layer) { return config->kv_latent > 0 && attention(config, layer); }
static bool qk_norm(const model_config *config, int layer) { return config->qk_norm != QK_NORM_NONE && attention(config, layer); }
static bool k_norm(const model_config *config, int layer) { return qk_norm(config, layer) && !model_reads_kv(config, layer); }
static bool out_bias(const model_config *config, int layer) { return config->out_bias && attention(config, layer); }
static bool sparse(const model_config *config, int layer) { return layer >= 0 && config->sparse[layer]; }
static bool sinks(const model_config *config, int layer) { return config->sinks && attention(config, layer); }
static bool router_bias(const model_config *config, int layer) { return config->router_bias && sparse(config, layer); }
static bool expert_bias(const model_config *config, int layer) { return config->expert_bias && sparse(config, layer); }
static bool corrected(const model_config *config, int layer) { return sparse(config, layer) && config->router_correction; }
static bool beside(const model_config *config, int layer) { return sparse(config, layer) && config->experts_beside; }
static bool latent_experts(const model_config *config, int layer) { return sparse(config, layer) && config->expert_latent > 0; }
static bool latent_bias(const model_config *config, int layer) { return latent_experts(config, layer) && config->mlp_bias; }
static bool shared_gate(const model_config *config, int layer) { return sparse(config, layer) && config->shared_gate; }
static bool mlp(const model_config *config, int layer) { return layer >= 0 && model_ffn(config, layer) > 0 && !shared_gate(config, layer); }
static bool mlp_bias(const model_config *config, int layer) { return config->mlp_bias && mlp(config, layer); }
static bool inputs(const model_config *config, int layer) { return config->input_width > 0; }
static bool makes_inputs(const model_config *config, int layer) { return inputs(config, layer) && layer == 0; }
static bool scaled(const model_config *config, int layer) { return config->scaled; }
static bool untied(const model_config *config, int layer) { return !config->tied; }

/* Every kind of parameter: what it is, which models have it, its shape, and the size of its separately stored parts (parts that are not
 * listed have equal sizes). Streams are numbered in the order in which the kinds were added. */
static const struct row {
    param_kind kind;
    bool (*exists)(const model_config *, int layer);
    extent rows, cols, part[MODEL_MAX_PARTS];
} table[PARAM_ROLES] = {
    [PARAM_TOKENS] = {{"tokens", BLOCK_EMBEDDING, USE_VOCABULARY, 0, false}, always, VOCABULARY, HIDDEN, {0}},
    [PARAM_POSITIONS] = {{"positions", BLOCK_EMBEDDING, USE_POSITIONS, 1, false}, learned_positions, POSITIONS, HIDDEN, {0}},
    [PARAM_LAYER_TOKENS] = {{"layer_tokens", BLOCK_EMBEDDING, USE_VOCABULARY, 81, false}, inputs, VOCABULARY, INPUTS, {0}},
    [PARAM_INPUTS] = {{"inputs", BLOCK_LAYER, USE_MATRIX, 82, false}, makes_inputs, INPUTS, HIDDEN, {0}},
    [PARAM_INPUTS_NORM] = {{"inputs_norm", BLOCK_LAYER, USE_NORM, 83, false}, makes_inputs, ONE, INPUT, {0}},
    [PARAM_NORM1] = {{"norm1", BLOCK_LAYER, USE_NORM, 2, false}, pre_norm, ONE, HIDDEN, {0}},
    [PARAM_NORM1_BIAS] = {{"norm1_bias", BLOCK_LAYER, USE_NORM_BIAS, 3, false}, pre_norm_bias, ONE, HIDDEN, {0}},
    [PARAM_QKV] = {{"qkv", BLOCK_LAYER, USE_MATRIX, 4, false}, attention, QKV, HIDDEN, {QKV_FIRST, QKV_SECOND, KV}},
    [PARAM_QKV_BIAS] = {{"qkv_bias", BLOCK_LAYER, USE_BIAS, 5, false}, qkv_bias, ONE, QKV, {QKV_FIRST, QKV_SECOND, KV}},
    [PARAM_Q_LATENT_NORM] = {{"q_latent_norm", BLOCK_LAYER, USE_NORM, 96, false}, q_latent, ONE, Q_LATENT, {0}},
    [PARAM_Q_EXPAND] = {{"q_expand", BLOCK_LAYER, USE_MATRIX, 97, false}, q_latent, Q, Q_LATENT, {0}},
    [PARAM_KV_LATENT_NORM] = {{"kv_latent_norm", BLOCK_LAYER, USE_NORM, 98, false}, kv_latent, ONE, KV_LATENT, {0}},
    [PARAM_KV_EXPAND] = {{"kv_expand", BLOCK_LAYER, USE_MATRIX, 99, false}, kv_latent, KV_EXPAND, KV_LATENT, {0}},
    [PARAM_QNORM] = {{"q_norm", BLOCK_LAYER, USE_NORM, 6, false}, qk_norm, ONE, QNORM, {0}},
    [PARAM_KNORM] = {{"k_norm", BLOCK_LAYER, USE_NORM, 7, false}, k_norm, ONE, KNORM, {0}},
    [PARAM_SINKS] = {{"sinks", BLOCK_LAYER, USE_SINK, 63, false}, sinks, ONE, HEADS, {0}},
    [PARAM_OUT] = {{"out", BLOCK_LAYER, USE_MATRIX, 8, true}, attention, HIDDEN, VALUES, {0}},
    [PARAM_OUT_BIAS] = {{"out_bias", BLOCK_LAYER, USE_BIAS, 9, false}, out_bias, ONE, HIDDEN, {0}},
    [PARAM_MIX_IN] = {{"mix_in", BLOCK_LAYER, USE_MATRIX, 39, false}, mixer, MIX_IN, HIDDEN, {0}},
    [PARAM_MIX_IN_BIAS] = {{"mix_in_bias", BLOCK_LAYER, USE_BIAS, 40, false}, mix_bias, ONE, MIX_IN, {0}},
    [PARAM_CONV] = {{"conv", BLOCK_LAYER, USE_CONV, 41, false}, mixer, CHANNELS, TAPS, {0}},
    [PARAM_CONV_BIAS] = {{"conv_bias", BLOCK_LAYER, USE_MIXER, 42, false}, conv_bias, ONE, CHANNELS, {0}},
    [PARAM_DECAY] = {{"decay", BLOCK_LAYER, USE_MIXER, 43, false}, scans, ONE, VALUE_HEADS, {0}},
    [PARAM_DECAY_BIAS] = {{"decay_bias", BLOCK_LAYER, USE_MIXER, 44, false}, scans, ONE, VALUE_HEADS, {0}},
    [PARAM_SKIP] = {{"skip", BLOCK_LAYER, USE_MIXER, 58, false}, mamba, ONE, VALUE_HEADS, {0}},
    [PARAM_MIX_NORM] = {{"mix_norm", BLOCK_LAYER, USE_NORM, 45, false}, mix_norm, ONE, MIX_NORM, {0}},
    [PARAM_MIX_OUT] = {{"mix_out", BLOCK_LAYER, USE_MATRIX, 46, true}, mixer, HIDDEN, MIX_VALUES, {0}},
    [PARAM_MIX_OUT_BIAS] = {{"mix_out_bias", BLOCK_LAYER, USE_BIAS, 47, false}, mix_bias, ONE, HIDDEN, {0}},
    [PARAM_POST_NORM1] = {{"post_norm1", BLOCK_LAYER, USE_NORM, 19, false}, post_norm, ONE, HIDDEN, {0}},
    [PARAM_NORM2] = {{"norm2", BLOCK_LAYER, USE_NORM, 10, false}, second_norm, ONE, HIDDEN, {0}},
    [PARAM_NORM2_BIAS] = {{"norm2_bias", BLOCK_LAYER, USE_NORM_BIAS, 11, false}, second_norm_bias, ONE, HIDDEN, {0}},
    [PARAM_UP] = {{"up", BLOCK_LAYER, USE_MATRIX, 12, false}, mlp, UP, HIDDEN, {0}},
    [PARAM_UP_BIAS] = {{"up_bias", BLOCK_LAYER, USE_BIAS, 13, false}, mlp_bias, ONE, UP, {0}},
    [PARAM_DOWN] = {{"down", BLOCK_LAYER, USE_MATRIX, 14, true}, mlp, HIDDEN, FFN, {0}},
    [PARAM_DOWN_BIAS] = {{"down_bias", BLOCK_LAYER, USE_BIAS, 15, false}, mlp_bias, ONE, HIDDEN, {0}},
    [PARAM_SHARED_GATE] = {{"shared_gate", BLOCK_LAYER, USE_ROUTER, 59, false}, shared_gate, ONE, HIDDEN, {0}},
    [PARAM_SHARED_UP] = {{"shared_up", BLOCK_LAYER, USE_EXPERTS, 60, false}, shared_gate, UP, HIDDEN, {0}},
    [PARAM_SHARED_DOWN] = {{"shared_down", BLOCK_LAYER, USE_EXPERTS, 61, true}, shared_gate, HIDDEN, FFN, {0}},
    [PARAM_ROUTER] = {{"router", BLOCK_LAYER, USE_ROUTER, 36, false}, sparse, EXPERTS, HIDDEN, {0}},
    [PARAM_ROUTER_BIAS] = {{"router_bias", BLOCK_LAYER, USE_BIAS, 64, false}, router_bias, ONE, EXPERTS, {0}},
    [PARAM_CORRECTION] = {{"correction", BLOCK_LAYER, USE_CORRECTION, 62, false}, corrected, ONE, EXPERTS, {0}},
    [PARAM_ROUTER_NORM] = {{"router_norm", BLOCK_LAYER, USE_NORM, 67, false}, beside, ONE, HIDDEN, {0}},
    [PARAM_EXPERT_SCALE] = {{"expert_scale", BLOCK_LAYER, USE_NORM, 68, false}, beside, ONE, EXPERTS, {0}},
    [PARAM_NORM3] = {{"norm3", BLOCK_LAYER, USE_NORM, 69, false}, beside, ONE, HIDDEN, {0}},
    [PARAM_EXPERTS_IN] = {{"experts_in", BLOCK_LAYER, USE_MATRIX, 106, false}, latent_experts, EXPERT_WIDTH, HIDDEN, {0}},
    [PARAM_EXPERTS_IN_BIAS] = {{"experts_in_bias", BLOCK_LAYER, USE_BIAS, 107, false}, latent_bias, ONE, EXPERT_WIDTH, {0}},
    [PARAM_EXPERTS_UP] = {{"experts_up", BLOCK_LAYER, USE_EXPERTS, 37, false}, sparse, EXPERTS_UP, EXPERT_WIDTH, {0}},
    [PARAM_EXPERTS_UP_BIAS] = {{"experts_up_bias", BLOCK_LAYER, USE_BIAS, 65, false}, expert_bias, ONE, EXPERTS_UP, {0}},
    [PARAM_EXPERTS_DOWN] = {{"experts_down", BLOCK_LAYER, USE_EXPERTS, 38, true}, sparse, EXPERTS_DOWN, EXPERT_FFN, {0}},
    [PARAM_EXPERTS_DOWN_BIAS] = {{"experts_down_bias", BLOCK_LAYER, USE_BIAS, 66, false}, expert_bias, ONE, EXPERTS_DOWN, {0}},
    [PARAM_EXPERTS_OUT] = {{"experts_out", BLOCK_LAYER, USE_MATRIX, 108, true}, latent_experts, HIDDEN, EXPERT_WIDTH, {0}},
    [PARAM_EXPERTS_OUT_BIAS] = {{"experts_out_bias", BLOCK_LAYER, USE_BIAS, 109, false}, latent_bias, ONE, HIDDEN, {0}},
    [PARAM_POST_MLP] = {{"post_mlp", BLOCK_LAYER, USE_NORM, 70, false}, beside, ONE, HIDDEN, {0}},
    [PARAM_POST_EXPERTS] = {{"post_experts", BLOCK_LAYER, USE_NORM, 71, false}, beside, ONE, HIDDEN, {0}},
    [PARAM_POST_NORM2] = {{"post_norm2", BLOCK_LAYER, USE_NORM, 20, false}, post_norm, ONE, HIDDEN, {0}},
    [PARAM_INPUT_GATE] = {{"input_gate", BLOCK_LAYER, USE_MATRIX, 84, false}, inputs, INPUT, HIDDEN, {0}},
    [PARAM_INPUT_OUT] = {{"input_out", BLOCK_LAYER, USE_MATRIX, 85, true}, inputs, HIDDEN, INPUT, {0}},
    [PARAM_INPUT_NORM] = {{"input_norm", BLOCK_LAYER, USE_NORM, 86, false}, inputs, ONE, HIDDEN, {0}},
    [PARAM_SCALE] = {{"scale", BLOCK_LAYER, USE_CONSTANT, 57, false}, scaled, ONE, ONE, {0}},
    [PARAM_NORMF] = {{"final_norm", BLOCK_HEAD, USE_NORM, 16, false}, always, ONE, HIDDEN, {0}},
    [PARAM_NORMF_BIAS] = {{"final_norm_bias", BLOCK_HEAD, USE_NORM_BIAS, 17, false}, final_norm_bias, ONE, HIDDEN, {0}},
    [PARAM_HEAD] = {{"head", BLOCK_HEAD, USE_VOCABULARY, 18, false}, untied, OUTPUTS, HIDDEN, {0}},
    /* Their shapes follow from ranks: adapter.c. */
    [PARAM_QKV_A] = {{"qkv_a", BLOCK_LAYER, USE_ADAPTER_A, 21, false}, never, ONE, ONE, {0}},
    [PARAM_QKV_B] = {{"qkv_b", BLOCK_LAYER, USE_ADAPTER_B, 22, false}, never, ONE, ONE, {0}},
    [PARAM_QKV_B2] = {{"qkv_b2", BLOCK_LAYER, USE_ADAPTER_B, 23, false}, never, ONE, ONE, {0}},
    [PARAM_QKV_B3] = {{"qkv_b3", BLOCK_LAYER, USE_ADAPTER_B, 24, false}, never, ONE, ONE, {0}},
    [PARAM_QKV_MAGNITUDE] = {{"qkv_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 25, false}, never, ONE, ONE, {0}},
    [PARAM_OUT_A] = {{"out_a", BLOCK_LAYER, USE_ADAPTER_A, 26, false}, never, ONE, ONE, {0}},
    [PARAM_OUT_B] = {{"out_b", BLOCK_LAYER, USE_ADAPTER_B, 27, false}, never, ONE, ONE, {0}},
    [PARAM_OUT_MAGNITUDE] = {{"out_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 28, false}, never, ONE, ONE, {0}},
    [PARAM_UP_A] = {{"up_a", BLOCK_LAYER, USE_ADAPTER_A, 29, false}, never, ONE, ONE, {0}},
    [PARAM_UP_B] = {{"up_b", BLOCK_LAYER, USE_ADAPTER_B, 30, false}, never, ONE, ONE, {0}},
    [PARAM_UP_B2] = {{"up_b2", BLOCK_LAYER, USE_ADAPTER_B, 31, false}, never, ONE, ONE, {0}},
    [PARAM_UP_MAGNITUDE] = {{"up_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 32, false}, never, ONE, ONE, {0}},
    [PARAM_DOWN_A] = {{"down_a", BLOCK_LAYER, USE_ADAPTER_A, 33, false}, never, ONE, ONE, {0}},
    [PARAM_DOWN_B] = {{"down_b", BLOCK_LAYER, USE_ADAPTER_B, 34, false}, never, ONE, ONE, {0}},
    [PARAM_DOWN_MAGNITUDE] = {{"down_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 35, false}, never, ONE, ONE, {0}},
    [PARAM_MIX_IN_A] = {{"mix_in_a", BLOCK_LAYER, USE_ADAPTER_A, 48, false}, never, ONE, ONE, {0}},
    [PARAM_MIX_IN_B] = {{"mix_in_b", BLOCK_LAYER, USE_ADAPTER_B, 49, false}, never, ONE, ONE, {0}},
    [PARAM_MIX_IN_B2] = {{"mix_in_b2", BLOCK_LAYER, USE_ADAPTER_B, 50, false}, never, ONE, ONE, {0}},
    [PARAM_MIX_IN_B3] = {{"mix_in_b3", BLOCK_LAYER, USE_ADAPTER_B, 51, false}, never, ONE, ONE, {0}},
    [PARAM_MIX_IN_B4] = {{"mix_in_b4", BLOCK_LAYER, USE_ADAPTER_B, 52, false}, never, ONE, ONE, {0}},
    [PARAM_MIX_IN_MAGNITUDE] = {{"mix_in_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 53, false}, never, ONE, ONE, {0}},
    [PARAM_MIX_OUT_A] = {{"mix_out_a", BLOCK_LAYER, USE_ADAPTER_A, 54, false}, never, ONE, ONE, {0}},
    [PARAM_MIX_OUT_B] = {{"mix_out_b", BLOCK_LAYER, USE_ADAPTER_B, 55, false}, never, ONE, ONE, {0}},
    [PARAM_MIX_OUT_MAGNITUDE] = {{"mix_out_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 56, false}, never, ONE, ONE, {0}},
    [PARAM_INPUTS_A] = {{"inputs_a", BLOCK_LAYER, USE_ADAPTER_A, 87, false}, never, ONE, ONE, {0}},
    [PARAM_INPUTS_B] = {{"inputs_b", BLOCK_LAYER, USE_ADAPTER_B, 88, false}, never, ONE, ONE, {0}},
    [PARAM_INPUTS_MAGNITUDE] = {{"inputs_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 89, false}, never, ONE, ONE, {0}},
    [PARAM_INPUT_GATE_A] = {{"input_gate_a", BLOCK_LAYER, USE_ADAPTER_A, 90, false}, never, ONE, ONE, {0}},
    [PARAM_INPUT_GATE_B] = {{"input_gate_b", BLOCK_LAYER, USE_ADAPTER_B, 91, false}, never, ONE, ONE, {0}},
    [PARAM_INPUT_GATE_MAGNITUDE] = {{"input_gate_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 92, false}, never, ONE, ONE, {0}},
    [PARAM_INPUT_OUT_A] = {{"input_out_a", BLOCK_LAYER, USE_ADAPTER_A, 93, false}, never, ONE, ONE, {0}},
    [PARAM_INPUT_OUT_B] = {{"input_out_b", BLOCK_LAYER, USE_ADAPTER_B, 94, false}, never, ONE, ONE, {0}},
    [PARAM_INPUT_OUT_MAGNITUDE] = {{"input_out_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 95, false}, never, ONE, ONE, {0}},
    [PARAM_Q_EXPAND_A] = {{"q_expand_a", BLOCK_LAYER, USE_ADAPTER_A, 100, false}, never, ONE, ONE, {0}},
    [PARAM_Q_EXPAND_B] = {{"q_expand_b", BLOCK_LAYER, USE_ADAPTER_B, 101, false}, never, ONE, ONE, {0}},
    [PARAM_Q_EXPAND_MAGNITUDE] = {{"q_expand_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 102, false}, never, ONE, ONE, {0}},
    [PARAM_KV_EXPAND_A] = {{"kv_expand_a", BLOCK_LAYER, USE_ADAPTER_A, 103, false}, never, ONE, ONE, {0}},
    [PARAM_KV_EXPAND_B] = {{"kv_expand_b", BLOCK_LAYER, USE_ADAPTER_B, 104, false}, never, ONE, ONE, {0}},
    [PARAM_KV_EXPAND_MAGNITUDE] = {{"kv_expand_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 105, false}, never, ONE, ONE, {0}},
    [PARAM_EXPERTS_IN_A] = {{"experts_in_a", BLOCK_LAYER, USE_ADAPTER_A, 110, false}, never, ONE, ONE, {0}},
    [PARAM_EXPERTS_IN_B] = {{"experts_in_b", BLOCK_LAYER, USE_ADAPTER_B, 111, false}, never, ONE, ONE, {0}},
    [PARAM_EXPERTS_IN_MAGNITUDE] = {{"experts_in_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 112, false}, never, ONE, ONE, {0}},
    [PARAM_EXPERTS_OUT_A] = {{"experts_out_a", BLOCK_LAYER, USE_ADAPTER_A, 113, false}, never, ONE, ONE, {0}},
    [PARAM_EXPERTS_OUT_B] = {{"experts_out_b", BLOCK_LAYER, USE_ADAPTER_B, 114, false}, never, ONE, ONE, {0}},
    [PARAM_EXPERTS_OUT_MAGNITUDE] = {{"experts_out_magnitude", BLOCK_LAYER, USE_MAGNITUDE, 115, false}, never, ONE, ONE, {0}},
    [PARAM_SHARED_UP_A] = {{"shared_up_a", BLOCK_LAYER, USE_ADAPTER_A, 72, false}, never, ONE, ONE, {0}},
    [PARAM_SHARED_UP_B] = {{"shared_up_b", BLOCK_LAYER, USE_ADAPTER_B, 73, false}, never, ONE, ONE, {0}},
    [PARAM_SHARED_UP_B2] = {{"shared_up_b2", BLOCK_LAYER, USE_ADAPTER_B, 74, false}, never, ONE, ONE, {0}},
    [PARAM_SHARED_DOWN_A] = {{"shared_down_a", BLOCK_LAYER, USE_ADAPTER_A, 75, false}, never, ONE, ONE, {0}},
    [PARAM_SHARED_DOWN_B] = {{"shared_down_b", BLOCK_LAYER, USE_ADAPTER_B, 76, false}, never, ONE, ONE, {0}},
    [PARAM_EXPERTS_UP_A] = {{"experts_up_a", BLOCK_LAYER, USE_ADAPTER_A, 77, false}, never, ONE, ONE, {0}},
    [PARAM_EXPERTS_UP_B] = {{"experts_up_b", BLOCK_LAYER, USE_ADAPTER_B, 78, false}, never, ONE, ONE, {0}},
    [PARAM_EXPERTS_DOWN_A] = {{"experts_down_a", BLOCK_LAYER, USE_ADAPTER_A, 79, false}, never, ONE, ONE, {0}},
    [PARAM_EXPERTS_DOWN_B] = {{"experts_down_b", BLOCK_LAYER, USE_ADAPTER_B, 80, false}, never, ONE, ONE, {0}},
};

const param_kind *param_kind_of(param_role role) { return &table[role].kind; }

/* ---- parameters ---- */

static bool is_vector(const param_kind *k)
{
    switch (k->use) {
    case USE_BIAS: case USE_NORM: case USE_NORM_BIAS: case USE_MIXER: case USE_CONSTANT: case USE_CORRECTION: case USE_SINK: return true;
    default: return false;
    }
}

/* The size of part `i` along the outputs: rows of a matrix, elements of a vector. */
static int64_t part_extent(const model_config *config, int layer, param_role role, int i, int parts, int64_t whole)
{
    const mix_columns mix = role == PARAM_MIX_IN ? model_mix_columns(config, layer) : (mix_columns){0};
    if (parts == 1)
        return whole;
    if (role == PARAM_MIX_IN && parts == 2) /* the channels and gates of each key head together, its steps and decays together */
        return i ? mix.all - mix.step : mix.step;
    if (role == PARAM_MIX_IN)
        return i == 0 ? mix.channels : i == 1 ? mix.step - mix.gate : i == 2 ? mix.decay - mix.step : mix.all - mix.decay;
    return table[role].part[0] ? extent_of(config, layer, table[role].part[i]) : whole / parts;
}

/* Rows that Hugging Face stores head by head. */
static void set_heads(param_part *part, const model_config *config, const architecture *arch, int layer, param_role role, int i, int parts)
{
    const bool qkv = role == PARAM_QKV || role == PARAM_QKV_BIAS;
    const int64_t each = config->scan_key_heads ? config->scan_heads / config->scan_key_heads : 0, d = model_heads(config, layer).dim;
    if (qkv && arch->interleaved)
        *part = (param_part){.heads = config->heads, .segment = {d, d, d}};
    else if (qkv && config->output_gate && i == 1)
        *part = (param_part){.heads = config->heads, .segment = {d, d}};
    else if (role == PARAM_MIX_IN && parts == 2 && i == 0)
        *part = (param_part){.heads = config->scan_key_heads,
                             .segment = {config->scan_key_dim, config->scan_key_dim, each * config->scan_dim, each * config->scan_dim}};
    else if (role == PARAM_MIX_IN && parts == 2)
        *part = (param_part){.heads = config->scan_key_heads, .segment = {each, each}};
}

/* The number of Hugging Face tensors of a parameter. Names with `#` are repeated for each expert. */
static int count_parts(const model_config *config, const char *const *names, int layer, param_role role, int *names_n)
{
    *names_n = 0;
    while (*names_n < MODEL_MAX_PARTS && names[*names_n])
        ++*names_n;
    const bool qkv = role == PARAM_QKV || role == PARAM_QKV_BIAS;
    if (qkv && model_reads_kv(config, layer))
        *names_n = 1;
    else if (qkv && config->kv_latent)
        *names_n = 2;
    else if (qkv && model_heads(config, layer).made < model_qkv_columns(config, layer).all)
        *names_n = 2; /* values are made by k_proj, too */
    return *names_n * (names[0] && strchr(names[0], '#') ? (int)config->experts : 1);
}

/* Experts whose name has no number are in one tensor. */
static int64_t stacked(const model_config *config, const architecture *arch, param_role role, const char *name)
{
    if (role == PARAM_CORRECTION)
        return arch->correction_is_row;
    const bool of_experts = role >= PARAM_EXPERTS_UP && role <= PARAM_EXPERTS_DOWN_BIAS;
    return of_experts && !strchr(name, '#') ? config->experts : 0;
}

static void param_init(param *p, const model_config *config, const architecture *arch, int block, int layer,
                       param_role role, param_part *parts)
{
    const param_kind *kind = param_kind_of(role);
    const bool vector = is_vector(kind);
    const char *const *names = architecture_names(arch, config, role, layer);
    int names_n;
    *p = (param){.role = role,
                 .kind = kind,
                 .block = block,
                 .rows = extent_of(config, layer, table[role].rows),
                 .cols = extent_of(config, layer, table[role].cols),
                 .decay = !vector,
                 .trainable = kind->use != USE_CORRECTION,
                 .part = parts};
    p->parts = count_parts(config, names, layer, role, &names_n);
    int64_t at = 0;
    for (int i = 0; i < p->parts; i++) {
        param_part *part = &p->part[i];
        set_heads(part, config, arch, layer, role, i, p->parts);
        const char *name = role == PARAM_HEAD && config->labels ? SCORE_NAME : names[i % names_n];
        architecture_name(part->name, role == PARAM_HEAD ? "" : arch->prefix, name, layer, i / names_n);
        part->vector = vector;
        part->stacked = stacked(config, arch, role, names[i % names_n]);
        part->transposed = (kind->use == USE_MATRIX && arch->transposed) || (kind->use == USE_EXPERTS && arch->experts_transposed);
        part->paired = role == PARAM_EXPERTS_UP && config->gated && part->stacked && !part->transposed;
        part->middle = kind->use == USE_CONV;
        part->row0 = at;
        part->rows = part_extent(config, layer, role, i, p->parts, vector ? p->cols : p->rows);
        at += part->rows;
    }
}

static bool has_param(const model *m, int block, param_role role)
{
    const block_kind kind = block == 0 ? BLOCK_EMBEDDING : block == m->blocks_n - 1 ? BLOCK_HEAD : BLOCK_LAYER;
    return table[role].kind.block == kind && table[role].exists(&m->config, kind == BLOCK_LAYER ? block - 1 : -1);
}

static void block_init(model *m, const architecture *arch, int index, int *parts_n)
{
    block *b = &m->blocks[index];
    b->kind = index == 0 ? BLOCK_EMBEDDING : index == m->blocks_n - 1 ? BLOCK_HEAD : BLOCK_LAYER;
    b->layer = b->kind == BLOCK_LAYER ? index - 1 : -1;
    for (param_role role = 0; role < PARAM_ROLES; role++) {
        b->param_of_role[role] = -1;
        if (!has_param(m, index, role))
            continue;
        param *p = &m->params[b->param_of_role[role] = m->params_n++];
        param_init(p, &m->config, arch, index, b->layer, role, m->parts + *parts_n);
        *parts_n += p->parts;
    }
    if (b->kind == BLOCK_HEAD && m->config.tied)
        b->param_of_role[PARAM_TOKENS] = m->blocks[0].param_of_role[PARAM_TOKENS];
}

static double values_of(const model_config *config, int layer, param_role role)
{
    return (double)extent_of(config, layer, table[role].rows) * (double)extent_of(config, layer, table[role].cols);
}

int params_build(model *m, const architecture *arch, const char *where, pt_error *e)
{
    double total = 0;
    size_t parts = 0;
    int names_n, placed = 0;
    m->blocks_n = (int)m->config.layers + 2;
    for (int block = 0; block < m->blocks_n; block++)
        for (param_role role = 0; role < PARAM_ROLES; role++)
            if (has_param(m, block, role)) {
                const int layer = block < m->blocks_n - 1 ? block - 1 : -1;
                total += values_of(&m->config, layer, role);
                parts += (size_t)count_parts(&m->config, architecture_names(arch, &m->config, role, layer), layer, role, &names_n);
            }
    if (total > MAX_PARAMETERS)
        return pt_fail(e, PT_FAILED,
                       "%s: the sizes make a model of %g parameters, and at most %g are taken; correct them",
                       where, total, MAX_PARAMETERS);
    m->blocks = calloc((size_t)m->blocks_n, sizeof *m->blocks);
    m->params = calloc((size_t)m->blocks_n * PARAM_ROLES, sizeof *m->params);
    m->parts = calloc(parts, sizeof *m->parts);
    if (!m->blocks || !m->params || !m->parts)
        return pt_fail(e, PT_FAILED, "%s: no memory for the description of %d blocks", where, m->blocks_n);
    for (int i = 0; i < m->blocks_n; i++)
        block_init(m, arch, i, &placed);
    m->parameters = (int64_t)total;
    return 0;
}

void model_close(model *m)
{
    if (!m)
        return;
    adapters_free(m->adapters);
    free(m->blocks);
    free(m->params);
    free(m->parts);
    free(m);
}

double model_average_keys(int64_t window, int64_t seq_len)
{
    const double t = (double)seq_len, w = window && window < seq_len ? (double)window : t;
    return (w * (w + 1) / 2 + (t - w) * w) / t;
}

/* The values of a parameter that a token is multiplied with. */
static double multiplied(const model_config *config, const param *p)
{
    const double values = (double)p->rows * (double)p->cols;
    switch (p->kind->use) {
    case USE_MATRIX: case USE_ROUTER: return values;
    case USE_ADAPTER_A: case USE_ADAPTER_B:
        return p->role < PARAM_EXPERTS_UP_A ? values : values * (double)config->experts_used / (double)config->experts;
    case USE_EXPERTS: return p->role < PARAM_ROUTER ? values : values * (double)config->experts_used / (double)config->experts;
    default: return 0;
    }
}

double model_flops_per_token(const model *m, int64_t seq_len)
{
    const model_config *config = &m->config;
    const int first = model_first_trained(m), head = m->blocks_n - 1;
    double flops = 0;
    for (int i = 0; i < m->params_n; i++) { /* forward, and backward for its gradient and its input's */
        const param *p = &m->params[i];
        const bool back = p->block >= first;
        flops += 2.0 * (1 + back + p->trainable) * multiplied(config, p);
    }
    for (int i = 0; i < config->layers; i++) /* a state: 3 products of a key with values, and twice that in backward */
        if (model_scans(config, i))
            flops += (i + 1 >= first ? 18.0 : 6.0) * (double)(config->scan_heads * config->scan_key_dim * config->scan_dim);
    for (int i = 0; i < config->layers; i++) /* scores and values, 2 each in forward and twice that in backward */
        if (model_attends(config, i))
            flops += (i + 1 >= first ? 6.0 : 2.0) * (double)(model_heads(config, i).q_wide + model_value_columns(config, i)) *
                     model_average_keys(config->window[i], seq_len);
    const param *table = block_param(m, &m->blocks[head], config->tied ? PARAM_TOKENS : PARAM_HEAD);
    return flops + 2.0 * (1 + head_gives_rows(m) + table->trainable) * (double)model_outputs(config) * (double)config->hidden;
}

double model_head_flops(const model *m, int64_t rows)
{
    return 2 * (double)rows * (double)model_outputs(&m->config) * (double)m->config.hidden;
}
