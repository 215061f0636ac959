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
    {PARAM_INPUTS, PARAM_INPUTS_A, PARAM_INPUTS_B, PARAM_INPUTS_MAGNITUDE},
    {PARAM_INPUT_GATE, PARAM_INPUT_GATE_A, PARAM_INPUT_GATE_B, PARAM_INPUT_GATE_MAGNITUDE},
    {PARAM_INPUT_OUT, PARAM_INPUT_OUT_A, PARAM_INPUT_OUT_B, PARAM_INPUT_OUT_MAGNITUDE},
    {PARAM_Q_EXPAND, PARAM_Q_EXPAND_A, PARAM_Q_EXPAND_B, PARAM_Q_EXPAND_MAGNITUDE},
    {PARAM_KV_EXPAND, PARAM_KV_EXPAND_A, PARAM_KV_EXPAND_B, PARAM_KV_EXPAND_MAGNITUDE},
    {PARAM_EXPERTS_IN, PARAM_EXPERTS_IN_A, PARAM_EXPERTS_IN_B, PARAM_EXPERTS_IN_MAGNITUDE},
    {PARAM_EXPERTS_OUT, PARAM_EXPERTS_OUT_A, PARAM_EXPERTS_OUT_B, PARAM_EXPERTS_OUT_MAGNITUDE},
    {PARAM_SHARED_UP, PARAM_SHARED_UP_A, PARAM_SHARED_UP_B, PARAM_NONE},
    {PARAM_SHARED_DOWN, PARAM_SHARED_DOWN_A, PARAM_SHARED_DOWN_B, PARAM_NONE},
    {PARAM_EXPERTS_UP, PARAM_EXPERTS_UP_A, PARAM_EXPERTS_UP_B, PARAM_NONE},
    {PARAM_EXPERTS_DOWN, PARAM_EXPERTS_DOWN_A, PARAM_EXPERTS_DOWN_B, PARAM_NONE},
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

static bool is_of_experts(const param *base) { return base->role == PARAM_EXPERTS_UP || base->role == PARAM_EXPERTS_DOWN; }

/* How Transformers names the parameter of all experts, whatever names the files have. */
static const char *parameter_pattern(const model *m, param_role base)
{
    const architecture *arch = architecture_find(m->config.model_type);
    return arch->fused && arch->fused[base][0] ? arch->fused[base][0] : arch->names[base][0];
}

void adapter_parameter_name(const model *m, param_role base, char out[MODEL_NAME])
{
    const char *pattern = parameter_pattern(m, base), *layer = strstr(pattern, "*.");
    snprintf(out, MODEL_NAME, "%s", layer ? layer + 2 : pattern);
}

void adapter_module_name(const model *m, const param *base, int part, char out[MODEL_NAME])
{
    static const char end[] = ".weight";
    if (is_of_experts(base)) {
        architecture_name(out, architecture_find(m->config.model_type)->prefix, parameter_pattern(m, base->role),
                          m->blocks[base->block].layer, 0);
        return;
    }
    snprintf(out, MODEL_NAME, "%s", base->part[part].name);
    const size_t n = strlen(out);
    if (n > sizeof end - 1 && !strcmp(out + n - (sizeof end - 1), end))
        out[n - (sizeof end - 1)] = 0;
}

/* The wrapper of gate and up is inside that of down. */
void adapter_owner_name(const model *m, const adapters *a, const param *base, int part, char out[MODEL_NAME])
{
    adapter_module_name(m, base, part, out);
    char *end = is_of_experts(base) ? strrchr(out, '.') : NULL;
    if (!end)
        return;
    const bool inside = base->role == PARAM_EXPERTS_UP && a->of[m->blocks[base->block].layer][adapter_matrix(PARAM_EXPERTS_DOWN)][0].rank;
    snprintf(end, (size_t)(out + MODEL_NAME - end), "%s", inside ? ".base_layer" : "");
}

int64_t adapter_outputs(const model *m, const param *base, int part)
{
    return is_of_experts(base) ? base->rows / m->config.experts : base->part[part].rows;
}

int64_t adapter_first_output(const param *base, int part) { return is_of_experts(base) ? 0 : base->part[part].row0; }

bool adapter_name_ends(const char *module, const char *target)
{
    const size_t n = strlen(module), k = strlen(target);
    return k && k <= n && !strcmp(module + n - k, target) && (k == n || module[n - k - 1] == '.');
}

/* NULL: it has no adapter, or none of which PEFT knows whose it is. */
static const param *matrix_of(const model *m, int block, int matrix)
{
    static const param_role mlp[] = {PARAM_UP, PARAM_DOWN, PARAM_SHARED_UP, PARAM_SHARED_DOWN};
    const architecture *arch = architecture_find(m->config.model_type);
    bool without = arch->mix_out_kept && roles[matrix].base == PARAM_MIX_OUT;
    for (size_t i = 0; i < sizeof mlp / sizeof *mlp; i++)
        without = without || (arch->mlp_means_experts && roles[matrix].base == mlp[i]);
    return without ? NULL : block_param(m, &m->blocks[block], roles[matrix].base);
}

static int parts_of(const param *p) { return !p ? 0 : is_of_experts(p) ? 1 : p->parts; }

int adapter_parts(const model *m, int block, int matrix) { return parts_of(matrix_of(m, block, matrix)); }

/* The matrix of a layer that has the most modules, or NULL. */
static const param *example_of(const model *m, int matrix)
{
    const param *found = NULL;
    for (int b = 1; b < m->blocks_n - 1; b++) {
        const param *p = matrix_of(m, b, matrix);
        found = p && (!found || p->parts > found->parts) ? p : found;
    }
    return found;
}

int adapter_most_parts(const model *m, int matrix) { return parts_of(example_of(m, matrix)); }

/* Has it another name in layers with a shared expert? Its last word is then the name of both, also if it is the experts' word: a target
 * that names modules does not mean parameters. */
static bool has_two_names(const model *m, int matrix)
{
    const architecture *arch = architecture_find(m->config.model_type);
    return arch->shared && arch->shared[roles[matrix].base][0];
}

void adapter_short_name(const model *m, int matrix, int part, char out[MODEL_NAME])
{
    const int others = has_two_names(m, matrix) ? MODEL_MATRICES - 2 : MODEL_MATRICES;
    char name[MODEL_NAME], other[MODEL_NAME];
    adapter_module_name(m, example_of(m, matrix), part, name);
    const char *at = strrchr(name, '.');
    for (bool again = at != NULL; again;) {
        again = false;
        for (int i = 0; i < others; i++)
            for (int k = 0; k < adapter_most_parts(m, i); k++) {
                adapter_module_name(m, example_of(m, i), k, other);
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
        for (int k = 0; k < adapter_most_parts(m, i) && used < n; k++) {
            adapter_short_name(m, i, k, name);
            used += (size_t)snprintf(out + used, n - used, "%s%s", used ? ", " : "", name);
        }
}

/* ---- targets of a new adapter ---- */

enum { TARGETS_MOST = 32, TARGET_BYTES = MODEL_NAME };

/* dora: magnitudes are those of linear stages only. */
typedef struct targets { int n; bool dora; char of[TARGETS_MOST][TARGET_BYTES]; } targets;

/* The words for sets of matrices. */
static const struct { const char *word; unsigned matrices; } sets[] = {
    {"all-linear", ADAPTER_LINEAR}, {"attention", ADAPTER_ATTENTION}, {"mlp", ADAPTER_MLP}, {"experts", ADAPTER_EXPERTS}};
enum { SETS = sizeof sets / sizeof *sets };

static bool takes(const targets *t, int matrix) { return !t->dora || matrix < MODEL_LINEAR_MATRICES; }

static int refuse_target(const model *m, const targets *t, const char *name, size_t n, pt_error *e)
{
    char all[512], words[64] = "";
    list_modules(m, all, sizeof all);
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < MODEL_MATRICES; k++)
            if (sets[i].matrices >> k & 1 && adapter_most_parts(m, k) && takes(t, k)) {
                snprintf(words + strlen(words), sizeof words - strlen(words), "%s, ", sets[i].word);
                break;
            }
    return pt_fail(e, PT_USAGE,
                   "`lora_targets`: '%.*s' is not a linear layer of this model that can have an adapter%s: give some of %s%s, separated by "
                   "commas (the embedding, the head and routers get no adapter)",
                   (int)(n < 100 ? n : 100), name, t->dora ? " with `dora`" : "", words, all);
}

static bool names_any(const model *m, const targets *t, const char *target)
{
    char name[MODEL_NAME];
    bool any = false;
    for (int b = 1; b < m->blocks_n - 1; b++)
        for (int i = 0; i < MODEL_MATRICES; i++)
            for (int k = 0; k < adapter_parts(m, b, i) && takes(t, i); k++) {
                adapter_module_name(m, matrix_of(m, b, i), k, name);
                any = any || adapter_name_ends(name, target);
            }
    return any;
}

/* A name, or all modules of a set. Returns whether the model has such. */
static bool add_target(const model *m, const char *item, targets *t)
{
    const int before = t->n;
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < MODEL_MATRICES && !strcmp(item, sets[i].word); k++)
            for (int part = 0; part < adapter_most_parts(m, k) && takes(t, k) && t->n < TARGETS_MOST; part++)
                if (sets[i].matrices >> k & 1)
                    adapter_short_name(m, k, part, t->of[t->n++]);
    if (t->n == before && t->n < TARGETS_MOST && names_any(m, t, item))
        snprintf(t->of[t->n++], TARGET_BYTES, "%s", item);
    return t->n > before;
}

static int read_targets(const model *m, const char *list, targets *t, pt_error *e)
{
    char item[TARGET_BYTES];
    t->n = 0;
    for (const char *at = list ? list : "all-linear";; at++) {
        const size_t n = strcspn(at, ",");
        if (t->n == TARGETS_MOST)
            return pt_fail(e, PT_USAGE, "`lora_targets` has more than %d names: name fewer", TARGETS_MOST);
        snprintf(item, sizeof item, "%.*s", (int)(n < TARGET_BYTES ? n : 0), at);
        if (!*item || !add_target(m, item, t))
            return refuse_target(m, t, at, n, e);
        at += n;
        if (!*at)
            return 0;
    }
}

/* Does the target name modules, or else the experts' parameters only? */
static bool names_modules(const model *m, const char *target)
{
    char name[MODEL_NAME];
    bool any = false;
    for (int b = 1; b < m->blocks_n - 1; b++)
        for (int i = 0; !adapter_is_of_experts(i); i++)
            for (int k = 0; k < adapter_parts(m, b, i); k++) {
                adapter_module_name(m, matrix_of(m, b, i), k, name);
                any = any || adapter_name_ends(name, target);
            }
    return any;
}

/* For a model of text and images, a regular expression: other parts have modules of the same names, which PEFT would adapt, too. */
static json_t *text_modules(const model *m, const targets *t)
{
    char all[TARGETS_MOST * (TARGET_BYTES + 8)];
    strcpy(all, m->config.input_width ? ".*language_model\\.(?:.*\\.)?(" : ".*language_model\\..*\\.("); /* some are outside the layers */
    size_t n = strlen(all);
    const size_t begin = n;
    for (int i = 0; i < t->n; i++) {
        if (!names_modules(m, t->of[i]))
            continue;
        all[n] = '|';
        n += n > begin;
        for (const char *p = t->of[i]; *p; all[n++] = *p++)
            if (*p == '.')
                all[n++] = '\\';
    }
    strcpy(all + n, ")");
    return n > begin ? json_string(all) : json_array();
}

static json_t *target_modules(const model *m, const targets *t)
{
    if (m->config.multimodal)
        return text_modules(m, t);
    json_t *names = json_array();
    for (int i = 0; i < t->n; i++)
        if (names_modules(m, t->of[i]))
            json_array_append_new(names, json_string(t->of[i]));
    return names;
}

/* null where no experts are adapted. */
static json_t *target_parameters(const model *m, const adapters *a)
{
    json_t *names = json_array();
    for (int i = MODEL_MATRICES - 2; i < MODEL_MATRICES; i++) {
        bool any = false;
        char name[MODEL_NAME];
        for (int layer = 0; layer < m->config.layers; layer++)
            any = any || a->of[layer][i][0].rank;
        if (!any)
            continue;
        adapter_parameter_name(m, roles[i].base, name);
        json_array_append_new(names, json_string(name));
    }
    if (json_array_size(names))
        return names;
    json_decref(names);
    return json_null();
}

bool model_has_whole(const model *m)
{
    bool any = false;
    for (int i = 0; i < m->params_n; i++)
        any |= m->params[i].whole;
    return any;
}

/* Of modules outside the layers. */
static int mark(model *m, const char *name, bool always)
{
    int n = 0;
    for (int i = 0; i < m->params_n; i++) {
        param *p = &m->params[i];
        char module[MODEL_NAME];
        if (m->blocks[p->block].kind == BLOCK_LAYER)
            continue;
        snprintf(module, sizeof module, "%s", p->part[0].name);
        char *end = strrchr(module, '.');
        if (end)
            *end = 0;
        if (adapter_name_ends(module, name)) {
            *(always ? &p->always : &p->whole) = true;
            n++;
        }
    }
    return n;
}

int adapter_mark_whole(model *m, const char *name) { return mark(m, name, false); }

/* "embed_tokens, lm_head ...": names of modules outside the layers. */
static void whole_names(const model *m, char *out, size_t n)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < m->params_n && used < n; i++) {
        char module[MODEL_NAME];
        if (m->blocks[m->params[i].block].kind == BLOCK_LAYER || !strstr(m->params[i].part[0].name, ".weight"))
            continue;
        snprintf(module, sizeof module, "%s", m->params[i].part[0].name);
        *strrchr(module, '.') = 0;
        const char *dot = strrchr(module, '.');
        used += (size_t)snprintf(out + used, n - used, "%s%s", used ? ", " : "", dot ? dot + 1 : module);
    }
}

static int mark_all(model *m, const char *names, bool always, pt_error *e)
{
    for (const char *at = names; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char name[MODEL_NAME], known[3 * MODEL_NAME];
        const size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), at);
        if (m->config.tied && !strcmp(name, "lm_head"))
            return pt_fail(e, PT_USAGE, "`train_also` names lm_head, but the model's head is its embedding: name the embedding alone, and "
                                        "both are trained as one");
        if (n && mark(m, name, always))
            continue;
        whole_names(m, known, sizeof known);
        return pt_fail(e, PT_USAGE, "`train_also`: '%.90s' is not a module outside the layers of this model; it has %s", name, known);
    }
    return 0;
}

int model_mark_always(model *m, const char *names, pt_error *e) { return mark_all(m, names, true, e); }

static int set_whole(json_t *config, const model *m, const char *names, pt_error *e)
{
    json_t *list = json_array();
    for (const char *at = names; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        json_array_append_new(list, json_stringn(at, strcspn(at, ",")));
    if (m->config.tied)
        json_object_set_new(config, "ensure_weight_tying", json_true());
    return json_object_set_new(config, "modules_to_save", list) ? pt_fail(e, PT_FAILED, "out of memory for the adapters") : 0;
}

static json_t *config_of(const model *m, const adapters *a, const adapter_options *o, double alpha, const targets *t)
{
    json_t *number = alpha == floor(alpha) ? json_integer((json_int_t)alpha) : json_real(alpha);
    return json_pack("{s:s, s:s, s:n, s:b, s:s, s:b, s:f, s:I, s:o, s:{}, s:{}, s:b, s:b, s:o, s:o, s:n}", "peft_type", "LORA", "task_type",
                     m->config.labels ? "SEQ_CLS" : "CAUSAL_LM", "base_model_name_or_path", "inference_mode", 1, "bias", "none",
                     "fan_in_fan_out", architecture_find(m->config.model_type)->transposed, "lora_dropout", 0.0, "r",
                     (json_int_t)o->rank, "lora_alpha", number,
                     "rank_pattern", "alpha_pattern", "use_rslora", o->rslora, "use_dora", o->dora, "target_modules", target_modules(m, t),
                     "target_parameters", target_parameters(m, a), "modules_to_save");
}

int model_adapt(model *m, const adapter_options *o, pt_error *e)
{
    targets t = {.dora = o->dora};
    adapters *a;
    char name[MODEL_NAME];
    const double alpha = o->alpha > 0 ? o->alpha : 2 * (double)o->rank;
    if (o->rank < 1 || o->rank > ADAPTER_MAX_RANK)
        return pt_fail(e, PT_USAGE, "`lora_rank` is %lld: it must be between 1 and %d", (long long)o->rank, ADAPTER_MAX_RANK);
    int failed = read_targets(m, o->targets, &t, e);
    if (!failed && o->whole)
        failed = mark_all(m, o->whole, false, e);
    if (!failed)
        failed = adapters_new(m, &a, e);
    if (failed)
        return failed;
    bool of_modules[TARGETS_MOST];
    for (int n = 0; n < t.n; n++)
        of_modules[n] = names_modules(m, t.of[n]);
    const adapter_module one = {(int)o->rank, (float)(alpha / (o->rslora ? sqrt((double)o->rank) : (double)o->rank))};
    for (int b = 1; b < m->blocks_n - 1; b++)
        for (int i = 0; i < MODEL_MATRICES; i++)
            for (int k = 0; k < adapter_parts(m, b, i) && takes(&t, i); k++) {
                adapter_module_name(m, matrix_of(m, b, i), k, name);
                for (int n = 0; n < t.n; n++)
                    if (adapter_name_ends(name, t.of[n]) && !(adapter_is_of_experts(i) && of_modules[n]))
                        a->of[b - 1][i][k] = one;
            }
    a->dora = o->dora;
    a->config = config_of(m, a, o, alpha, &t);
    if (a->config && o->whole)
        failed = set_whole(a->config, m, o->whole, e);
    if (!failed)
        return adapters_attach(m, a, e);
    adapters_free(a);
    return failed;
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
static param_part *add_part(const model *m, adapters *a, param *p, const param *base, int part, const char *what, int64_t row0,
                            int64_t rows)
{
    char module[MODEL_NAME];
    param_part *to = &a->parts[a->parts_n++];
    p->part = p->parts++ ? p->part : to;
    adapter_owner_name(m, a, base, part, module);
    *to = (param_part){.row0 = row0, .rows = rows};
    snprintf(to->name, sizeof to->name, "%.64s.%s", module, what);
    return to;
}

static void copy_heads(param_part *to, const param_part *from)
{
    to->heads = from->heads;
    memcpy(to->segment, from->segment, sizeof to->segment);
}

/* Of all experts: their A one after another, and their B. */
static void add_experts(model *m, adapters *a, const param *base, int block, int matrix)
{
    const int64_t rank = a->of[m->blocks[block].layer][matrix][0].rank, experts = m->config.experts;
    int *param_of_role = m->blocks[block].param_of_role;
    if (!rank)
        return;
    param *down = &m->params[param_of_role[adapter_a(matrix)] = m->params_n++];
    *down = new_param(base, adapter_a(matrix), experts * rank, base->cols);
    add_part(m, a, down, base, 0, "lora_A.weight", 0, experts * rank);
    param *up = &m->params[param_of_role[adapter_b(matrix, 0)] = m->params_n++];
    *up = new_param(base, adapter_b(matrix, 0), base->rows, rank);
    add_part(m, a, up, base, 0, "lora_B.weight", 0, base->rows)->abreast = experts;
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
            add_part(m, a, down, base, k, "lora_A.weight", row, of[k].rank);
    for (int k = 0; k < base->parts; k++) {
        if (!of[k].rank)
            continue;
        param *up = &m->params[param_of_role[adapter_b(matrix, k)] = m->params_n++];
        *up = new_param(base, adapter_b(matrix, k), base->part[k].rows, of[k].rank);
        copy_heads(add_part(m, a, up, base, k, "lora_B.weight", 0, base->part[k].rows), &base->part[k]);
    }
    if (!a->dora || matrix >= MODEL_LINEAR_MATRICES)
        return;
    param *magnitude = &m->params[param_of_role[adapter_magnitude(matrix)] = m->params_n++];
    *magnitude = new_param(base, adapter_magnitude(matrix), 1, rows);
    int64_t at = 0;
    for (int k = 0; k < base->parts; k++)
        if (of[k].rank) {
            param_part *part = add_part(m, a, magnitude, base, k, "lora_magnitude_vector", at, base->part[k].rows);
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
            m->params[m->params_n++].trainable = before[i].whole;
        }
        for (int k = 0; k < MODEL_MATRICES && m->blocks[b].kind == BLOCK_LAYER; k++) {
            if (!matrix_of(m, b, k))
                continue;
            const param base = *matrix_of(m, b, k);
            (adapter_is_of_experts(k) ? add_experts : add_matrix)(m, a, &base, b, k);
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
