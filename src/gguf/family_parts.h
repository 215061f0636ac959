/* family_parts.h - shared by the files of the families in gguf/. */
#ifndef PT_GGUF_FAMILY_PARTS_H
#define PT_GGUF_FAMILY_PARTS_H

#include "gguf/family.h"

#include <string.h>

/* PT_FAILED: llama.cpp does not compute all of the model (family_checks.c). The arguments are those of gguf_family_of. */
int gguf_family_check(const model_config *config, const gguf_family *f, const char *where, void (*notice)(void *arg, const char *sentence),
                      void *arg, pt_error *e);

static inline bool any_window(const model_config *config)
{
    for (int i = 0; i < config->layers; i++)
        if (config->window[i])
            return true;
    return false;
}

static inline int64_t smallest_window(const model_config *config)
{
    int64_t least = 0;
    for (int i = 0; i < config->layers; i++)
        if (config->window[i] && (!least || config->window[i] < least))
            least = config->window[i];
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

static inline bool has_attention(const model_config *config, int layer) { return model_attends(config, layer); }

static inline int first_attention(const model_config *config)
{
    int i = 0;
    while (i < config->layers && !has_attention(config, i))
        i++;
    return i;
}

static inline bool rotates(const model_config *config)
{
    return first_attention(config) < config->layers && config->layer_rope[first_attention(config)] >= 0;
}

/* The first layer with experts, or the number of layers. */
static inline int64_t first_sparse(const model_config *config)
{
    int64_t i = 0;
    while (i < config->layers && !config->sparse[i])
        i++;
    return i;
}

/* Every so manieth layer has experts, from the first one to the last. */
static inline int64_t sparse_step(const model_config *config)
{
    int64_t i = first_sparse(config) + 1;
    while (i < config->layers && !config->sparse[i])
        i++;
    return i < config->layers ? i - first_sparse(config) : 1;
}

#endif
