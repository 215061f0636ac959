#include "optimizer/optimizer.h"

#include "protrain.h"

#include <string.h>

const optimizer *const optimizers[] = {[PT_OPTIMIZER_ADAMW] = &optimizer_adamw, [PT_OPTIMIZER_ADAMW8BIT] = &optimizer_adamw8bit,
                                       [PT_OPTIMIZER_MUON] = &optimizer_muon, [PT_OPTIMIZER_ADAFACTOR] = &optimizer_adafactor,
                                       [PT_OPTIMIZER_APOLLO] = &optimizer_apollo, [PT_OPTIMIZER_APOLLO_MINI] = &optimizer_apollo_mini,
                                       [PT_OPTIMIZER_ADAM_MINI] = &optimizer_adam_mini,
                                       [PT_OPTIMIZER_GALORE] = &optimizer_galore, [PT_OPTIMIZER_APOLLO8BIT] = &optimizer_apollo8bit,
                                       [PT_OPTIMIZER_GALORE8BIT] = &optimizer_galore8bit, NULL};

const optimizer *optimizer_find(const char *name)
{
    for (int i = 0; optimizers[i]; i++)
        if (!strcmp(optimizers[i]->name, name))
            return optimizers[i];
    return NULL;
}

const update_rule *optimizer_rule(const optimizer *o, const param *p)
{
    static const update_rule frozen = {.title = "frozen"};
    return p->trainable ? o->rule_of(p) : &frozen;
}

bool optimizer_is_by_device(const optimizer *o)
{
    bool any = false;
    for (int r = 0; r < OPTIMIZER_RULES && o->rules[r]; r++)
        any = any || o->rules[r]->by_device;
    return any;
}

int rule_slabs(const update_rule *r)
{
    int n = 0;
    while (n < OPTIMIZER_SLABS && r->slabs[n].name)
        n++;
    return n;
}

int rule_find(const update_rule *r, const char *name)
{
    for (int i = 0; i < rule_slabs(r); i++)
        if (!strcmp(r->slabs[i].name, name))
            return i;
    return -1;
}

static bool is_among(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

int optimizer_states(const optimizer *o, const char *names[OPTIMIZER_STATES])
{
    int n = 0;
    for (int r = 0; r < OPTIMIZER_RULES && o->rules[r]; r++)
        for (int i = 0; i < rule_slabs(o->rules[r]); i++)
            if (!is_among(o->rules[r]->slabs[i].name, names, n))
                names[n++] = o->rules[r]->slabs[i].name;
    return n;
}

/* A convolution's weights have too few columns to be worth factoring. */
part_matrix part_matrix_of(const param *p, int k)
{
    const int64_t n = part_matrices(p, k);
    if (p->part[k].vector || p->rows == 1 || p->kind->use == USE_CONV)
        return (part_matrix){1, 1, part_values(p, k)};
    return (part_matrix){n, p->part[k].rows / n, p->cols};
}

uint64_t workspace_of_parts(const param *p, uint64_t (*of_part)(const param *p, int k))
{
    uint64_t most = 0;
    for (int k = 0; k < p->parts; k++) {
        const uint64_t bytes = of_part(p, k);
        most = bytes > most ? bytes : most;
    }
    return most;
}

int64_t slab_of_part(const slab *slab, const param *p, int k)
{
    return slab->of_part ? slab->of_part(p, k) : slab_entries(slab, part_values(p, k));
}

int64_t slab_first(const slab *slab, const param *p, int k)
{
    int64_t first = 0;
    if (!slab->of_part)
        return part_first(p, k) / slab->values;
    for (int i = 0; i < k; i++)
        first += slab->of_part(p, i);
    return first;
}

int64_t slab_of_param(const slab *slab, const param *p)
{
    return slab->of_part ? slab_first(slab, p, p->parts) : slab_entries(slab, p->rows * p->cols);
}

void optimizer_prepare(model *m, const optimizer_args *a)
{
    for (int i = 0; i < m->params_n; i++) {
        param *p = &m->params[i];
        p->low_rank = (int64_t)a->rank;
        p->head_rows = p->role == PARAM_QKV && !m->config.kv_latent ? model_heads(&m->config, m->blocks[p->block].layer).dim : 0;
    }
}

double rule_bytes(const update_rule *r, pt_dtype type)
{
    double bytes = 4; /* weights: fp32, or two halves */
    for (int i = 0; i < rule_slabs(r); i++)
        bytes += r->slabs[i].of_part ? 0 : (double)dtype_bytes(r->slabs[i].type) / r->slabs[i].values; /* of parts: few */
    return 2 * bytes + (double)(1 + r->passes) * (double)dtype_bytes(type);
}
