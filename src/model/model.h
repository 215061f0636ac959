/* model.h - describes what is trained: blocks in execution order, their parameters, and the sizes that everything else is planned
 * from. It has no weights and uses no device.
 *
 *   block 0            embedding                ids -> x (rows, C)
 *   block 1 .. L       decoder layers           x -> x
 *   block L+1          head                     final norm, logits, loss
 *
 * A parameter is one tensor (rows, cols), row-major, with rows = outputs, for y = x . W^T. It consists of one or more Hugging Face tensors
 * ("parts") stacked by rows: q, k and v are one parameter, and so are gate and up, so that each is one matmul. The experts of a layer are
 * one parameter, expert after expert, and in files one tensor or some for each. A part that Hugging Face
 * stores as (inputs, outputs), as in GPT-2's Conv1D, is transposed when it is read and written. A tied head has no parameter: the head
 * block reads the embedding's. A layer's matrices may have adapters (adapter.h).
 */
#ifndef PT_MODEL_H
#define PT_MODEL_H

#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "device/device.h" /* norm_kind, activation_kind */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MODEL_MAX_LAYERS = 512,
    MODEL_MAX_PARTS = 4, /* of a parameter; of a layer's experts, for each */
    MODEL_NAME = 96,
    MODEL_MAX_LABELS = 4096,
    /* Of a layer's linear stages: qkv, out, up, down; in and out of a mixer that is not attention; those that make layers' inputs, their
     * gate, and its output; those that make queries, and keys and values, of latents; before and after the experts. */
    MODEL_LINEAR_MATRICES = 13,
    MODEL_MATRICES = 17       /* and after them up and down of the shared expert with a gate, and of the experts */
};

typedef enum position_kind { POSITION_LEARNED, POSITION_ROTARY } position_kind;
typedef enum qk_norm_kind {
    QK_NORM_NONE,
    QK_NORM_HEAD, /* each head separately, all with the same weights */
    QK_NORM_WIDE  /* all heads of a row together */
} qk_norm_kind;
typedef enum mixer_kind { /* what mixes the tokens of a sequence in a layer */
    MIXER_ATTENTION,
    MIXER_DELTA, /* a short convolution and the gated delta rule (Yang et al., "Gated Delta Networks", 2024) */
    MIXER_MAMBA, /* a short convolution and Mamba-2's scan (Dao and Gu, "Transformers are SSMs", 2024) */
    MIXER_CONV,  /* a short convolution between two gates */
    MIXER_NONE   /* the layer is an MLP alone, or experts */
} mixer_kind;
typedef enum rope_kind { ROPE_PLAIN, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG, ROPE_PARTIAL } rope_kind;

enum { MODEL_MAX_ROPES = 2, MODEL_MAX_ROPE_PAIRS = 256 };

/* One kind of rotary position embedding (rope.c has the formulas). */
typedef struct rope_config {
    rope_kind kind;
    int64_t rotated;                         /* number of first elements of a head that are rotated; even */
    double theta, factor, original_positions;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    bool truncate;
    double attention_factor;                  /* factor of cos and sin; yarn, longrope */
    double scaling_beta;                      /* growth of queries with the position; 0: none */
    int64_t turning;                         /* partial: of all pairs, the first that turn */
    double short_factor[MODEL_MAX_ROPE_PAIRS], long_factor[MODEL_MAX_ROPE_PAIRS]; /* longrope */
} rope_config;

/* Factors of what matrices make, all 1 but in Falcon H1: of q, k and v, of attention's output, of a mixer's first and last matrix, of an
 * MLP's gate and its last one; and of the columns of a Mamba-2 mixer: gate, v, k, q, decay. */
typedef struct model_factors { float qkv, out, mix_in, mix_out, gate, down, mix[5]; } model_factors;

/* The contents of config.json, with the same names for all architectures. */
typedef struct model_config {
    char model_type[32];       /* as in config.json: "gpt2", "llama", ... */
    bool multimodal;           /* config.json is that of a model of text and images, and this is its text part */
    int64_t vocab, hidden, layers, heads, kv_heads, head_dim, ffn, max_positions;
    norm_kind norm;
    bool norm_bias;
    float norm_eps, norm_offset; /* norm_offset: added to the stored weights of norms: 0, or 1 if these start at 0 */
    activation_kind activation;
    bool gated;                /* an MLP, or an expert, is act(gate) * up */
    position_kind position;
    int64_t position_offset;   /* learned positions: rows of their table before that of position 0 */
    int ropes_n;
    rope_config rope[MODEL_MAX_ROPES];
    bool rope_neighbours;      /* pair i of a head is its elements 2i and 2i + 1, not i and i + rotated / 2 */
    int query_rope;            /* the rope of all layers' queries, if it is not that of their keys; -1: the same */
    signed char layer_rope[MODEL_MAX_LAYERS]; /* -1: the layer has no rope */
    bool pre_norm, post_norm;  /* in a layer's branch: before it; after it, before it is added */
    bool parallel;             /* the MLP reads the same as attention, not attention's result */
    bool one_norm;             /* parallel branches read the same norm */
    bool one_branch;           /* a layer is a mixer, an MLP or experts, with one norm before it */
    qk_norm_kind qk_norm;
    bool qkv_bias, out_bias, mlp_bias, tied;
    float attention_scale;     /* usually 1/sqrt(head_dim) */
    float attention_softcap, logit_softcap; /* c: x becomes c tanh(x / c); 0: none */
    float embedding_scale, residual_scale, logit_scale; /* factors of the embedding's rows, of what a branch adds, of logits; usually 1 */
    float layer_scale[MODEL_MAX_LAYERS]; /* extra factor on the scores (GPT-2's scale_attn_by_inverse_layer_idx), else 1 */
    int64_t full_kv_heads, full_head_dim; /* of layers without a window, where they differ; else 0 */
    /* Latent attention (DeepSeek-AI, "DeepSeek-V2", 2024): keys and values are made of a normed latent, as are queries if they have one;
     * kv_latent 0: it is not. The last shared_dim elements of a head are those that are rotated; their keys are the same in all heads. */
    int64_t q_latent, kv_latent, shared_dim, value_dim;
    bool keys_as_values;       /* in such layers values are made by k_proj, too */
    bool scaled;               /* a layer's output is multiplied by a number that is not trained */
    int64_t kv_shared;         /* so many last layers read the keys and values of an earlier one */
    bool double_wide;          /* and have MLPs twice as wide */
    int64_t input_width;       /* columns of each layer's inputs beside the stream (layer/inputs.c); 0: none */
    bool value_norm;           /* values are divided by their root mean square, as keys before their weight */
    bool output_gate;          /* attention's output is multiplied by the sigmoid of gates, which q_proj makes beside the queries */
    unsigned char mixer[MODEL_MAX_LAYERS]; /* mixer_kind */
    /* Each key head serves as many heads. Of Mamba-2: groups, heads, size of a state, size of a head. */
    int64_t scan_key_heads, scan_heads, scan_key_dim, scan_dim;
    float step_least, step_most; /* limits of Mamba-2's steps */
    bool attends_beside;       /* every layer has attention beside its mixer, which reads the same norm */
    bool mix_norm, mix_norm_first; /* a scan's output has a norm; before its gate, not after */
    model_factors factor;
    int64_t taps;              /* tokens under a short convolution */
    bool conv_bias, mix_bias;  /* of the convolution; of a mixer's first and last matrix */
    int64_t window[MODEL_MAX_LAYERS]; /* number of keys that a token sees in this layer, including its own; 0: all */
    int64_t experts, experts_used, expert_ffn; /* E, k of a token, I of each; 0: the model has no experts */
    int64_t expert_latent;     /* width of what experts read and write, if a matrix before and one after them make it; 0: C */
    route_kind router;         /* how a token's experts are chosen: the fields of op_route */
    bool router_norm, router_correction, router_bias;
    int64_t router_groups, router_groups_used;
    float router_scale, router_eps, router_least;
    bool router_loss;          /* training may balance the use of experts */
    int64_t shared_ffn;        /* width of the MLP that every token has beside its experts; 0: none */
    bool shared_gate;          /* its output is multiplied by a sigmoid of the token */
    bool experts_beside;       /* the experts and that MLP have norms of their own before and after, and the router a third one */
    bool expert_bias;          /* the experts' matrices have biases */
    float expert_alpha, expert_limit; /* of op_grouped_activation; limit 0: experts are as an MLP */
    bool sinks;                /* attention has a sink for each head */
    bool experts_fused;        /* the files have all experts of a layer in one tensor, under the names of `fused` (architectures.h) */
    bool sparse[MODEL_MAX_LAYERS]; /* the layer has experts instead of an MLP */
    double initializer_range;
    int64_t labels;            /* the head scores so many classes of a sequence, by its last token; 0: it predicts tokens */
    int64_t stored_vocab;      /* tokens were added: rows of the tables in the model's files; 0: vocab */
    bool dropout;              /* config asks for dropout > 0, which is not applied */
    char rope_scaling[32];     /* what model_open_changed was given; "": nothing */
    pt_dtype stored_type;      /* torch_dtype / dtype of config.json, PT_F32 if absent */
    int64_t bos, eos;          /* -1: none (or beyond the vocabulary); the first if config.json has a list */
    int64_t padding;           /* row of the embedding that starts at zero and gets no gradient from the input side; -1: none */
} model_config;

/* Rows of the head. */
static inline int64_t model_outputs(const model_config *config) { return config->labels ? config->labels : config->vocab; }

/* Does the layer read the keys and values of an earlier one? */
static inline bool model_reads_kv(const model_config *config, int layer)
{
    return layer >= 0 && layer >= config->layers - config->kv_shared;
}
/* The layer whose keys and values it reads, its own or those of the last layer that makes some and also has a window or none. */
static inline int model_kv_layer(const model_config *config, int layer)
{
    int from = layer;
    while (from > 0 && (model_reads_kv(config, from) || !config->window[from] != !config->window[layer]))
        from--;
    return from;
}
/* Does a later layer read the keys and values that the layer makes? */
static inline bool model_kv_is_read(const model_config *config, int layer)
{
    bool read = false;
    for (int i = layer + 1; i < config->layers; i++)
        read |= model_reads_kv(config, i) && model_kv_layer(config, i) == layer;
    return read;
}
/* Is it the last layer that reads those keys and values? */
static inline bool model_reads_kv_last(const model_config *config, int layer)
{
    bool last = model_reads_kv(config, layer);
    for (int i = layer + 1; i < config->layers; i++)
        last &= !config->window[i] != !config->window[layer];
    return last;
}

/* The heads of a layer's attention. wide: columns of all queries, of all keys. made: columns that the first matrix makes. */
typedef struct attention_heads { int64_t heads, kv_heads, dim, q_wide, kv_wide, made; } attention_heads;
static inline attention_heads model_heads(const model_config *config, int layer)
{
    const bool full = layer >= 0 && !config->window[layer];
    const int64_t kv = full && config->full_kv_heads ? config->full_kv_heads : config->kv_heads;
    const int64_t dim = full && config->full_head_dim ? config->full_head_dim : config->head_dim;
    attention_heads h = {config->heads, kv, dim, config->heads * dim, kv * dim, 0};
    if (config->kv_latent) {
        h.made = (config->q_latent ? config->q_latent : h.q_wide) + config->kv_latent + config->shared_dim;
        return h;
    }
    const int made_kv = model_reads_kv(config, layer) ? 0 : full && config->keys_as_values ? 1 : 2;
    h.made = (config->output_gate ? 2 : 1) * h.q_wide + made_kv * h.kv_wide;
    return h;
}

/* Where q, k, v and the gates begin among the columns of qkv. Without gates the order is q, k, v, otherwise k, q, gates, v. A layer that
 * reads another's keys and values has q alone. */
typedef struct qkv_columns { int64_t q, k, v, gate, all; } qkv_columns;
static inline qkv_columns model_qkv_columns(const model_config *config, int layer)
{
    const attention_heads h = model_heads(config, layer);
    const int64_t q = h.q_wide, kv = h.kv_wide;
    if (model_reads_kv(config, layer))
        return (qkv_columns){0, q, q, -1, q};
    return config->output_gate ? (qkv_columns){kv, 0, kv + 2 * q, kv + q, 2 * (q + kv)} : (qkv_columns){0, q, q + kv, -1, q + 2 * kv};
}

/* The columns of attention's output that its last matrix reads: latent attention computes its values in as many columns as keys have. */
static inline int64_t model_value_columns(const model_config *config, int layer)
{
    return config->kv_latent ? config->heads * config->value_dim : model_heads(config, layer).q_wide;
}

static inline bool model_attends(const model_config *config, int layer)
{
    return config->attends_beside || config->mixer[layer] == MIXER_ATTENTION;
}

/* Where the columns begin that a mixer's first matrix makes: channels of the convolution (and their number), gates of the output, and for
 * each head of a scan a step and a decay, which are one with Mamba-2.
 *
 *   delta rule   q k v | gate | step | decay
 *   Mamba-2      gate | v k q | decay
 *   convolution  before, after | x */
typedef struct mix_columns { int64_t channel, channels, gate, step, decay, all; } mix_columns;
static inline mix_columns model_mix_columns(const model_config *config, int layer)
{
    const int64_t keys = config->scan_key_heads * config->scan_key_dim, values = config->scan_heads * config->scan_dim;
    const int64_t channels = 2 * keys + values, both = channels + values;
    switch (config->mixer[layer]) {
    case MIXER_DELTA: return (mix_columns){0, channels, channels, both, both + config->scan_heads, both + 2 * config->scan_heads};
    case MIXER_MAMBA: return (mix_columns){values, channels, 0, -1, both, both + config->scan_heads};
    default: return (mix_columns){2 * config->hidden, config->hidden, -1, -1, -1, 3 * config->hidden};
    }
}
static inline bool model_scans(const model_config *config, int layer)
{
    return config->mixer[layer] == MIXER_DELTA || config->mixer[layer] == MIXER_MAMBA;
}
/* The columns that the mixer's last matrix reads. */
static inline int64_t model_mix_values(const model_config *config, int layer)
{
    return model_scans(config, layer) ? config->scan_heads * config->scan_dim : config->hidden;
}
/* The columns that are normed together behind a scan: those of a head, or of a group of heads. */
static inline int64_t model_mix_norm(const model_config *config, int layer)
{
    return config->mixer[layer] == MIXER_DELTA ? config->scan_dim : model_mix_values(config, layer) / config->scan_key_heads;
}

typedef enum block_kind { BLOCK_EMBEDDING, BLOCK_LAYER, BLOCK_HEAD } block_kind;

typedef enum param_role {
    PARAM_TOKENS,       /* (V, C) embedding, also the head if tied */
    PARAM_POSITIONS,    /* (max_positions, C) learned positions */
    PARAM_LAYER_TOKENS, /* (V, L W): looked up for the inputs of all layers */
    PARAM_INPUTS, PARAM_INPUTS_NORM,  /* (L W, C), (1, W), of the first layer: what it adds to them */
    PARAM_NORM1, PARAM_NORM1_BIAS,
    PARAM_QKV, PARAM_QKV_BIAS,        /* ((H + 2 Hkv) D, C); with an output gate ((2 H + 2 Hkv) D, C) (model_qkv_columns) */
    /* Of latent attention; its PARAM_QKV makes the latents of queries (or the queries) and of keys and values, and the shared keys. */
    PARAM_Q_LATENT_NORM, PARAM_Q_EXPAND,   /* (1, latent), (H D, latent) */
    PARAM_KV_LATENT_NORM, PARAM_KV_EXPAND, /* (1, latent), (H (D - shared + value), latent) */
    PARAM_QNORM, PARAM_KNORM,         /* (1, D), or (1, H D) and (1, Hkv D) */
    PARAM_SINKS,                      /* (1, H) */
    PARAM_OUT, PARAM_OUT_BIAS,        /* (C, H D); of latent attention (C, H value) */
    PARAM_MIX_IN, PARAM_MIX_IN_BIAS,  /* of another mixer, instead of qkv and out: model_mix_columns */
    PARAM_CONV, PARAM_CONV_BIAS,      /* (channels, taps) */
    PARAM_DECAY, PARAM_DECAY_BIAS,    /* (1, heads): logarithm of the rate, bias of the step */
    PARAM_SKIP,                       /* (1, heads): what Mamba-2 adds of its input */
    PARAM_MIX_NORM,                   /* (1, scan_dim); of Mamba-2 all values together */
    PARAM_MIX_OUT, PARAM_MIX_OUT_BIAS, /* (C, values) */
    PARAM_POST_NORM1,
    PARAM_NORM2, PARAM_NORM2_BIAS,
    PARAM_UP, PARAM_UP_BIAS,          /* (F, C), gated: (2F, C) = [gate; up]; in a layer with experts of the shared expert */
    PARAM_DOWN, PARAM_DOWN_BIAS,      /* (C, F) */
    PARAM_SHARED_GATE,                /* (1, C), of a shared expert with a gate, which has matrices of its own: */
    PARAM_SHARED_UP, PARAM_SHARED_DOWN, /* as those of one expert */
    PARAM_ROUTER, PARAM_ROUTER_BIAS,  /* (E, C) */
    PARAM_CORRECTION,                 /* (1, E), added to the choice of experts */
    PARAM_ROUTER_NORM, PARAM_EXPERT_SCALE, /* of the router's input; (1, E), factors of the experts' weights */
    PARAM_NORM3,                      /* before experts beside an MLP */
    PARAM_EXPERTS_IN, PARAM_EXPERTS_IN_BIAS, /* (latent, C): makes what experts with a latent read, whose matrices have latent for C */
    /* (E 2I, C), of each expert [gate; up]; with a limit, rows of gate and up in turn; without a gate (E I, C) */
    PARAM_EXPERTS_UP, PARAM_EXPERTS_UP_BIAS,
    PARAM_EXPERTS_DOWN, PARAM_EXPERTS_DOWN_BIAS, /* (E C, I) */
    PARAM_EXPERTS_OUT, PARAM_EXPERTS_OUT_BIAS, /* (C, latent), of the sum of a token's experts */
    PARAM_POST_MLP, PARAM_POST_EXPERTS, /* of an MLP and experts side by side, before their sum */
    PARAM_POST_NORM2,
    PARAM_INPUT_GATE, PARAM_INPUT_OUT, PARAM_INPUT_NORM, /* (W, C), (C, W), (1, C): of the branch that reads a layer's inputs */
    PARAM_SCALE,                      /* (1, 1): of the layer's output */
    PARAM_NORMF, PARAM_NORMF_BIAS,    /* final norm, in the head block */
    PARAM_HEAD,                       /* (V, C), untied only; of classes (labels, C) */
    /* Adapters of the layer's matrices: A of all modules of a matrix, stacked by rows (sum of ranks, inputs); B of each of them (rows of
     * the module, its rank); their magnitudes, concatenated. */
    PARAM_QKV_A, PARAM_QKV_B, PARAM_QKV_B2, PARAM_QKV_B3, PARAM_QKV_MAGNITUDE,
    PARAM_OUT_A, PARAM_OUT_B, PARAM_OUT_MAGNITUDE,
    PARAM_UP_A, PARAM_UP_B, PARAM_UP_B2, PARAM_UP_MAGNITUDE,
    PARAM_DOWN_A, PARAM_DOWN_B, PARAM_DOWN_MAGNITUDE,
    PARAM_MIX_IN_A, PARAM_MIX_IN_B, PARAM_MIX_IN_B2, PARAM_MIX_IN_B3, PARAM_MIX_IN_B4, PARAM_MIX_IN_MAGNITUDE,
    PARAM_MIX_OUT_A, PARAM_MIX_OUT_B, PARAM_MIX_OUT_MAGNITUDE,
    PARAM_INPUTS_A, PARAM_INPUTS_B, PARAM_INPUTS_MAGNITUDE,
    PARAM_INPUT_GATE_A, PARAM_INPUT_GATE_B, PARAM_INPUT_GATE_MAGNITUDE,
    PARAM_INPUT_OUT_A, PARAM_INPUT_OUT_B, PARAM_INPUT_OUT_MAGNITUDE,
    PARAM_Q_EXPAND_A, PARAM_Q_EXPAND_B, PARAM_Q_EXPAND_MAGNITUDE,
    PARAM_KV_EXPAND_A, PARAM_KV_EXPAND_B, PARAM_KV_EXPAND_MAGNITUDE,
    PARAM_EXPERTS_IN_A, PARAM_EXPERTS_IN_B, PARAM_EXPERTS_IN_MAGNITUDE,
    PARAM_EXPERTS_OUT_A, PARAM_EXPERTS_OUT_B, PARAM_EXPERTS_OUT_MAGNITUDE,
    PARAM_SHARED_UP_A, PARAM_SHARED_UP_B, PARAM_SHARED_UP_B2,
    PARAM_SHARED_DOWN_A, PARAM_SHARED_DOWN_B,
    PARAM_EXPERTS_UP_A, PARAM_EXPERTS_UP_B, /* expert after expert: (E rank, inputs), (E outputs, rank) */
    PARAM_EXPERTS_DOWN_A, PARAM_EXPERTS_DOWN_B,
    PARAM_ROLES, PARAM_NONE = PARAM_ROLES
} param_role;

typedef enum param_use {
    USE_VOCABULARY, /* one row per token; may be cut between rows */
    USE_POSITIONS,  /* one row per position */
    USE_MATRIX,     /* of a linear stage */
    USE_ROUTER,     /* of the choice of experts: trained as a matrix, but never in few bits and without an adapter */
    USE_EXPERTS,    /* the matrices of all experts of a layer */
    USE_CONV,       /* of a short convolution: trained as a matrix, but never in few bits and without an adapter */
    USE_CONSTANT,   /* fp32; its gradient is 0, so it stays as it is */
    USE_MIXER,      /* a vector of a mixer; fp32 as norms are */
    USE_CORRECTION, /* of the choice of experts: never trained, fp32 also in files */
    USE_SINK,       /* a vector of attention; fp32 as norms are */
    USE_BIAS,
    USE_NORM, USE_NORM_BIAS,
    USE_ADAPTER_A, USE_ADAPTER_B, USE_MAGNITUDE
} param_use;

/* Properties of all parameters of a role: a row of the table in params.c. */
typedef struct param_kind {
    const char *name;
    block_kind block;
    param_use use;
    int stream;           /* of random numbers; must never change */
    bool ends_branch;     /* a linear stage whose result is added to the residual stream */
} param_kind;
const param_kind *param_kind_of(param_role role);

typedef struct param_part {
    char name[MODEL_NAME];     /* Hugging Face name */
    int64_t row0, rows;        /* its rows of the parameter; in a vector: its elements */
    bool transposed;           /* stored (cols, rows) */
    /* Rows stored head by head, each with segment[0] rows, then segment[1] ...; here the first segments of all heads come first. heads 0:
     * stored as here. */
    int64_t heads, segment[4];
    bool middle;               /* stored with a dimension of 1 between rows and columns */
    bool vector;               /* stored with one dimension; the parameter is (1, n) */
    int64_t abreast;           /* so many experts: stored as (outputs, cols x experts), column j of expert e at j x experts + e */
    int64_t stacked;           /* stored with one dimension more, before the others, of this size: the experts; 0: without */
    bool paired;               /* each of these has two matrices of equal size, one after the other: gate and up */
} param_part;

/* The format of a parameter: PLAIN in the compute type (norms in fp32); the others, only for frozen matrices of layers, in few bits
 * (model/storage.h). */
typedef enum param_storage { STORAGE_PLAIN, STORAGE_NF4, STORAGE_INT8, STORAGE_MXFP4, STORAGES } param_storage;

typedef struct param {
    param_role role;
    const param_kind *kind;
    int block;
    int64_t rows, cols;        /* a vector is one row: (1, n) */
    bool decay;                /* weight decay applies: matrices and embeddings, not biases and norms */
    bool trainable;            /* false: frozen, never changed, without gradient, moments and update */
    bool whole;                /* beside adapters: trained in full, and saved with them */
    bool always;               /* where layers are trained by turns: trained in every turn, with states that go on */
    param_storage storage;
    int64_t low_rank;          /* of the optimizer's states of a matrix, if it has such; 0: 1 */
    int64_t head_rows;         /* of q and k: rows of a head, which have states in common; 0: each row has its own */
    int parts;
    param_part *part;          /* in memory of the model or of its adapters */
} param;

typedef struct block {
    block_kind kind;
    int layer;                          /* 0 .. L-1 for BLOCK_LAYER, else -1 */
    int param_of_role[PARAM_ROLES];     /* index into model.params, or -1. Tied: the head's PARAM_TOKENS is the embedding's */
} block;

struct adapters;

typedef struct model {
    model_config config;
    int blocks_n, params_n;
    block *blocks;                      /* blocks_n = layers + 2 */
    param *params;                      /* in execution order of their (first) block */
    param_part *parts;                  /* of all parameters but adapters */
    int64_t parameters;                 /* sum of rows * cols */
    bool stored_bf16;                   /* frozen weights came as bf16, or are not written: keeping them as bf16 loses nothing */
    int layers_at_once;                 /* others are trained by turns (model_freezing.layers); 0: all at once */
    struct adapters *adapters;          /* adapter.h; NULL: none */
} model;

/* Reads `path` (a config.json, or a folder with one). Any value that would change the computation and is not supported is an error that
 * names file, key and value. `notice` (may be NULL) gets one sentence about what is read but not applied (dropout). */
int model_open(const char *path, void (*notice)(void *, const char *), void *arg, model **out, pt_error *e);
/* What is other than in the file. */
typedef struct model_changes {
    const char *rope_scaling; /* the positions are extended: TYPE:FACTOR; NULL or "": as the file says */
    int64_t vocab;            /* rows of the vocabulary's tables, if these are more than the file says */
    int64_t labels;           /* the head scores so many classes; 0: as the file says */
} model_changes;
int model_open_changed(const char *path, const model_changes *c, void (*notice)(void *, const char *), void *arg, model **out, pt_error *e);
/* Change a config.json, or the text part of one, to that. PT_USAGE: no such scaling; PT_FAILED: the file does not allow it. */
int model_scale_rope(json_t *config, const char *where, const char *rope_scaling, pt_error *e);
void model_set_vocab(json_t *config, const model_config *c);
/* names: of the classes; NULL: LABEL_0 ... */
void model_set_labels(json_t *config, const model_config *c, const char *const *names);
int model_from_json(const char *name, const char *json, size_t n, void (*notice)(void *, const char *), void *arg,
                    model **out, pt_error *e); /* the same from memory, for tests and fuzzers */
void model_close(model *m);

/* Does the config.json of a folder name a class that scores labels? */
bool model_scores(const char *folder);

/* Shell patterns (fnmatch) on Hugging Face names. A tensor is trained if one of train_only matches it (or there is none) and none of
 * `freeze` does. */
typedef struct model_freezing {
    const char *const *freeze, *const *train_only;
    int freeze_n, train_only_n;
    int first_layer, layers; /* of all that is left, only what these layers have is trained; layers 0: all */
} model_freezing;
/* Sets `trainable` of all parameters. PT_USAGE: a pattern matches nothing, or some parts of a parameter and not others, or nothing is left
 * to train. A tied head goes with the embedding. */
int model_freeze(model *m, const model_freezing *f, pt_error *e);
int64_t model_trained_parameters(const model *m); /* sum of rows * cols of the trained parameters, without constants */
/* "LoRA of rank 16 on all linear layers, 8.8M of 502.8M parameters with adamw; base in nf4"; "1 of 24 layers a turn, ..."; `with` is the
 * optimizer. trained.c */
enum { MODEL_TRAINED_TEXT = 256 };
void model_describe_trained(const model *m, const char *with, char out[MODEL_TRAINED_TEXT]);
uint64_t model_frozen_hash(const model *m);       /* identifies the set of frozen parameters, and their formats; 0: none is frozen */
static inline bool model_trains_all(const model *m) { return model_frozen_hash(m) == 0; }
/* Experts of a parameter whose use is USE_EXPERTS. */
static inline int64_t param_experts(const model_config *config, const param *p) { return p->role < PARAM_ROUTER ? 1 : config->experts; }
/* The width of what experts read and write. */
static inline int64_t model_expert_width(const model_config *config)
{
    return config->expert_latent ? config->expert_latent : config->hidden;
}
/* Matrices of equal size, one after another, of which a part consists: an expert's gate and up may be stored as one tensor. */
static inline int64_t part_matrices(const param *p, int k)
{
    if (!p->part[k].stacked || p->part[k].vector)
        return 1;
    return p->part[k].stacked * (p->part[k].paired ? 2 : 1);
}
/* The factor of the rows that are looked up for layers' inputs. */
static inline float model_input_scale(const model_config *config) { return (float)sqrt((double)config->input_width); }
/* The width of a layer's MLP, or of its shared expert; 0: it has none. */
static inline int64_t model_ffn(const model_config *config, int layer)
{
    if (config->one_branch && config->mixer[layer] != MIXER_NONE)
        return 0;
    return (config->sparse[layer] ? config->shared_ffn : config->ffn) * (config->double_wide && model_reads_kv(config, layer) ? 2 : 1);
}
/* Rows that are stored together if a part is transposed: those of an expert, or all. */
static inline int64_t part_whole_rows(const param *p, int k) { return p->part[k].rows / (p->part[k].stacked ? p->part[k].stacked : 1); }
/* A part's values are contiguous in the parameter: the first of them, and their number. */
static inline int64_t part_first(const param *p, int k) { return p->part[k].row0 * (p->part[k].vector ? 1 : p->cols); }
static inline int64_t part_values(const param *p, int k) { return p->part[k].rows * (p->part[k].vector ? 1 : p->cols); }

/* Index of the first block in execution order with a trained parameter; blocks_n: none. Backward ends there, because no block before it
 * needs a gradient. The embedding's tables, also tied ones, belong to block 0. */
int model_first_trained(const model *m);
int model_passing_layers(const model *m); /* number of first layers without backward */

/* Layers whose work costs the same: same number of keys, trained parameters of the same roles, all with or all without backward. If there
 * are too many kinds, the rest joins the most similar kind. */
enum { MODEL_LAYER_KINDS = 16 };
typedef struct layer_kinds {
    int n, first[MODEL_LAYER_KINDS];              /* first: the first layer (0 .. L-1) of each kind */
    unsigned char of_layer[MODEL_MAX_LAYERS];
} layer_kinds;
void model_layer_kinds(const model *m, int64_t seq_len, layer_kinds *out);

/* Is the head's gradient of a tied table added to the embedding's? */
bool head_adds_to_embedding(const model *m);
/* Does the head's backward reach its normed rows? Yes if the final norm or anything before the head is trained. */
bool head_gives_rows(const model *m);

static inline const param *block_param(const model *m, const block *b, param_role r)
{
    return b->param_of_role[r] < 0 ? (const param *)0 : &m->params[b->param_of_role[r]];
}

/* The angle of pair i between two neighbouring positions. */
double model_rope_frequency(const rope_config *r, int64_t length, int64_t i);
/* cos and sin of a rope for the positions first .. first + n of sequences of `length` positions (some kinds depend on it): (n, rotated / 2,
 * 2) fp32, computed in fp64 as Transformers defines each kind, rounded once. */
void model_rope_table(const rope_config *r, int64_t length, int64_t first, int64_t n, float *table);
/* The tables of all ropes for `length` positions are concatenated; the offset of rope `i` in floats (of ropes_n: their end). */
int64_t model_rope_offset(const model_config *config, int i, int64_t length);
/* These tables in parts of about 1 MiB, each passed to `put` with its byte offset. Calls nothing if no heads are rotated. */
typedef int (*rope_put)(void *arg, size_t at, const float *part, size_t bytes, pt_error *e);
int model_rope_send(const model_config *config, int64_t length, rope_put put, void *arg, pt_error *e);

/* FLOPs of one training token (forward and backward, causal attention over sequences of T), by the usual count: 6 x matmul parameters +
 * attention, less what frozen parameters save. */
double model_flops_per_token(const model *m, int64_t seq_len);
double model_head_flops(const model *m, int64_t rows); /* of the head's forward for `rows` tokens; layers: layer/program.h */
double model_average_keys(int64_t window, int64_t seq_len); /* keys that a token sees, on average over a sequence */

#endif
