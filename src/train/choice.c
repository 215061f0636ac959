#include "train/choice.h"

#include "base/units.h"
#include "optimizer/optimizer.h"
#include "plan/pack.h"
#include "train/options.h"

#include <stdlib.h>
#include <string.h>

uint64_t choice_bytes(const planning *planning, const param *q)
{
    const update_rule *r = shape_optimizer(planning->shape)->rule_of(q);
    const uint64_t n = (uint64_t)(q->rows * q->cols);
    const pt_dtype type = param_type(q, planning->shape->type);
    uint64_t bytes = n * dtype_bytes(type);
    if (type == PT_BF16 && planning->model->stored_bf16)
        bytes += 2 * n; /* low halves */
    for (int k = 0; k < rule_slabs(r); k++)
        bytes += (uint64_t)slab_of_param(&r->slabs[k], q) * dtype_bytes(r->slabs[k].type);
    return bytes;
}

/* ---- sets ---- */

typedef struct chooser {
    planning *planning;
    model *model;
    const choice *c;
    int *order, n; /* candidates, the largest contribution per byte first */
    bool *set;
} chooser;

typedef struct ranked { double ratio; int param; } ranked;

static int by_ratio(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->ratio != y->ratio ? (x->ratio > y->ratio ? -1 : 1) : x->param - y->param;
}

static int rank_all(chooser *x, pt_error *e)
{
    const model *m = x->model;
    ranked *all = calloc((size_t)m->params_n, sizeof *all);
    if (!all)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int i = 0; i < m->params_n; i++)
        if (x->c->candidate[i] && x->c->contribution[i] > 0)
            all[x->n++] = (ranked){x->c->contribution[i] / (double)choice_bytes(x->planning, &m->params[i]), i};
    qsort(all, (size_t)x->n, sizeof *all, by_ratio);
    for (int i = 0; i < x->n; i++)
        x->order[i] = all[i].param;
    free(all);
    return 0;
}

static double sum_of(const chooser *x, const bool *set)
{
    double sum = 0;
    for (int i = 0; i < x->model->params_n; i++)
        sum += set[i] ? x->c->contribution[i] : 0;
    return sum;
}

/* 1: a plan fits that trains this set. */
static int fits(const chooser *x, const bool *set, uint64_t needs[TIERS], pt_error *e)
{
    const pt_train_options *o = x->planning->o;
    if (o->stop && o->stop(o->arg))
        return pt_fail(e, PT_FAILED, "choosing tensors was stopped");
    for (int i = 0; i < x->model->params_n; i++)
        x->model->params[i].trainable = set[i];
    return search_fits(&x->planning->search, needs, e);
}

/* Of the candidates from `at` on, in blocks from `first` on: the next `n` that are not in the set yet. Returns how far it went. */
static int add(chooser *x, bool *set, int first, int at, int n)
{
    for (; at < x->n && n > 0; at++)
        if (x->model->params[x->order[at]].block >= first) {
            set[x->order[at]] = true;
            n--;
        }
    return at;
}

static int count_from(const chooser *x, int first, int at)
{
    int n = 0;
    for (; at < x->n; at++)
        n += x->model->params[x->order[at]].block >= first;
    return n;
}

/* Adds as many as fit, one after the other. *at: how far it went. */
static int extend(chooser *x, bool *set, int first, int *at, pt_error *e)
{
    const size_t size = (size_t)x->model->params_n * sizeof *set;
    int most = count_from(x, first, *at), least = 0;
    for (int n = most; least < most; n = (least + most + 1) / 2) {
        memcpy(x->set, set, size);
        add(x, x->set, first, *at, n);
        const int yes = fits(x, x->set, NULL, e);
        if (yes < 0)
            return yes;
        least = yes ? n : least;
        most = yes ? most : n - 1;
    }
    *at = add(x, set, first, *at, least);
    return 0;
}

/* Goes on behind those that do not fit. */
static int fill(chooser *x, bool *set, int first, int at, pt_error *e)
{
    enum { SKIPPED_MOST = 6 };
    int failed = 0;
    for (int i = 0; i < SKIPPED_MOST && !failed && count_from(x, first, at) > 1; i++) {
        while (at < x->n && x->model->params[x->order[at]].block < first)
            at++;
        at++;
        failed = extend(x, set, first, &at, e);
    }
    return failed;
}

/* ---- the choice ---- */

typedef struct depth { bool *set; double sum; int first, at; } depth;

/* The sets of each first block, filled up only if the first tensor alone does not fit. */
static int try_depths(chooser *x, depth *of, pt_error *e)
{
    int failed = 0;
    for (int first = x->model->blocks_n - 1; first >= 0 && !failed; first--) {
        depth *d = &of[first];
        d->first = first;
        options_progress(x->planning->o, "choosing tensors", (uint64_t)(x->model->blocks_n - 1 - first), (uint64_t)x->model->blocks_n);
        d->set = calloc((size_t)x->model->params_n, sizeof *d->set);
        failed = d->set ? extend(x, d->set, first, &d->at, e) : pt_fail(e, PT_FAILED, "out of memory");
        d->sum = failed ? 0 : sum_of(x, d->set);
        if (!failed && !(d->sum > 0)) {
            failed = fill(x, d->set, first, d->at, e);
            d->sum = sum_of(x, d->set);
        }
    }
    return failed;
}

static int by_sum(const void *a, const void *b)
{
    const depth *x = a, *y = b;
    return x->sum != y->sum ? (x->sum > y->sum ? -1 : 1) : y->first - x->first;
}

/* Takes a tensor that fits alone. If there is none, says what would. */
static int choose_one(chooser *x, choice *c, pt_error *e)
{
    char budget[32], options[200];
    uint64_t needs[TIERS], lowest[TIERS] = {UINT64_MAX};
    const char *name = NULL;
    for (int i = 0; i < x->n; i++) {
        const param *p = &x->model->params[x->order[i]];
        if (p->block < x->model->blocks_n - 2) /* earlier ones take no less */
            continue;
        memset(x->set, 0, (size_t)x->model->params_n * sizeof *x->set);
        x->set[x->order[i]] = true;
        const int yes = fits(x, x->set, needs, e);
        if (yes < 0)
            return yes;
        if (yes) {
            memcpy(c->chosen, x->set, (size_t)x->model->params_n * sizeof *c->chosen);
            c->sum = c->contribution[x->order[i]];
            return 0;
        }
        if (needs[TIER_DEVICE] < lowest[TIER_DEVICE]) {
            memcpy(lowest, needs, sizeof lowest);
            name = p->part[0].name;
        }
    }
    size_format(budget, x->planning->search.budget[TIER_DEVICE]);
    if (!name)
        return pt_fail(e, PT_DOES_NOT_FIT, "no tensor can be trained within %s", budget);
    search_write_options(&x->planning->search, lowest, options, sizeof options);
    return pt_fail(e, PT_DOES_NOT_FIT, "no tensor can be trained within %s: training %.90s alone takes %s, which `select` "
                                       "sets; give a larger size, a smaller `batch_size`, or room on the disk (`disk_memory`)",
                   budget, name, options);
}

static int choose(chooser *x, depth *of, choice *c, pt_error *e)
{
    enum { FILLED = 3 };
    const int n = x->model->blocks_n;
    int failed = try_depths(x, of, e);
    if (failed)
        return failed;
    qsort(of, (size_t)n, sizeof *of, by_sum);
    if (!(of[0].sum > 0))
        return choose_one(x, c, e);
    for (int i = 0; i < n && i < FILLED && !failed; i++) {
        failed = fill(x, of[i].set, of[i].first, of[i].at, e);
        of[i].sum = sum_of(x, of[i].set);
    }
    qsort(of, (size_t)n, sizeof *of, by_sum);
    memcpy(c->chosen, of[0].set, (size_t)x->model->params_n * sizeof *c->chosen);
    c->sum = of[0].sum;
    return failed;
}

/* All candidates, if a plan trains them. */
static int choose_all(chooser *x, choice *c, pt_error *e)
{
    const int yes = fits(x, c->candidate, NULL, e);
    for (int i = 0; i < x->model->params_n && yes > 0; i++)
        c->chosen[i] = c->candidate[i];
    c->sum = yes > 0 ? c->all : 0;
    return yes;
}

int choice_make(planning *planning, model *m, choice *c, pt_error *e)
{
    chooser x = {.planning = planning, .model = m, .c = c, .order = calloc((size_t)m->params_n, sizeof *x.order),
                 .set = calloc((size_t)m->params_n, sizeof *x.set)};
    depth *of = calloc((size_t)m->blocks_n, sizeof *of);
    int failed = x.order && x.set && of ? rank_all(&x, e) : pt_fail(e, PT_FAILED, "out of memory");
    c->sum = c->all = 0;
    for (int i = 0; i < x.n && !failed; i++)
        c->all += c->contribution[x.order[i]];
    if (!failed && !x.n)
        failed = pt_fail(e, PT_FAILED, "no tensor's gradient is more than noise: give more `data`, a larger `batch_size` or more steps");
    const int every = failed ? failed : choose_all(&x, c, e);
    failed = every < 0 ? every : every > 0 ? 0 : choose(&x, of, c, e);
    for (int i = 0; i < m->params_n && !failed; i++)
        m->params[i].trainable = c->chosen[i];
    for (int i = 0; i < m->blocks_n && of; i++)
        free(of[i].set);
    free(of);
    free(x.order);
    free(x.set);
    return failed;
}
