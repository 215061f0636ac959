/* fuzz_config.c - any bytes as a config.json: a model whose description is whole, or a refusal with a
 * sentence. */
#include "model/model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void notice_check(void *arg, const char *text)
{
    assert(strlen(text) > 10);
    ++*(int *)arg;
}

static void config_check(const model_config *c)
{
    assert(c->layers >= 1 && c->layers <= MODEL_MAX_LAYERS);
    assert(c->vocab > 0 && c->hidden > 0 && c->ffn > 0 && c->max_positions > 0);
    assert(c->heads > 0 && c->kv_heads > 0 && c->heads % c->kv_heads == 0 && c->head_dim > 0);
    assert(c->bos < c->vocab && c->eos < c->vocab && c->padding < c->vocab);
    assert(c->norm_eps >= 0 && c->attention_scale > 0 && c->initializer_range >= 0);
    for (int i = 0; i < c->layers; i++) {
        const attention_heads heads = model_heads(c, i);
        assert(c->window[i] >= 0 && c->layer_scale[i] > 0);
        assert(heads.dim > 0 && heads.kv_heads > 0 && c->heads % heads.kv_heads == 0);
        assert(!model_scans(c, i) || (c->scan_dim > 0 && c->scan_key_heads > 0 && c->scan_heads % c->scan_key_heads == 0));
        assert(!c->sparse[i] || (c->experts_used > 0 && c->experts_used <= c->experts && c->expert_ffn > 0));
    }
    if (c->position != POSITION_ROTARY)
        return;
    const int64_t widest = c->full_head_dim > c->head_dim ? c->full_head_dim : c->head_dim;
    float *table = malloc(sizeof *table * 2 * (size_t)widest);
    assert(table);
    for (int k = 0; k < c->ropes_n; k++) {
        const rope_config *r = &c->rope[k];
        assert(r->rotated >= 2 && r->rotated % 2 == 0 && r->rotated <= widest);
        model_rope_table(r, 2, 0, 2, table);
        for (int64_t i = 0; i < 2 * r->rotated; i++)
            assert(isfinite(table[i]) && (double)fabsf(table[i]) <= r->attention_factor * (1 + r->scaling_beta * 2) * 1.000001);
    }
    free(table);
}

static void model_check(const model *m)
{
    int64_t sum = 0;
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        const int64_t most = m->config.experts > 1 ? m->config.experts * MODEL_MAX_PARTS : MODEL_MAX_PARTS;
        int64_t extent = 0;
        assert(p->rows > 0 && p->cols > 0 && p->parts >= 1 && p->parts <= most);
        for (int k = 0; k < p->parts; k++) {
            assert(p->part[k].name[0] && strlen(p->part[k].name) < MODEL_NAME - 1);
            assert(p->part[k].row0 == extent && p->part[k].rows > 0);
            extent += p->part[k].rows;
        }
        assert(extent == (p->part[0].vector ? p->cols : p->rows));
        assert(!__builtin_add_overflow(sum, p->rows * p->cols, &sum));
    }
    assert(sum == m->parameters);
    double flops = model_flops_per_token(m, 1024);
    assert(isfinite(flops) && flops > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    pt_error e = {0};
    model *m;
    int notices = 0;
    int status = model_from_json("fuzz/config.json", (const char *)data, n, notice_check, &notices, &m, &e);
    assert(!status == (m != NULL));
    if (status) {
        assert(status == PT_FAILED && e.code == PT_FAILED);
        assert(!strncmp(e.text, "fuzz/config.json", 16) && strlen(e.text) > 24);
        return 0;
    }
    assert(m->config.dropout <= notices);
    config_check(&m->config);
    model_check(m);
    model_close(m);
    return 0;
}
