#include "model/adapter.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static bool matches(const char *pattern, const char *name) { return fnmatch(pattern, name, 0) == 0; }

static bool any_matches(const char *const *patterns, int n, const char *name)
{
    bool any = false;
    for (int i = 0; i < n; i++)
        any = any || matches(patterns[i], name);
    return any;
}

/* "model.embed_tokens.weight, model.layers.3.mlp.up_proj.weight, ...": examples of names, for the message. */
static void name_examples(const model *m, char *out, size_t n)
{
    const int shown[] = {0, m->params_n / 2, m->params_n - 1};
    size_t used = 0;
    for (size_t i = 0; i < sizeof shown / sizeof *shown && used < n; i++)
        used += (size_t)snprintf(out + used, n - used, "%s%s", i ? ", " : "", m->params[shown[i]].part[0].name);
}

static int check_patterns(const model *m, const char *option, const char *const *patterns, int n, pt_error *e)
{
    char examples[3 * MODEL_NAME + 8];
    for (int i = 0; i < n; i++) {
        bool any = false;
        for (int p = 0; p < m->params_n; p++)
            for (int k = 0; k < m->params[p].parts; k++)
                any = any || matches(patterns[i], m->params[p].part[k].name);
        if (any)
            continue;
        name_examples(m, examples, sizeof examples);
        return pt_fail(e, PT_USAGE, "%s '%.200s' matches no tensor of this model; its tensors have names such as %s", option, patterns[i],
                       examples);
    }
    return 0;
}

static bool part_is_trained(const param_part *part, const model_freezing *f)
{
    return (!f->train_only_n || any_matches(f->train_only, f->train_only_n, part->name)) &&
    !any_matches(f->freeze, f->freeze_n, part->name);
}

static bool in_layers(const param *p, const model_freezing *f)
{
    const int layer = p->block - 1; /* block 0 is the embedding */
    return !f->layers || (p->kind->block == BLOCK_LAYER && layer >= f->first_layer && layer < f->first_layer + f->layers);
}

/* The parts of a parameter are one matrix in memory, so they are trained or frozen together. */
static int refuse_split(const param *p, pt_error *e)
{
    char parts[MODEL_MAX_PARTS * (MODEL_NAME + 2)];
    size_t used = 0;
    for (int i = 0; i < p->parts && used < sizeof parts; i++)
        used += (size_t)snprintf(parts + used, sizeof parts - used, "%s%s", i ? ", " : "", p->part[i].name);
    return pt_fail(e, PT_USAGE,
                   "`freeze` and `train_only` select only some of %s, which are trained or frozen together: name all of them or none",
                   parts);
}

int model_freeze(model *m, const model_freezing *f, pt_error *e)
{
    int failed = check_patterns(m, "`freeze`", f->freeze, f->freeze_n, e);
    if (!failed)
        failed = check_patterns(m, "`train_only`", f->train_only, f->train_only_n, e);
    bool any = false;
    m->layers_at_once = f->layers;
    for (int i = 0; i < m->params_n && !failed; i++) {
        param *p = &m->params[i];
        const bool trained = part_is_trained(&p->part[0], f);
        p->trainable = ((trained && in_layers(p, f)) || p->always) && p->kind->use != USE_CORRECTION;
        any = any || (p->trainable && !p->always);
        for (int k = 1; k < p->parts && !failed; k++)
            if (part_is_trained(&p->part[k], f) != trained)
                failed = refuse_split(p, e);
    }
    if (!failed && (!any || !model_trained_parameters(m)))
        failed = pt_fail(e, PT_USAGE, "`freeze` and `train_only` leave nothing to train%s: freeze fewer tensors",
                         f->layers ? " in some layers" : "");
    return failed;
}

int64_t model_trained_parameters(const model *m)
{
    int64_t n = 0;
    for (int i = 0; i < m->params_n; i++)
        n += m->params[i].trainable && m->params[i].kind->use != USE_CONSTANT ? m->params[i].rows * m->params[i].cols : 0;
    return n;
}

uint64_t model_frozen_hash(const model *m)
{
    uint64_t hash = 0xcbf29ce484222325u;
    bool any = false;
    for (int i = 0; i < m->params_n; i++) {
        if (m->params[i].kind->use == USE_CORRECTION)
            continue; /* never trained */
        hash = (hash ^ (uint64_t)(m->params[i].trainable ? 1 : 2 + m->params[i].storage)) * 0x100000001b3u;
        if (param_is_adapter(&m->params[i]))
            hash = (hash ^ (uint64_t)(m->params[i].rows * m->params[i].cols)) * 0x100000001b3u;
        any = any || !m->params[i].trainable;
    }
    return any ? hash : 0;
}
