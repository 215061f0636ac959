#include "gguf/adapter.h"

#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 4 << 20 };

/* ---- what can be written ---- */

/* The first module that has an adapter. */
static const adapter_module *first_module(const model *m)
{
    for (int b = 1; b < m->blocks_n - 1; b++)
        for (int i = 0; i < MODEL_MATRICES; i++)
            for (int k = 0; k < adapter_parts(m, b, i); k++)
                if (adapter_at(m, b, i, k)->rank)
                    return adapter_at(m, b, i, k);
    return NULL;
}

static bool adapts_experts(const model *m)
{
    bool any = false;
    for (int b = 1; b < m->blocks_n - 1; b++)
        for (int i = 0; i < MODEL_MATRICES; i++)
            for (int k = 0; k < adapter_parts(m, b, i); k++)
                any = any || (adapter_is_of_experts(i) && adapter_at(m, b, i, k)->rank);
    return any;
}

/* Of what makes the inputs of Gemma 4's layers: llama.cpp multiplies that matrix without an adapter. */
static bool adapts_inputs(const model *m)
{
    return m->config.input_width && adapter_at(m, 1, adapter_matrix(PARAM_INPUTS), 0)->rank;
}

int gguf_adapter_open(gguf_adapter *x, const char *folder, pt_error *e)
{
    const adapter_module *first = first_module(x->m);
    const char *has = model_has_magnitudes(x->m) ? "magnitudes (DoRA)" : adapts_experts(x->m) ? "adapters of experts"
                      : model_has_whole(x->m) ? "modules that were trained in full"
                      : adapts_inputs(x->m) ? "an adapter of per_layer_model_projection" : NULL;
    if (has)
        return pt_fail(e, PT_FAILED, "%.400s has %s, which a GGUF file of an adapter cannot hold here: leave `adapter_only` out, and the "
                                     "adapter is merged into the model's file", folder, has);
    if (!first)
        return pt_fail(e, PT_FAILED, "%.400s has no adapter of a linear layer", folder);
    x->alpha = (float)((double)first->scale * first->rank);
    x->read = malloc(READ_BYTES);
    return x->read ? 0 : pt_fail(e, PT_FAILED, "out of memory for reading weights");
}

void gguf_adapter_close(gguf_adapter *x)
{
    free(x->read);
    x->read = NULL;
}

/* ---- tensors ---- */

/* The part of the parameter that has all rows of the tensor; -1: there is none. */
static int part_of(const param *p, const gguf_tensor *t)
{
    const int64_t end = t->row0 + (t->rows - 1) * t->stride + 1;
    for (int k = 0; k < p->parts; k++)
        if (t->row0 >= p->part[k].row0 && end <= p->part[k].row0 + p->part[k].rows)
            return k;
    return -1;
}

static bool any_part(const model *m, const param *p, int matrix)
{
    bool any = false;
    for (int k = 0; k < adapter_parts(m, p->block, matrix); k++)
        any = any || adapter_at(m, p->block, matrix, k)->rank;
    return any;
}

static void put(gguf_tensors *out, gguf_tensor x, const gguf_tensor *of, const char *ending)
{
    snprintf(x.name, sizeof x.name, "%.55s.%s", of->name, ending);
    out->list[out->n++] = x;
}

static void put_both(const gguf_adapter *x, const gguf_tensor *t, int part, gguf_type type, gguf_tensors *out)
{
    const param *p = &x->m->params[t->param];
    const int matrix = adapter_matrix(p->role), rank = adapter_at(x->m, p->block, matrix, part)->rank;
    const int *param_of_role = x->m->blocks[p->block].param_of_role;
    gguf_tensor a = {.layer = t->layer, .type = type, .param = param_of_role[adapter_a(matrix)], .rows = rank, .cols = p->cols, .stride = 1,
                     .row0 = adapter_column(x->m, p->block, matrix, part), .columns = t->columns};
    gguf_tensor b = *t;
    if (t->columns) {
        a.turn = t->turn;
        b.turn = (gguf_turn){0};
        b.columns = false;
    }
    b.param = param_of_role[adapter_b(matrix, part)];
    b.row0 -= p->part[part].row0;
    b.cols = rank;
    b.type = type;
    b.whole = false;
    put(out, a, t, "lora_a");
    put(out, b, t, "lora_b");
}

int gguf_adapter_list(const gguf_adapter *x, const gguf_tensors *of_model, gguf_type type, gguf_tensors *out, pt_error *e)
{
    *out = (gguf_tensors){.list = calloc((size_t)of_model->n * 2 + 1, sizeof *out->list)};
    if (!out->list)
        return pt_fail(e, PT_FAILED, "no memory for a table of tensors");
    for (int i = 0; i < of_model->n; i++) {
        const gguf_tensor *t = &of_model->list[i];
        const param *p = t->param >= 0 ? &x->m->params[t->param] : NULL;
        if (!p || p->kind->use != USE_MATRIX || !any_part(x->m, p, adapter_matrix(p->role)))
            continue;
        const int part = part_of(p, t);
        if (part < 0)
            return pt_fail(e, PT_FAILED, "%s has rows of several modules, whose adapters have no common product: leave `adapter_only` out",
                           t->name);
        if (adapter_at(x->m, p->block, adapter_matrix(p->role), part)->rank)
            put_both(x, t, part, type, out);
    }
    return 0;
}

/* What lora_b is multiplied by; 1 for all modules of one scale and rank. */
static float rest_of_scale(const gguf_adapter *x, const param *p)
{
    for (int i = 0; i < MODEL_MATRICES; i++)
        for (int k = 0; k < adapter_parts(x->m, p->block, i); k++)
            if (p->role == adapter_b(i, k)) {
                const adapter_module *of = adapter_at(x->m, p->block, i, k);
                const double rest = (double)of->scale * of->rank / (double)x->alpha;
                return fabs(rest - 1) < 1e-6 ? 1 : (float)rest;
            }
    return 1;
}

int gguf_adapter_rows(void *arg, int index, int64_t row0, int64_t n, float *out, pt_error *e)
{
    const gguf_adapter *x = arg;
    const param *p = &x->m->params[index];
    const float rest = rest_of_scale(x, p);
    const int failed = weights_read(x->m, x->weights, index, row0, n, out, x->read, READ_BYTES, e);
    for (int64_t i = 0; i < n * p->cols && !failed && rest != 1; i++)
        out[i] *= rest;
    return failed;
}
