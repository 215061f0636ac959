#include "train/block_turns.h"

#include "base/rng.h"
#include "model/adapter.h"
#include "train/aside.h"
#include "train/checkpoint.h"
#include "train/options.h"
#include "train/ranks.h"
#include "train/setup.h"
#include "train/turn_files.h"

#include <string.h>

/* ---- groups and their order ---- */

int block_turns_groups(const pt_train_options *o, const model *m)
{
    return o->train_blocks ? (int)((m->config.layers + o->train_blocks - 1) / o->train_blocks) : 1;
}

/* The order of one pass: a permutation of the groups (Fisher and Yates). */
static void shuffle(const pt_train_options *o, int groups, int64_t pass, int order[MODEL_MAX_LAYERS])
{
    for (int i = 0; i < groups; i++)
        order[i] = i;
    for (int i = groups - 1; i > 0; i--) {
        const int k = (int)(rng_uniform(o->seed, RNG_TURNS, (uint32_t)pass, (uint64_t)i) * (i + 1)), moved = order[i];
        order[i] = order[k];
        order[k] = moved;
    }
}

/* No group has two turns in a row: two groups alternate; of more, the first of a pass that was the last before changes places with the
 * second, which leaves the last where it is. */
static int group_of_turn(const pt_train_options *o, int groups, int64_t turn)
{
    int order[MODEL_MAX_LAYERS], before[MODEL_MAX_LAYERS];
    const int64_t pass = turn / groups, place = turn % groups;
    if (groups < 3)
        return (int)place;
    shuffle(o, groups, pass, order);
    if (!pass || place > 1)
        return order[place];
    shuffle(o, groups, pass - 1, before);
    return order[order[0] == before[groups - 1] ? 1 - place : place];
}

int block_turns_group(const pt_train_options *o, const model *m, int64_t step)
{
    return o->train_blocks ? group_of_turn(o, block_turns_groups(o, m), step / o->switch_every) : 0;
}

int block_turns_freeze(const pt_train_options *o, model *m, int group, pt_error *e)
{
    const int n = (int)o->train_blocks;
    const model_freezing f = {o->freeze, o->train_only, o->freeze_n, o->train_only_n, .first_layer = group * n, .layers = n};
    return model_freeze(m, &f, e);
}

int block_turns_begin(const pt_train_options *o, model *m, pt_error *e)
{
    if (o->train_blocks > m->config.layers)
        return pt_fail(e, PT_USAGE, "`train_blocks` is %lld, but the model has %lld layers: give fewer, or leave it out to train them all",
                       (long long)o->train_blocks, (long long)m->config.layers);
    int failed = o->train_blocks && o->train_also ? model_mark_always(m, o->train_also, e) : 0;
    for (int group = block_turns_groups(o, m) - 1; group >= 0 && !failed; group--)
        failed = block_turns_freeze(o, m, group, e);
    return failed;
}

int block_turns_check(const pt_train_options *o, planning *planning, model *m, int now, pt_error *e)
{
    int failed = 0;
    for (int group = block_turns_groups(o, m) - 1; group >= 0 && o->train_blocks && !failed; group--) {
        failed = block_turns_freeze(o, m, group, e);
        if (!failed && (failed = planning_fits(planning, e)))
            pt_error_prefix(e, "the turn of layers from %lld on does not fit", (long long)group * o->train_blocks);
    }
    return failed || !o->train_blocks ? failed : block_turns_freeze(o, m, now, e);
}

/* ---- a run ---- */

int block_turns_take(trainer *trainer, pt_error *e)
{
    const pt_train_options *o = &trainer->job.o;
    if (!o->train_blocks)
        return 0;
    trainer->group = block_turns_group(o, trainer->job.model, trainer->at.step);
    return block_turns_freeze(o, trainer->job.model, trainer->group, e);
}

bool block_turns_start(const trainer *trainer)
{
    const pt_train_options *o = &trainer->job.o;
    const int64_t step = trainer->at.step;
    return step && block_turns_group(o, trainer->job.model, step) != block_turns_group(o, trainer->job.model, step - 1);
}

int64_t block_turns_step(const trainer *trainer, int64_t step)
{
    const bool turns = block_turns_groups(&trainer->job.o, trainer->job.model) > 1;
    return turns ? (step - 1) % trainer->job.o.switch_every + 1 : step;
}

int64_t block_turns_first_layer(const trainer *trainer)
{
    return trainer->job.o.train_blocks ? trainer->group * trainer->job.o.train_blocks : -1;
}

int64_t block_turns_due(const trainer *trainer)
{
    const bool turns = block_turns_groups(&trainer->job.o, trainer->job.model) > 1;
    return turns && (trainer->at.step / trainer->job.o.switch_every + 1) * trainer->job.o.switch_every < trainer->job.steps;
}

/* The next group's plan. */
static int open_next(trainer *trainer, pt_error *e)
{
    engine_close(&trainer->engine);
    int failed = ranks_all(trainer, block_turns_take(trainer, e), e);
    if (!failed)
        failed = trainer_plan_again(trainer, e);
    return failed ? failed : ranks_all(trainer, trainer_open_engine(trainer, e), e);
}

/* The weights pass through the files of their layers. */
static int by_files(trainer *trainer, pt_error *e)
{
    int failed = turn_files_write(trainer, e);
    if (failed) {
        pt_error_prefix(e, "what was trained could not be written before other layers are trained");
        return failed;
    }
    failed = open_next(trainer, e);
    if (!failed)
        failed = turn_files_load(trainer, e);
    if (failed) {
        engine_tear(&trainer->engine);
        pt_error_prefix(e, "the run ends as other layers are to be trained");
    }
    return failed;
}

/* The weights pass through a checkpoint, which goes to all ranks. */
static int by_checkpoint(trainer *trainer, pt_error *e)
{
    aside a;
    int failed = aside_begin(&a, trainer, e);
    if (!failed && (failed = checkpoint_write(trainer, e)))
        pt_error_prefix(e, "the state could not be saved to train other layers");
    if (!failed)
        failed = aside_spread(&a, trainer, e);
    if (failed)
        return failed;
    failed = open_next(trainer, e);
    if (!failed)
        failed = ranks_fail(trainer, checkpoint_load_weights(trainer, a.path, e), e);
    if (failed) {
        engine_tear(&trainer->engine);
        pt_error_prefix(e, "the run ends as other layers are to be trained; the state is saved in %s, and `resume` continues from it",
                        a.path);
        return failed;
    }
    return aside_end(&a, trainer, e);
}

int block_turns_switch(trainer *trainer, pt_error *e)
{
    pt_error why = {0};
    if (block_turns_group(&trainer->job.o, trainer->job.model, trainer->at.step) == trainer->group)
        return 0;
    const int failed = trainer->turns ? by_files(trainer, e) : by_checkpoint(trainer, e);
    if (failed)
        return failed;
    trainer->predicted.patience = (patience){0};
    trainer->predicted.telling = (telling){0};
    if (ranks_lead(trainer) && trainer_write_plan(trainer, &why))
        options_notice(&trainer->job.o, "plan.json and memory.json may hold the earlier plan: %.600s", why.text);
    return 0;
}
