#include "model/adapter.h"

#include <stdlib.h>

int model_first_trained(const model *m)
{
    int first = m->blocks_n;
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].trainable && m->params[i].block < first)
            first = m->params[i].block;
    return first;
}

int model_passing_layers(const model *m)
{
    const int first = model_first_trained(m), layers = (int)m->config.layers;
    return first < 1 ? 0 : first - 1 < layers ? first - 1 : layers;
}

bool head_adds_to_embedding(const model *m)
{
    return m->config.tied && m->params[m->blocks[0].param_of_role[PARAM_TOKENS]].trainable;
}

bool head_gives_rows(const model *m)
{
    const block *head = &m->blocks[m->blocks_n - 1];
    const param *norm = block_param(m, head, PARAM_NORMF), *bias = block_param(m, head, PARAM_NORMF_BIAS);
    return model_first_trained(m) < m->blocks_n - 1 || (norm && norm->trainable) || (bias && bias->trainable);
}

/* The properties in which layers may differ. */
typedef struct work {
    int mixer;
    int64_t keys;          /* that a token sees at most */
    bool rotated;
    bool backward;
    unsigned char trained[PARAM_ROLES];
    int64_t base, adapter; /* values of its parameters, and of its adapters */
} work;

static work work_of(const model *m, int64_t seq_len, int first_trained, int layer)
{
    const int64_t window = m->config.window[layer];
    work w = {.mixer = m->config.mixer[layer], .keys = window > 0 && window < seq_len ? window : seq_len,
              .backward = layer + 1 >= first_trained,
              .rotated = m->config.layer_rope[layer] >= 0};
    for (int role = 0; role < PARAM_ROLES; role++) {
        const param *p = block_param(m, &m->blocks[layer + 1], role);
        w.trained[role] = p && p->trainable;
        w.base += p && !param_is_adapter(p) ? p->rows * p->cols : 0;
        w.adapter += p && (p->kind->use == USE_ADAPTER_A || p->kind->use == USE_ADAPTER_B) ? p->rows * p->cols : 0;
    }
    return w;
}

/* Roles that only one of two layers trains; counts as many if only one of them has backward. */
static int trained_apart(const work *a, const work *b)
{
    int n = (a->backward == b->backward ? 0 : PARAM_ROLES + 2) + (a->rotated != b->rotated) + (a->mixer != b->mixer) +
            (a->adapter != b->adapter) + (a->base != b->base);
    for (int role = 0; role < PARAM_ROLES; role++)
        n += a->trained[role] != b->trained[role];
    return n;
}

static bool is_nearer(const work *to, const work *a, const work *than)
{
    const int apart = trained_apart(to, a), other = trained_apart(to, than);
    return apart != other ? apart < other : llabs(to->keys - a->keys) < llabs(to->keys - than->keys);
}

void model_layer_kinds(const model *m, int64_t seq_len, layer_kinds *out)
{
    const int first_trained = model_first_trained(m);
    work known[MODEL_LAYER_KINDS];
    *out = (layer_kinds){0};
    for (int i = 0; i < (int)m->config.layers; i++) {
        const work w = work_of(m, seq_len, first_trained, i);
        int best = 0;
        for (int k = 1; k < out->n; k++)
            if (is_nearer(&w, &known[k], &known[best]))
                best = k;
        const bool same = out->n && !trained_apart(&w, &known[best]) && w.keys == known[best].keys;
        if (!same && out->n < MODEL_LAYER_KINDS) {
            best = out->n++;
            known[best] = w;
            out->first[best] = i;
        }
        out->of_layer[i] = (unsigned char)best;
    }
}
