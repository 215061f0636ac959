/* select.c - pt_select: which tensors to train within a memory budget. Measures contributions, chooses, and plans what was chosen. */
#include "base/units.h"
#include "io/safetensors.h"
#include "model/patterns.h"
#include "model/weights.h"
#include "optimizer/optimizer.h"
#include "task/task.h"
#include "train/choice.h"
#include "train/contribution.h"
#include "train/model_options.h"
#include "train/options.h"

#include <stdlib.h>
#include <string.h>

typedef struct selection {
    pt_train_options o;      /* of the run that is proposed */
    uint64_t memory;
    int64_t steps;
    model *model;
    step_shape shape;
    planning planning;
    double *contribution;
    choice choice;
    name_patterns patterns;
    pt_plan *plan;
} selection;

/* ---- what is asked ---- */

static int refuse_options(const pt_train_options *o, pt_error *e)
{
    const char *other = o->lora_rank || o->lora_targets || o->rslora || o->dora ? "lora_rank"
                        : o->adapter                                            ? "adapter"
                        : o->train_blocks                                       ? "train_blocks"
                        : o->train_also                                         ? "train_also"
                        : o->add_tokens                                         ? "add_tokens"
                        : o->base != PT_BASE_AS_COMPUTED                               ? "base"
                        : o->plan_file                                          ? "plan_file"
                        : o->ranks > 1                                          ? "ranks"
                        : o->resume                                             ? "resume"
                                                                                : NULL;
    if (other)
        return pt_fail(e, PT_USAGE, "`%s` does not go with `select`, which chooses among the tensors of a model: leave it out", other);
    if (o->optimizer != PT_OPTIMIZER_ADAMW && o->optimizer != PT_OPTIMIZER_ADAMW8BIT)
        return pt_fail(e, PT_USAGE, "`select` measures what steps of AdamW gain: give `optimizer` adamw or adamw8bit, not %s",
                       optimizers[o->optimizer]->name);
    if (o->task != PT_TASK_SFT)
        return pt_fail(e, PT_USAGE, "`select` measures the loss of tokens: it cannot choose tensors for `task` %s", task_of(o)->name);
    if (o->machine_file && (strchr(o->machine_file, ',') || !strcmp(o->machine_file, "all")))
        return pt_fail(e, PT_USAGE, "`machine_file` names several machines, and `select` chooses for one: give one of them");
    if (o->device_memory != PT_AUTO)
        return pt_fail(e, PT_USAGE, "`select` is the budget of the device: leave `device_memory` out");
    return 0;
}

static int check(const pt_train_options *o, uint64_t memory, int64_t steps, pt_error *e)
{
    int failed = options_check_plan(o, e);
    if (!failed)
        failed = refuse_options(o, e);
    if (failed)
        return failed;
    if (!o->data || o->data_n < 1)
        return pt_fail(e, PT_USAGE, "no data: `select` measures on those of the run, which `data` names");
    if (!memory)
        return pt_fail(e, PT_USAGE, "`select` is 0: give the memory of the run, such as 8GiB");
    if (steps < CONTRIBUTION_STEPS_LEAST || steps > CONTRIBUTION_STEPS_MOST)
        return pt_fail(e, PT_USAGE, "`select_steps` is %lld: it must be from %d to %d", (long long)steps, CONTRIBUTION_STEPS_LEAST,
                       CONTRIBUTION_STEPS_MOST);
    return 0;
}

/* RAM beside a GPU is used as in any run; the disk if it was asked for. */
static pt_train_options run_options(const pt_train_options *o, uint64_t memory)
{
    pt_train_options r = *o;
    r.device_memory = memory;
    r.disk_memory = o->disk_memory == PT_AUTO ? 0 : o->disk_memory;
    r.ranks = 1;
    r.notice = NULL; /* what there is to say is said while measuring */
    return r;
}

/* ---- the choice ---- */

/* As a run that freezes some of them keeps weights. */
static int find_stored_type(selection *s, pt_error *e)
{
    safetensors *st;
    if (s->o.init_random || !weights_present(s->o.model))
        return 0;
    int failed = safetensors_open(s->o.model, &st, e);
    if (failed)
        return failed;
    s->model->stored_bf16 = weights_frozen_are_bf16(s->model, st, true);
    safetensors_close(st);
    return 0;
}

static int open_planning(selection *s, pt_error *e)
{
    planning *planning = &s->planning;
    planning->o = &s->o;
    planning->model = s->model;
    planning->shape = &s->shape;
    planning->evaluates = options_evaluate(&s->o);
    snprintf(planning->disk_path, sizeof planning->disk_path, "%s", planning_disk_folder(&s->o));
    int failed = !s->o.machine_file ? planning_open_device(planning, &s->o, e) : 0;
    return failed ? failed : planning_prepare(planning, e);
}

static int open_model(selection *s, pt_error *e)
{
    int failed = model_of_options(&s->o, 0, NULL, &s->model, e);
    if (!failed)
        failed = shape_of_options(&s->o, s->model, &s->shape, e);
    if (!failed) {
        step_shape_divide(&s->shape);
        failed = find_stored_type(s, e);
    }
    if (failed)
        return failed;
    const size_t n = (size_t)s->model->params_n;
    s->contribution = calloc(n, sizeof *s->contribution);
    s->choice = (choice){.contribution = s->contribution, .candidate = calloc(n, sizeof(bool)), .chosen = calloc(n, sizeof(bool))};
    if (!s->contribution || !s->choice.candidate || !s->choice.chosen)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (size_t i = 0; i < n; i++)
        s->choice.candidate[i] = s->model->params[i].trainable && s->model->params[i].kind->use != USE_CONSTANT;
    return 0;
}

static bool is_all(const selection *s)
{
    bool all = true;
    for (int i = 0; i < s->model->params_n; i++) {
        const int use = s->model->params[i].kind->use;
        all = all && (s->choice.chosen[i] || use == USE_CONSTANT || use == USE_CORRECTION);
    }
    return all;
}

/* The plan of the run itself, whose options are those that are printed. */
static int plan_chosen(selection *s, pt_error *e)
{
    patterns_close(&s->patterns);
    pt_plan_close(s->plan);
    s->plan = NULL;
    int failed = is_all(s) ? 0 : patterns_of(s->model, s->choice.chosen, &s->patterns, e);
    if (failed)
        return failed;
    s->o.freeze_n = 0;
    s->o.train_only = (const char *const *)s->patterns.pattern;
    s->o.train_only_n = s->patterns.n;
    return pt_plan_open(&s->o, &s->plan, e);
}

/* The search for what fits knows sizes before anything is measured; measuring and rounding may need a little more. */
static int choose(selection *s, pt_error *e)
{
    enum { TRIES = 4 };
    pt_train_options all = s->o;
    int failed = 0;
    for (int i = 0; i < TRIES; i++) {
        s->planning.search.budget[TIER_DEVICE] -= i ? s->planning.search.budget[TIER_DEVICE] / 50 : 0;
        failed = choice_make(&s->planning, s->model, &s->choice, e);
        if (failed)
            return failed;
        failed = plan_chosen(s, e);
        if (failed != PT_DOES_NOT_FIT)
            return failed;
        s->o.freeze_n = all.freeze_n;
        s->o.train_only = all.train_only;
        s->o.train_only_n = all.train_only_n;
    }
    return failed;
}

static int make(selection *s, const pt_train_options *o, pt_error *e)
{
    int failed = open_model(s, e);
    if (!failed)
        failed = open_planning(s, e);
    if (!failed)
        failed = contributions_measure(o, s->model, s->steps, s->contribution, e);
    return failed ? failed : choose(s, e);
}

/* ---- in words ---- */

static void count(const selection *s, bool chosen, int *tensors, int64_t *values)
{
    *tensors = 0;
    *values = 0;
    for (int i = 0; i < s->model->params_n; i++)
        if (chosen ? s->choice.chosen[i] : s->choice.candidate[i]) {
            *tensors += s->model->params[i].parts;
            *values += s->model->params[i].rows * s->model->params[i].cols;
        }
}

/* The kind of a parameter: its names without the numbers of layers and experts, "self_attn.q_proj.weight, ...". */
static void kind_of(const param *p, char *out, size_t n)
{
    size_t used = 0, length;
    char name[MODEL_NAME];
    for (int k = 0; k < p->parts && used < n; k++) {
        if (!name_of_experts(p, k, name))
            continue;
        const char *at = layer_number(p, name, &length);
        used += (size_t)snprintf(out + used, n - used, "%s%s", k ? ", " : "", at ? at + length + 1 : name);
    }
}

enum { KIND_BYTES = 512 };

/* One line for all parameters of a kind, written with the first of them. */
static void write_kind(FILE *out, const selection *s, int first)
{
    const model *m = s->model;
    char kind[KIND_BYTES], other[KIND_BYTES], layers[256];
    bool in[MODEL_MAX_LAYERS] = {false};
    double share = 0;
    uint64_t bytes = 0;
    int of = 0;
    kind_of(&m->params[first], kind, sizeof kind);
    for (int i = 0; i < m->params_n; i++) {
        kind_of(&m->params[i], other, sizeof other);
        if (!s->choice.candidate[i] || strcmp(kind, other) != 0)
            continue;
        if (i < first)
            return;
        of++;
        share += s->contribution[i] > 0 ? s->contribution[i] / s->choice.all : 0;
        bytes += choice_bytes(&s->planning, &m->params[i]);
        if (m->params[i].kind->block == BLOCK_LAYER)
            in[m->params[i].block - 1] = s->choice.chosen[i];
    }
    const bool of_layer = m->params[first].kind->block == BLOCK_LAYER;
    layer_ranges(in, (int)m->config.layers, layers, sizeof layers);
    const char *chosen = of_layer ? (layers[0] ? layers : "-") : s->choice.chosen[first] ? "trained" : "-";
    char size[32];
    fprintf(out, "%6.1f%%  %12s  %-24s  %s\n", 100 * share, size_format(size, bytes), chosen, kind);
}

/* To the byte: what fits must still do so. */
static void write_size(FILE *out, const char *flag, uint64_t bytes)
{
    const bool whole = bytes && bytes % (1 << 20) == 0;
    if (bytes != PT_AUTO)
        fprintf(out, " %s %llu%s", flag, (unsigned long long)(whole ? bytes >> 20 : bytes), whole ? "MiB" : "");
}

static void write_options(FILE *out, const selection *s)
{
    fputs("train with:", out);
    write_size(out, "--device-memory", s->o.device_memory);
    write_size(out, "--host-memory", s->o.host_memory);
    write_size(out, "--disk-memory", s->o.disk_memory);
    if (s->shape.gpu) /* else a run takes all GPUs */
        fputs(" --ranks 1", out);
    for (int i = 0; i < s->patterns.n; i++)
        fprintf(out, " \\\n    --train-only '%s'", s->patterns.pattern[i]);
    fputs("\n\n", out);
}

static char *text_of(const selection *s)
{
    char *text = NULL, *plan = pt_plan_text(s->plan), size[32];
    size_t bytes;
    int tensors, of;
    int64_t values, all;
    FILE *out = plan ? open_memstream(&text, &bytes) : NULL;
    if (!out) {
        free(plan);
        return NULL;
    }
    count(s, true, &tensors, &values);
    count(s, false, &of, &all);
    fprintf(out, "within %s: %d of %d tensors, %.4gM of %.4gM parameters, with %.0f%% of the contribution\n\n",
            size_format(size, s->memory), tensors, of, (double)values * 1e-6, (double)all * 1e-6, 100 * s->choice.sum / s->choice.all);
    fprintf(out, "%7s  %12s  %-24s  %s\n", "share", "states", "layers chosen", "tensors");
    for (int i = 0; i < s->model->params_n; i++)
        if (s->choice.candidate[i])
            write_kind(out, s, i);
    fprintf(out, "\nshare: of the loss that a step of AdamW would take away at first, over %lld steps of the data; states: of all layers, "
                 "with gradients\n\n", (long long)s->steps);
    write_options(out, s);
    fputs(plan, out);
    free(plan);
    const bool failed = ferror(out);
    if (!fclose(out) && !failed)
        return text;
    free(text);
    return NULL;
}

static json_t *tensors_json(const selection *s)
{
    json_t *all = json_array();
    for (int i = 0; i < s->model->params_n; i++) {
        const param *p = &s->model->params[i];
        json_t *names = json_array();
        for (int k = 0; k < p->parts && s->choice.candidate[i]; k++)
            json_array_append_new(names, json_string(p->part[k].name));
        if (s->choice.candidate[i])
            json_array_append_new(all, json_pack("{s:O, s:f, s:I, s:b}", "names", names, "contribution", s->contribution[i], "bytes",
                                                 (json_int_t)choice_bytes(&s->planning, p), "chosen", (int)s->choice.chosen[i]));
        json_decref(names);
    }
    return all;
}

static char *json_of(const selection *s)
{
    char *plan = pt_plan_json(s->plan);
    json_t *object = plan ? json_loads(plan, 0, NULL) : NULL, *patterns = json_array();
    for (int i = 0; i < s->patterns.n; i++)
        json_array_append_new(patterns, json_string(s->patterns.pattern[i]));
    json_object_set_new(object, "select", json_pack("{s:I, s:I, s:f, s:o, s:o}", "memory_bytes", (json_int_t)s->memory, "steps",
                                                    (json_int_t)s->steps, "share", s->choice.sum / s->choice.all, "train_only", patterns,
                                                    "tensors", tensors_json(s)));
    char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    free(plan);
    return text;
}

static void close_selection(selection *s)
{
    pt_plan_close(s->plan);
    patterns_close(&s->patterns);
    planning_close(&s->planning);
    model_close(s->model);
    free(s->contribution);
    free(s->choice.candidate);
    free(s->choice.chosen);
    free(s);
}

int pt_select(const pt_train_options *o, uint64_t memory, int64_t steps, bool json, char **out, pt_error *e)
{
    if (!o)
        return pt_fail_null(e, "pt_select", "the options");
    if (!out)
        return pt_fail_null(e, "pt_select", "the place for the text");
    *out = NULL;
    steps = steps ? steps : CONTRIBUTION_STEPS;
    int failed = check(o, memory, steps, e);
    selection *s = failed ? NULL : calloc(1, sizeof *s);
    if (!s)
        return failed ? failed : pt_fail(e, PT_FAILED, "out of memory");
    s->memory = memory;
    s->steps = steps;
    s->o = run_options(o, memory);
    failed = make(s, o, e);
    if (!failed && !(*out = json ? json_of(s) : text_of(s)))
        failed = pt_fail(e, PT_FAILED, "out of memory");
    close_selection(s);
    return failed;
}
