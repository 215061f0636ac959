#include "train/lighter.h"

#include "layer/sequence.h"
#include "optimizer/optimizer.h"
#include "options/table.h"
#include "train/block_turns.h"
#include "train/model_options.h"
#include "train/options.h"

#include <limits.h>
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
static int lighter_open(lighter *l, const planning *planning, const pt_train_options *o, pt_error *e)
{
    pt_error own = {0};
    *l = (lighter){.o = *o, .in = planning->search};
    l->o.notice = NULL;
    int failed = options_check_plan(&l->o, &own);
    if (!failed)
        failed = model_of_options(&l->o, 0, NULL, &l->model, &own);
    if (!failed)
        failed = shape_of_options(&l->o, l->model, &l->shape, &own);
    const step_shape whole = l->shape;
    if (!failed)
        failed = step_shape_of_rank(&l->shape, &whole, planning->ranks > 1 ? planning->ranks : 1, 0, &own);
    if (failed && failed != PT_USAGE && e)
        *e = own;
    if (failed)
        return failed == PT_USAGE ? 0 : failed;
    if (planning->shape->gpu)
        step_shape_for_gpu(&l->shape, l->model);
    l->in.model = l->model;
    l->in.shape = &l->shape;
    l->in.from = NULL;
    return 1;
}

static int fits_with(const planning *planning, const pt_train_options *o, pt_error *e)
{
    lighter l;
    int found = lighter_open(&l, planning, o, e);
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
static void add_step(const planning *planning, const step_shape *shape, char out[MISFIT_CHANGE_BYTES])
{
    misfit_append(out, MISFIT_CHANGE_BYTES, "%s`batch_size` %lld", out[0] ? " " : "", (long long)shape_sequences(shape));
    if (shape->seq_len < planning->shape->seq_len)
        misfit_append(out, MISFIT_CHANGE_BYTES, " `seq_len` %lld", (long long)shape_length(shape));
    if (!search_can_cut(shape, planning->search.micro_batch))
        add_option(out, "`micro_batch` 0");
}

int lighter_step(const planning *planning, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    step_shape shape;
    const int found = search_smaller_step(&planning->search, &shape, e);
    out[0] = 0;
    if (found > 0)
        add_step(planning, &shape, out);
    return found;
}

/* ---- smaller states ---- */

int lighter_states(const planning *planning, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    static const pt_optimizer smaller[] = {PT_OPTIMIZER_ADAMW8BIT, PT_OPTIMIZER_APOLLO_MINI};
    pt_train_options o = *planning->o;
    int found = 0;
    if (o.optimizer != PT_OPTIMIZER_ADAMW || o.resume)
        return 0;
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller && !found; i++) {
        o.optimizer = smaller[i];
        out[0] = 0;
        misfit_append(out, MISFIT_CHANGE_BYTES, "`optimizer` %s", optimizers[o.optimizer]->name);
        found = fits_with(planning, &o, e);
    }
    return found;
}

/* ---- adapters, and a base in few bits ---- */

enum { LORA_RANK = 16 };

/* Adapters instead of all parameters; a given choice of trained parameters stays. */
static void take_adapters(const planning *planning, pt_train_options *o, char out[MISFIT_CHANGE_BYTES])
{
    if (!model_trains_all(planning->model))
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

static void take_few_bits(const planning *planning, pt_train_options *o, char out[MISFIT_CHANGE_BYTES])
{
    take_adapters(planning, o, out);
    if (o->base == PT_BASE_NF4)
        return;
    o->base = PT_BASE_NF4;
    add_option(out, "`base` nf4");
}

int lighter_adapters(const planning *planning, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    pt_train_options o = *planning->o;
    out[0] = 0;
    if (o.resume)
        return 0;
    take_adapters(planning, &o, out);
    int found = out[0] ? fits_with(planning, &o, e) : 0;
    if (found)
        return found;
    o = *planning->o;
    out[0] = 0;
    take_few_bits(planning, &o, out);
    return out[0] ? fits_with(planning, &o, e) : 0;
}

int lighter_both(const planning *planning, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    pt_train_options o = *planning->o;
    lighter l;
    step_shape shape;
    out[0] = 0;
    if (o.resume)
        return 0;
    take_few_bits(planning, &o, out);
    if (!out[0])
        return 0;
    int found = lighter_open(&l, planning, &o, e);
    if (found > 0 && (found = search_smaller_step(&l.in, &shape, e)) > 0)
        add_step(planning, &shape, out);
    model_close(l.model);
    return found;
}

/* ---- the longest sequence ---- */

static int fits_length(const planning *planning, int64_t n, pt_error *e)
{
    pt_train_options o = *planning->o;
    lighter l;
    int sequences = planning->ranks > 1 ? planning->ranks : 1; /* that they can share */
    while (sequences % 2 == 0 && !sequence_check(planning->model, planning->shape, INT_MAX, "ranks", NULL))
        sequences /= 2;
    o.seq_len = n;
    o.batch_size = sequences;
    o.micro_batch = 0;
    o.lanes = 0;
    int found = lighter_open(&l, planning, &o, e);
    l.in.micro_batch = 0;
    if (found > 0)
        found = search_fits(&l.in, NULL, e);
    model_close(l.model);
    return found;
}

int lighter_longest(const planning *planning, int64_t near, int64_t *out, pt_error *e)
{
    const model_config *config = &planning->model->config;
    const int64_t most = config->position == POSITION_LEARNED ? config->max_positions : SEQ_LEN_MOST;
    int64_t yes = 0, no = most + 1, n = near / LENGTH_GRANULE * LENGTH_GRANULE;
    int found = 0;
    *out = 0;
    for (n = n ? n : LENGTH_GRANULE; n >= LENGTH_GRANULE && n < no; n = found ? 2 * n : n / 2 / LENGTH_GRANULE * LENGTH_GRANULE) {
        found = fits_length(planning, n, e);
        if (found < 0)
            return found;
        *(found ? &yes : &no) = n;
        if (yes && no <= most)
            break;
    }
    while (yes && no - yes > LENGTH_GRANULE && no - yes > yes / 32) {
        n = (yes + no) / 2 / LENGTH_GRANULE * LENGTH_GRANULE;
        if (n <= yes || (found = fits_length(planning, n, e)) < 0)
            break;
        *(found ? &yes : &no) = n;
    }
    *out = yes;
    return found < 0 ? found : 0;
}

/* ---- layers by turns ---- */

static int turns_fit(const planning *planning, const pt_train_options *o, pt_error *e)
{
    lighter l;
    int found = lighter_open(&l, planning, o, e);
    for (int group = found > 0 ? block_turns_groups(o, l.model) - 1 : -1; group >= 0 && found > 0; group--) {
        found = block_turns_freeze(o, l.model, group, e) ? -1 : 1;
        if (found > 0)
            found = search_fits(&l.in, NULL, e);
    }
    model_close(l.model);
    return found;
}

int lighter_layers(const planning *planning, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    const int layers = (int)planning->model->config.layers;
    pt_train_options o = *planning->o;
    int found = 0;
    if (!model_trains_all(planning->model) || planning->o->resume)
        return 0;
    for (int part = 2; part <= 16 && !found; part *= 2) {
        o.train_blocks = part == 16 ? 1 : layers / part;
        out[0] = 0;
        misfit_append(out, MISFIT_CHANGE_BYTES, "`train_blocks` %lld", (long long)o.train_blocks);
        found = o.train_blocks ? turns_fit(planning, &o, e) : 0;
    }
    return found;
}
