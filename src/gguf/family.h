/* family.h - what llama.cpp knows of an architecture: its name there, and what its code computes. What a model has beyond that is refused,
 * or told where texts differ only beyond some length. A new family is a row in family.c. */
#ifndef PT_GGUF_FAMILY_H
#define PT_GGUF_FAMILY_H

#include "gguf/writer.h"
#include "model/model.h"

typedef enum family_windows {
    FAMILY_WINDOWS_NONE,    /* every layer sees everything */
    FAMILY_WINDOWS_ALWAYS,  /* some layers have one, where the file does not say which, by the period */
    FAMILY_WINDOWS_BY_KEY   /* the same where there is a window at all */
} family_windows;

typedef struct gguf_family {
    const char *model_type, *name; /* in config.json; in the file */
    bool pairs_adjacent;    /* heads are rotated in pairs of neighbours: rows of q and k are put so */
    bool fused_qkv, fused_up;
    bool own_head;          /* a tied head is stored all the same */
    bool needs_biases;      /* of fused q, k and v, of the output and of the MLP: zeros where there are none */
    bool out_bias, mlp_bias;
    bool free_head_dim;     /* heads x their dimension need not be the width */
    bool partial_rope;
    bool rope_factors;      /* a factor for each pair */
    bool yarn_betas, long_ropes;
    bool softcaps;          /* both, always */
    bool logit_softcap;     /* where it is there */
    bool tanh_gelu;         /* what any GELU is computed by */
    bool own_scale;         /* of the scores, from the file */
    int scale_by_width;     /* layers of the one model whose scores are divided by the root of width / heads; 0: none */
    family_windows windows;
    int period;
} gguf_family;

/* PT_FAILED: llama.cpp does not know this architecture, or does not compute what the model has. `where` names it. `notice` (may be NULL) is
 * told what differs all the same. */
int gguf_family_of(const model *m, const char *where, void (*notice)(void *arg, const char *sentence), void *arg, const gguf_family **out,
                   pt_error *e);

/* What queries of a layer are multiplied by, because the family divides the scores by another number. */
float gguf_query_scale(const gguf_family *f, const model_config *c, int layer);

/* The pairs "FAMILY. ...". */
void gguf_put_config(gguf_writer *w, const gguf_family *f, const model_config *c);

/* How often pair i of the heads turns in the file's terms: plain frequency over what it is. */
bool gguf_has_factors(const gguf_family *f, const rope_config *r);
void gguf_rope_factors(const rope_config *r, float *out); /* rotated / 2 */

#endif
