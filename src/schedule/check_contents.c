#include "schedule/checker.h"

#include <string.h>

/* The index of the operand that matches, or -1. */
static int find_operand(const checker *c, const task *t, const want *w)
{
    for (int o = t->operand0; o < t->operand0 + t->operands_n; o++) {
        const buffer *b = &c->s->buffers[c->s->operands[o].buffer];
        if (!c->used[o] && b->kind == w->kind && b->index == w->index && b->micro == w->micro && b->tier == w->tier)
            return o;
    }
    return -1;
}

static int check_want(checker *c, int i, const want *w)
{
    int at = find_operand(c, &c->s->tasks[i], w);
    if (at < 0)
        return check_fail(c, i, -1, "has no operand on the %s that is the %s (%d, %d) it needs", tier_names[w->tier], object_names[w->kind],
                          w->index, w->micro);
    const operand *o = &c->s->operands[at];
    const content *now = &c->contents[o->buffer];
    c->used[at] = 1;
    if (o->read != w->read || o->write != w->write)
        return check_fail(c, i, o->buffer, "is marked%s%s, and it is%s%s", o->read ? " read" : "", o->write ? " written" : "",
                          w->read ? " read" : "", w->write ? " written" : "");
    if ((w->kind == OBJECT_WORKSPACE && c->s->buffers[o->buffer].bytes < w->bytes) ||
        (w->kind == OBJECT_OPEN && c->s->buffers[o->buffer].bytes != w->bytes))
        return check_fail(c, i, o->buffer, "has %llu bytes, and %llu are needed", (unsigned long long)c->s->buffers[o->buffer].bytes,
                          (unsigned long long)w->bytes);
    if (w->read && !now->alive)
        return check_fail(c, i, o->buffer, "is read, but nothing was written there, or something else since");
    if (w->read && now->version != w->before)
        return check_fail(c, i, o->buffer, "holds version %d, and version %d is needed", now->version, w->before);
    return 0;
}

int check_contents_before(checker *c, int i)
{
    const task *t = &c->s->tasks[i];
    for (int k = 0; k < c->wants_n; k++) {
        int failed = check_want(c, i, &c->wants[k]);
        if (failed)
            return failed;
    }
    for (int o = t->operand0; o < t->operand0 + t->operands_n; o++)
        if (!c->used[o])
            return check_fail(c, i, c->s->operands[o].buffer, "is an operand, but such a task has no use for it");
    memset(c->used + t->operand0, 0, (size_t)t->operands_n);
    return 0;
}

void check_contents_after(checker *c, int i)
{
    const task *t = &c->s->tasks[i];
    for (int k = 0; k < c->wants_n; k++) {
        const want *w = &c->wants[k];
        int at = w->write ? find_operand(c, t, w) : -1;
        if (at >= 0)
            c->contents[c->s->operands[at].buffer] = (content){true, w->after};
    }
}

/* ---- the end ---- */

static int check_placement(const checker *c, int i)
{
    const buffer *b = &c->s->buffers[i];
    const content *now = &c->contents[i];
    int version;
    switch (b->kind) {
    case OBJECT_WEIGHTS: case OBJECT_SHARD: version = c->weights[b->index]; break;
    case OBJECT_STATES: version = c->states[b->index]; break;
    case OBJECT_GRADIENT:
        if (c->s->kind == SCHEDULE_DRAIN || c->s->kind == SCHEDULE_EVAL)
            return 0; /* consumed by an update, in this schedule or before */
        version = c->gradient[b->index];
        break;
    case OBJECT_ROWS_GRADIENT:
        if (c->s->kind == SCHEDULE_DRAIN || c->s->kind == SCHEDULE_EVAL)
            return 0;
        version = c->rows_gradient;
        break;
    default: return 0;
    }
    if (!now->alive || now->version != version)
        return check_fail(c, -1, i, "is not in its placement when the schedule ends: version %d is there, and %d is the newest",
                          now->version, version);
    return 0;
}

static int check_updates(const checker *c)
{
    bool updates = c->s->kind == SCHEDULE_STEP ? !c->waits : c->s->kind != SCHEDULE_EVAL;
    for (int k = 0; k < c->chunks_n && updates; k++)
        if (c->weights[k] != whole_weights(c) && c->chunk_blocks[k])
            return check_fail(c, -1, -1, "chunk %d is not %s", k, c->weights[k] ? "gathered" : "updated");
    return 0;
}

static int check_micro(const checker *c, int m)
{
    for (int block = 1; block <= c->layers + 1; block++)
        if (c->saved[saved_at(c, block, m)] != c->blocks[block].complete)
            return check_fail(c, -1, -1, "micro-batch %d does not pass block %d", m, block);
    if (!c->head_done[m])
        return check_fail(c, -1, -1, "micro-batch %d does not pass the head", m);
    const int last = c->first_trained > c->layers ? c->layers + 2 : c->first_trained > 1 ? c->first_trained : 1;
    if (is_step(c) && c->stream[m] != last)
        return check_fail(c, -1, -1, "micro-batch %d does not come back through block %d", m, c->stream[m] - 1);
    return 0;
}

int check_contents_end(checker *c)
{
    int failed = check_updates(c);
    for (int m = 0; m < c->micro_n && !failed && c->s->kind != SCHEDULE_DRAIN; m++)
        failed = check_micro(c, m);
    if (!failed && is_step(c) && c->sums != c->sums_needed)
        failed = check_fail(c, -1, -1, "%d gradients are finished, and there are %d", c->sums, c->sums_needed);
    if (!failed && c->s->kind != SCHEDULE_DRAIN && (c->inputs != 1 || c->outputs != 1))
        failed = check_fail(c, -1, -1, "the batch does not come in, or the losses do not go out");
    for (int i = 0; i < c->s->placements_n && !failed; i++)
        failed = check_placement(c, i);
    return failed;
}
