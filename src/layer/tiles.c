#include "layer/tiles.h"

#include "layer/stage.h"

#include <string.h>

int layer_run_begin(const layer_tiles *t, int i)
{
    while (t->step[i] && i > 0 && t->step[i - 1] && t->group[i - 1] == t->group[i])
        i--;
    return i;
}

int layer_run_end(const layer_tiles *t, int n, int i)
{
    int end = i + 1;
    while (t->step[i] && end < n && t->step[end] && t->group[end] == t->group[i])
        end++;
    return end;
}

int layer_groups_begin(const layer_tiles *t, int i)
{
    while (i > 0 && t->group[i - 1] == t->group[i])
        i--;
    return i;
}

int layer_groups_end(const layer_tiles *t, int n, int i)
{
    int end = i + 1;
    while (end < n && t->group[end] == t->group[i])
        end++;
    return end;
}

bool layer_makes(const layer_program *program, layer_step step, int region)
{
    if (step_is_of_tensor(step))
        return step.pass == PASS_READ && region == step.stage;
    const layer_stage *stage = &program->stage[step.stage];
    bool out = false, in = false;
    for (int k = 0; k < STAGE_OUTPUTS; k++)
        out |= stage->out[k] == region;
    for (int k = 0; k < STAGE_INPUTS; k++)
        in |= stage->in[k] == region;
    return step.pass == PASS_FORWARD && region < LAYER_TENSORS && out && !in;
}

enum { UNUSED = -2 };

/* The run of a region's next use, which may make it anew. */
static int joined(const layer_tiles *t, int run, int begin, bool made)
{
    if (run == UNUSED || run == begin)
        return begin;
    return run != LAYER_NONE && made && t->step[run] == t->step[begin] ? begin : LAYER_NONE;
}

/* The last run that uses a region, a step of it, if no run uses what another has left there; LAYER_NONE: one does, or no run uses it.
 * Forward leaves nothing in scratch. */
static void find_runs(const layer_tiles *t, const layer_program *program, const layer_step *steps, int n, int run[LAYER_REGIONS])
{
    for (int r = 0; r < LAYER_REGIONS; r++)
        run[r] = UNUSED;
    for (int i = 0; i < n; i++) {
        int regions[LAYER_STEP_REGIONS], k = layer_step_regions(program, steps[i], regions);
        const int begin = layer_run_begin(t, i);
        for (int j = 0; j < k; j++)
            if (regions[j] < REGION_SCRATCH || steps[i].pass != PASS_FORWARD)
                run[regions[j]] = joined(t, run[regions[j]], begin, layer_makes(program, steps[i], regions[j]));
    }
    for (int r = 0; r < LAYER_REGIONS; r++)
        run[r] = run[r] == UNUSED ? LAYER_NONE : run[r];
}

/* Scratch has no rows that could be found again: steps of several runs that share some compute all rows at once. */
static bool part_shared_scratch(layer_tiles *t, const layer_program *program, const layer_step *steps, int n, const int run[LAYER_REGIONS])
{
    bool parted = false;
    for (int i = 0; i < n; i++) {
        int regions[LAYER_STEP_REGIONS], k = layer_step_regions(program, steps[i], regions);
        for (int j = 0; j < k && t->step[i]; j++)
            if (regions[j] >= REGION_SCRATCH && steps[i].pass != PASS_FORWARD && run[regions[j]] == LAYER_NONE) {
                t->step[i] = false;
                parted = true;
            }
    }
    return parted;
}

static bool has_rows(const layer_program *program, int region)
{
    return region >= REGION_SCRATCH || program->tensor[region % LAYER_TENSORS].per == ROWS_TOKENS;
}

/* Rows are rounded to codes each for itself. */
static bool runs_by_row(const layer_program *program, layer_step step)
{
    if (step_is_of_tensor(step))
        return true;
    const layer_stage *stage = &program->stage[step.stage];
    const stage_type *type = stage_type_of(stage->kind);
    return type->by_row && !(type->whole && type->whole(stage));
}

void layer_tiles_find(layer_tiles *out, const layer_program *program, const step_shape *shape, const layer_step *steps, int n)
{
    int run[LAYER_REGIONS];
    memset(out->step, 0, sizeof out->step);
    memset(out->region, 0, sizeof out->region);
    if (shape->tile_rows >= shape->unit_rows)
        return;
    for (int i = 0; i < n; i++)
        out->step[i] = runs_by_row(program, steps[i]);
    do
        find_runs(out, program, steps, n, run);
    while (part_shared_scratch(out, program, steps, n, run));
    for (int r = 0; r < LAYER_REGIONS; r++)
        out->region[r] = run[r] != LAYER_NONE && out->step[run[r]] && has_rows(program, r);
}
