#include "optimizer/optimizer.h"

#include "protrain.h"

#include <string.h>

const optimizer *const optimizers[] = {[PT_OPTIMIZER_ADAMW] = &optimizer_adamw, [PT_OPTIMIZER_ADAMW8BIT] = &optimizer_adamw8bit,
                                       [PT_OPTIMIZER_MUON] = &optimizer_muon, NULL};

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

double rule_bytes(const update_rule *r, pt_dtype type)
{
    double bytes = 4; /* weights: fp32, or two halves */
    for (int i = 0; i < rule_slabs(r); i++)
        bytes += (double)dtype_bytes(r->slabs[i].type) / r->slabs[i].values;
    return 2 * bytes + (double)dtype_bytes(type);
}
