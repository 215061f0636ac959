/* family_parts.h - shared by the files of the families in gguf/. */
#ifndef PT_GGUF_FAMILY_PARTS_H
#define PT_GGUF_FAMILY_PARTS_H

#include "gguf/family.h"

#include <string.h>

/* PT_FAILED: llama.cpp does not compute all of the model (family_checks.c). The arguments are those of gguf_family_of. */
int gguf_family_check(const model_config *c, const gguf_family *f, const char *where, void (*notice)(void *arg, const char *sentence),
                      void *arg, pt_error *e);

static inline bool any_window(const model_config *c)
{
    for (int i = 0; i < c->layers; i++)
        if (c->window[i])
            return true;
    return false;
}

static inline int64_t smallest_window(const model_config *c)
{
    int64_t least = 0;
    for (int i = 0; i < c->layers; i++)
        if (c->window[i] && (!least || c->window[i] < least))
            least = c->window[i];
    return least;
}

static inline bool is_gpt_oss(const gguf_family *f) { return !strcmp(f->name, "gpt-oss"); }

static inline bool is_granite_hybrid(const gguf_family *f) { return !strcmp(f->name, "granitehybrid"); }

static inline bool is_gemma4(const gguf_family *f) { return !strcmp(f->name, "gemma4"); }

static inline bool is_nemotron_h(const gguf_family *f) { return !strncmp(f->name, "nemotron_h", 10); }

static inline bool is_falcon(const gguf_family *f) { return !strcmp(f->name, "falcon-h1"); }

static inline bool standard_yarn(const gguf_family *f, const rope_config *r)
{
    return (r->truncate || is_gpt_oss(f)) && (f->yarn_betas || (r->beta_fast == 32 && r->beta_slow == 1));
}

static inline bool has_attention(const model_config *c, int layer) { return model_attends(c, layer); }

static inline int first_attention(const model_config *c)
{
    int i = 0;
    while (i < c->layers && !has_attention(c, i))
        i++;
    return i;
}

static inline bool rotates(const model_config *c) { return first_attention(c) < c->layers && c->layer_rope[first_attention(c)] >= 0; }

/* The first layer with experts, or the number of layers. */
static inline int64_t first_sparse(const model_config *c)
{
    int64_t i = 0;
    while (i < c->layers && !c->sparse[i])
        i++;
    return i;
}

/* Every so manieth layer has experts, from the first one to the last. */
static inline int64_t sparse_step(const model_config *c)
{
    int64_t i = first_sparse(c) + 1;
    while (i < c->layers && !c->sparse[i])
        i++;
    return i < c->layers ? i - first_sparse(c) : 1;
}

#endif
