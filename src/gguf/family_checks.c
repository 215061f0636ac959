/* family_checks.c - what llama.cpp does not compute of a model: an error, or a notice if only some of its output differs. */
#include "gguf/family_parts.h"

#include <float.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct check {
    const model_config *c;
    const gguf_family *f;
    const char *where;
    void (*notice)(void *arg, const char *sentence);
    void *arg;
    pt_error *e;
} check;

static int refuse(const check *k, const char *what)
{
    return pt_fail(k->e, PT_FAILED, "%s: this model has %s, which llama.cpp does not compute for \"%s\"", k->where, what, k->f->name);
}

static void tell(const check *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void tell(const check *k, const char *fmt, ...)
{
    char sentence[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    if (k->notice)
        k->notice(k->arg, sentence);
}

static int check_shapes(const check *k)
{
    const model_config *config = k->c;
    const gguf_family *f = k->f;
    if (!f->free_head_dim && config->heads * config->head_dim != config->hidden)
        return refuse(k, "heads that together are not as wide as the model");
    if (f->equal_heads && config->kv_heads != config->heads)
        return refuse(k, "fewer heads of keys and values than of queries");
    if (config->out_bias && !f->out_bias)
        return refuse(k, "a bias of attention's output");
    if (config->mlp_bias && !f->mlp_bias)
        return refuse(k, "biases of the MLP");
    if (!strcmp(f->model_type, "gpt2") && (!config->qkv_bias || !config->out_bias || !config->mlp_bias))
        return refuse(k, "no biases");
    if ((!strcmp(f->name, "gemma") || !strcmp(f->name, "gemma2")) && !config->tied)
        return refuse(k, "a head that is not tied to the embedding");
    return 0;
}

static int check_activation(const check *k)
{
    const activation_kind a = k->c->activation;
    if (k->f->tanh_gelu && a == ACT_GELU_ERF && !strcmp(k->f->name, "gptneox")) {
        tell(k, "llama.cpp computes this model's GELU by its tanh form, which differs in the fourth digit");
        return 0;
    }
    return a == (k->f->tanh_gelu ? ACT_GELU_TANH : k->f->squared_relu ? ACT_RELU2 : ACT_SILU) ? 0 : refuse(k, "another activation");
}

static int check_attention(const check *k)
{
    const model_config *config = k->c;
    if (k->f->softcaps ? !(config->attention_softcap > 0 && config->logit_softcap > 0) : config->attention_softcap > 0)
        return refuse(k, k->f->softcaps ? "no soft caps" : "a soft cap of the scores");
    if (config->logit_softcap > 0 && !k->f->softcaps && !k->f->logit_softcap)
        return refuse(k, "a soft cap of the logits");
    const int64_t window = smallest_window(config);
    if (k->f->windows == FAMILY_WINDOWS_NONE && window && window < config->max_positions)
        tell(k, "llama.cpp has no sliding window for \"%s\": its output differs for texts of more than %lld tokens", k->f->name,
             (long long)window);
    return 0;
}

static int check_rope(const check *k, const rope_config *r)
{
    if (r->kind == ROPE_PARTIAL && !is_gemma4(k->f))
        return refuse(k, "rope scaling of type proportional");
    if (!k->f->partial_rope && r->rotated != k->c->head_dim)
        return refuse(k, "heads that are rotated in part");
    if (r->kind == ROPE_LLAMA3 && !k->f->rope_factors)
        return refuse(k, "rope scaling of type llama3");
    if (r->kind == ROPE_LONG && !k->f->long_ropes)
        return refuse(k, "rope scaling of type longrope");
    if (r->kind == ROPE_YARN && !standard_yarn(k->f, r) && !k->f->rope_factors)
        return refuse(k, "yarn with \"beta_fast\", \"beta_slow\" or \"truncate\" other than 32, 1 and true");
    return 0;
}

/* Does llama.cpp give this layer no rope? */
static bool is_unrotated_there(const check *k, int layer)
{
    if (is_granite_hybrid(k->f))
        return !rotates(k->c);
    if (is_nemotron_h(k->f))
        return true;
    return k->f->rope_in_windows ? !k->c->window[layer] : !strcmp(k->f->name, "smollm3") && (layer + 1) % 4 == 0;
}

static int check_ropes(const check *k)
{
    const model_config *config = k->c;
    int status = config->ropes_n ? check_rope(k, &config->rope[0]) : 0;
    for (int i = 0; i < config->layers && !status && config->position == POSITION_ROTARY; i++)
        if (has_attention(config, i) && (config->layer_rope[i] < 0) != is_unrotated_there(k, i))
            status = refuse(k, strcmp(k->f->name, "smollm3") ? "layers without positions"
                                                             : "layers without positions other than every fourth");
    if (status || k->f->windows != FAMILY_WINDOWS_BY_KEY || config->ropes_n < 2 || !any_window(config))
        return status;
    if (config->rope[1].kind != ROPE_PLAIN)
        return refuse(k, "rope scaling in layers with a window");
    return !strcmp(k->f->name, "olmo2") && config->rope[0].theta != config->rope[1].theta
               ? refuse(k, "another rope theta in layers with a window")
               : 0;
}

/* Of Nemotron H: where a layer is an MLP, it has experts there, and one that all tokens share. */
static int check_branches(const check *k)
{
    const model_config *config = k->c;
    for (int i = 0; i < config->layers; i++)
        if (config->mixer[i] == MIXER_NONE && !config->sparse[i])
            return refuse(k, "layers with an MLP beside such with experts");
    return config->shared_ffn ? 0 : refuse(k, "no shared expert");
}

static int check_experts(const check *k)
{
    const model_config *config = k->c;
    const int64_t first = first_sparse(config), step = sparse_step(config);
    if (!config->experts)
        return 0;
    if (config->one_branch)
        return check_branches(k);
    if (k->f->fixed_norm && config->router_norm != k->f->norm)
        return refuse(k,
                      config->router_norm ? "weights of experts that are divided by their sum" : "weights of experts that are not divided");
    if (config->router_least != 0 && config->router_least != 1e-12f)
        return refuse(k, "a \"moe_norm_min\" other than 1e-12");
    for (int64_t i = first; i < config->layers; i++)
        if (config->sparse[i] != ((i - first) % step == 0))
            return refuse(k, "layers without experts after such with");
    if ((k->f->all_sparse && (first || step > 1)) || (step > 1 && strcmp(k->f->name, "ernie4_5-moe") != 0))
        return refuse(k, "layers without experts");
    return 0;
}

/* What llama.cpp fixes for gpt-oss. */
static int check_gpt_oss(const check *k)
{
    const model_config *config = k->c;
    if (!is_gpt_oss(k->f))
        return 0;
    if (!config->qkv_bias || !config->out_bias || !config->router_bias || !config->expert_bias || !config->sinks)
        return refuse(k, "no biases or no sinks");
    if (config->expert_alpha != 1.702f || config->expert_limit != 7)
        return refuse(k, "experts with other constants than 1.702 and 7");
    if (config->ropes_n && config->rope[0].kind == ROPE_YARN && !config->rope[0].truncate)
        tell(k, "llama.cpp rounds the limits of yarn to whole pairs, and this model does not: its output differs a little");
    return 0;
}

/* What llama.cpp fixes for Gemma 4. Layers read the keys and values of the last layer with its own, or of the one before if they have a
 * window. */
static int check_gemma4(const check *k)
{
    const model_config *config = k->c;
    const int64_t own = config->layers - config->kv_shared;
    if (!is_gemma4(k->f))
        return 0;
    if (!any_window(config) || own < 2)
        return refuse(k, any_window(config) ? "one layer alone with keys and values" : "no layer with a window");
    for (int i = (int)own; i < config->layers; i++)
        if (model_kv_layer(config, i) != own - (config->window[i] ? 2 : 1))
            return refuse(k, "layers that read the keys and values of another layer than the last two that make them");
    if (config->rope[0].kind != ROPE_PLAIN && config->rope[0].kind != ROPE_PARTIAL)
        return refuse(k, "rope scaling other than of type proportional");
    return config->rope[1].kind == ROPE_PLAIN ? 0 : refuse(k, "rope scaling in layers with a window");
}

static int check_mixers(const check *k)
{
    const model_config *config = k->c;
    const int full = first_attention(config) + 1;
    if (!k->f->mixers)
        return 0;
    if (full > config->layers)
        return refuse(k, "no layer with attention");
    if (config->mix_bias)
        return refuse(k, "biases of the matrices of its layers with a state");
    if (config->conv_bias && !is_granite_hybrid(k->f) && !is_falcon(k->f) && !is_nemotron_h(k->f))
        return refuse(k, "a bias of the convolution");
    if (is_nemotron_h(k->f) && config->step_least > 0)
        tell(k, "llama.cpp has no least step (\"time_step_min\" %g): its output differs where a step would be smaller",
             (double)config->step_least);
    if (is_granite_hybrid(k->f) && config->scan_heads * config->scan_dim != 2 * config->hidden)
        return refuse(k, "a state of another width than twice the model's");
    if ((is_granite_hybrid(k->f) || is_falcon(k->f)) && (config->step_least > 0 || config->step_most < FLT_MAX))
        return refuse(k, "limits of its steps (\"time_step_limit\")");
    if (config->mix_norm && config->mix_norm_first && is_falcon(k->f))
        return refuse(k, "a norm before the gate of its scans (\"mamba_norm_before_gate\")");
    if (!k->f->by_interval)
        return 0;
    if (config->scan_key_dim != config->scan_dim)
        return refuse(k, "keys and values of different sizes in its layers with a state");
    for (int i = 0; i < config->layers; i++)
        if (has_attention(config, i) != ((i + 1) % full == 0))
            return refuse(k, "layers with attention that are not every so manieth");
    return 0;
}

int gguf_family_check(const model_config *config, const gguf_family *f, const char *where, void (*notice)(void *, const char *), void *arg,
                      pt_error *e)
{
    const check k = {config, f, where, notice, arg, e};
    int status = check_shapes(&k);
    if (!status)
        status = check_activation(&k);
    if (!status)
        status = check_attention(&k);
    if (!status)
        status = check_ropes(&k);
    if (!status)
        status = check_experts(&k);
    if (!status)
        status = check_gpt_oss(&k);
    if (!status)
        status = check_gemma4(&k);
    if (!status)
        status = check_mixers(&k);
    if (!status && config->multimodal)
        tell(&k, "only the text part of this model for text and images is exported");
    return status;
}
