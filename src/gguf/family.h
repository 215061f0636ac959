/* family.h - llama.cpp's architectures (families): their names, and what llama.cpp computes for each. A model that needs more is refused;
 * if only texts beyond some length differ, a notice says so. A new family is a row in family.c. */
#ifndef PT_GGUF_FAMILY_H
#define PT_GGUF_FAMILY_H

#include "gguf/writer.h"
#include "model/model.h"

typedef enum family_windows {
    FAMILY_WINDOWS_NONE,    /* no layer has a window */
    FAMILY_WINDOWS_ALWAYS,  /* some layers have one; if the file does not say which, `period` does */
    FAMILY_WINDOWS_BY_KEY,  /* the same, if the model has a window */
    FAMILY_WINDOWS_LISTED   /* some layers have one, and the file says which */
} family_windows;

typedef struct gguf_family {
    const char *model_type, *name; /* in config.json; in the GGUF file. Of two rows of a type, the second one is of models with experts */
    bool pairs_adjacent;    /* rope rotates pairs of adjacent elements: rows of q and k are reordered */
    bool fused_qkv, fused_up;
    const char *second_norm; /* name of the norm before the MLP; NULL: ffn_norm */
    const char *final_norm; /* name of the last norm; NULL: output_norm */
    bool own_head;          /* a tied head is stored too */
    bool needs_biases;      /* of fused q, k and v, of the output and of the MLP: zeros if the model has none */
    bool out_bias, mlp_bias;
    bool free_head_dim;     /* heads * head_dim may differ from the width */
    bool equal_heads;       /* there are as many heads of keys as of queries */
    bool partial_rope;
    bool rope_factors;      /* rope frequencies have a factor per pair */
    bool yarn_betas, long_ropes;
    bool softcaps;          /* of scores and of logits, always */
    bool logit_softcap;     /* of logits, if the model has one */
    bool tanh_gelu;         /* every GELU is computed with tanh */
    bool squared_relu;      /* the activation */
    bool rope_in_windows;   /* layers without a window have no rope */
    bool bare_norm;         /* the name of the norm before the MLP has no ending */
    bool logit_scale;       /* of logits, in the file */
    bool vocabulary_scaled; /* the factors of embeddings and logits are multiplied into the tables */
    bool keys_scaled;       /* another scale of the scores is multiplied into keys, not into queries */
    bool own_scale;         /* the scale of the scores is in the file */
    bool unscaled;          /* scores are not divided */
    int scale_by_width;     /* scores are divided by sqrt(width / heads) in the model with this number of layers; 0: in none */
    family_windows windows;
    int period;
    bool experts;
    bool fixed_norm, norm;  /* llama.cpp always, or never, divides the weights of a token's experts by their sum */
    bool scaled_experts;    /* the factor of their weights is multiplied into the experts' last matrices */
    bool all_sparse;        /* all layers have experts */
    bool mixers;            /* some layers have a state instead of keys and values; if not by an interval, they have no heads of keys */
    bool by_interval;
    bool tiled_heads;       /* the heads of a scan's values are in another order (tensors.c) */
    bool shared_count;      /* the width of shared experts is given as a number of experts */
} gguf_family;

/* PT_FAILED: llama.cpp does not know the architecture, or does not compute all of the model. `where` names the model in errors. `notice`
 * (may be NULL) is called with each remaining difference. */
int gguf_family_of(const model *m, const char *where, void (*notice)(void *arg, const char *sentence), void *arg, const gguf_family **out,
                   pt_error *e);

/* The factor for a layer's queries that makes up for the family's different scale of the scores. */
float gguf_query_scale(const gguf_family *f, const model_config *config, int layer);

/* Writes the key-value pairs "FAMILY. ...". */
void gguf_put_config(gguf_writer *writer, const gguf_family *f, const model_config *config);

/* For each rotated pair of a head: its unscaled rope frequency divided by its scaled one. */
bool gguf_has_factors(const gguf_family *f, const rope_config *r);
void gguf_rope_factors(const rope_config *r, float *out); /* rotated / 2 */

#endif
