#include "train/adapters.h"

#include "io/files.h"
#include "io/safetensors.h"
#include "optimizer/optimizer.h"
#include "model/base_mark.h"
#include "model/storage.h"
#include "model/weights.h"
#include "train/companions.h"

static int check_options(const pt_train_options *o, pt_error *e)
{
    const bool is_of_also = o->train_also && !o->dora && !o->rslora && !o->lora_targets && !(o->lora_alpha > 0);
    if (!o->lora_rank && !o->adapter)
        return pt_fail(e, PT_USAGE, "`%s` needs an adapter: give `lora_rank` too, or leave it out%s",
                       o->dora           ? "dora"
                       : o->rslora       ? "rslora"
                       : o->lora_targets ? "lora_targets"
                       : o->lora_alpha > 0 ? "lora_alpha"
                       : o->train_also     ? "train_also"
                                           : "lora_dropout",
                       is_of_also ? " (`train_also` also goes with `train_blocks`)" : "");
    if (o->freeze_n || o->train_only_n)
        return pt_fail(e, PT_USAGE, "`%s` and `%s` are both given, but a run with an adapter trains nothing else: leave one of them out",
                       o->lora_rank ? "lora_rank" : "adapter", o->freeze_n ? "freeze" : "train_only");
    if (o->adapter && (o->lora_rank || o->lora_alpha > 0 || o->lora_targets || o->rslora || o->dora || o->train_also))
        return pt_fail(e, PT_USAGE,
                       "the " ADAPTER_CONFIG " of `adapter` sets the rank, alpha and targets: leave out `lora_rank`, `lora_alpha`, "
                       "`lora_targets`, `rslora`, `dora` and `train_also`");
    if (o->lora_dropout > 0 && o->dora)
        return pt_fail(e, PT_USAGE, "`lora_dropout` is %g, but adapters with `dora` are trained without dropout: leave one of them out",
                       o->lora_dropout);
    if (o->save_type != PT_SAVE_AS_STORED)
        return pt_fail(e, PT_USAGE,
                       "`save_type` has no effect on adapters, which are saved in fp32: leave it out; protrain merge has it for the "
                       "merged model");
    if (optimizers[o->optimizer]->of_matrices)
        return pt_fail(
            e, PT_USAGE,
            "`optimizer` %s updates the matrices of layers, which `lora_rank` and `adapter` freeze: give `optimizer` adamw or adamw8bit",
            optimizers[o->optimizer]->name);
    return 0;
}

/* Adapters of the matrices of experts, and of a shared expert with a gate, have no dropout. */
static int check_dropout(const pt_train_options *o, const model *m, pt_error *e)
{
    for (int b = 1; b < m->blocks_n - 1 && m->adapters->dropout > 0; b++)
        for (int i = MODEL_LINEAR_MATRICES; i < MODEL_MATRICES; i++)
            for (int k = 0; k < adapter_parts(m, b, i); k++)
                if (adapter_at(m, b, i, k)->rank)
                    return pt_fail(e, PT_USAGE,
                                   "`lora_dropout` is %g, but adapters of experts are trained without dropout: %s", m->adapters->dropout,
                                   o->adapter ? "give 0" : "give 0, or `lora_targets` attention");
    return 0;
}

/* Adds the module of a table of the vocabulary to the list, if it is not there. */
static void name_table(const param *p, char *list, size_t n)
{
    char module[MODEL_NAME];
    snprintf(module, sizeof module, "%s", p->part[0].name);
    *strrchr(module, '.') = 0;
    const char *name = strrchr(module, '.') ? strrchr(module, '.') + 1 : module;
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == strlen(name) && !strncmp(at, name, strlen(name)))
            return;
    const size_t used = strlen(list);
    snprintf(list + used, n - used, "%s%s", used ? "," : "", name);
}

/* `train_also`, with `add_tokens` all tables of the vocabulary, and a head that scores classes. NULL: none. */
static const char *modules_in_full(const pt_train_options *o, const model *m, char *list, size_t n)
{
    if (!o->add_tokens && !m->config.labels)
        return o->train_also;
    snprintf(list, n, "%s", o->train_also ? o->train_also : "");
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].kind->use == USE_VOCABULARY && (o->add_tokens || m->params[i].role == PARAM_HEAD))
            name_table(&m->params[i], list, n);
    return list;
}

int adapters_open(const pt_train_options *o, model *m, pt_error *e)
{
    char list[1024];
    const adapter_options a = {.rank = o->lora_rank, .alpha = o->lora_alpha, .targets = o->lora_targets, .rslora = o->rslora,
                               .dora = o->dora, .whole = modules_in_full(o, m, list, sizeof list)};
    int failed = check_options(o, e);
    if (!failed)
        failed = o->adapter ? model_adapt_like(m, o->adapter, o->notice, o->arg, e) : model_adapt(m, &a, e);
    if (failed)
        return failed;
    if (o->lora_dropout < 0)
        return check_dropout(o, m, e);
    if (o->lora_dropout > 0 && m->adapters->dora)
        return pt_fail(e, PT_USAGE, "`lora_dropout` is %g, but `adapter` %.400s is of DoRA, which is trained without dropout: leave the "
                                    "option out", o->lora_dropout, o->adapter);
    adapter_set_dropout(m, o->lora_dropout);
    return check_dropout(o, m, e);
}

static int open_adapter(const char *folder, safetensors **out, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, folder, ADAPTER_WEIGHTS, e);
    return failed ? failed : safetensors_open(path, out, e);
}

int adapters_load(state *state, const char *model_dir, const char *folder, uint64_t seed, pt_error *e)
{
    safetensors *base = NULL, *adapter = NULL;
    int failed = model_dir ? safetensors_open(model_dir, &base, e) : 0;
    if (!failed && folder)
        failed = open_adapter(folder, &adapter, e);
    if (!failed)
        failed = state_load_adapted(state, base, adapter, seed, e);
    safetensors_close(base);
    safetensors_close(adapter);
    return failed;
}

int adapters_write(state *state, const companions *companions, const char *folder, const char *base, const char *mark, pt_error *e)
{
    const bool leads = !state->in->packing->rank;
    int failed = leads ? companions_write_files(companions, folder, e) : 0;
    if (!failed && leads && state->in->model->config.labels)
        failed = companions_write_labels(companions, folder, e);
    if (!failed)
        failed = state_export_adapter(state, folder, "adapter_model", e);
    if (!failed && leads)
        failed = base_mark_write(mark, state->in->model, folder, e);
    return failed || !leads ? failed : adapter_write_config(state->in->model, folder, base, e);
}
