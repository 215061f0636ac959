#include "train/lighter.h"

#include "optimizer/optimizer.h"
#include "options/table.h"
#include "train/block_turns.h"
#include "train/model_options.h"
#include "train/options.h"

#include <stdio.h>
#include <string.h>

/* ---- the same step with other options ---- */

typedef struct lighter {
    pt_train_options o;
    model *model;
    step_shape shape;
    search_input in; /* with the same budgets */
} lighter;

/* 1: opened; 0: the options contradict each other; negative: an error. */
static int lighter_open(lighter *l, const planning *p, const pt_train_options *o, pt_error *e)
{
    pt_error own = {0};
    *l = (lighter){.o = *o, .in = p->search};
    l->o.notice = NULL;
    int failed = options_check_plan(&l->o, &own);
    if (!failed)
        failed = model_of_options(&l->o, 0, NULL, &l->model, &own);
    if (!failed)
        failed = shape_of_options(&l->o, l->model, &l->shape, &own);
    if (!failed && p->ranks > 1) {
        const step_shape whole = l->shape;
        failed = step_shape_of_rank(&l->shape, &whole, p->ranks, 0, &own);
    }
    if (failed && failed != PT_USAGE && e)
        *e = own;
    if (failed)
        return failed == PT_USAGE ? 0 : failed;
    if (p->shape->gpu)
        step_shape_for_gpu(&l->shape, l->model);
    l->in.model = l->model;
    l->in.shape = &l->shape;
    l->in.from = NULL;
    return 1;
}

static int fits_with(const planning *p, const pt_train_options *o, pt_error *e)
{
    lighter l;
    int found = lighter_open(&l, p, o, e);
    if (found > 0)
        found = search_fits(&l.in, NULL, e);
    model_close(l.model);
    return found;
}

static void add_option(char out[MISFIT_CHANGE_BYTES], const char *option)
{
    misfit_append(out, MISFIT_CHANGE_BYTES, "%s%s", out[0] ? " " : "", option);
}

/* ---- a smaller step ---- */

/* --batch-size counts the sequences of all ranks. */
static void add_step(const planning *p, const step_shape *s, char out[MISFIT_CHANGE_BYTES])
{
    misfit_append(out, MISFIT_CHANGE_BYTES, "%s`batch_size` %lld", out[0] ? " " : "", (long long)(s->batch * shape_ranks(s)));
    if (s->seq_len < p->shape->seq_len)
        misfit_append(out, MISFIT_CHANGE_BYTES, " `seq_len` %lld", (long long)s->seq_len);
    if (!search_can_cut(s, p->search.micro_batch))
        add_option(out, "`micro_batch` 0");
}

int lighter_step(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    step_shape s;
    const int found = search_smaller_step(&p->search, &s, e);
    out[0] = 0;
    if (found > 0)
        add_step(p, &s, out);
    return found;
}

/* ---- smaller states ---- */

int lighter_states(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    static const pt_optimizer smaller[] = {PT_OPTIMIZER_ADAMW8BIT, PT_OPTIMIZER_APOLLO_MINI};
    pt_train_options o = *p->o;
    int found = 0;
    if (o.optimizer != PT_OPTIMIZER_ADAMW || o.resume)
        return 0;
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller && !found; i++) {
        o.optimizer = smaller[i];
        out[0] = 0;
        misfit_append(out, MISFIT_CHANGE_BYTES, "`optimizer` %s", optimizers[o.optimizer]->name);
        found = fits_with(p, &o, e);
    }
    return found;
}

/* ---- adapters, and a base in few bits ---- */

enum { LORA_RANK = 16 };

/* Adapters instead of all parameters; a given choice of trained parameters stays. */
static void take_adapters(const planning *p, pt_train_options *o, char out[MISFIT_CHANGE_BYTES])
{
    if (!model_trains_all(p->model))
        return;
    o->lora_rank = LORA_RANK;
    add_option(out, "`lora_rank` 16");
    if (optimizers[o->optimizer]->of_matrices) {
        o->optimizer_args = NULL;
        o->optimizer = PT_OPTIMIZER_ADAMW;
        add_option(out, "`optimizer` adamw");
    }
    if (o->save_type != PT_SAVE_AS_STORED) {
        o->save_type = PT_SAVE_AS_STORED;
        add_option(out, "`save_type` stored");
    }
}

static void take_few_bits(const planning *p, pt_train_options *o, char out[MISFIT_CHANGE_BYTES])
{
    take_adapters(p, o, out);
    if (o->base == PT_BASE_NF4)
        return;
    o->base = PT_BASE_NF4;
    add_option(out, "`base` nf4");
}

int lighter_adapters(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    pt_train_options o = *p->o;
    out[0] = 0;
    if (o.resume)
        return 0;
    take_adapters(p, &o, out);
    int found = out[0] ? fits_with(p, &o, e) : 0;
    if (found)
        return found;
    o = *p->o;
    out[0] = 0;
    take_few_bits(p, &o, out);
    return out[0] ? fits_with(p, &o, e) : 0;
}

int lighter_both(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    pt_train_options o = *p->o;
    lighter l;
    step_shape s;
    out[0] = 0;
    if (o.resume)
        return 0;
    take_few_bits(p, &o, out);
    if (!out[0])
        return 0;
    int found = lighter_open(&l, p, &o, e);
    if (found > 0 && (found = search_smaller_step(&l.in, &s, e)) > 0)
        add_step(p, &s, out);
    model_close(l.model);
    return found;
}

/* ---- the longest sequence ---- */

static int fits_length(const planning *p, int64_t n, pt_error *e)
{
    pt_train_options o = *p->o;
    lighter l;
    o.seq_len = n;
    o.batch_size = p->ranks > 1 ? p->ranks : 1;
    o.micro_batch = 0;
    o.lanes = 0;
    int found = lighter_open(&l, p, &o, e);
    l.in.micro_batch = 0;
    if (found > 0)
        found = search_fits(&l.in, NULL, e);
    model_close(l.model);
    return found;
}

int lighter_longest(const planning *p, int64_t near, int64_t *out, pt_error *e)
{
    const model_config *c = &p->model->config;
    const int64_t most = c->position == POSITION_LEARNED ? c->max_positions : SEQ_LEN_MOST;
    int64_t yes = 0, no = most + 1, n = near / LENGTH_GRANULE * LENGTH_GRANULE;
    int found = 0;
    *out = 0;
    for (n = n ? n : LENGTH_GRANULE; n >= LENGTH_GRANULE && n < no; n = found ? 2 * n : n / 2 / LENGTH_GRANULE * LENGTH_GRANULE) {
        found = fits_length(p, n, e);
        if (found < 0)
            return found;
        *(found ? &yes : &no) = n;
        if (yes && no <= most)
            break;
    }
    while (yes && no - yes > LENGTH_GRANULE && no - yes > yes / 32) {
        n = (yes + no) / 2 / LENGTH_GRANULE * LENGTH_GRANULE;
        if (n <= yes || (found = fits_length(p, n, e)) < 0)
            break;
        *(found ? &yes : &no) = n;
    }
    *out = yes;
    return found < 0 ? found : 0;
}

/* ---- layers by turns ---- */

static int turns_fit(const planning *p, const pt_train_options *o, pt_error *e)
{
    lighter l;
    int found = lighter_open(&l, p, o, e);
    for (int group = found > 0 ? block_turns_groups(o, l.model) - 1 : -1; group >= 0 && found > 0; group--) {
        found = block_turns_freeze(o, l.model, group, e) ? -1 : 1;
        if (found > 0)
            found = search_fits(&l.in, NULL, e);
    }
    model_close(l.model);
    return found;
}

int lighter_layers(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    const int layers = (int)p->model->config.layers;
    pt_train_options o = *p->o;
    int found = 0;
    if (!model_trains_all(p->model) || p->o->resume)
        return 0;
    for (int part = 2; part <= 16 && !found; part *= 2) {
        o.train_blocks = part == 16 ? 1 : layers / part;
        out[0] = 0;
        misfit_append(out, MISFIT_CHANGE_BYTES, "`train_blocks` %lld", (long long)o.train_blocks);
        found = o.train_blocks ? turns_fit(p, &o, e) : 0;
    }
    return found;
}
