/* adapter.c - which modules have adapters, and the adapters' parameters. */
#include "model/adapter.h"

#include "model/architectures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- roles ---- */

static const struct { param_role base, a, b, magnitude; } roles[MODEL_MATRICES] = {
    {PARAM_QKV, PARAM_QKV_A, PARAM_QKV_B, PARAM_QKV_MAGNITUDE},
    {PARAM_OUT, PARAM_OUT_A, PARAM_OUT_B, PARAM_OUT_MAGNITUDE},
    {PARAM_UP, PARAM_UP_A, PARAM_UP_B, PARAM_UP_MAGNITUDE},
    {PARAM_DOWN, PARAM_DOWN_A, PARAM_DOWN_B, PARAM_DOWN_MAGNITUDE},
    {PARAM_MIX_IN, PARAM_MIX_IN_A, PARAM_MIX_IN_B, PARAM_MIX_IN_MAGNITUDE},
    {PARAM_MIX_OUT, PARAM_MIX_OUT_A, PARAM_MIX_OUT_B, PARAM_MIX_OUT_MAGNITUDE},
};

int adapter_matrix(param_role role)
{
    int i = 0;
    while (i < MODEL_MATRICES - 1 && roles[i].base != role)
        i++;
    return i;
}

param_role adapter_base(int matrix) { return roles[matrix].base; }
param_role adapter_a(int matrix) { return roles[matrix].a; }
param_role adapter_b(int matrix, int part) { return roles[matrix].b + (unsigned)part; }
param_role adapter_magnitude(int matrix) { return roles[matrix].magnitude; }

bool param_is_adapter(const param *p)
{
    return p->kind->use == USE_ADAPTER_A || p->kind->use == USE_ADAPTER_B || p->kind->use == USE_MAGNITUDE;
}

int64_t adapter_column(const model *m, int block, int matrix, int part)
{
    int64_t at = 0;
    for (int k = 0; k < part; k++)
        at += adapter_at(m, block, matrix, k)->rank;
    return at;
}

/* ---- modules ---- */

void adapter_module_name(const param *base, int part, char out[MODEL_NAME])
{
    static const char end[] = ".weight";
    snprintf(out, MODEL_NAME, "%s", base->part[part].name);
    const size_t n = strlen(out);
    if (n > sizeof end - 1 && !strcmp(out + n - (sizeof end - 1), end))
        out[n - (sizeof end - 1)] = 0;
}

bool adapter_name_ends(const char *module, const char *target)
{
    const size_t n = strlen(module), k = strlen(target);
    return k && k <= n && !strcmp(module + n - k, target) && (k == n || module[n - k - 1] == '.');
}

/* NULL: it has no adapter, or none of which PEFT knows whose it is. */
static const param *matrix_of(const model *m, int block, int matrix)
{
    const bool mlp = roles[matrix].base == PARAM_UP || roles[matrix].base == PARAM_DOWN;
    return mlp && architecture_find(m->config.model_type)->mlp_means_experts ? NULL : block_param(m, &m->blocks[block], roles[matrix].base);
}

int adapter_parts(const model *m, int block, int matrix)
{
    const param *p = matrix_of(m, block, matrix);
    return p ? p->parts : 0;
}

const param *adapter_example(const model *m, int matrix)
{
    const param *found = NULL;
    for (int b = 1; b < m->blocks_n - 1; b++) {
        const param *p = matrix_of(m, b, matrix);
        found = p && (!found || p->parts > found->parts) ? p : found;
    }
    return found;
}

static int example_parts(const model *m, int matrix)
{
    const param *p = adapter_example(m, matrix);
    return p ? p->parts : 0;
}

void adapter_short_name(const model *m, int matrix, int part, char out[MODEL_NAME])
{
    char name[MODEL_NAME], other[MODEL_NAME];
    adapter_module_name(adapter_example(m, matrix), part, name);
    const char *at = strrchr(name, '.');
    for (bool again = at != NULL; again;) {
        again = false;
        for (int i = 0; i < MODEL_MATRICES; i++)
            for (int k = 0; k < example_parts(m, i); k++) {
                adapter_module_name(adapter_example(m, i), k, other);
                again = again || ((i != matrix || k != part) && adapter_name_ends(other, at + 1));
            }
        if (again)
            for (at--; at > name && *at != '.';)
                at--;
    }
    snprintf(out, MODEL_NAME, "%s", at ? at + 1 : name);
}

static void list_modules(const model *m, char *out, size_t n)
{
    size_t used = 0;
    char name[MODEL_NAME];
    for (int i = 0; i < MODEL_MATRICES; i++)
        for (int k = 0; k < example_parts(m, i) && used < n; k++) {
            adapter_short_name(m, i, k, name);
            used += (size_t)snprintf(out + used, n - used, "%s%s", used ? ", " : "", name);
        }
}

/* ---- targets of a new adapter ---- */

enum { TARGETS_MOST = 32, TARGET_BYTES = MODEL_NAME };

typedef struct targets { int n; char of[TARGETS_MOST][TARGET_BYTES]; } targets;

/* Targets of the matrices first .. last. */
static void add_matrices(const model *m, int first, int last, targets *t)
{
    for (int i = first; i <= last; i++)
        for (int k = 0; k < example_parts(m, i); k++)
            adapter_short_name(m, i, k, t->of[t->n++]);
}

static int refuse_target(const model *m, const char *name, size_t n, pt_error *e)
{
    char all[512];
    list_modules(m, all, sizeof all);
    const char *mlp = example_parts(m, 2) ? ", mlp," : "";
    return pt_fail(e, PT_USAGE,
                   "`lora_targets`: '%.*s' is not a linear layer of this model that can have an adapter: give all-linear, attention%s or "
                   "some of %s separated by commas (the embedding, the head and experts get no adapter)",
                   (int)(n < 100 ? n : 100), name, mlp, all);
}

static bool names_any(const model *m, const char *target)
{
    char name[MODEL_NAME];
    bool any = false;
    for (int b = 1; b < m->blocks_n - 1; b++)
        for (int i = 0; i < MODEL_MATRICES; i++)
            for (int k = 0; k < adapter_parts(m, b, i); k++) {
                adapter_module_name(matrix_of(m, b, i), k, name);
                any = any || adapter_name_ends(name, target);
            }
    return any;
}

static int add_names(const model *m, const char *list, targets *t, pt_error *e)
{
    for (const char *at = list;; at++) {
        const size_t n = strcspn(at, ",");
        if (!n || n >= TARGET_BYTES)
            return refuse_target(m, at, n, e);
        if (t->n == TARGETS_MOST)
            return pt_fail(e, PT_USAGE, "`lora_targets` has more than %d names: name fewer", TARGETS_MOST);
        memcpy(t->of[t->n], at, n);
        t->of[t->n++][n] = 0;
        if (!names_any(m, t->of[t->n - 1]))
            return refuse_target(m, at, n, e);
        at += n;
        if (!*at)
            return 0;
    }
}

static int read_targets(const model *m, const char *list, targets *t, pt_error *e)
{
    t->n = 0;
    if (!list || !strcmp(list, "all-linear"))
        add_matrices(m, 0, MODEL_MATRICES - 1, t);
    else if (!strcmp(list, "attention")) {
        add_matrices(m, 0, 1, t);
        add_matrices(m, 4, 5, t);
    }
    else if (!strcmp(list, "mlp"))
        add_matrices(m, 2, 3, t);
    else
        return add_names(m, list, t, e);
    return t->n ? 0 : refuse_target(m, list, strlen(list), e);
}

/* For a model of text and images, a regular expression: other parts have modules of the same names, which PEFT would adapt, too. */
static json_t *text_modules(const targets *t)
{
    char all[TARGETS_MOST * (TARGET_BYTES + 8)] = ".*language_model\\..*\\.(";
    size_t n = strlen(all);
    for (int i = 0; i < t->n; i++) {
        all[n] = '|';
        n += i > 0;
        for (const char *p = t->of[i]; *p; all[n++] = *p++)
            if (*p == '.')
                all[n++] = '\\';
    }
    strcpy(all + n, ")");
    return json_string(all);
}

static json_t *target_modules(const model *m, const targets *t)
{
    if (m->config.multimodal)
        return text_modules(t);
    json_t *names = json_array();
    for (int i = 0; i < t->n; i++)
        json_array_append_new(names, json_string(t->of[i]));
    return names;
}

static json_t *config_of(const model *m, const adapter_options *o, double alpha, const targets *t)
{
    json_t *number = alpha == floor(alpha) ? json_integer((json_int_t)alpha) : json_real(alpha);
    return json_pack("{s:s, s:s, s:n, s:b, s:s, s:b, s:f, s:I, s:o, s:{}, s:{}, s:b, s:b, s:o, s:n}", "peft_type", "LORA", "task_type",
                     "CAUSAL_LM", "base_model_name_or_path", "inference_mode", 1, "bias", "none", "fan_in_fan_out",
                     architecture_find(m->config.model_type)->transposed, "lora_dropout", 0.0, "r", (json_int_t)o->rank, "lora_alpha",
                     number,
                     "rank_pattern", "alpha_pattern", "use_rslora", o->rslora, "use_dora", o->dora, "target_modules", target_modules(m, t),
                     "modules_to_save");
}

int model_adapt(model *m, const adapter_options *o, pt_error *e)
{
    targets t;
    adapters *a;
    char name[MODEL_NAME];
    const double alpha = o->alpha > 0 ? o->alpha : 2 * (double)o->rank;
    if (o->rank < 1 || o->rank > ADAPTER_MAX_RANK)
        return pt_fail(e, PT_USAGE, "`lora_rank` is %lld: it must be between 1 and %d", (long long)o->rank, ADAPTER_MAX_RANK);
    int failed = read_targets(m, o->targets, &t, e);
    if (!failed)
        failed = adapters_new(m, &a, e);
    if (failed)
        return failed;
    const adapter_module one = {(int)o->rank, (float)(alpha / (o->rslora ? sqrt((double)o->rank) : (double)o->rank))};
    for (int b = 1; b < m->blocks_n - 1; b++)
        for (int i = 0; i < MODEL_MATRICES; i++)
            for (int k = 0; k < adapter_parts(m, b, i); k++) {
                adapter_module_name(matrix_of(m, b, i), k, name);
                for (int n = 0; n < t.n; n++)
                    if (adapter_name_ends(name, t.of[n]))
                        a->of[b - 1][i][k] = one;
            }
    a->dora = o->dora;
    a->config = config_of(m, o, alpha, &t);
    return adapters_attach(m, a, e);
}

/* ---- parameters ---- */

int adapters_new(const model *m, adapters **out, pt_error *e)
{
    adapters *a = calloc(1, sizeof *a);
    if (a)
        a->of = calloc((size_t)m->config.layers, sizeof *a->of);
    if (a)
        a->parts = calloc((size_t)m->config.layers * MODEL_MATRICES * 3 * MODEL_MAX_PARTS, sizeof *a->parts);
    *out = a;
    if (a && a->of && a->parts)
        return 0;
    adapters_free(a);
    return pt_fail(e, PT_FAILED, "out of memory for the adapters");
}

void adapters_free(adapters *a)
{
    if (!a)
        return;
    json_decref(a->config);
    free(a->parts);
    free(a->of);
    free(a);
}

static param new_param(const param *base, param_role role, int64_t rows, int64_t cols)
{
    return (param){.role = role, .kind = param_kind_of(role), .block = base->block, .rows = rows, .cols = cols, .decay = true,
                   .trainable = true};
}

/* A part of it, with `rows` rows, or elements of a vector. */
static param_part *add_part(adapters *a, param *p, const param *base, int part, const char *what, int64_t row0, int64_t rows)
{
    char module[MODEL_NAME];
    param_part *to = &a->parts[a->parts_n++];
    p->part = p->parts++ ? p->part : to;
    adapter_module_name(base, part, module);
    *to = (param_part){.row0 = row0, .rows = rows};
    snprintf(to->name, sizeof to->name, "%.64s.%s", module, what);
    return to;
}

static void copy_heads(param_part *to, const param_part *from)
{
    to->heads = from->heads;
    memcpy(to->segment, from->segment, sizeof to->segment);
}

/* Appends a matrix's parameters. */
static void add_matrix(model *m, adapters *a, const param *base, int block, int matrix)
{
    const adapter_module *of = a->of[m->blocks[block].layer][matrix];
    int *param_of_role = m->blocks[block].param_of_role;
    int64_t width = 0, rows = 0;
    for (int k = 0; k < base->parts; k++) {
        width += of[k].rank;
        rows += of[k].rank ? base->part[k].rows : 0;
    }
    if (!width)
        return;
    param *down = &m->params[param_of_role[adapter_a(matrix)] = m->params_n++];
    *down = new_param(base, adapter_a(matrix), width, base->cols);
    for (int k = 0, row = 0; k < base->parts; row += of[k++].rank)
        if (of[k].rank)
            add_part(a, down, base, k, "lora_A.weight", row, of[k].rank);
    for (int k = 0; k < base->parts; k++) {
        if (!of[k].rank)
            continue;
        param *up = &m->params[param_of_role[adapter_b(matrix, k)] = m->params_n++];
        *up = new_param(base, adapter_b(matrix, k), base->part[k].rows, of[k].rank);
        copy_heads(add_part(a, up, base, k, "lora_B.weight", 0, base->part[k].rows), &base->part[k]);
    }
    if (!a->dora)
        return;
    param *magnitude = &m->params[param_of_role[adapter_magnitude(matrix)] = m->params_n++];
    *magnitude = new_param(base, adapter_magnitude(matrix), 1, rows);
    int64_t at = 0;
    for (int k = 0; k < base->parts; k++)
        if (of[k].rank) {
            param_part *part = add_part(a, magnitude, base, k, "lora_magnitude_vector", at, base->part[k].rows);
            part->vector = true;
            copy_heads(part, &base->part[k]);
            at += part->rows;
        }
}

/* The base's parameters in their order, with the adapters of each block after its parameters. */
static int rebuild(model *m, adapters *a, pt_error *e)
{
    const param *before = m->params;
    const int tokens = m->blocks[0].param_of_role[PARAM_TOKENS], n = m->params_n;
    param *params = calloc((size_t)m->blocks_n * PARAM_ROLES, sizeof *params);
    if (!params)
        return pt_fail(e, PT_FAILED, "out of memory for the adapters");
    m->params = params;
    m->params_n = 0;
    for (int b = 0, i = 0; b < m->blocks_n; b++) {
        for (; i < n && before[i].block == b; i++) {
            m->blocks[b].param_of_role[before[i].role] = m->params_n;
            m->params[m->params_n] = before[i];
            m->params[m->params_n++].trainable = false;
        }
        for (int k = 0; k < MODEL_MATRICES && m->blocks[b].kind == BLOCK_LAYER; k++) {
            if (!matrix_of(m, b, k))
                continue;
            const param base = *matrix_of(m, b, k);
            add_matrix(m, a, &base, b, k);
        }
    }
    if (m->config.tied)
        m->blocks[m->blocks_n - 1].param_of_role[PARAM_TOKENS] = tokens;
    free((void *)before);
    return 0;
}

int adapters_attach(model *m, adapters *a, pt_error *e)
{
    int failed = a->config ? rebuild(m, a, e) : pt_fail(e, PT_FAILED, "out of memory for the adapters");
    if (failed) {
        adapters_free(a);
        return failed;
    }
    m->adapters = a;
    m->stored_bf16 = true;
    m->parameters = 0;
    for (int i = 0; i < m->params_n; i++)
        m->parameters += m->params[i].rows * m->params[i].cols;
    return 0;
}
