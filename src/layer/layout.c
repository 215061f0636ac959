/* layout.c - what follows from a layer's program: the steps of backward, what is saved, and where everything lies. */
#include "layer/groups.h"
#include "layer/stage.h"
#include "layer/tiles.h"

#include <stdlib.h>
#include <string.h>

int layer_tensor_named(const layer_program *p, const char *name)
{
    for (int t = 0; t < p->tensors_n; t++)
        if (!strcmp(p->tensor[t].name, name))
            return t;
    return LAYER_NONE;
}

uint64_t layer_tensor_bytes(const layer_program *p, const step_shape *s, int tensor)
{
    const layer_tensor *t = &p->tensor[tensor];
    const int64_t segments = t->per == ROWS_SEGMENTS ? s->unit_seqs * ((s->seq_len - 1) / t->every) : 1;
    const int64_t rows = t->times * (t->per == ROWS_TOKENS ? s->unit_rows : segments);
    return (uint64_t)rows * (uint64_t)t->cols * (t->four_bytes ? sizeof(float) : dtype_bytes(s->type));
}

double layer_flops(const model *m, int layer, const step_shape *s)
{
    layer_program p;
    double flops = 0;
    layer_describe(&p, m, layer);
    for (int i = 0; i < p.stages_n; i++) {
        const stage_type *type = stage_type_of(p.stage[i].kind);
        flops += type->flops ? type->flops(&(stage_site){m, s, &p, &p.stage[i], layer}) : 0;
    }
    return flops;
}

uint64_t layer_cache_bytes(const layer_program *p, const model *m, int layer, const step_shape *s)
{
    uint64_t bytes = 0;
    for (int i = 0; i < p->stages_n; i++) {
        const stage_type *type = stage_type_of(p->stage[i].kind);
        bytes += type->cache ? type->cache(&(stage_site){m, s, p, &p->stage[i], layer}) : 0;
    }
    return bytes;
}

uint64_t layer_state_bytes(const layer_program *p, const model *m, int layer, const step_shape *s, int stage)
{
    uint64_t bytes = 0;
    for (int i = 0; i < stage; i++) {
        const stage_type *type = stage_type_of(p->stage[i].kind);
        bytes += type->state ? type->state(&(stage_site){m, s, p, &p->stage[i], layer}) : 0;
    }
    return bytes;
}

/* ---- steps ---- */

static const stage_type *type_of(const layer_program *p, int stage) { return stage_type_of(p->stage[stage].kind); }

bool layer_is_rewritten(const layer_program *p, int tensor)
{
    for (int i = 0; i < p->stages_n; i++)
        if (p->stage[i].out[0] == tensor)
            return type_of(p, i)->rewrites;
    return false;
}

/* Where the gradient of a tensor lies; LAYER_NONE: in the caller's memory. */
static int gradient_region(const layer_program *p, int tensor)
{
    const layer_tensor *t = &p->tensor[tensor];
    return t->residual || t->carried ? LAYER_NONE : REGION_GRADIENT + (t->gradient_in == LAYER_NONE ? tensor : t->gradient_in);
}

typedef struct region_list { int *of, n; } region_list;

static void touch(region_list *l, int region)
{
    for (int i = 0; i < l->n; i++)
        if (l->of[i] == region)
            return;
    if (region != LAYER_NONE)
        l->of[l->n++] = region;
}

static void touch_tensor(region_list *l, const layer_program *p, int tensor, bool itself, bool gradient)
{
    if (tensor == LAYER_NONE || p->tensor[tensor].carried)
        return;
    if (itself)
        touch(l, REGION_TENSOR + tensor);
    if (gradient)
        touch(l, gradient_region(p, tensor));
}

int layer_step_regions(const layer_program *p, layer_step step, int regions[LAYER_STEP_REGIONS])
{
    const layer_stage *s = &p->stage[step.stage];
    const unsigned what = stage_type_of(s->kind)->touches(s, step.pass);
    region_list l = {regions, 0};
    for (int k = 0; k < STAGE_INPUTS; k++)
        touch_tensor(&l, p, s->in[k], what & TOUCH_IN(k), what & TOUCH_IN_GRADIENT(k));
    for (int k = 0; k < STAGE_OUTPUTS; k++)
        touch_tensor(&l, p, s->out[k], what & TOUCH_OUT(k), what & TOUCH_OUT_GRADIENT(k));
    if (what & TOUCH_OPERAND)
        touch(&l, layer_is_rewritten(p, s->in[0]) ? gradient_region(p, s->in[0]) : REGION_TENSOR + s->in[0]);
    for (int k = 0; k < STAGE_SCRATCH; k++)
        if (what & TOUCH_SCRATCH(k))
            touch(&l, REGION_SCRATCH + step.stage * STAGE_SCRATCH + k);
    return l.n;
}

static void add_step(layer_layout *l, step_pass pass, int stage) { l->backward[l->backward_n++] = (layer_step){pass, stage}; }

/* The stages that run for each group of heads; false: none do. */
static bool group_stages(const layer_layout *l, int *first, int *attention)
{
    *first = *attention = 0;
    for (int i = 0; i < l->program.stages_n && l->groups > 1; i++)
        if (l->program.stage[i].kind == STAGE_ATTENTION) {
            *first = layer_first_of_group(&l->program, i);
            *attention = i;
        }
    return l->groups > 1;
}

/* The weights of stages whose input was just written again. */
static void add_waiting(layer_layout *l, bool waits[LAYER_STAGES], int written)
{
    for (int i = l->program.stages_n - 1; i >= 0; i--)
        if (waits[i] && l->program.stage[i].in[0] == written) {
            add_step(l, PASS_WEIGHTS, i);
            waits[i] = false;
        }
}

/* The stages in reverse; before attention's backward of a group, what it reads is made again. If the backward of the stage before one with
 * weights writes that one's input again, the gradients of its weights come after it. */
static void add_reversed(layer_layout *l)
{
    bool waits[LAYER_STAGES] = {false};
    int first, attention;
    const bool grouped = group_stages(l, &first, &attention);
    for (int i = l->program.stages_n - 1; i >= 0; i--) {
        const layer_stage *s = &l->program.stage[i];
        const stage_type *type = type_of(&l->program, i);
        if (grouped && i == attention)
            for (int k = first; k < attention; k++)
                add_step(l, PASS_FORWARD, k);
        if (!type->pass[PASS_INPUT])
            continue; /* another stage computes its gradients */
        add_step(l, PASS_INPUT, i);
        if (type->rewrites)
            add_waiting(l, waits, s->out[0]);
        if (!type->pass[PASS_WEIGHTS])
            continue;
        if (layer_is_rewritten(&l->program, s->in[0]))
            waits[i] = true;
        else
            add_step(l, PASS_WEIGHTS, i);
    }
}

/* Tensors that backward reads are saved, if the level says so, or recomputed. The same holds for the inputs of the recomputation. */
static void add_again(layer_layout *l, const bool needed_by_gradients[LAYER_TENSORS], save_level level)
{
    const layer_program *p = &l->program;
    bool needed[LAYER_TENSORS], again[LAYER_STAGES] = {false};
    memcpy(needed, needed_by_gradients, sizeof needed);
    l->saved[LAYER_X] = true;
    for (int i = p->stages_n - 1; i >= 0; i--) {
        const layer_stage *s = &p->stage[i];
        for (int k = 0; k < STAGE_OUTPUTS; k++)
            if (s->out[k] != LAYER_NONE && needed[s->out[k]] && !p->tensor[s->out[k]].carried) {
                l->saved[s->out[k]] = level >= p->tensor[s->out[k]].saved_from;
                again[i] |= !l->saved[s->out[k]];
            }
        for (int k = 0; k < STAGE_INPUTS && again[i]; k++)
            if (s->in[k] != LAYER_NONE)
                needed[s->in[k]] = true;
    }
    for (int i = 0; i < p->stages_n; i++)
        if (again[i])
            add_step(l, PASS_FORWARD, i);
    l->again_n = l->backward_n;
}

/* What the steps of a group make again does not count. */
static void find_needed(const layer_program *p, int groups, bool needed[LAYER_TENSORS])
{
    layer_layout all = {.program = *p, .groups = groups};
    bool made[LAYER_REGIONS] = {false};
    add_reversed(&all);
    for (int i = 0; i < all.backward_n; i++) {
        int regions[LAYER_STEP_REGIONS], n = layer_step_regions(p, all.backward[i], regions);
        for (int k = 0; k < n; k++) {
            made[regions[k]] |= layer_makes(p, all.backward[i], regions[k]);
            if (regions[k] < REGION_GRADIENT && !made[regions[k]])
                needed[regions[k]] = true;
        }
    }
}

/* ---- places ---- */

enum { LINE = 64, PAGE = 4096 };

typedef struct place { uint64_t bytes, at; int first, last; } place; /* steps from which to which it is used; last -1: never */

uint64_t layer_region_bytes(const layer_program *p, const model *m, int layer, const step_shape *s, int region)
{
    if (region < REGION_SCRATCH)
        return layer_tensor_bytes(p, s, region % LAYER_TENSORS) /
               (uint64_t)(p->tensor[region % LAYER_TENSORS].of_heads ? layer_groups(m, layer, s) : 1);
    const layer_stage *stage = &p->stage[(region - REGION_SCRATCH) / STAGE_SCRATCH];
    const stage_type *type = stage_type_of(stage->kind);
    return type->scratch ? type->scratch(&(stage_site){m, s, p, stage, layer}, (region - REGION_SCRATCH) % STAGE_SCRATCH) : 0;
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

static bool is_elsewhere(const layer_layout *l, int region) { return region < LAYER_TENSORS && (l->saved[region] || region == LAYER_OUT); }

static bool is_of_heads(const layer_layout *l, int region)
{
    return region >= REGION_SCRATCH || l->program.tensor[region % LAYER_TENSORS].of_heads;
}

/* From which to which step the regions are used. One that holds all rows is used in all of a run: the run comes back to its steps with
 * each tile. Likewise one that holds all heads and the steps that run for each group of them. */
static void find_uses(const layer_layout *l, const layer_tiles *t, const layer_step *steps, int steps_n, place all[LAYER_REGIONS])
{
    for (int r = 0; r < LAYER_REGIONS; r++)
        all[r] = (place){.first = steps_n, .last = -1};
    for (int i = 0; i < steps_n; i++) {
        int touched[LAYER_STEP_REGIONS], n = layer_step_regions(&l->program, steps[i], touched);
        for (int k = 0; k < n; k++) {
            place *p = &all[touched[k]];
            if (is_elsewhere(l, touched[k]))
                continue;
            const bool tile = t->region[touched[k]], whole = t->group[i] && !tile && !is_of_heads(l, touched[k]);
            const int first = tile ? i : whole ? layer_groups_begin(t, i) : layer_run_begin(t, i);
            const int last = tile ? i : (whole ? layer_groups_end(t, steps_n, i) : layer_run_end(t, steps_n, i)) - 1;
            p->first = first < p->first ? first : p->first;
            p->last = last > p->last ? last : p->last;
        }
    }
}

/* The regions that these steps use, except those in the saved set or the caller's memory. */
static uint64_t place_regions(const layer_layout *l, const stage_site *of, const layer_step *steps, int steps_n, layer_tiles *t,
                              uint64_t at[LAYER_REGIONS])
{
    place all[LAYER_REGIONS];
    step_shape tile = *of->shape;
    tile.unit_rows = tile.tile_rows;
    layer_tiles_find(t, &l->program, of->shape, steps, steps_n);
    find_uses(l, t, steps, steps_n, all);
    for (int r = 0; r < LAYER_REGIONS; r++)
        all[r].bytes = all[r].last < 0 ? 0 : align_up(layer_region_bytes(&l->program, of->model, of->layer,
                                                                         t->region[r] ? &tile : of->shape, r), LINE);
    const uint64_t end = put_all(all, LAYER_REGIONS);
    for (int r = 0; r < LAYER_REGIONS; r++)
        at[r] = all[r].at;
    return end;
}

/* In the order of levels, so that what a level saves lies where all higher ones have it: measurements run backward of any level on tensors
 * that a forward pass of the highest one saved. */
static void place_saved(layer_layout *l, const step_shape *s)
{
    for (int level = 0; level < SAVE_LEVELS; level++)
        for (int t = 0; t < l->program.tensors_n; t++)
            if (l->saved[t] && (int)l->program.tensor[t].saved_from == level) {
                l->saved_at[t] = l->saved_bytes;
                l->saved_bytes += align_up(layer_tensor_bytes(&l->program, s, t), LINE);
            }
    l->saved_bytes = align_up(l->saved_bytes, PAGE);
}

/* The steps of the stages from the norm to attention. */
static void mark_groups(layer_layout *l)
{
    int first, attention;
    if (!group_stages(l, &first, &attention))
        return;
    for (int i = 0; i < l->program.stages_n; i++)
        l->forward_tiles.group[i] = i >= first && i <= attention;
    for (int i = 0; i < l->backward_n; i++)
        l->backward_tiles.group[i] = l->backward[i].stage >= first && l->backward[i].stage <= attention;
}

static void layout_of_program(layer_layout *l, const model *m, int layer, const step_shape *s, save_level level)
{
    const stage_site of = {.model = m, .shape = s, .layer = layer};
    bool needed[LAYER_TENSORS] = {false};
    layer_step forward[LAYER_STAGES];
    l->groups = layer_groups(m, layer, s);
    find_needed(&l->program, l->groups, needed);
    add_again(l, needed, level);
    add_reversed(l);
    mark_groups(l);
    for (int i = 0; i < l->program.stages_n; i++)
        forward[i] = (layer_step){PASS_FORWARD, i};
    place_saved(l, s);
    l->forward_workspace = place_regions(l, &of, forward, l->program.stages_n, &l->forward_tiles, l->forward_at);
    l->backward_workspace = place_regions(l, &of, l->backward, l->backward_n, &l->backward_tiles, l->backward_at);
}

void layer_layout_init(layer_layout *l, const model *m, int layer, const step_shape *s, save_level level)
{
    memset(l, 0, sizeof *l);
    layer_describe(&l->program, m, layer);
    layout_of_program(l, m, layer, s, level);
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
static int find_kind(const layer_set *all, const int *first, const model *m, const layer_program *p, int layer)
{
    for (int k = 0; k < all->kinds_n; k++)
        if (!memcmp(&all->layout[k][0].program, p, sizeof *p) && same_params(m, first[k], layer))
            return k;
    return -1;
}

static int add_kind(layer_set *all, const model *m, const step_shape *s, const layer_program *p, int layer, pt_error *e)
{
    layer_layout (*grown)[SAVE_LEVELS] = realloc(all->layout, (size_t)(all->kinds_n + 1) * sizeof *grown);
    if (!grown)
        return pt_fail(e, PT_FAILED, "out of memory for the layout of layer %d", layer);
    all->layout = grown;
    for (int level = 0; level < SAVE_LEVELS; level++) {
        layer_layout *l = &grown[all->kinds_n][level];
        memset(l, 0, sizeof *l);
        l->program = *p;
        layout_of_program(l, m, layer, s, (save_level)level);
    }
    all->kinds_n++;
    return 0;
}

int layer_set_init(layer_set *out, const model *m, const step_shape *s, pt_error *e)
{
    int first[LAYER_SET_KINDS]; /* a layer of each kind */
    int failed = 0;
    layer_program p;
    *out = (layer_set){0};
    for (int layer = 0; layer < (int)m->config.layers && !failed; layer++) {
        layer_describe(&p, m, layer);
        int kind = find_kind(out, first, m, &p, layer);
        if (kind < 0 && out->kinds_n == LAYER_SET_KINDS)
            failed = pt_fail(e, PT_FAILED, "the layers of this model differ in more than %d ways", LAYER_SET_KINDS);
        else if (kind < 0) {
            first[kind = out->kinds_n] = layer;
            failed = add_kind(out, m, s, &p, layer, e);
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
