/* trained.c - what of a model is trained, in words. */
#include "model/adapter.h"
#include "model/storage.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>

/* The modules that have adapters, counted over all layers. */
typedef struct adapted {
    int layers[MODEL_MATRICES][MODEL_MAX_PARTS]; /* how many layers have one, and how many have the module */
    int modules[MODEL_MATRICES][MODEL_MAX_PARTS];
    int low, high;                               /* ranks */
} adapted;

static adapted count_adapted(const model *m)
{
    adapted a = {.low = ADAPTER_MAX_RANK};
    for (int b = 1; b < m->blocks_n - 1; b++)
        for (int i = 0; i < MODEL_MATRICES; i++)
            for (int k = 0; k < adapter_parts(m, b, i); k++) {
                a.modules[i][k]++;
                const int rank = adapter_at(m, b, i, k)->rank;
                if (!rank)
                    continue;
                a.layers[i][k]++;
                a.low = rank < a.low ? rank : a.low;
                a.high = rank > a.high ? rank : a.high;
            }
    return a;
}

static bool is_adapted_only(const adapted *a, unsigned matrices)
{
    bool only = true;
    for (int i = 0; i < MODEL_MATRICES; i++)
        for (int k = 0; k < MODEL_MAX_PARTS; k++)
            only = only && a->layers[i][k] == (matrices >> i & 1 ? a->modules[i][k] : 0);
    return only;
}

static void write_modules(FILE *out, const model *m, const adapted *a)
{
    char name[MODEL_NAME];
    const char *between = "";
    for (int i = 0; i < MODEL_MATRICES; i++)
        for (int k = 0; k < adapter_most_parts(m, i); k++) {
            if (!a->layers[i][k])
                continue;
            adapter_short_name(m, i, k, name);
            fprintf(out, "%s%s", between, name);
            if (a->layers[i][k] < a->modules[i][k])
                fprintf(out, " of %d layer%s", a->layers[i][k], plural((uint64_t)a->layers[i][k]));
            between = ", ";
        }
}

/* Of attention alone, also if the MLPs of all layers are experts. */
static void write_set(FILE *out, const model *m, const adapted *a)
{
    static const struct { unsigned matrices; const char *words; } sets[] = {
        {ADAPTER_ATTENTION, "attention"}, {ADAPTER_LINEAR, "all linear layers"}, {ADAPTER_MLP, "the MLP"}, {ADAPTER_EXPERTS, "experts"},
        {ADAPTER_ATTENTION | ADAPTER_EXPERTS, "attention and experts"},
        {ADAPTER_LINEAR | ADAPTER_EXPERTS, "all linear layers and experts"}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (is_adapted_only(a, sets[i].matrices)) {
            fputs(sets[i].words, out);
            return;
        }
    write_modules(out, m, a);
}

static void write_adapters(FILE *out, const model *m)
{
    const adapted a = count_adapted(m);
    const bool stabilized = json_is_true(json_object_get(m->adapters->config, "use_rslora"));
    fprintf(out, "%sLoRA of rank %d", stabilized ? "rank-stabilized " : "", a.low);
    if (a.high > a.low)
        fprintf(out, " to %d", a.high);
    fputs(m->adapters->dora ? " with magnitudes (DoRA) on " : " on ", out);
    write_set(out, m, &a);
    const json_t *whole = json_object_get(m->adapters->config, "modules_to_save");
    for (size_t i = 0; i < json_array_size(whole); i++)
        fprintf(out, "%s%s", i ? ", " : " and in full ", json_string_value(json_array_get(whole, i)));
    fputs(", ", out);
}

/* "1 of 24 layers a turn and in every turn embed_tokens, lm_head, " */
static void write_turns(FILE *out, const model *m)
{
    const char *between = " and in every turn ";
    fprintf(out, "%d of %lld layers a turn", m->layers_at_once, (long long)m->config.layers);
    for (int i = 0; i < m->params_n; i++) {
        const char *name = m->params[i].part[0].name, *end = strrchr(name, '.'), *at = end;
        if (!m->params[i].always || !end || strcmp(end, ".weight") != 0)
            continue;
        while (at > name && at[-1] != '.')
            at--;
        fprintf(out, "%s%.*s", between, (int)(end - at), at);
        between = ", ";
    }
    fputs(", ", out);
}

void model_describe_trained(const model *m, const char *with, char out[MODEL_TRAINED_TEXT])
{
    char count[32], all[32];
    out[0] = 0;
    FILE *f = fmemopen(out, MODEL_TRAINED_TEXT, "w");
    if (!f)
        return;
    if (m->adapters)
        write_adapters(f, m);
    if (m->layers_at_once)
        write_turns(f, m);
    fprintf(f, "%s of %s parameters with %s", model_trains_all(m) ? "all" : count_format(count, (uint64_t)model_trained_parameters(m)),
            count_format(all, (uint64_t)m->parameters), with);
    const storage_format *base = storage_format_of(model_storage(m));
    if (base)
        fprintf(f, "; base in %s", base->name);
    fclose(f);
    out[MODEL_TRAINED_TEXT - 1] = 0;
}
