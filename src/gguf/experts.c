/* experts.c - the tensors of layers with experts. */
#include "gguf/tensors_parts.h"

/* A matrix for each expert: `rows` rows from `first` on, of each expert's in the parameter. */
static gguf_tensor *add_experts(gguf_lister *l, int i, int layer, const char *kind, int64_t first, int64_t rows)
{
    const param *p = &l->m->params[i];
    const int64_t experts = param_experts(&l->m->config, p), each = p->rows / experts;
    gguf_tensor *x = gguf_add_part(l, i, layer, kind, first, experts * rows);
    if (!x || p->role < PARAM_ROUTER) /* a shared expert is one matrix */
        return x;
    x->experts = experts;
    x->skipped = each - rows;
    return x;
}

/* Of experts with a limit: rows (or elements) of gate and up are in turn. */
static void add_mixed_experts(gguf_lister *l, int i, int layer, const char *kind, int64_t first)
{
    const model_config *config = &l->m->config;
    gguf_tensor *x = gguf_add_part(l, i, layer, kind, first, config->experts * config->expert_ffn);
    if (!x)
        return;
    x->stride = 2;
    if (x->vector)
        x->split = config->expert_ffn;
    else
        x->experts = config->experts;
}

static void add_gate_and_up(gguf_lister *l, int i, int layer, const char *gate, const char *up)
{
    const param *p = &l->m->params[i];
    if (p->role >= PARAM_EXPERTS_UP && l->m->config.expert_limit > 0) {
        add_mixed_experts(l, i, layer, gate, 0);
        add_mixed_experts(l, i, layer, up, 1);
        return;
    }
    const int64_t all = p->rows / (p->kind->use == USE_EXPERTS ? param_experts(&l->m->config, p) : 1), half = all / 2;
    if (!l->m->config.gated) {
        add_experts(l, i, layer, up, 0, all);
        return;
    }
    add_experts(l, i, layer, gate, 0, half);
    add_experts(l, i, layer, up, half, half);
}

/* The parameters of a layer with experts beside its norms and attention; false: it is another one. */
bool gguf_add_sparse(gguf_lister *l, int i, int layer)
{
    const param *p = &l->m->params[i];
    const model_config *config = &l->m->config;
    gguf_tensor *x;
    if (config->experts_beside && p->role == PARAM_EXPERTS_UP)
        add_experts(l, i, layer, "ffn_gate_up_exps", 0, p->rows / config->experts);
    if (config->experts_beside && (p->role == PARAM_UP || p->role == PARAM_DOWN || p->role == PARAM_EXPERTS_UP))
        return p->role == PARAM_EXPERTS_UP; /* the others are of the MLP, as in layers without experts */
    switch (p->role) {
    case PARAM_ROUTER: case PARAM_SHARED_GATE:
        x = gguf_add_part(l, i, layer, p->role == PARAM_ROUTER ? "ffn_gate_inp" : "ffn_gate_inp_shexp", 0, 0);
        if (x)
            x->whole = true, x->vector = p->role == PARAM_SHARED_GATE;
        return true;
    case PARAM_ROUTER_BIAS: gguf_add_part(l, i, layer, "ffn_gate_inp", 0, 0); return true;
    case PARAM_CORRECTION: gguf_add_part(l, i, layer, "exp_probs_b", 0, 0); return true;
    case PARAM_EXPERTS_UP: case PARAM_EXPERTS_UP_BIAS: add_gate_and_up(l, i, layer, "ffn_gate_exps", "ffn_up_exps"); return true;
    case PARAM_EXPERTS_DOWN:
        x = add_experts(l, i, layer, "ffn_down_exps", 0, model_expert_width(config));
        gguf_multiply(x, p->rows, l->f->scaled_experts ? config->router_scale : 1);
        return true;
    case PARAM_EXPERTS_DOWN_BIAS:
        x = gguf_add_part(l, i, layer, "ffn_down_exps", 0, 0);
        if (x)
            x->split = config->hidden;
        return true;
    case PARAM_EXPERTS_IN: gguf_add_part(l, i, layer, "ffn_latent_down", 0, 0); return true;
    case PARAM_EXPERTS_OUT: gguf_add_part(l, i, layer, "ffn_latent_up", 0, 0); return true;
    case PARAM_UP: case PARAM_SHARED_UP: add_gate_and_up(l, i, layer, "ffn_gate_shexp", "ffn_up_shexp"); return true;
    case PARAM_DOWN: case PARAM_SHARED_DOWN: gguf_add_part(l, i, layer, "ffn_down_shexp", 0, 0); return true;
    default: return false;
    }
}
