/* plan_open.c - pt_plan: a plan and its explanation, without a run. */
#include "base/units.h"
#include "io/safetensors.h"
#include "model/weights.h"
#include "train/base.h"
#include "train/block_turns.h"
#include "train/lighter.h"
#include "task/task.h"
#include "train/model_options.h"
#include "train/options.h"
#include "train/plan_ways.h"
#include "train/planning.h"
#include "train/ranks.h"
#include "train/ranks_number.h"
#include "train/room.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pt_plan {
    pt_train_options o;
    model *model;
    step_shape shape;
    planning planning;
    explain_input input;
    explanation explanation;
    plan_way ways[PLAN_WAYS];
    int ways_n;
    bool fits;
    char misfit[sizeof((pt_error *)0)->text];
};

/* The run's disk tier would lie in its output folder. */
static void choose_disk_folder(pt_plan *p)
{
    const pt_train_options *o = &p->o;
    char *at = p->planning.disk_path;
    if (o->disk_path || !o->out || !dir_find_existing(o->out, at) || access(at, W_OK))
        snprintf(at, FILE_PATH_BYTES, "%s", planning_disk_folder(o));
}

/* The dtype that the run would save in. Weights may be absent; fp32 is assumed if they cannot be read. */
static room_need room_of_run(const pt_plan *p)
{
    const pt_train_options *o = &p->o;
    const bool random_init = o->init_random || !path_is_folder(o->model) || !weights_present(o->model);
    room_input in = {.o = o, .model = p->model, .checkpoints = !o->save_every ? 0 : o->steps ? o->steps / o->save_every : 1};
    safetensors *source = NULL;
    if (room_save_type(o, p->model, random_init, &in.save_type, NULL))
        in.save_type = PT_F32;
    if (p->model->config.multimodal && !safetensors_open(o->model, &source, NULL))
        in.source = source;
    const room_need need = room_find(&in);
    safetensors_close(source);
    return need;
}

static const char *out_of(const pt_train_options *o) { return o->out ? o->out : "."; }

/* Free space on the disk of the disk tier's file. */
static uint64_t reserve_disk(const pt_plan *p)
{
    const pt_train_options *o = &p->o;
    return o->disk_path && !disk_is_same(o->disk_path, out_of(o)) ? 0 : room_of_run(p).least_bytes;
}

/* Such a run would be refused for lack of disk space. The disk of a machine file is unknown. */
static int check_room(pt_plan *p, pt_error *e)
{
    planning *g = &p->planning;
    const char *out = out_of(&p->o);
    const room_need r = room_of_run(p);
    const uint64_t tier_bytes = g->result.best.bytes[TIER_DISK];
    uint64_t free_bytes, missing;
    char size[32];
    if (p->o.machine_file || disk_free_bytes(out, &free_bytes, NULL))
        return 0;
    if (disk_is_same(g->disk_path, out))
        free_bytes = free_bytes > tier_bytes ? free_bytes - tier_bytes : 0;
    int failed = room_refuse(&r, out, free_bytes, &missing, e);
    g->missing_bytes += missing;
    if (missing)
        snprintf(g->change, sizeof g->change, "`out` where %s more are free", size_option(size, missing));
    else if (failed)
        snprintf(g->change, sizeof g->change, "ulimit -f unlimited");
    return failed;
}

/* Sets the number of ranks, unless the options give it: that of the machine file, or that of a run on this machine. */
static int find_ranks(pt_plan *p, pt_error *e)
{
    char path[MACHINE_PATH_BYTES];
    machine_spec x;
    if (!p->o.machine_file || p->o.ranks)
        return ranks_number(&p->o, &p->o.ranks, e);
    int failed = machine_file_find(p->o.machine_file, path, e);
    if (!failed)
        failed = machine_file_read(path, &x, e);
    p->o.ranks = failed || x.ranks < 2 ? 0 : x.ranks;
    return failed;
}

/* A rank's part of the step. */
static int cut_for_ranks(pt_plan *p, pt_error *e)
{
    const step_shape whole = p->shape;
    p->planning.ranks = p->o.ranks;
    return step_shape_of_rank(&p->shape, &whole, p->o.ranks > 1 ? p->o.ranks : 1, 0, e);
}

/* first: it is not one of the ways; also explain what would help. */
static int make(pt_plan *p, bool first, pt_error *e)
{
    planning *g = &p->planning;
    int failed = find_ranks(p, e);
    if (!failed)
        failed = model_of_options(&p->o, 0, NULL, &p->model, e);
    if (!failed)
        failed = shape_of_options(&p->o, p->model, &p->shape, e);
    if (!failed)
        failed = length_of_options(&p->o, p->model, true, e);
    if (!failed)
        failed = cut_for_ranks(p, e);
    if (!failed && (!p->o.machine_file || p->o.profile_file))
        failed = planning_open_device(g, &p->o, e);
    if (!failed && first && !p->o.machine_file && p->o.ranks > 1) /* else they are known */
        failed = ranks_time_here(p->o.ranks, g->host, &g->exchange, e);
    if (failed)
        return failed;
    g->o = &p->o;
    g->model = p->model;
    g->shape = &p->shape;
    g->of_way = !first;
    g->evaluates = options_evaluate(&p->o) || task_of(&p->o)->plane == TASK_PLANE_REFERENCE;
    choose_disk_folder(p);
    g->disk_reserve = reserve_disk(p);
    g->memory_reserve = disk_is_memory(out_of(&p->o)) ? room_of_run(p).least_bytes : 0;
    failed = planning_make(g, e);
    if (!failed)
        failed = block_turns_check(&p->o, g, p->model, 0, e);
    if (!failed)
        failed = check_room(p, e);
    if (failed)
        return failed;
    if (first && block_turns_groups(&p->o, p->model) > 1)
        options_notice(&p->o, "this is the plan of the first layers' turn, whose steps take longest; every other turn fits, too");
    p->fits = true;
    p->input = planning_explain(g, p->o.steps, first && !p->o.plan_file);
    return explain(&p->input, &p->explanation, e);
}

/* The least memory of the device, and the time of a step in it: that plan's, or of a faster one that a short search finds. */
static void find_least(const pt_plan *p, plan_way *w)
{
    search_input in = p->planning.search;
    search_result r;
    double ns;
    if (search_leanest(&in, w->least, &ns, NULL) <= 0)
        return;
    in.budget[TIER_DEVICE] = w->least[TIER_DEVICE];
    in.part = 0.1;
    if (!search_plan(&in, &r, NULL) && r.best.step_ns < ns) {
        ns = r.best.step_ns;
        memcpy(w->least, r.best.bytes, sizeof w->least);
    }
    search_result_free(&r);
    w->least_step_s = ns * 1e-9;
}

/* near: a guess of the longest sequence. */
static plan_way way_of(const pt_plan *p, int64_t near)
{
    plan_way w = {.fits = p->fits};
    const uint64_t *bytes = p->fits ? p->explanation.forecast.bytes : p->planning.result.least;
    memcpy(w.bytes, bytes, sizeof w.bytes);
    for (tier t = 0; t < TIERS && !p->fits; t++)
        w.beyond[t] = bytes[t] > p->planning.search.budget[t];
    if (p->fits) {
        w.step_s = p->explanation.forecast.step_ns * 1e-9;
        w.tokens_per_s = p->explanation.tokens_per_s;
    }
    if (p->fits && !p->o.plan_file)
        find_least(p, &w);
    if (p->planning.model && !p->o.plan_file)
        lighter_longest(&p->planning, near, &w.longest, NULL);
    return w;
}

int plan_way_of(const pt_train_options *o, const exchange_cost *exchange, plan_way *out, pt_error *e)
{
    pt_plan *p = calloc(1, sizeof *p);
    if (!p)
        return pt_fail(e, PT_FAILED, "out of memory");
    p->o = *o;
    p->planning.exchange = *exchange;
    const int failed = make(p, false, e);
    *out = way_of(p, out->longest ? out->longest : shape_length(&p->shape));
    pt_plan_close(p);
    return failed == PT_DOES_NOT_FIT ? 0 : failed;
}

int pt_plan_open(const pt_train_options *o, pt_plan **out, pt_error *e)
{
    if (!o)
        return pt_fail_null(e, "pt_plan_open", "the options");
    if (!out)
        return pt_fail_null(e, "pt_plan_open", "the place for the plan");
    *out = NULL;
    pt_error own = {0};
    int failed = options_check_plan(o, e);
    pt_plan *p = failed ? NULL : calloc(1, sizeof *p);
    if (!p)
        return failed ? failed : pt_fail(e, PT_FAILED, "out of memory");
    p->o = *o;
    p->o.base = base_of_adapter(o->base, o->model, o->adapter, o->notice, o->arg);
    failed = make(p, true, &own);
    snprintf(p->misfit, sizeof p->misfit, "%s", own.text);
    if (failed && e)
        *e = own;
    if (failed && failed != PT_DOES_NOT_FIT) {
        pt_plan_close(p);
        return failed;
    }
    const plan_way way = way_of(p, shape_length(&p->shape));
    p->ways_n = plan_ways_find(&p->o, &p->planning.exchange, &way, p->ways);
    *out = p;
    return failed;
}

/* The answer, the ways, what is inside the plan; or the reason why there is none, and the ways. */
char *pt_plan_text(const pt_plan *p)
{
    char *all = NULL;
    char *text = !p ? NULL : p->fits ? explain_text(&p->explanation, EXPLAIN_ANSWER) : strdup(p->misfit);
    char *ways = text ? plan_ways_text(p->ways, p->ways_n) : NULL;
    char *inside = !ways ? NULL : p->fits ? explain_text(&p->explanation, EXPLAIN_INSIDE) : strdup("");
    if (inside && asprintf(&all, "%s%s%s%s", text, text[0] && text[strlen(text) - 1] != '\n' ? "\n" : "", ways, inside) < 0)
        all = NULL;
    free(text);
    free(ways);
    free(inside);
    return all;
}

char *pt_plan_others_text(const pt_plan *p)
{
    return !p ? NULL : p->fits ? explain_text(&p->explanation, EXPLAIN_OTHERS) : strdup("");
}

static json_t *changes_of(const planning *g)
{
    json_t *all = json_array();
    if (g->change[0])
        json_array_append_new(all, json_string(g->change));
    for (int i = 0; i < g->others_n; i++)
        json_array_append_new(all, json_string(g->other_changes[i]));
    return all;
}

char *pt_plan_json(const pt_plan *p)
{
    if (!p)
        return NULL;
    const planning *g = &p->planning;
    const uint64_t missing = g->missing_bytes + missing_bytes(&g->search, g->result.least);
    json_t *object = p->fits ? explain_json(&p->explanation)
                             : explain_misfit(&g->search, g->result.least, missing, changes_of(g), g->smaller, p->misfit);
    if (object)
        json_object_set_new(object, "ways", plan_ways_json(p->ways, p->ways_n));
    for (int i = 0; i < p->ways_n && object; i++)
        if (p->ways[i].asked && p->ways[i].longest)
            json_object_set_new(object, "longest_seq_len", json_integer((json_int_t)p->ways[i].longest));
    char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    return text;
}

void pt_plan_close(pt_plan *p)
{
    if (!p)
        return;
    planning_close(&p->planning);
    model_close(p->model);
    free(p);
}
