#include "train/model_options.h"

#include "base/units.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "layer/sequence.h"
#include "model/base_mark.h"
#include "model/lanes.h"
#include "model/weights.h"
#include "optimizer/optimizer.h"
#include "task/task.h"
#include "text/new_tokens.h"
#include "train/adapters.h"
#include "train/base.h"
#include "train/block_turns.h"
#include "train/options.h"

#include <math.h>

static int freeze(const pt_train_options *o, model *m, pt_error *e)
{
    safetensors *st;
    const bool adapts = o->lora_rank || o->adapter || o->lora_alpha != 0 || o->lora_targets || o->rslora || o->dora ||
                        o->lora_dropout > 0 || (o->train_also && !o->train_blocks);
    int failed = adapts ? adapters_open(o, m, e) : block_turns_begin(o, m, e);
    if (!failed)
        failed = base_apply(o, m, e);
    if (failed || adapts || model_trains_all(m) || o->init_random)
        return failed;
    m->stored_bf16 = m->config.stored_type == PT_BF16;
    if (!path_is_folder(o->model) || !weights_present(o->model))
        return 0;
    failed = safetensors_open(o->model, &st, e);
    if (failed)
        return failed;
    m->stored_bf16 = weights_frozen_are_bf16(m, st, o->train_blocks);
    safetensors_close(st);
    return 0;
}

/* The model shall learn longer positions without a scaling. */
static bool as_they_are(const pt_train_options *o) { return o->rope_scaling && !strcmp(o->rope_scaling, "none"); }

/* New rows that are never trained would stay what they start as. */
static int check_new_rows(const model *m, pt_error *e)
{
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].kind->use == USE_VOCABULARY && !m->params[i].trainable)
            return pt_fail(e, PT_USAGE, "`add_tokens` needs the rows of new tokens trained, but %.90s is frozen: leave `freeze` and "
                                        "`train_only` out, or let them train it", m->params[i].part[0].name);
    return 0;
}

/* Of a model that has no such head, as far as it is known before the data are read. */
static int64_t least_labels(const pt_train_options *o)
{
    return task_of(o)->scores == SCORES_ONE ? 1 : task_of(o)->scores == SCORES_LABELS && !model_scores(o->model) ? 2 : 0;
}

static int open_changed(const pt_train_options *o, new_tokens *added, int64_t labels, model **out, pt_error *e)
{
    char of_adapter[ROPE_MARK];
    const char *rope = o->rope_scaling && !as_they_are(o) ? o->rope_scaling : base_mark_rope(o->adapter, of_adapter);
    model_changes changes = {.rope_scaling = rope};
    if (o->add_tokens && o->adapter)
        return pt_fail(e, PT_USAGE, "`add_tokens` and `adapter` are both given, but an adapter has the tokens that its run began with: "
                                    "leave one of them out, or merge the adapter first");
    int failed = o->add_tokens ? new_tokens_open(added, o->model, o->add_tokens, e) : 0;
    changes.vocab = (int64_t)(added->first + added->n);
    changes.labels = labels;
    return failed ? failed : model_open_beside(o->model, &changes, o->adapter, options_pass_notice, (void *)o, out, e);
}

int model_of_options(const pt_train_options *o, int64_t labels, new_tokens *added, model **out, pt_error *e)
{
    const optimizer_args args = options_args(o);
    new_tokens own = {0}, *tokens = added ? added : &own;
    int failed = open_changed(o, tokens, labels ? labels : least_labels(o), out, e);
    const bool adds = tokens->n;
    new_tokens_close(&own);
    if (failed)
        return failed;
    if ((*out)->config.labels && !task_of(o)->scores)
        return pt_fail(e, PT_USAGE,
                       "`model` %.400s scores texts and predicts no tokens: only `task` classify or reward trains it", o->model);
    optimizer_prepare(*out, &args);
    failed = freeze(o, *out, e);
    return failed || !adds ? failed : check_new_rows(*out, e);
}

/* Positions that a rotary model knows: some configurations have those before their scaling. 0: any number. */
static int64_t rotary_positions(const model_config *config)
{
    const rope_config *r = &config->rope[0];
    const double scaled = r->factor > 1 ? r->factor * r->original_positions : 0;
    if (config->position != POSITION_ROTARY || r->kind == ROPE_DYNAMIC)
        return 0;
    return scaled > (double)config->max_positions ? (int64_t)scaled : config->max_positions;
}

int length_of_options(const pt_train_options *o, const model *m, bool may_exceed, pt_error *e)
{
    const int64_t known = rotary_positions(&m->config), times = known ? (o->seq_len + known - 1) / known : 1;
    if (times <= 1 || as_they_are(o))
        return 0;
    char mend[80] = "a larger factor in its config.json extends them";
    if (m->config.rope[0].kind == ROPE_PLAIN)
        snprintf(mend, sizeof mend, "`rope_scaling` yarn:%lld extends them", (long long)times);
    if (!may_exceed)
        return pt_fail(e, PT_USAGE, "`seq_len` is %lld, more than the model's %lld positions: %s, and with `rope_scaling` none it learns "
                       "longer ones as they are", (long long)o->seq_len, (long long)known, mend);
    options_notice(o, "`seq_len` is %lld, more than the model's %lld positions: %s", (long long)o->seq_len, (long long)known, mend);
    return 0;
}

/* As NEFTune's in Transformers: of the output of the module that is the embedding. Gemma's has the scale by width in that module; other
 * models scale after it. */
static float noise_of(const pt_train_options *o, const model_config *config)
{
    const bool inside = config->embedding_scale == (float)sqrt((double)config->hidden);
    return (float)(o->neftune_alpha / sqrt((double)o->seq_len * (double)config->hidden)) * (inside ? 1 : config->embedding_scale);
}

int shape_of_options(pt_train_options *o, const model *m, step_shape *shape, pt_error *e)
{
    const model_config *config = &m->config;
    if (!o->seq_len)
        o->seq_len = config->max_positions < 1024 ? config->max_positions : 1024;
    if (config->position == POSITION_LEARNED && o->seq_len > config->max_positions)
        return pt_fail(e, PT_FAILED, "`seq_len` is %lld, but the model has learned only %lld positions: give at most as many",
                       (long long)o->seq_len, (long long)config->max_positions);
    if (o->router_aux_loss > 0 && !config->router_loss)
        return pt_fail(e, PT_USAGE, "`router_aux_loss` balances the use of experts, but %s: leave the option out",
                       config->experts ? "Transformers has no such loss for this kind of model" : "the model has none");
    int failed = options_check_tokens(o, e);
    if (failed)
        return failed;
    step_shape_init(shape, m, o->precision == PT_PRECISION_BF16 ? PT_BF16 : PT_F32, o->batch_size, o->seq_len);
    shape->documents = o->document_mask || task_of(o)->pairs;
    shape->weighted = o->loss_per == PT_LOSS_PER_EXAMPLE || task_of(o)->plane != TASK_PLANE_NONE;
    shape->saved = (saved_form)o->activations;
    shape->router_aux = (float)o->router_aux_loss;
    shape->compare = task_rule(o);
    shape->linear = task_of(o)->scores == SCORES_ONE;
    shape->noise = noise_of(o, config);
    shape->smoothing = task_of(o)->pairs ? 0 : (float)o->label_smoothing;
    shape->optimizer = optimizers[o->optimizer];
    const int lanes = o->lanes ? o->lanes : o->ranks;
    const char *option = o->lanes ? "lanes" : "ranks";
    failed = lanes_check(lanes, option, shape->batch, shape->seq_len, e);
    if (!failed)
        failed = sequence_check(m, shape, lanes, option, e);
    if (!failed && lanes > 1)
        step_shape_in_lanes(shape, m, lanes);
    return failed;
}
