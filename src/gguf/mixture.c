#include "gguf/mixture.h"

#include <string.h>

static const struct { gguf_type base; uint32_t file; bool mixed; } kinds[] = {
    [PT_EXPORT_F32] = {GGUF_F32, 0, false},       [PT_EXPORT_F16] = {GGUF_F16, 1, false},
    [PT_EXPORT_BF16] = {GGUF_BF16, 32, false},    [PT_EXPORT_Q8_0] = {GGUF_Q8_0, 7, false},
    [PT_EXPORT_Q4_0] = {GGUF_Q4_0, 2, false},     [PT_EXPORT_Q4_K_M] = {GGUF_Q4_K, 15, true},
    [PT_EXPORT_Q5_K_M] = {GGUF_Q5_K, 17, true},   [PT_EXPORT_Q6_K] = {GGUF_Q6_K, 18, false}};

gguf_type gguf_base_type(pt_export_type kind) { return kinds[kind].base; }
uint32_t gguf_file_type(pt_export_type kind) { return kinds[kind].file; }

typedef struct mixture {
    const model_config *c;
    gguf_type base;
    bool mixed;        /* some layers have more bits */
    bool tied;         /* the file has no head */
    bool shared_values; /* values so small beside queries that they cost little */
    int values, value; /* tensors of attention's values, and those before this one */
    int down;          /* an MLP's second matrices before this one */
} mixture;

/* "attn_v" of "blk.3.attn_v.weight" and "token_embd" of "token_embd.weight", with what follows. */
static const char *kind_of(const gguf_tensor *t)
{
    const char *dot = strncmp(t->name, "blk.", 4) ? NULL : strchr(t->name + 4, '.');
    return dot ? dot + 1 : t->name;
}

static bool is_kind(const gguf_tensor *t, const char *kind)
{
    const size_t n = strlen(kind);
    return !strncmp(kind_of(t), kind, n) && kind_of(t)[n] == '.';
}

static bool is_value(const gguf_tensor *t) { return is_kind(t, "attn_v") || is_kind(t, "attn_qkv"); }
static bool is_down(const gguf_tensor *t) { return !strncmp(kind_of(t), "ffn_down", 8); }

/* The first and last eighth of n, and every third between them. */
static bool has_more_bits(int64_t i, int64_t n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

static gguf_type type_of_value(const mixture *x)
{
    if (x->c->experts == 8)
        return GGUF_Q8_0;
    if (x->mixed && has_more_bits(x->value, x->values))
        return GGUF_Q6_K;
    return x->base == GGUF_Q4_K && x->shared_values ? GGUF_Q5_K : x->base;
}

static gguf_type type_of_head(const mixture *x, const gguf_tensor *t)
{
    return x->base == GGUF_Q8_0 || t->cols % gguf_block_values(x->base) ? GGUF_Q8_0 : GGUF_Q6_K;
}

static gguf_type mixed_type(const mixture *x, const gguf_tensor *t)
{
    if (is_kind(t, "output") || (x->tied && (is_kind(t, "token_embd") || is_kind(t, "per_layer_token_embd"))))
        return type_of_head(x, t);
    if (is_value(t))
        return type_of_value(x);
    if (x->c->experts == 8 && is_kind(t, "attn_k"))
        return GGUF_Q8_0;
    if (x->c->experts == 8 && is_kind(t, "attn_output") && x->base == GGUF_Q4_K)
        return GGUF_Q5_K;
    /* of experts by the layer's number; else by how many such matrices came before, also where not every layer has one */
    return x->mixed && is_down(t) && has_more_bits(x->c->experts > 1 ? t->layer : x->down, x->c->layers) ? GGUF_Q6_K : x->base;
}

/* A type of smaller blocks for rows that are not whole blocks, else F16. */
static gguf_type fitting(gguf_type type, int64_t cols)
{
    const gguf_type smaller = type == GGUF_Q4_K ? GGUF_Q5_0 : type == GGUF_Q5_K ? GGUF_Q5_1 : type == GGUF_Q6_K ? GGUF_Q8_0 : type;
    return cols % gguf_block_values(type) == 0 ? type : cols % gguf_block_values(smaller) == 0 ? smaller : GGUF_F16;
}

void gguf_mix_types(gguf_tensors *t, const model_config *config, const gguf_family *f, pt_export_type kind)
{
    mixture x = {.c = config, .base = kinds[kind].base, .mixed = kinds[kind].mixed, .tied = true};
    x.shared_values =
        config->layers == 80 && (!strcmp(f->name, "qwen2") || (!strcmp(f->name, "llama") && config->heads != config->kv_heads));
    for (int i = 0; i < t->n; i++) {
        x.tied = x.tied && !is_kind(&t->list[i], "output");
        x.values += is_value(&t->list[i]) && !t->list[i].whole;
    }
    for (int i = 0; i < t->n; i++) {
        gguf_tensor *one = &t->list[i];
        if (one->whole)
            continue;
        if (one->plain && gguf_is_blocks(x.base)) {
            one->type = GGUF_F16;
            continue;
        }
        const gguf_type wanted = gguf_is_blocks(x.base) ? mixed_type(&x, one) : x.base;
        one->type = fitting(wanted, one->cols);
        t->unblocked += one->type != wanted;
        x.value += is_value(one);
        x.down += is_down(one);
    }
}
