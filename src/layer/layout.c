/* layout.c - what follows from a layer's program and its steps: where everything lies. */
#include "layer/groups.h"
#include "layer/sequence.h"
#include "layer/stage.h"
#include "layer/steps.h"
#include "layer/tiles.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 64, PAGE = 4096 };

int layer_tensor_named(const layer_program *program, const char *name)
{
    for (int t = 0; t < program->tensors_n; t++)
        if (!strcmp(program->tensor[t].name, name))
            return t;
    return LAYER_NONE;
}

uint64_t layer_tensor_bytes(const layer_program *program, const step_shape *shape, int tensor)
{
    const layer_tensor *t = &program->tensor[tensor];
    const int64_t segments = t->per == ROWS_SEGMENTS ? shape->unit_seqs * ((shape->seq_len - 1) / t->every) : 1;
    const int64_t rows = t->times * (t->per == ROWS_TOKENS ? shape->unit_rows : segments);
    return (uint64_t)rows * (uint64_t)t->cols * (t->four_bytes ? sizeof(float) : dtype_bytes(shape->type));
}

uint64_t layer_code_bytes(const layer_program *program, const step_shape *shape, int tensor)
{
    const layer_tensor *t = &program->tensor[tensor];
    return align_up((uint64_t)(shape->unit_rows * t->times * t->cols), LINE);
}

uint64_t layer_saved_bytes(const layer_layout *layout, const step_shape *shape, int tensor)
{
    const layer_tensor *t = &layout->program.tensor[tensor];
    if (!layout->coded[tensor])
        return layer_tensor_bytes(&layout->program, shape, tensor);
    return layer_code_bytes(&layout->program, shape, tensor) +
           (uint64_t)(shape->unit_rows * t->times * code_groups(t->cols)) * dtype_bytes(shape->type);
}

double layer_flops(const model *m, int layer, const step_shape *shape)
{
    layer_program program;
    double flops = 0;
    layer_describe(&program, m, layer);
    for (int i = 0; i < program.stages_n; i++) {
        const stage_type *type = stage_type_of(program.stage[i].kind);
        flops += type->flops ? type->flops(&(stage_site){m, shape, &program, &program.stage[i], layer}) : 0;
    }
    return flops;
}

uint64_t layer_cache_bytes(const layer_program *program, const model *m, int layer, const step_shape *shape)
{
    uint64_t bytes = 0;
    for (int i = 0; i < program->stages_n; i++) {
        const stage_type *type = stage_type_of(program->stage[i].kind);
        bytes += type->cache ? type->cache(&(stage_site){m, shape, program, &program->stage[i], layer}) : 0;
    }
    return bytes;
}

uint64_t layer_state_bytes(const layer_program *program, const model *m, int layer, const step_shape *shape, int stage)
{
    uint64_t bytes = 0;
    for (int i = 0; i < stage; i++) {
        const stage_type *type = stage_type_of(program->stage[i].kind);
        bytes += type->state ? type->state(&(stage_site){m, shape, program, &program->stage[i], layer}) : 0;
    }
    return bytes;
}

/* ---- places ---- */

typedef struct place { uint64_t bytes, at; int first, last; } place; /* steps from which to which it is used; last -1: never */

uint64_t layer_region_bytes(const layer_program *program, const model *m, int layer, const step_shape *shape, int region)
{
    if (region < REGION_SCRATCH)
        return layer_tensor_bytes(program, shape, region % LAYER_TENSORS) /
               (uint64_t)(program->tensor[region % LAYER_TENSORS].of_heads ? layer_groups(m, layer, shape) : 1);
    const layer_stage *stage = &program->stage[(region - REGION_SCRATCH) / STAGE_SCRATCH];
    const stage_type *type = stage_type_of(stage->kind);
    return type->scratch ? type->scratch(&(stage_site){m, shape, program, stage, layer}, (region - REGION_SCRATCH) % STAGE_SCRATCH) : 0;
}

static bool collide(const place *a, const place *b)
{
    return a->first <= b->last && b->first <= a->last && a->at < b->at + b->bytes && b->at < a->at + a->bytes;
}

/* The lowest place at which it overlaps no placed one that is used at the same time. */
static void put(place *all, const int *placed, int n, place *p)
{
    p->at = 0;
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < n; i++)
            if (collide(p, &all[placed[i]])) {
                p->at = all[placed[i]].at + all[placed[i]].bytes;
                again = true;
            }
    }
}

/* Places them from the largest to the smallest; returns the end of all. */
static uint64_t put_all(place *all, int n)
{
    int order[LAYER_REGIONS], placed = 0;
    uint64_t end = 0;
    for (int i = 0; i < n; i++) {
        if (all[i].last < 0 || !all[i].bytes)
            continue;
        int k = placed++;
        for (; k > 0 && all[order[k - 1]].bytes < all[i].bytes; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (int i = 0; i < placed; i++) {
        place *p = &all[order[i]];
        put(all, order, i, p);
        end = p->at + p->bytes > end ? p->at + p->bytes : end;
    }
    return end;
}

static bool is_elsewhere(const layer_layout *layout, step_pass pass, int region)
{
    return region < LAYER_TENSORS && (region == LAYER_OUT || layer_finds_saved(layout, pass, region));
}

static bool is_of_heads(const layer_layout *layout, int region)
{
    return region >= REGION_SCRATCH || layout->program.tensor[region % LAYER_TENSORS].of_heads;
}

/* From which to which step the regions are used. One that holds all rows is used in all of a run: the run comes back to its steps with
 * each tile. Likewise one that holds all heads and the steps that run for each group of them. */
static void find_uses(const layer_layout *layout, const layer_tiles *t, const layer_step *steps, int steps_n, place all[LAYER_REGIONS])
{
    for (int r = 0; r < LAYER_REGIONS; r++)
        all[r] = (place){.first = steps_n, .last = -1};
    for (int i = 0; i < steps_n; i++) {
        int touched[LAYER_STEP_REGIONS], n = layer_step_regions(&layout->program, steps[i], touched);
        for (int k = 0; k < n; k++) {
            place *p = &all[touched[k]];
            if (is_elsewhere(layout, steps[i].pass, touched[k]))
                continue;
            const bool tile = t->region[touched[k]], whole = t->group[i] && !tile && !is_of_heads(layout, touched[k]);
            const int first = tile ? i : whole ? layer_groups_begin(t, i) : layer_run_begin(t, i);
            const int last = tile ? i : (whole ? layer_groups_end(t, steps_n, i) : layer_run_end(t, steps_n, i)) - 1;
            p->first = first < p->first ? first : p->first;
            p->last = last > p->last ? last : p->last;
        }
    }
}

/* The regions that these steps use, except those in the saved set or the caller's memory. */
static uint64_t place_regions(const layer_layout *layout, const stage_site *of, const layer_step *steps, int steps_n, layer_tiles *t,
                              uint64_t at[LAYER_REGIONS])
{
    place all[LAYER_REGIONS];
    step_shape tile = *of->shape;
    tile.unit_rows = tile.tile_rows;
    layer_tiles_find(t, &layout->program, of->shape, steps, steps_n);
    find_uses(layout, t, steps, steps_n, all);
    for (int r = 0; r < LAYER_REGIONS; r++)
        all[r].bytes = all[r].last < 0 ? 0 : align_up(layer_region_bytes(&layout->program, of->model, of->layer,
                                                                         t->region[r] ? &tile : of->shape, r), LINE);
    const uint64_t end = put_all(all, LAYER_REGIONS);
    for (int r = 0; r < LAYER_REGIONS; r++)
        at[r] = all[r].at;
    return end;
}

static void place_one(layer_layout *layout, const step_shape *shape, int t)
{
    layout->saved_at[t] = layout->saved_bytes;
    layout->saved_bytes += align_up(layer_saved_bytes(layout, shape, t), LINE);
}

/* The codes that are saved after the last stage that reads the input, where the input was. */
static void place_over_input(layer_layout *layout, const step_shape *shape)
{
    const uint64_t input = align_up(layer_tensor_bytes(&layout->program, shape, LAYER_X), LINE);
    for (int t = 0; t < layout->program.tensors_n && layout->coded[LAYER_X]; t++)
        if (layer_is_kept_late(layout, t))
            place_one(layout, shape, t);
    layout->saved_bytes = layout->coded[LAYER_X] && layout->saved_bytes < input ? input : layout->saved_bytes;
}

/* In the order of levels, so that what a level saves lies where all higher ones have it, unless the input is in codes: measurements run
 * backward of any level on tensors that a forward pass of the highest one saved. What may be in codes comes last: its size differs by
 * level. */
static void place_saved(layer_layout *layout, const step_shape *shape)
{
    place_over_input(layout, shape);
    for (int at = 0; at < 2 * SAVE_LEVELS; at++)
        for (int t = 0; t < layout->program.tensors_n; t++)
            if (layout->saved[t] &&
                (int)layout->program.tensor[t].saved_from + (layout->rounded[t] && t != LAYER_X ? SAVE_LEVELS : 0) == at &&
                !(layout->coded[LAYER_X] && layer_is_kept_late(layout, t)))
                place_one(layout, shape, t);
    layout->saved_bytes = align_up(layout->saved_bytes, PAGE);
}

static void layout_of_program(layer_layout *layout, const model *m, int layer, const step_shape *shape, save_level level)
{
    const stage_site of = {.model = m, .shape = shape, .layer = layer};
    layout->groups = layer_groups(m, layer, shape);
    layer_steps_find(layout, shape, level);
    place_saved(layout, shape);
    layout->forward_workspace = place_regions(layout, &of, layout->forward, layout->forward_n, &layout->forward_tiles, layout->forward_at);
    layout->backward_workspace =
        place_regions(layout, &of, layout->backward, layout->backward_n, &layout->backward_tiles, layout->backward_at);
    layout->forward_sequence = sequence_bytes(layout, m, layer, shape, false);
    layout->backward_sequence = sequence_bytes(layout, m, layer, shape, true);
}

void layer_layout_init(layer_layout *layout, const model *m, int layer, const step_shape *shape, save_level level)
{
    memset(layout, 0, sizeof *layout);
    layer_describe(&layout->program, m, layer);
    layout_of_program(layout, m, layer, shape, level);
}

/* ---- all layers ---- */

static bool same_params(const model *m, int a, int b)
{
    for (int role = 0; role < PARAM_ROLES; role++) {
        const param *x = block_param(m, &m->blocks[a + 1], role), *y = block_param(m, &m->blocks[b + 1], role);
        if (!x != !y || (x && (x->rows != y->rows || x->cols != y->cols || x->storage != y->storage)))
            return false;
    }
    return true;
}

/* The kind of a layer among those before it, or -1. */
static int find_kind(const layer_set *all, const int *first, const model *m, const layer_program *program, int layer)
{
    for (int k = 0; k < all->kinds_n; k++)
        if (!memcmp(&all->layout[k][0].program, program, sizeof *program) && same_params(m, first[k], layer))
            return k;
    return -1;
}

static int add_kind(layer_set *all, const model *m, const step_shape *shape, const layer_program *program, int layer, pt_error *e)
{
    layer_layout (*grown)[SAVE_LEVELS] = realloc(all->layout, (size_t)(all->kinds_n + 1) * sizeof *grown);
    if (!grown)
        return pt_fail(e, PT_FAILED, "out of memory for the layout of layer %d", layer);
    all->layout = grown;
    for (int level = 0; level < SAVE_LEVELS; level++) {
        layer_layout *layout = &grown[all->kinds_n][level];
        memset(layout, 0, sizeof *layout);
        layout->program = *program;
        layout_of_program(layout, m, layer, shape, (save_level)level);
    }
    all->kinds_n++;
    return 0;
}

int layer_set_init(layer_set *out, const model *m, const step_shape *shape, pt_error *e)
{
    int first[LAYER_SET_KINDS]; /* a layer of each kind */
    int failed = 0;
    layer_program program;
    *out = (layer_set){0};
    for (int layer = 0; layer < (int)m->config.layers && !failed; layer++) {
        layer_describe(&program, m, layer);
        int kind = find_kind(out, first, m, &program, layer);
        if (kind < 0 && out->kinds_n == LAYER_SET_KINDS)
            failed = pt_fail(e, PT_FAILED, "the layers of this model differ in more than %d ways", LAYER_SET_KINDS);
        else if (kind < 0) {
            first[kind = out->kinds_n] = layer;
            failed = add_kind(out, m, shape, &program, layer, e);
        }
        out->kind[layer] = (unsigned char)kind;
    }
    if (failed)
        layer_set_free(out);
    return failed;
}

void layer_set_free(layer_set *l)
{
    free(l->layout);
    *l = (layer_set){0};
}
