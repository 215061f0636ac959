/* architectures.h - the table of architectures, inside model/ only. A new architecture is a row here
 * and its weight names; whatever a row cannot say is a new field, not an `if` on the name elsewhere.
 */
#ifndef PT_ARCHITECTURES_H
#define PT_ARCHITECTURES_H

#include "model/model.h"

enum { ARCHITECTURE_MAX_KEYS = 32, ARCHITECTURE_MAX_BUFFERS = 3, ARCHITECTURE_MAX_FIXED = 8 };

/* A size in config.json: its key, an alternative spelling that Transformers accepts (or NULL), and the value if it is absent; -1: the
 * default follows from other sizes. */
typedef struct config_key {
    const char *name, *alias;
    int64_t value;
} config_key;

/* A number in config.json, and its value if it is absent or null. name NULL: the architecture has none. */
typedef struct config_number {
    const char *name;
    double value;
} config_number;

/* A flag in config.json, and its value if it is absent. name NULL: always `value`. */
typedef struct config_flag {
    const char *name;
    bool value;
} config_flag;

/* Which layers have a sliding window, if layer_types does not say. */
typedef enum window_rule {
    WINDOW_NONE,     /* every token sees all before it */
    WINDOW_ALL,      /* `sliding_window`, in every layer */
    WINDOW_LAYERS,   /* `sliding_window` if use_sliding_window, from max_window_layers on */
    WINDOW_FROM,     /* `sliding_window`, from max_window_layers on */
    WINDOW_SWITCHED, /* `sliding_window` if use_sliding_window, in every layer */
    WINDOW_PERIOD,   /* `sliding_window`, in all layers except every n-th: window_period */
    WINDOW_UNROTATED /* `sliding_window` if use_sliding_window, in layers without rope */
} window_rule;

/* Which rope a layer uses. */
typedef enum rope_rule {
    ROPE_RULE_NONE,
    ROPE_RULE_ONE,     /* all layers the same */
    ROPE_RULE_TYPES,   /* layers with a window another one than layers without */
    ROPE_RULE_SKIPPED, /* layers in no_rope_layers have none */
    ROPE_RULE_WINDOWED, /* if any layer may have a window, those without one have none */
    ROPE_RULE_QUERY    /* as ONE, and queries are scaled by their position */
} rope_rule;

/* Which layers have experts instead of an MLP. */
typedef enum sparse_rule {
    SPARSE_NONE,
    SPARSE_ALL,
    SPARSE_STEP, /* every decoder_sparse_step-th, except those of mlp_only_layers */
    SPARSE_FROM, /* from first_k_dense_replace on */
    SPARSE_TYPES, /* those that mlp_layer_types calls sparse; if it is absent, from `first_sparse` on */
    SPARSE_RANGE, /* every moe_layer_interval-th from moe_layer_start_index to moe_layer_end_index */
    SPARSE_BRANCHES /* those that layers_block_type or hybrid_override_pattern says */
} sparse_rule;

typedef enum norm_place { NORM_BEFORE, NORM_AFTER, NORM_AROUND } norm_place; /* of a branch */

typedef struct architecture {
    const char *model_type; /* in config.json */
    const char *class_name; /* what "architectures" holds for it */
    const char *prefix;     /* of the weights' names; a checkpoint of the bare model leaves it out */
    const char *module_prefix; /* of the modules' names in Transformers, which files may also have; NULL: the same */

    config_key hidden, layers, heads, kv_heads, head_dim, ffn, positions, vocab, bos, eos;
    bool kv_heads_null_is_heads; /* null means one per head, although absence means another number */
    const char *width_key;       /* width of the embedding, if it has its own key: it must be the hidden size */
    const char *activation_key, *activation, *eps_key; /* eps_key NULL: none */
    bool gelu_is_tanh;           /* "gelu" means the approximation by tanh */
    double eps;

    norm_kind norm;
    bool norm_unbiased;        /* layer norms without a bias */
    norm_place norms;
    bool norm_from_one;        /* stored norm weights start at 0, and 1 is added */
    position_kind position;
    int position_offset;       /* learned positions: rows of their table before position 0 */
    window_rule window;
    int window_default;        /* if `sliding_window` is absent; 0: none */
    int window_period;         /* WINDOW_PERIOD; WINDOW_FROM: max_window_layers if it is absent */
    const char *window_period_key;
    rope_rule rope;
    double rope_theta, rope_local_theta; /* defaults; the second for layers with a window */
    const char *rope_theta_key, *rope_part_key; /* keys outside the rope's object; part NULL: the whole head is rotated */
    double rope_part;
    const char *rope_size_key; /* rotated elements of a head, another way to say the part; NULL: none */
    bool rope_neighbours;      /* pair i of a head is its elements 2i and 2i + 1 */
    bool rope_partial;         /* the type proportional is known, and is the default of layers without a window */
    bool rope_named;           /* position_embedding_type says whether there is rope */
    bool rope_sections;        /* the rope's object may have those for positions of images */
    bool rope_long_only;       /* types are default and longrope, and original_max_position_embeddings is outside the object */
    bool gated, tied;
    const char *tied_key;      /* says the same as tie_word_embeddings, and wins; or NULL */
    bool parallel_key;         /* use_parallel_residual, by default true */
    bool one_norm;             /* the branches are parallel, and both read the same norm, which has no name of its own for the second */
    qk_norm_kind qk_norm;
    config_flag qk_norm_flag;  /* if it has a name: whether there is such a norm */
    config_flag qkv_bias, out_bias, mlp_bias;
    bool scale_keys;           /* scale_attn_weights and scale_attn_by_inverse_layer_idx are read */
    bool scores_unscaled;      /* the scores' factor is 1 */
    config_number score_scalar; /* scores are multiplied by its power -1/2, instead of the head dimension's */
    config_number score_scale;  /* scores are multiplied by it instead */
    config_number score_softcap, logit_softcap, embedding_scale, residual_scale, logit_scale, logit_divisor;
    bool softcap_alone;        /* logits have no cap in the larger model of which this is the text part */
    bool embedding_by_width;   /* rows of the embedding are multiplied by the square root of the hidden size */
    bool scaled_residual_init; /* output projections start smaller by a factor of sqrt(2 layers) */
    double init;               /* standard deviation of random weights if initializer_range is absent; 0: 0.02 */
    const char *init_key;      /* key of the deviation if initializer_range is absent; NULL: none */
    bool padding_row;          /* the embedding's row of the padding token is initialized with zeros */
    int64_t padding;           /* default of pad_token_id; -1: none */
    double dropout;            /* value of an absent dropout key */
    const char *dropout_keys[ARCHITECTURE_MAX_KEYS]; /* keys with this default */

    bool one_branch;           /* a layer is a mixer, an MLP or experts (config_branches.c) */
    bool full_heads;           /* layers without a window may have heads of their own, and values that k_proj makes (config_heads.c) */
    bool value_norm, scaled;
    config_key q_latent, kv_latent, own_dim, shared_dim, value_dim; /* latent attention (config_latents.c); no names: it is not */
    config_key input_width;    /* of layers' inputs beside the stream; no name: there are none */
    mixer_kind mixer;          /* of the layers without attention */
    const char *mixer_type, *mixer_type_old; /* what layer_types calls them */
    const char *layer_types_alias; /* another name of layer_types; or NULL */
    const char *attention_layers_key; /* the list of the layers with attention; NULL: every full_attention_interval-th */
    bool attends_beside;       /* every layer has attention beside its mixer */
    config_key scan_wide;      /* values of a scan; no name: mamba_expand times the width */
    config_key taps;
    bool output_gate;
    bool ffn_adjusted;         /* the width of MLPs follows from three more keys */
    sparse_rule sparse;
    int first_sparse;          /* first_k_dense_replace if it is absent */
    const char *first_sparse_key; /* instead of first_k_dense_replace; or NULL */
    bool experts_optional;     /* 0 experts: every layer has the shared expert's MLP alone */
    const char *experts_key;   /* says whether there are experts, by default not; NULL: there are */
    bool experts_beside;
    config_key experts, experts_used, expert_ffn; /* expert_ffn: as wide as an MLP if it has no name */
    config_flag router_norm;   /* the weights of a token's experts are divided by their sum */
    route_kind router;
    bool router_correction, correction_is_row; /* the choice has a bias, which is not trained; it is stored as (1, E) */
    int router_groups, router_groups_used; /* n_group and topk_group if they are absent; 0: they are not read */
    bool router_loss;          /* Transformers has a loss that balances the use of experts */
    bool router_bias, expert_bias, experts_transposed; /* the experts' matrices are stored (inputs, outputs) */
    config_number expert_alpha, expert_limit;
    bool sinks;
    bool rope_required;        /* config.json has to say which rope: the default of the configuration class is not that of the others */
    bool mxfp4;                /* the experts may be stored in MXFP4 */
    double router_eps;
    config_number router_least, router_scale;
    bool mlp_means_experts;    /* PEFT (0.21) takes an adapter's gate_proj, up_proj and down_proj for the experts' */
    bool mix_out_kept;         /* PEFT (0.21) refuses adapters of out_proj, the mixers' last matrix */
    config_key shared_ffn, shared_experts; /* width of the shared expert; it is that of so many experts if the second has a name */
    bool shared_gate;
    config_key expert_latent;  /* of what experts read and write; null: as wide as the model */

    /* Keys that are read, though their names resemble those that change the computation. */
    const char *keys[ARCHITECTURE_MAX_KEYS];
    config_key zero;           /* a size of which only 0 is supported, and its value if it is absent */
    /* Keys with only one supported value, as JSON. */
    struct { const char *name, *value; } fixed[ARCHITECTURE_MAX_FIXED];
    /* Hugging Face names of each role's parts, after the prefix; `*` is the layer, `#` the expert. */
    const char *(*names)[MODEL_MAX_PARTS];
    /* The same of roles that have other names in layers with a shared expert, and in files with all experts in one tensor; or NULL. */
    const char *(*shared)[MODEL_MAX_PARTS], *(*fused)[MODEL_MAX_PARTS];
    const char *(*direct)[MODEL_MAX_PARTS]; /* and in models with latent attention whose queries have no latent; or NULL */
    const char *head;          /* the untied head's name, without the prefix; NULL: lm_head.weight, under which all heads are also read */
    bool transposed;           /* matrices of the layers are stored (inputs, outputs) */
    bool interleaved;          /* q, k and v of each head follow each other */
    /* Tensors in checkpoints that are not parameters: masks, tables. */
    const char *buffers[ARCHITECTURE_MAX_BUFFERS];
    /* Tensors begin so that predict tokens after the next; `layers.` stands for layers beyond the last. Transformers drops them, too. */
    const char *further;
} architecture;

extern const char head_name[]; /* "lm_head.weight", without a prefix */

#define SCORE_NAME "score.weight" /* of a head that scores classes */
/* Its class in Transformers; NULL: none. */
const char *architecture_scorer(const char *model_type);
/* Is it the name of such a class? */
bool architecture_scores(const char *class_name);

/* By model_type, or by a class name of "architectures"; NULL: unknown. */
const architecture *architecture_find(const char *model_type);
const architecture *architecture_find_class(const char *class_name);

/* The i-th; NULL: there are no more. */
const architecture *architecture_at(int i);

/* "gpt2, llama, ...", for messages. */
const char *architecture_list(char *buffer, int n);

/* Writes `prefix` and `pattern`, with the layer's number for `*` and the expert's for `#`, into name[MODEL_NAME]. */
void architecture_name(char name[MODEL_NAME], const char *prefix, const char *pattern, int layer, int expert);

/* The names of a role's parts in a layer, or elsewhere with layer -1. */
const char *const *architecture_names(const architecture *arch, const model_config *config, param_role role, int layer);

/* A step of model_open (config.c). */
int params_build(model *m, const architecture *arch, const char *where, pt_error *e); /* params.c */

#endif
