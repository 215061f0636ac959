/* model.h - a pure description of what is trained: blocks in execution order, their parameters,
 * and the sizes that everything else is planned from. No weights, no device.
 *
 *   block 0            embedding                ids -> x (rows, C)
 *   block 1 .. L       decoder layers           x -> x
 *   block L+1          head                     final norm, logits, loss
 *
 * A parameter is one tensor of ours: (rows, cols), row-major, rows = outputs, as y = x . W^T wants.
 * It is made of one or more Hugging Face tensors ("parts") stacked by rows: q, k and v lie in one
 * parameter, and so do gate and up, so that each is one matmul. A part whose Hugging Face tensor is
 * stored (inputs, outputs), as GPT-2's Conv1D is, is transposed on the way in and out. A tied head
 * has no parameter of its own: the head block reads the embedding's. Beside a layer's matrices there may be adapters' (adapter.h).
 */
#ifndef PT_MODEL_H
#define PT_MODEL_H

#include "base/dtype.h"
#include "base/error.h"
#include "device/device.h" /* norm_kind, activation_kind */

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_MAX_LAYERS = 512, MODEL_MAX_PARTS = 3, MODEL_NAME = 96, MODEL_MATRICES = 4 /* of a layer: qkv, out, up, down */ };

typedef enum position_kind { POSITION_LEARNED, POSITION_ROTARY } position_kind;
typedef enum qk_norm_kind {
    QK_NORM_NONE,
    QK_NORM_HEAD, /* each head by itself, all with the same weights */
    QK_NORM_WIDE  /* all heads of a row together */
} qk_norm_kind;
typedef enum rope_kind { ROPE_PLAIN, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG } rope_kind;

enum { MODEL_MAX_ROPES = 2, MODEL_MAX_ROPE_PAIRS = 256 };

/* One way to rotate heads (rope.c has the formulas). */
typedef struct rope_config {
    rope_kind kind;
    int64_t rotated;                         /* the first elements of a head; even */
    double theta, factor, original_positions;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    bool truncate;
    double attention_factor;                  /* of cos and sin; yarn, longrope */
    double scaling_beta;                      /* queries grow with the position by it; 0: they do not */
    double short_factor[MODEL_MAX_ROPE_PAIRS], long_factor[MODEL_MAX_ROPE_PAIRS]; /* longrope */
} rope_config;

/* What config.json says, in one vocabulary for all architectures. */
typedef struct model_config {
    char model_type[32];       /* as in config.json: "gpt2", "llama", ... */
    bool multimodal;           /* config.json is of a model of text and images, of which this is the text part */
    int64_t vocab, hidden, layers, heads, kv_heads, head_dim, ffn, max_positions;
    norm_kind norm;
    float norm_eps, norm_offset; /* what is added to the norms' stored weights: 0, or 1 where these begin at 0 */
    activation_kind activation;
    bool gated;                /* MLP is act(gate) * up */
    position_kind position;
    int64_t position_offset;   /* learned positions: rows of their table before that of position 0 */
    int ropes_n;
    rope_config rope[MODEL_MAX_ROPES];
    int query_rope;            /* that of all layers' queries, where it is another than their keys'; -1: the same */
    signed char layer_rope[MODEL_MAX_LAYERS]; /* -1: the layer's heads are not rotated */
    bool pre_norm, post_norm;  /* of a branch of a layer: before it; behind it, before it is added */
    bool parallel;             /* the MLP reads what attention reads, not its result */
    qk_norm_kind qk_norm;
    bool qkv_bias, out_bias, mlp_bias, tied;
    float attention_scale;     /* normally 1/sqrt(head_dim) */
    float attention_softcap, logit_softcap; /* c: x becomes c tanh(x / c); 0: none */
    float embedding_scale, residual_scale, logit_scale; /* of rows of the embedding, of what a branch adds, of logits; normally 1 */
    float layer_scale[MODEL_MAX_LAYERS]; /* extra factor on the scores (GPT-2's scale_attn_by_inverse_layer_idx), else 1 */
    int64_t window[MODEL_MAX_LAYERS]; /* keys that a token sees in this layer, itself included; 0: all */
    double initializer_range;
    bool dropout;              /* config asks for dropout > 0, which is not applied */
    pt_dtype stored_type;      /* torch_dtype / dtype of config.json, PT_F32 if absent */
    int64_t bos, eos;          /* -1: none (or beyond the vocabulary); the first where config.json has a list */
    int64_t padding;           /* row of the embedding that Transformers starts at zero, and to which it passes no
                                  gradient from the input side; -1: none */
    /* Not of config.json: for each matrix the columns of x A^T, the most that any layer has, and whether there are magnitudes
     * (adapter.h). */
    int64_t adapter_width[MODEL_MATRICES];
    bool dora;
} model_config;

typedef enum block_kind { BLOCK_EMBEDDING, BLOCK_LAYER, BLOCK_HEAD } block_kind;

typedef enum param_role {
    PARAM_TOKENS,       /* (V, C) embedding, also the head's where tied */
    PARAM_POSITIONS,    /* (max_positions, C) learned positions */
    PARAM_NORM1, PARAM_NORM1_BIAS,
    PARAM_QKV, PARAM_QKV_BIAS,        /* ((H + 2 Hkv) D, C) */
    PARAM_QNORM, PARAM_KNORM,         /* (1, D), or (1, H D) and (1, Hkv D) */
    PARAM_OUT, PARAM_OUT_BIAS,        /* (C, H D) */
    PARAM_POST_NORM1,
    PARAM_NORM2, PARAM_NORM2_BIAS,
    PARAM_UP, PARAM_UP_BIAS,          /* (F, C), gated: (2F, C) = [gate; up] */
    PARAM_DOWN, PARAM_DOWN_BIAS,      /* (C, F) */
    PARAM_POST_NORM2,
    PARAM_NORMF, PARAM_NORMF_BIAS,    /* final norm, in the head block */
    PARAM_HEAD,                       /* (V, C), untied only */
    /* Adapters of the layer's matrices: A of all modules that a matrix is made of, stacked by rows (sum of ranks, inputs); B of each of
     * them (rows of the module, its rank); their magnitudes one behind the other. */
    PARAM_QKV_A, PARAM_QKV_B, PARAM_QKV_B2, PARAM_QKV_B3, PARAM_QKV_MAGNITUDE,
    PARAM_OUT_A, PARAM_OUT_B, PARAM_OUT_MAGNITUDE,
    PARAM_UP_A, PARAM_UP_B, PARAM_UP_B2, PARAM_UP_MAGNITUDE,
    PARAM_DOWN_A, PARAM_DOWN_B, PARAM_DOWN_MAGNITUDE,
    PARAM_ROLES, PARAM_NONE = PARAM_ROLES
} param_role;

typedef enum param_use {
    USE_VOCABULARY, /* a row a token; it may be cut between rows */
    USE_POSITIONS,  /* a row a position */
    USE_MATRIX,     /* of a linear stage */
    USE_BIAS,
    USE_NORM, USE_NORM_BIAS,
    USE_ADAPTER_A, USE_ADAPTER_B, USE_MAGNITUDE
} param_use;

/* What is true of all parameters of a role: a row of the table in params.c. */
typedef struct param_kind {
    const char *name;
    block_kind block;
    param_use use;
    int stream;           /* of random numbers; never changes */
    bool ends_branch;     /* a linear stage whose result is added to the residual stream */
} param_kind;
const param_kind *param_kind_of(param_role role);

typedef struct param_part {
    char name[MODEL_NAME];     /* Hugging Face name */
    int64_t row0, rows;        /* its rows of the parameter; of a vector: its elements */
    bool transposed;           /* stored (cols, rows) */
    int64_t interleaved;       /* rows of a head's q: the rows are stored head by head, each with its q, k and v; 0: as here */
    bool vector;               /* stored with one dimension; the parameter is (1, n) */
} param_part;

/* How a parameter is kept: PLAIN in the compute type (norms in fp32), the others in few bits (model/storage.h), frozen matrices of layers
 * alone. */
typedef enum param_storage { STORAGE_PLAIN, STORAGE_NF4, STORAGE_INT8, STORAGES } param_storage;

typedef struct param {
    param_role role;
    const param_kind *kind;
    int block;
    int64_t rows, cols;        /* a vector is one row: (1, n) */
    bool decay;                /* weight decay applies: matrices and embeddings, not biases and norms */
    bool trainable;            /* else frozen: read, never changed, and without gradient, moments and update */
    param_storage storage;
    int parts;
    param_part part[MODEL_MAX_PARTS];
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
    int64_t parameters;                 /* sum of rows * cols */
    bool stored_bf16;                   /* what is frozen came as bf16, or is not written: nothing is lost where its weights are kept so */
    struct adapters *adapters;          /* adapter.h; NULL: none */
} model;

/* Reads `path` (a config.json, or a folder with one). Every value that would change the computation and
 * is not supported is an error that names file, key and value. `notice` (may be NULL) is called with
 * one sentence for what is read and knowingly not applied (dropout). */
int model_open(const char *path, void (*notice)(void *, const char *), void *arg, model **out, pt_error *e);
int model_from_json(const char *name, const char *json, size_t n, void (*notice)(void *, const char *), void *arg,
                    model **out, pt_error *e); /* the same from memory, for tests and fuzzers */
void model_close(model *m);

/* Patterns of a shell (fnmatch) on Hugging Face names. Trained is what one of train_only matches, or everything where there is none, and
 * none of `freeze` matches. */
typedef struct model_freezing {
    const char *const *freeze, *const *train_only;
    int freeze_n, train_only_n;
} model_freezing;
/* Sets `trainable` of all parameters. PT_USAGE: a pattern matches nothing, takes some parts of a parameter and not others, or nothing is
 * left to train. A tied head goes with the embedding. */
int model_freeze(model *m, const model_freezing *f, pt_error *e);
int64_t model_trained_parameters(const model *m); /* sum of rows * cols of the trained ones */
/* "LoRA of rank 16 on all linear layers, 8.8M of 502.8M parameters with adamw; base in nf4"; `with` is the optimizer. trained.c */
enum { MODEL_TRAINED_TEXT = 256 };
void model_describe_trained(const model *m, const char *with, char out[MODEL_TRAINED_TEXT]);
uint64_t model_frozen_hash(const model *m);       /* tells sets of frozen parameters apart, and how they are kept; 0: none is */
static inline bool model_trains_all(const model *m) { return model_frozen_hash(m) == 0; }
/* A part's values follow each other in the parameter: the first of them, and their number. */
static inline int64_t part_first(const param *p, int k) { return p->part[k].row0 * (p->part[k].vector ? 1 : p->cols); }
static inline int64_t part_values(const param *p, int k) { return p->part[k].rows * (p->part[k].vector ? 1 : p->cols); }

/* Index of the first block in execution order of which a parameter is trained; blocks_n: none is. Backward ends there: what lies before
 * it needs no gradient. The tables of the embedding, tied ones too, are block 0's. */
int model_first_trained(const model *m);
int model_passing_layers(const model *m); /* the first layers, to which backward does not come */

/* Layers whose work costs the same: they see as many keys, train parameters of the same roles and are both passed backward or both not.
 * Where there are more kinds than these, what is left goes to the one that is most alike. */
enum { MODEL_LAYER_KINDS = 16 };
typedef struct layer_kinds {
    int n, first[MODEL_LAYER_KINDS];              /* a layer (0 .. L-1) of each kind, the first */
    unsigned char of_layer[MODEL_MAX_LAYERS];
} layer_kinds;
void model_layer_kinds(const model *m, int64_t seq_len, layer_kinds *out);

/* Whether the head's gradient of a tied table is to be added to the embedding's. */
bool head_adds_to_embedding(const model *m);
/* Whether the head's backward gets to its normed rows: the final norm is trained, or anything before the head. */
bool head_gives_rows(const model *m);

static inline const param *block_param(const model *m, const block *b, param_role r)
{
    return b->param_of_role[r] < 0 ? (const param *)0 : &m->params[b->param_of_role[r]];
}

/* The angle by which pair i turns from one position to the next. */
double model_rope_frequency(const rope_config *r, int64_t length, int64_t i);
/* cos and sin of a rope for the positions first .. first + n of sequences of `length` positions, on which some kinds depend:
 * (n, rotated / 2, 2) fp32, computed in fp64 as Transformers defines each kind, rounded once. */
void model_rope_table(const rope_config *r, int64_t length, int64_t first, int64_t n, float *table);
/* All ropes' tables for `length` positions, one behind the other; where rope `i` begins (of ropes_n: where they end), in floats. */
int64_t model_rope_offset(const model_config *c, int i, int64_t length);
/* These tables in parts of about 1 MiB, each given to `put` with the byte that it begins at. Calls nothing where no heads are rotated. */
typedef int (*rope_put)(void *arg, size_t at, const float *part, size_t bytes, pt_error *e);
int model_rope_send(const model_config *c, int64_t length, rope_put put, void *arg, pt_error *e);

/* FLOPs of one training token (forward and backward, causal attention over sequences of T), as
 * everyone counts them: 6 x matmul parameters + attention, less what frozen parameters save. */
double model_flops_per_token(const model *m, int64_t seq_len);
/* Of the forward of `rows` tokens: through a layer (a block's index), through the head. */
double model_layer_flops(const model *m, int block, int64_t rows, int64_t seq_len);
double model_head_flops(const model *m, int64_t rows);

#endif
