#include "model/weights.h"

#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/architectures.h"
#include "model/names.h"
#include "model/prequantized.h"
#include "model/rows.h"
#include "model/transpose.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool weights_present(const char *model_dir) { return safetensors_present(model_dir); }

static const architecture *architecture_of(const model *m) { return architecture_find(m->config.model_type); }

/* Scores of classes: a model's files may lack them, and may have the head of tokens instead, which is ignored. */
static bool is_scorer(const model *m, const param *p) { return m->config.labels && p->role == PARAM_HEAD; }

static bool is_tied_tokens(const model *m, const param *p)
{
    return p->role == PARAM_TOKENS && m->config.tied;
}

/* Of a model whose tables are or were tied: the file may have the table under the head's name alone. */
static bool may_be_head(const model *m, const param *p) { return is_tied_tokens(m, p) || (m->config.labels && p->role == PARAM_TOKENS); }

static int namings_of(const model *m)
{
    return m->config.multimodal ? NAMINGS : architecture_of(m)->module_prefix ? NAMES_MODULES + 1 : NAMES_BARE + 1;
}

weights_naming weights_naming_of_adapters(const model *m)
{
    return m->config.multimodal ? NAMES_INNER : architecture_of(m)->module_prefix ? NAMES_MODULES : NAMES_WHOLE;
}

const safetensors_tensor *weights_find_adapter(const model *m, const safetensors *st, const char *name)
{
    char spelled[SPELLED_NAME], whole[SPELLED_NAME + sizeof ADAPTER_PREFIX];
    const safetensors_tensor *tensor = NULL;
    for (int n = 0; n < namings_of(m) && !tensor; n++) {
        names_spell(architecture_of(m), (weights_naming)n, name, spelled);
        snprintf(whole, sizeof whole, ADAPTER_PREFIX "%s", spelled);
        tensor = safetensors_find(st, whole);
    }
    return tensor;
}

static const safetensors_tensor *find_named(const model *m, const safetensors *st, const char *name)
{
    char spelled[SPELLED_NAME];
    const safetensors_tensor *tensor = NULL;
    for (int n = 0; n < namings_of(m) && !tensor; n++)
        tensor = safetensors_find(st, names_spell(architecture_of(m), (weights_naming)n, name, spelled));
    return tensor;
}

/* Of experts in MXFP4: the codes. */
static const safetensors_tensor *find_blocks(const model *m, const safetensors *st, const char *name)
{
    char blocks[MODEL_NAME + sizeof PREQUANTIZED_BLOCKS];
    snprintf(blocks, sizeof blocks, "%s" PREQUANTIZED_BLOCKS, name);
    return find_named(m, st, blocks);
}

/* The head's tensor under the architecture's own name, or the usual one. */
static const safetensors_tensor *find_head(const model *m, const safetensors *st)
{
    const char *own = architecture_of(m)->head;
    const safetensors_tensor *tensor = own ? find_named(m, st, own) : NULL;
    return tensor ? tensor : find_named(m, st, head_name);
}

static const safetensors_tensor *find_part(const model *m, const safetensors *st, const param *p, int k)
{
    const safetensors_tensor *tensor = param_is_adapter(p) || p->whole ? weights_find_adapter(m, st, p->part[k].name) : NULL;
    if (!tensor && !param_is_adapter(p))
        tensor = find_named(m, st, p->part[k].name);
    if (!tensor && p->part[k].stacked && p->part[k].transposed)
        tensor = find_blocks(m, st, p->part[k].name);
    if (!tensor && (may_be_head(m, p) || (p->role == PARAM_HEAD && !m->config.labels)))
        tensor = find_head(m, st);
    return tensor;
}

weights_naming weights_naming_of(const model *m, const safetensors *st)
{
    char spelled[SPELLED_NAME];
    const architecture *arch = architecture_of(m);
    for (int i = 0; st && i < m->params_n; i++)
        for (int n = 0; n < namings_of(m) && m->params[i].role != PARAM_HEAD && !param_is_adapter(&m->params[i]); n++)
            if (safetensors_find(st, names_spell(arch, (weights_naming)n, m->params[i].part[0].name, spelled)))
                return (weights_naming)n;
    return m->config.multimodal ? NAMES_OUTER : NAMES_WHOLE;
}

weights_beside weights_find_beside(const model *m, const safetensors *st)
{
    const weights_naming naming = weights_naming_of(m, st);
    weights_beside found = {0};
    for (size_t i = 0; i < safetensors_count(st); i++) {
        const safetensors_tensor *tensor = safetensors_at(st, i);
        if (!names_beside(naming, tensor->name))
            continue;
        found.first = found.first ? found.first : tensor->name;
        found.few_bits = !found.few_bits && prequantized_belongs(st, tensor) ? tensor->name : found.few_bits;
        found.tensors++;
        found.bytes += tensor->bytes;
    }
    return found;
}

int weights_check_beside(const model *m, const safetensors *st, pt_error *e)
{
    const weights_beside b = weights_find_beside(m, st);
    if (!b.few_bits)
        return 0;
    return pt_fail(e, PT_FAILED, "%s: \"%.120s\" is of another part than the text's, and in few bits: a model with whole weights cannot be "
                                 "written beside it; train adapters (`lora_rank`), or take the folder that this one was made from",
                   safetensors_path(st, safetensors_find(st, b.few_bits)), b.few_bits);
}

static const char *first_path(const safetensors *st)
{
    return safetensors_count(st) ? safetensors_path(st, safetensors_at(st, 0)) : "the checkpoint";
}

static const char *shape_text(char buffer[128], int rank, const int64_t *shape)
{
    int used = snprintf(buffer, 128, "(");
    for (int i = 0; i < rank && used < 100; i++)
        used += snprintf(buffer + used, 128 - (size_t)used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(buffer + used, 128 - (size_t)used, ")");
    return buffer;
}

static int check_shape(const safetensors *st, const safetensors_tensor *tensor, const param *p, int k, pt_error *e)
{
    int64_t shape[3];
    int rank = part_stored_shape(p, k, shape);
    if (tensor->rank != rank || memcmp(tensor->shape, shape, (size_t)rank * sizeof shape[0])) {
        char found[128], wanted[128];
        return pt_fail(e, PT_FAILED,
                       "%s: tensor \"%.80s\" has the shape %s, but config.json asks for %s: the two files do not belong together",
                       safetensors_path(st, tensor), tensor->name, shape_text(found, tensor->rank, tensor->shape),
                       shape_text(wanted, rank, shape));
    }
    return 0;
}

/* Is it a table of the vocabulary without the rows of tokens that were added? */
static bool lacks_new_rows(const model *m, const safetensors_tensor *tensor, const param *p)
{
    const int64_t rows = m->config.stored_vocab;
    return rows && p->kind->use == USE_VOCABULARY && tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == p->cols;
}

/* A matrix in few bits has its outputs as rows. */
static int check_few_bits(const prequantized *q, const param *p, int k, pt_error *e)
{
    char found[128], wanted[128];
    const int64_t is[2] = {q->rows, q->cols}, wants[2] = {p->part[k].rows, p->cols};
    if (!p->part[k].vector && is[0] == wants[0] && is[1] == wants[1])
        return 0;
    return pt_fail(e, PT_FAILED, "%s: tensor \"%.80s\" is %s in few bits, but by config.json it must be %s; the two do not belong together",
                   safetensors_path(q->st, q->codes), q->codes->name, shape_text(found, 2, is), shape_text(wanted, 2, wants));
}

/* *dtype: the dtype of its values, in few bits or not. */
static int check_tensor(const model *m, const safetensors *st, const safetensors_tensor *tensor, const param *p, int k, pt_dtype *dtype,
                        pt_error *e)
{
    prequantized q;
    const int few = prequantized_open(st, tensor, m->config.stored_type, &q, e);
    *dtype = few ? q.dtype : tensor->dtype;
    if (few)
        return few < 0 ? few : check_few_bits(&q, p, k, e);
    int status = lacks_new_rows(m, tensor, p) ? 0 : check_shape(st, tensor, p, k, e);
    if (status)
        return status;
    bool readable = tensor->dtype_is_known &&
                    (tensor->dtype == PT_F32 || tensor->dtype == PT_BF16 || tensor->dtype == PT_F16 || tensor->dtype == PT_F64);
    if (!readable)
        return pt_fail(
            e, PT_FAILED,
            "%s: tensor \"%.80s\" is stored as %s, but weights must be F32, BF16, F16 or F64: convert them",
            safetensors_path(st, tensor), tensor->name, tensor->dtype_text);
    return 0;
}

/* The tensor in which the same experts are where files have the other of two forms: all of a layer in one, or each alone. NULL: there is
 * none. */
static const safetensors_tensor *find_other_form(const model *m, const safetensors *st, const param *p)
{
    const architecture *arch = architecture_of(m);
    char name[MODEL_NAME];
    if (p->kind->use != USE_EXPERTS || param_is_adapter(p) || !arch->fused)
        return NULL;
    const char *pattern = (p->part[0].stacked ? arch->names : arch->fused)[p->role][0];
    if (!pattern)
        return NULL;
    architecture_name(name, arch->prefix, pattern, m->blocks[p->block].layer, 0);
    return find_named(m, st, name);
}

static int missing_tensor(const model *m, const safetensors *st, const param *p, int k, pt_error *e)
{
    const safetensors_tensor *other = find_other_form(m, st, p);
    if (other)
        return pt_fail(e, PT_FAILED,
                       "%s: tensor \"%s\" is there, but experts of other layers are stored %s: a folder must have one of the two forms; "
                       "load it with Transformers and save it again", safetensors_path(st, other), other->name,
                       p->part[k].stacked ? "in one tensor for all of a layer" : "in tensors of their own");
    const char *mend =
        p->role == PARAM_HEAD
            ? "; if the head shares the embedding, set \"tie_word_embeddings\" to true in config.json"
            : "; the files are incomplete, or config.json belongs to another model";
    char spelled[SPELLED_NAME];
    return pt_fail(e, PT_FAILED, "%s: tensor \"%s\" of a %s model is missing%s", first_path(st),
                   names_spell(architecture_of(m), weights_naming_of(m, st), p->part[k].name, spelled), m->config.model_type, mend);
}

/* out (n) = values from the first-th on, in stored order. */
static int read_values(const model *m, const safetensors *st, const safetensors_tensor *tensor, int64_t first, int64_t n, float *out,
                       pt_error *e)
{
    prequantized q;
    const int few = prequantized_open(st, tensor, m->config.stored_type, &q, e);
    if (few)
        return few < 0 ? few : prequantized_read(&q, first, n, out, e);
    return safetensors_read_f32(st, tensor, (uint64_t)first, (uint64_t)n, out, e);
}

/* If a tied model's file has both tensors, they must be equal. */
static int check_tied_copy(const model *m, const safetensors *st, const param *p,
                           const safetensors_tensor *tokens, const safetensors_tensor *head, pt_error *e)
{
    enum { PIECE = 4096 };
    float a[PIECE], b[PIECE];
    pt_dtype dtype;
    const int64_t rows = lacks_new_rows(m, tokens, p) || lacks_new_rows(m, head, p) ? m->config.stored_vocab : p->rows;
    const uint64_t all = (uint64_t)(rows * p->cols);
    int status = check_tensor(m, st, head, p, 0, &dtype, e);
    for (uint64_t at = 0; !status && at < all; at += PIECE) {
        uint64_t n = all - at < PIECE ? all - at : PIECE;
        status = read_values(m, st, tokens, (int64_t)at, (int64_t)n, a, e);
        if (!status)
            status = read_values(m, st, head, (int64_t)at, (int64_t)n, b, e);
        if (!status && memcmp(a, b, n * sizeof a[0]))
            status = pt_fail(e, PT_FAILED,
                             "%s: \"%s\" and \"%s\" differ, but the config of this %s model ties them: set \"tie_word_embeddings\" to "
                             "false in config.json, or remove one",
                             safetensors_path(st, head), tokens->name, head->name, m->config.model_type);
    }
    return status;
}

bool weights_have_two_tables(const model *m, const safetensors *st)
{
    enum { FIRST = 256 };
    float a[FIRST], b[FIRST];
    const param *tokens = block_param(m, &m->blocks[0], PARAM_TOKENS);
    const safetensors_tensor *x = find_named(m, st, tokens->part[0].name), *y = find_head(m, st);
    pt_dtype dtype;
    if (!x || !y || check_tensor(m, st, x, tokens, 0, &dtype, NULL) || check_tensor(m, st, y, tokens, 0, &dtype, NULL))
        return false;
    const int64_t all = tokens->rows * tokens->cols, n = all < FIRST ? all : FIRST;
    return !read_values(m, st, x, 0, n, a, NULL) && !read_values(m, st, y, 0, n, b, NULL) && memcmp(a, b, (size_t)n * sizeof *a);
}

bool weights_fuse_experts(const model *m, const safetensors *st)
{
    const architecture *arch = architecture_of(m);
    for (int layer = 0; layer < m->config.layers && arch->fused; layer++) {
        char name[MODEL_NAME];
        architecture_name(name, arch->prefix, arch->fused[PARAM_EXPERTS_UP][0], layer, 0);
        if (m->config.sparse[layer])
            return find_named(m, st, name) != NULL;
    }
    return false;
}

/* Does `name` read as `pattern`, whose `*` is a number, with or without the prefix? */
static bool name_matches(const char *prefix, const char *pattern, const char *name)
{
    size_t n = strlen(prefix), k = strcspn(pattern, "*");
    name = names_of_text(name);
    if (!strncmp(name, prefix, n))
        name += n;
    if (strncmp(name, pattern, k))
        return false;
    name += k;
    if (!pattern[k])
        return !*name;
    if (!isdigit((unsigned char)*name))
        return false;
    while (isdigit((unsigned char)*name))
        name++;
    return !strcmp(name, pattern + k + 1);
}

static bool is_buffer(const architecture *arch, const char *name)
{
    for (int i = 0; i < ARCHITECTURE_MAX_BUFFERS && arch->buffers[i]; i++)
        if (name_matches(arch->prefix, arch->buffers[i], name))
            return true;
    return false;
}

/* Which of the stored tensors, by their index, are the model's: a file may have a great many. NULL: out of memory; to be freed. */
static bool *find_parts(const model *m, const safetensors *st)
{
    bool *is_part = calloc(safetensors_count(st) + 1, sizeof *is_part);
    for (int i = 0; is_part && i < m->params_n; i++)
        for (int k = 0; k < m->params[i].parts; k++) {
            const safetensors_tensor *tensor = find_part(m, st, &m->params[i], k);
            if (tensor)
                is_part[tensor - safetensors_at(st, 0)] = true;
        }
    const safetensors_tensor *head = m->config.tied || m->config.labels ? find_head(m, st) : NULL;
    if (is_part && head)
        is_part[head - safetensors_at(st, 0)] = true;
    return is_part;
}

/* Does the name end with `end`, as a whole word? */
static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && !strcmp(name + n - k, end) && (n == k || name[n - k - 1] == '.');
}

/* An empty tensor, or a known buffer of any architecture or module; conversions leave such tensors behind. */
static bool is_leftover(const safetensors_tensor *tensor)
{
    static const char *const of_modules[] = {"rotary_emb.inv_freq", "rotary_emb.original_inv_freq", "rotary_emb.cos_cached",
                                             "rotary_emb.sin_cached", "position_ids", "crossattention.bias", "crossattention.masked_bias"};
    bool is = !tensor->elements;
    for (size_t i = 0; i < sizeof of_modules / sizeof *of_modules && !is; i++)
        is = ends_with(tensor->name, of_modules[i]);
    for (int i = 0; architecture_at(i) && !is; i++)
        is = is_buffer(architecture_at(i), tensor->name);
    return is;
}

/* Does the tensor predict tokens after the next? */
static bool predicts_further(const model *m, const char *name)
{
    const architecture *arch = architecture_of(m);
    const size_t prefix = strncmp(name, arch->prefix, strlen(arch->prefix)) ? 0 : strlen(arch->prefix);
    if (!arch->further || strncmp(name + prefix, arch->further, strlen(arch->further)))
        return false;
    const char *number = name + prefix + strlen(arch->further);
    return strcmp(arch->further, "layers.") != 0 || (isdigit((unsigned char)*number) && atoll(number) >= m->config.layers);
}

/* Is it a tensor of keys and values of a layer that reads another's? Published models have these, and Transformers drops them. */
static bool makes_unread_keys(const model *m, const char *name)
{
    static const char layers[] = "layers.";
    const char *prefix = architecture_of(m)->prefix, *at = names_of_text(name);
    at += strncmp(at, prefix, strlen(prefix)) ? 0 : strlen(prefix);
    if (!m->config.kv_shared || strncmp(at, layers, sizeof layers - 1) || !isdigit((unsigned char)at[sizeof layers - 1]))
        return false;
    char *end;
    const long layer = strtol(at + sizeof layers - 1, &end, 10);
    static const char *const of[] = {".self_attn.k_proj.weight", ".self_attn.v_proj.weight", ".self_attn.k_norm.weight"};
    bool is = false;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        is |= layer < m->config.layers && model_reads_kv(&m->config, (int)layer) && !strcmp(end, of[i]);
    return is;
}

static void notice_further(const model *m, const safetensors *st, void (*notice)(void *arg, const char *sentence), void *arg)
{
    char sentence[768];
    const safetensors_tensor *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < safetensors_count(st); i++)
        if (predicts_further(m, safetensors_at(st, i)->name)) {
            first = first ? first : safetensors_at(st, i);
            n++;
        }
    if (!first)
        return;
    snprintf(sentence, sizeof sentence,
             "%.400s: %zu tensors for predicting several tokens (\"%.120s\" ...) are neither trained nor written, as in Transformers",
             safetensors_path(st, first), n, first->name);
    notice(arg, sentence);
}

void weights_notice_unused(const model *m, const safetensors *st, void (*notice)(void *arg, const char *sentence), void *arg)
{
    const architecture *arch = architecture_of(m);
    const weights_naming naming = weights_naming_of(m, st);
    const safetensors_tensor *first = NULL;
    char sentence[768], others[48] = "";
    size_t n = 0;
    bool *is_part = find_parts(m, st);
    if (notice)
        notice_further(m, st, notice, arg);
    for (size_t i = 0; is_part && i < safetensors_count(st); i++) {
        const safetensors_tensor *tensor = safetensors_at(st, i);
        if (is_part[i] || names_beside(naming, tensor->name) || !is_leftover(tensor) || is_buffer(arch, tensor->name))
            continue;
        first = first ? first : tensor;
        n++;
    }
    free(is_part);
    if (!first || !notice)
        return;
    if (n > 1)
        snprintf(others, sizeof others, " (and %zu more like it)", n - 1);
    snprintf(sentence, sizeof sentence, "%.400s: tensor \"%.120s\"%s is not part of a %s model and is ignored: it is %s",
             safetensors_path(st, first),
             first->name, others, m->config.model_type, first->elements ? "a buffer and holds no weights" : "empty");
    notice(arg, sentence);
}

static int check_extra(const model *m, const safetensors *st, pt_error *e)
{
    const weights_naming naming = weights_naming_of(m, st);
    char shape[128];
    int failed = 0;
    bool *is_part = find_parts(m, st);
    if (!is_part)
        return pt_fail(e, PT_FAILED, "out of memory for a table of %zu tensors", safetensors_count(st));
    for (size_t i = 0; i < safetensors_count(st) && !failed; i++) {
        const safetensors_tensor *tensor = safetensors_at(st, i);
        if (!is_part[i] && !names_beside(naming, tensor->name) && !is_leftover(tensor) && !prequantized_belongs(st, tensor) &&
            !predicts_further(m, tensor->name) && !makes_unread_keys(m, tensor->name))
            failed = pt_fail(
                e, PT_FAILED,
                "%s: tensor \"%.120s\" of shape %s is not part of a %s model with this config.json: correct the config, or remove the "
                "tensor",
                safetensors_path(st, tensor), tensor->name, shape_text(shape, tensor->rank, tensor->shape), m->config.model_type);
    }
    free(is_part);
    return failed;
}

bool weights_have_scores(const model *m, const safetensors *st)
{
    const param *p = block_param(m, &m->blocks[m->blocks_n - 1], PARAM_HEAD);
    return find_part(m, st, p, 0) != NULL;
}

int weights_check(const model *m, const safetensors *st, pt_dtype *stored_type, pt_error *e)
{
    uint64_t elements[PT_I64 + 1] = {0};
    size_t claimed = weights_find_beside(m, st).tensors;
    const architecture *arch = architecture_of(m);
    char head_of[SPELLED_NAME];
    names_spell(arch, weights_naming_of(m, st), arch->head ? arch->head : head_name, head_of);
    int failed = safetensors_check_index(st, m->config.tied || m->config.labels ? head_of : NULL, e);
    if (failed)
        return failed;
    for (int i = 0; i < m->params_n; i++)
        for (int k = 0; k < m->params[i].parts && !param_is_adapter(&m->params[i]); k++) {
            const param *p = &m->params[i];
            const safetensors_tensor *tensor = find_part(m, st, p, k);
            pt_dtype dtype = PT_F32;
            if (!tensor && is_scorer(m, p))
                continue;
            int status = tensor ? check_tensor(m, st, tensor, p, k, &dtype, e) : missing_tensor(m, st, p, k, e);
            if (status)
                return status;
            elements[dtype] += (uint64_t)part_values(p, k);
            claimed++;
            const safetensors_tensor *head = is_tied_tokens(m, p) ? find_head(m, st) : NULL;
            if (head && head != tensor) {
                status = check_tied_copy(m, st, p, tensor, head, e);
                claimed++;
            }
            if (status)
                return status;
        }
    if (stored_type) {
        *stored_type = PT_F32;
        if (elements[PT_BF16] > elements[PT_F32] + elements[PT_F64] ||
            elements[PT_F16] > elements[PT_F32] + elements[PT_F64])
            *stored_type = elements[PT_BF16] >= elements[PT_F16] ? PT_BF16 : PT_F16;
    }
    return claimed == safetensors_count(st) ? 0 : check_extra(m, st, e);
}

int weights_check_adapter(const model *m, const safetensors *st, pt_error *e)
{
    int status = 0;
    for (int i = 0; i < m->params_n; i++)
        for (int k = 0; k < m->params[i].parts && (param_is_adapter(&m->params[i]) || m->params[i].whole) && !status; k++) {
            pt_dtype dtype;
            const safetensors_tensor *tensor = find_part(m, st, &m->params[i], k);
            status = tensor ? check_tensor(m, st, tensor, &m->params[i], k, &dtype, e) : missing_tensor(m, st, &m->params[i], k, e);
        }
    return status;
}

int weights_in_few_bits(const model *m, const safetensors *st, int index, int k, prequantized *out, pt_error *e)
{
    const safetensors_tensor *tensor = find_part(m, st, &m->params[index], k);
    return tensor ? prequantized_open(st, tensor, m->config.stored_type, out, e) : missing_tensor(m, st, &m->params[index], k, e);
}

/* The format in which the whole parameter is stored; STORAGE_PLAIN: none, or several. */
static int stored_format(const model *m, const safetensors *st, int index, param_storage *out, pt_error *e)
{
    prequantized q;
    for (int k = 0; k < m->params[index].parts; k++) {
        const int few = weights_in_few_bits(m, st, index, k, &q, e);
        if (few < 0)
            return few;
        const param_storage is = few ? q.format : STORAGE_PLAIN;
        *out = !k || is == *out ? is : STORAGE_PLAIN;
    }
    return 0;
}

int weights_store_like(model *m, const safetensors *st, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < m->params_n && !failed; i++)
        if (storage_fits(&m->params[i]))
            failed = stored_format(m, st, i, &m->params[i].storage, e);
    return failed;
}

bool weights_frozen_are_bf16(const model *m, const safetensors *st, bool all)
{
    bool are = true;
    for (int i = 0; i < m->params_n; i++)
        for (int k = 0; k < m->params[i].parts && (all || !m->params[i].trainable) && m->params[i].storage == STORAGE_PLAIN; k++) {
            if (m->params[i].kind->use == USE_CORRECTION)
                continue; /* fp32 everywhere */
            prequantized q;
            const safetensors_tensor *tensor = find_part(m, st, &m->params[i], k);
            const int few = tensor ? prequantized_open(st, tensor, m->config.stored_type, &q, NULL) : -1;
            are = are && few >= 0 && (few ? q.dtype : tensor->dtype) == PT_BF16;
        }
    return are;
}

int weights_check_among(const model *m, const safetensors *st, weights_type type_of, void *arg, size_t *claimed, pt_error *e)
{
    size_t n = 0;
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        const int type = type_of(arg, i);
        for (int k = 0; type >= 0 && k < p->parts; k++, n++) {
            const safetensors_tensor *tensor = find_part(m, st, p, k);
            int status = tensor ? check_shape(st, tensor, p, k, e) : missing_tensor(m, st, p, k, e);
            if (status)
                return status;
            if (!tensor->dtype_is_known || tensor->dtype != (pt_dtype)type)
                return pt_fail(e, PT_FAILED,
                               "%s: tensor \"%.80s\" is stored as %s, and %s is needed; the file is damaged, or of another run",
                               safetensors_path(st, tensor), tensor->name, tensor->dtype_text, dtype_name((pt_dtype)type));
        }
    }
    if (claimed)
        *claimed = n;
    return 0;
}

int weights_check_some(const model *m, const safetensors *st, weights_type type_of, void *arg, pt_error *e)
{
    size_t claimed;
    const int failed = weights_check_among(m, st, type_of, arg, &claimed, e);
    if (failed)
        return failed;
    if (claimed != safetensors_count(st))
        return pt_fail(e, PT_FAILED, "%s: %zu tensors are there, and %zu are needed; the file is damaged, or of another run",
                       first_path(st),
                       safetensors_count(st), claimed);
    return 0;
}

/* out (n, cols) = rows first .. first+n of a part. */
static int read_rows(const model *m, const safetensors *st, const safetensors_tensor *tensor, const param_part *part, int64_t first,
                     int64_t n, int64_t cols, float *out, pt_error *e)
{
    int status = 0;
    for (int64_t done = 0, run, stored; done < n && !status; done += run) {
        run = part_run(part, first + done, n - done, &stored);
        status = read_values(m, st, tensor, stored * cols, run * cols, out + done * cols, e);
    }
    return status;
}

/* out (n, cols) = rows first .. first+n of a matrix stored as (cols, stored_cols), from element `base` of its tensor on. */
static int read_matrix(const safetensors *st, const safetensors_tensor *tensor, int64_t base, int64_t stored_cols, int64_t cols,
                       int64_t first, int64_t n, float *out, float *scratch, int64_t room, pt_error *e)
{
    int status = 0;
    if (2 * n >= stored_cols && stored_cols <= room) {
        int64_t step = room / stored_cols;
        for (int64_t c = 0; c < cols && !status; c += step) {
            int64_t take = cols - c < step ? cols - c : step;
            status = safetensors_read_f32(st, tensor, (uint64_t)(base + c * stored_cols), (uint64_t)(take * stored_cols), scratch, e);
            if (!status)
                transpose(out + c, cols, scratch + first, stored_cols, take, n);
        }
        return status;
    }
    for (int64_t r = 0; r < n; r += room)
        for (int64_t c = 0; c < cols && !status; c++) {
            int64_t take = n - r < room ? n - r : room;
            status = safetensors_read_f32(st, tensor, (uint64_t)(base + c * stored_cols + first + r), (uint64_t)take, scratch, e);
            if (!status)
                transpose(out + r * cols + c, cols, scratch, take, 1, take);
        }
    return status;
}

/* out (n, cols) = rows first .. first+n of part k, of whose matrices each is stored transposed. */
static int read_transposed(const safetensors *st, const safetensors_tensor *tensor, const param *p, int k, int64_t first, int64_t n,
                           float *out, float *scratch, int64_t room, pt_error *e)
{
    const int64_t whole = part_whole_rows(p, k);
    int status = 0;
    for (int64_t done = 0, take; done < n && !status; done += take) {
        const int64_t row = first + done, inside = row % whole;
        take = n - done < whole - inside ? n - done : whole - inside;
        status = read_matrix(st, tensor, (row - inside) * p->cols, whole, p->cols, inside, take, out + done * p->cols, scratch, room, e);
    }
    return status;
}

/* out (n, cols) = rows first .. first+n of part k, whose experts lie side by side. `room` is that of a column of all experts at least. */
static int read_abreast(const safetensors *st, const safetensors_tensor *tensor, const param *p, int k, int64_t first, int64_t n,
                        float *out, float *scratch, int64_t room, pt_error *e)
{
    const int64_t experts = p->part[k].abreast, outputs = p->part[k].rows / experts, step = room / experts;
    int status = 0;
    for (int64_t at = 0; at < outputs * p->cols && !status; at += step) { /* columns of all experts; row i begins with column i x cols */
        const int64_t take = outputs * p->cols - at < step ? outputs * p->cols - at : step;
        status = safetensors_read_f32(st, tensor, (uint64_t)(at * experts), (uint64_t)(take * experts), scratch, e);
        for (int64_t c = at; c < at + take && !status; c++)
            for (int64_t expert = 0; expert < experts; expert++) {
                const int64_t row = expert * outputs + c / p->cols - first;
                if (row >= 0 && row < n)
                    out[row * p->cols + c % p->cols] = scratch[(c - at) * experts + expert];
            }
    }
    return status;
}

static bool is_finite_bits(uint32_t bits) { return (bits & 0x7f800000u) != 0x7f800000u; }

/* A value that is not finite would spoil the first loss, where nothing tells which value it was. */
static int check_finite(const safetensors *st, const safetensors_tensor *tensor, const float *values, int64_t n, pt_error *e)
{
    uint32_t bits, finite = 1;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, &values[i], sizeof bits);
        finite &= is_finite_bits(bits);
    }
    if (finite)
        return 0;
    return pt_fail(e, PT_FAILED, "%s: tensor \"%.120s\" has a value that is not finite (NaN or infinity): the weights are damaged, or "
                                 "their training diverged: use another copy, or an older checkpoint", safetensors_path(st, tensor),
                                 tensor->name);
}

int weights_read(const model *m, const safetensors *st, int index, int64_t row0, int64_t n_rows, float *out,
                 void *scratch, size_t scratch_bytes, pt_error *e)
{
    const param *p = &m->params[index];
    int status = 0;
    for (int k = 0; k < p->parts && !status; k++) {
        const param_part *part = &p->part[k];
        const safetensors_tensor *tensor = find_part(m, st, p, k);
        if (!tensor && is_scorer(m, p)) {
            memset(out, 0, (size_t)(n_rows * p->cols) * sizeof *out);
            continue;
        }
        if (!tensor)
            return missing_tensor(m, st, p, k, e);
        if (part->vector) {
            status = read_rows(m, st, tensor, part, 0, part->rows, 1, out + part->row0, e);
            if (!status)
                status = check_finite(st, tensor, out + part->row0, part->rows, e);
            continue;
        }
        int64_t from = row0 > part->row0 ? row0 : part->row0;
        int64_t to = row0 + n_rows < part->row0 + part->rows ? row0 + n_rows : part->row0 + part->rows;
        if (to <= from)
            continue;
        float *at = out + (from - row0) * p->cols;
        int64_t first = from - part->row0, n = to - from;
        if (lacks_new_rows(m, tensor, p)) {
            const int64_t there = tensor->shape[0] - first < 0 ? 0 : tensor->shape[0] - first < n ? tensor->shape[0] - first : n;
            memset(at + there * p->cols, 0, (size_t)((n - there) * p->cols) * sizeof *at);
            n = there;
        }
        prequantized q;
        const int few = part->transposed ? prequantized_open(st, tensor, m->config.stored_type, &q, e) : 0;
        if (few < 0)
            return few;
        if (part->abreast)
            status = read_abreast(st, tensor, p, k, first, n, at, scratch, (int64_t)(scratch_bytes / sizeof *out), e);
        else if (part->transposed && !few)
            status = read_transposed(st, tensor, p, k, first, n, at, scratch, (int64_t)(scratch_bytes / sizeof *out), e);
        else
            status = read_rows(m, st, tensor, part, first, n, p->cols, at, e);
        if (!status)
            status = check_finite(st, tensor, at, n * p->cols, e);
    }
    return status;
}
