/* fuzz_adapter.c - any bytes as an adapter_config.json: a model with adapters whose description is whole, or a refusal with a sentence. */
#include "model/adapter.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void adapted_check(const model *m)
{
    int64_t sum = 0;
    int adapters = 0;
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        int64_t extent = 0;
        assert(p->rows > 0 && p->cols > 0 && p->parts >= 1 && p->trainable == param_is_adapter(p));
        for (int k = 0; k < p->parts; k++) {
            assert(p->part[k].name[0] && p->part[k].row0 == extent && p->part[k].rows > 0);
            extent += p->part[k].rows;
        }
        assert(extent == (p->part[0].vector ? p->cols : p->rows));
        assert(m->blocks[p->block].param_of_role[p->role] == i);
        adapters += param_is_adapter(p);
        sum += p->rows * p->cols;
    }
    assert(adapters == (model_has_magnitudes(m) ? 3 : 2) * (int)m->config.layers && sum == m->parameters);
    for (int b = 1; b < m->blocks_n - 1; b++) {
        const adapter_module *a = adapter_at(m, b, 0, 0);
        assert(a->rank >= 1 && a->rank <= ADAPTER_MAX_RANK && isfinite(a->scale) && a->scale > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char config[] = "{\"model_type\": \"llama\", \"vocab_size\": 40, \"hidden_size\": 16, \"num_attention_heads\": 2, "
                                 "\"num_hidden_layers\": 2, \"intermediate_size\": 24, \"max_position_embeddings\": 16}";
    pt_error e = {0};
    model *m;
    int status = model_from_json("config.json", config, sizeof config - 1, NULL, NULL, &m, &e);
    assert(!status);
    status = model_adapt_from_json(m, "fuzz/adapter_config.json", (const char *)data, n, &e);
    if (status) {
        assert(status == PT_FAILED && e.code == PT_FAILED);
        assert(!strncmp(e.text, "fuzz/adapter_config.json", 24) && strlen(e.text) > 32);
    } else {
        adapted_check(m);
    }
    model_close(m);
    return 0;
}
