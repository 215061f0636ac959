/* search_case.h - what a search is asked: a model, a step, a machine in a few rates, and budgets. Blocks are priced from operations and
 * bytes; nothing is measured. Shared by bench_search and the test of what it finds. */
#ifndef PT_BENCH_SEARCH_CASE_H
#define PT_BENCH_SEARCH_CASE_H

#include "search/search.h"

#include "base/rng.h"

#include <stdio.h>
#include <string.h>

/* A second; link 0: there is none. */
typedef struct rates { double flops, device_memory, host_memory, link, read, write, task_ns; } rates;

static const rates rates_gpu = {60e12, 800e9, 60e9, 12e9, 3e9, 2e9, 10e3}; /* like an RTX 3090 in a host with one NVMe disk */

typedef struct search_case {
    const char *name;
    int hidden, layers, heads, kv_heads, ffn, vocab;
    int64_t batch, seq_len;
    const rates *rates;
    double device_gib, host_gib, disk_gib; /* host_gib 0: there is no host tier */
} search_case;

/* A case and what it refers to: .in is ready to be searched. */
typedef struct search_problem {
    model *model;
    step_shape shape;
    costs costs;
    search_input in;
} search_problem;

static inline cost_curve case_line(double bytes_per_element, double bytes_per_s)
{
    cost_curve c = {0};
    if (bytes_per_s > 0)
        c = (cost_curve){2, {1, 1e12}, {1e4, 1e4 + 1e12 * bytes_per_element / bytes_per_s * 1e9}};
    return c;
}

static inline void case_price(const rates *r, const model *m, const step_shape *s, costs *c)
{
    const model_config *g = &m->config;
    double rows = (double)s->unit_rows, matmuls = 0;
    for (int i = 0; i < m->params_n; i++)
        matmuls += m->params[i].block == 1 ? (double)m->params[i].rows * (double)m->params[i].cols : 0;
    double forward = (2 * rows * matmuls + 2 * rows * (double)(s->seq_len * g->heads * g->head_dim)) / r->flops * 1e9;
    const double again[SAVE_LEVELS] = {1, 0.7, 0};
    costs_init(c);
    for (int level = 0; level < SAVE_LEVELS; level++) {
        c->layer[0].forward_ns[level] = forward;
        c->layer[0].backward_ns[level] = forward * (2 + again[level]);
    }
    double head = 2 * rows * (double)(g->vocab * g->hidden) / r->flops * 1e9;
    c->embed_ns = rows * (double)g->hidden * 4 / r->device_memory * 1e9;
    c->head_ns = 3 * head;
    c->head_eval_ns = head;
    c->finish = c->embed_finish = case_line(6, r->device_memory);
    c->update_device = case_line(28, r->device_memory);
    c->update_host = case_line(28, r->host_memory);
    c->to_device = c->from_device = case_line(1, r->link);
    c->read = case_line(1, r->read);
    c->write = case_line(1, r->write);
    c->task_ns = r->task_ns;
}

/* 0 or what model_from_json fails with. */
static inline int search_problem_open(const search_case *x, search_problem *p, pt_error *e)
{
    char json[640];
    snprintf(json, sizeof json,
             "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": "
             "%d, "
             "\"num_hidden_layers\": %d, \"intermediate_size\": %d, \"max_position_embeddings\": 8192, \"bos_token_id\": 0, "
             "\"eos_token_id\": 0}", x->vocab, x->hidden, x->heads, x->kv_heads, x->layers, x->ffn);
    int failed = model_from_json(x->name, json, strlen(json), NULL, NULL, &p->model, e);
    if (failed)
        return failed;
    step_shape_init(&p->shape, p->model, PT_BF16, x->batch, x->seq_len);
    case_price(x->rates, p->model, &p->shape, &p->costs);
    p->in = (search_input){.model = p->model, .shape = &p->shape, .costs = &p->costs, .training = true, .clipping = true,
                           .host_tier = x->host_gib > 0};
    const double gib[TIERS] = {x->device_gib, x->host_gib, x->disk_gib};
    for (int t = 0; t < TIERS; t++)
        p->in.budget[t] = (uint64_t)(gib[t] * 1073741824.0);
    return 0;
}

static inline void search_problem_close(search_problem *p) { model_close(p->model); }

/* ---- random cases ---- */

typedef struct case_source { uint64_t seed, drawn; } case_source;

static inline int case_pick(case_source *s, int n, const int *from)
{
    uint32_t w[4];
    rng_words(s->seed, RNG_TEST, 0, s->drawn++, w);
    return from[w[0] % (uint32_t)n];
}

#define CASE_PICK(source, ...) case_pick(source, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]){__VA_ARGS__})

/* GiB of weights and states, about 16 bytes a parameter. */
static inline double case_states_gib(const search_case *x)
{
    double layer = (double)x->hidden * x->hidden * 2.5 + 3.0 * x->hidden * x->ffn;
    return 16 * (layer * x->layers + 2.0 * x->hidden * x->vocab) / 1073741824.0;
}

/* The host has room for 3/8 of weights and states up to plenty, the disk for all of them. */
static inline search_case case_random(case_source *s)
{
    search_case x = {.name = "random model", .kv_heads = 8, .rates = &rates_gpu};
    x.layers = CASE_PICK(s, 20, 24, 32, 40, 48, 64, 80, 100, 126);
    x.heads = CASE_PICK(s, 16, 32, 64);
    x.vocab = CASE_PICK(s, 32000, 50257, 128256, 151936);
    x.batch = CASE_PICK(s, 4, 8, 16, 32);
    x.seq_len = CASE_PICK(s, 512, 1024, 2048, 4096);
    x.device_gib = CASE_PICK(s, 12, 16, 24, 40, 80);
    x.hidden = x.heads * 128;
    x.ffn = x.hidden * 7 / 2 / 256 * 256;
    double gib = case_states_gib(&x);
    x.host_gib = gib * CASE_PICK(s, 3, 6, 8, 11, 20) / 8;
    x.disk_gib = 3 * gib;
    return x;
}

/* Models of 2 to 12 layers, as they are trained on a processor with a disk, with a host tier or without, and on a GPU: from what holds a
 * quarter of weights and states to what holds more than all, beside it room for a unit's activations. */
static inline search_case case_few(case_source *s)
{
    static const rates cpu = {0.9e12, 20e9, 20e9, 8e9, 2e9, 1.5e9, 10e3};
    search_case x = {.name = "few layers", .rates = case_pick(s, 2, (int[]){0, 1}) ? &rates_gpu : &cpu};
    x.layers = CASE_PICK(s, 2, 4, 6, 8, 12);
    x.heads = CASE_PICK(s, 8, 12, 16);
    x.kv_heads = x.heads / CASE_PICK(s, 1, 4);
    x.vocab = CASE_PICK(s, 8000, 50257, 151936);
    x.batch = CASE_PICK(s, 1, 4, 8, 16);
    x.seq_len = CASE_PICK(s, 256, 512, 1024);
    x.hidden = x.heads * 64;
    x.ffn = x.hidden * CASE_PICK(s, 3, 4);
    const double gib = case_states_gib(&x), unit = 2048.0 * (x.hidden * 24.0 + x.vocab * 2.0) / 1073741824.0;
    x.device_gib = gib * CASE_PICK(s, 2, 4, 6, 8, 12) / 8 + unit;
    x.host_gib = x.rates == &rates_gpu || CASE_PICK(s, 0, 1) ? gib * CASE_PICK(s, 2, 6, 12) / 8 + 1.0 / 8 : 0;
    x.disk_gib = 4 * gib;
    return x;
}

#endif
