/* architectures.h - the table of architectures, inside model/ only. A new architecture is a row here
 * and its weight names; whatever a row cannot say is a new field, not an `if` on the name elsewhere.
 */
#ifndef PT_ARCHITECTURES_H
#define PT_ARCHITECTURES_H

#include "model/model.h"

enum { ARCHITECTURE_MAX_KEYS = 10, ARCHITECTURE_MAX_BUFFERS = 3 };

/* A size in config.json: its key, a second spelling that Transformers takes too (or NULL), and the
 * value where it is absent; -1 marks a default that follows from other sizes. */
typedef struct config_key {
    const char *name, *alias;
    int64_t value;
} config_key;

/* Which layers a sliding window concerns. */
typedef enum window_rule {
    WINDOW_NONE,  /* every layer sees everything */
    WINDOW_ALL,   /* `sliding_window`, in every layer */
    WINDOW_LAYERS /* `sliding_window` if use_sliding_window, in the layers that layer_types names, or from
                     max_window_layers on */
} window_rule;

/* Where biases come from. */
typedef enum bias_rule {
    BIAS_NEVER,
    BIAS_ALWAYS,
    BIAS_BY_KEY /* `attention_bias` or `mlp_bias`, false where absent */
} bias_rule;

typedef struct architecture {
    const char *model_type; /* in config.json */
    const char *class_name; /* what "architectures" holds for it */
    const char *prefix;     /* of the weights' names; a checkpoint of the bare model leaves it out */

    config_key hidden, layers, heads, kv_heads, head_dim, ffn, positions, vocab, bos, eos;
    bool kv_heads_null_is_heads; /* null means one per head, also where absence means another number */
    const char *activation_key, *activation, *eps_key;
    double eps;

    norm_kind norm;
    position_kind position;
    window_rule window;
    bool gated, tied;
    qk_norm_kind qk_norm;
    bias_rule qkv_bias, out_bias, mlp_bias;
    bool scale_keys;           /* scale_attn_weights and scale_attn_by_inverse_layer_idx are read */
    bool scaled_residual_init; /* output projections start smaller by sqrt(2 layers) */
    bool padding_row;          /* the embedding's row of pad_token_id starts at zero */
    double dropout;            /* what an absent dropout key means */
    const char *dropout_keys[ARCHITECTURE_MAX_KEYS]; /* keys that have this default */

    /* Keys that look as if they changed the computation, and are read. */
    const char *keys[ARCHITECTURE_MAX_KEYS];
    /* Hugging Face names of each role's parts, after the prefix; `*` is the layer. */
    const char *(*names)[MODEL_MAX_PARTS];
    bool transposed;           /* matrices of the layers are stored (inputs, outputs) */
    /* Tensors in checkpoints that are no parameters: masks, tables. */
    const char *buffers[ARCHITECTURE_MAX_BUFFERS];
} architecture;

extern const char head_name[]; /* "lm_head.weight", in all architectures and without a prefix */

/* By model_type, or by the class name that "architectures" holds; NULL: unknown. */
const architecture *architecture_find(const char *model_type);
const architecture *architecture_find_class(const char *class_name);

/* "gpt2, llama, ...", for messages. */
const char *architecture_list(char *buffer, int n);

/* Puts `prefix`, then `pattern` with the layer's number for `*`, into name[MODEL_NAME]. */
void architecture_name(char name[MODEL_NAME], const char *prefix, const char *pattern, int layer);

/* The steps of model_open (config.c). */
struct json_source;
int rope_config_read(const struct json_source *s, model_config *c, pt_error *e);  /* rope.c */
int params_build(model *m, const architecture *a, const char *where, pt_error *e); /* params.c */

#endif
