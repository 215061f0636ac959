#include "layer/tiles.h"

#include "layer/stage.h"

#include <string.h>

int layer_run_begin(const layer_tiles *t, int i)
{
    while (t->step[i] && i > 0 && t->step[i - 1])
        i--;
    return i;
}

int layer_run_end(const layer_tiles *t, int n, int i)
{
    int end = i + 1;
    while (t->step[i] && end < n && t->step[end])
        end++;
    return end;
}

/* The run of a region that only one uses, a step of it; LAYER_NONE: several runs use it, or none. Forward leaves nothing in scratch. */
static void find_runs(const layer_tiles *t, const layer_program *p, const layer_step *steps, int n, int run[LAYER_REGIONS])
{
    enum { UNUSED = -2 };
    for (int r = 0; r < LAYER_REGIONS; r++)
        run[r] = UNUSED;
    for (int i = 0; i < n; i++) {
        int regions[LAYER_STEP_REGIONS], k = layer_step_regions(p, steps[i], regions);
        const int begin = layer_run_begin(t, i);
        for (int j = 0; j < k; j++)
            if (regions[j] < REGION_SCRATCH || steps[i].pass != PASS_FORWARD)
                run[regions[j]] = run[regions[j]] == UNUSED || run[regions[j]] == begin ? begin : LAYER_NONE;
    }
    for (int r = 0; r < LAYER_REGIONS; r++)
        run[r] = run[r] == UNUSED ? LAYER_NONE : run[r];
}

/* Scratch has no rows that could be found again: steps of several runs that share some compute all rows at once. */
static bool part_shared_scratch(layer_tiles *t, const layer_program *p, const layer_step *steps, int n, const int run[LAYER_REGIONS])
{
    bool parted = false;
    for (int i = 0; i < n; i++) {
        int regions[LAYER_STEP_REGIONS], k = layer_step_regions(p, steps[i], regions);
        for (int j = 0; j < k && t->step[i]; j++)
            if (regions[j] >= REGION_SCRATCH && steps[i].pass != PASS_FORWARD && run[regions[j]] == LAYER_NONE) {
                t->step[i] = false;
                parted = true;
            }
    }
    return parted;
}

static bool has_rows(const layer_program *p, int region)
{
    return region >= REGION_SCRATCH || p->tensor[region % LAYER_TENSORS].per == ROWS_TOKENS;
}

void layer_tiles_find(layer_tiles *out, const layer_program *p, const step_shape *s, const layer_step *steps, int n)
{
    int run[LAYER_REGIONS];
    memset(out, 0, sizeof *out);
    if (s->tile_rows >= s->unit_rows)
        return;
    for (int i = 0; i < n; i++) {
        const layer_stage *stage = &p->stage[steps[i].stage];
        const stage_type *type = stage_type_of(stage->kind);
        out->step[i] = type->by_row && !(type->whole && type->whole(stage));
    }
    do
        find_runs(out, p, steps, n, run);
    while (part_shared_scratch(out, p, steps, n, run));
    for (int r = 0; r < LAYER_REGIONS; r++)
        out->region[r] = run[r] != LAYER_NONE && out->step[run[r]] && has_rows(p, r);
}
