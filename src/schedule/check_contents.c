#include "schedule/checker.h"

#include <string.h>

/* The index of the operand that matches, or -1. */
static int find_operand(const checker *checker, const task *t, const want *w)
{
    for (int o = t->operand0; o < t->operand0 + t->operands_n; o++) {
        const buffer *b = &checker->s->buffers[checker->s->operands[o].buffer];
        if (!checker->used[o] && b->kind == w->kind && b->index == w->index && b->micro == w->micro && b->tier == w->tier)
            return o;
    }
    return -1;
}

static int check_want(checker *checker, int i, const want *w)
{
    int at = find_operand(checker, &checker->s->tasks[i], w);
    if (at < 0)
        return check_fail(checker, i, -1, "has no operand on the %s that is the %s (%d, %d) it needs", tier_names[w->tier],
                          object_names[w->kind], w->index, w->micro);
    const operand *o = &checker->s->operands[at];
    const content *now = &checker->contents[o->buffer];
    checker->used[at] = 1;
    if (o->read != w->read || o->write != w->write)
        return check_fail(checker, i, o->buffer, "is marked%s%s, and it is%s%s", o->read ? " read" : "", o->write ? " written" : "",
                          w->read ? " read" : "", w->write ? " written" : "");
    if ((w->kind == OBJECT_WORKSPACE && checker->s->buffers[o->buffer].bytes < w->bytes) ||
        (w->kind == OBJECT_OPEN && checker->s->buffers[o->buffer].bytes != w->bytes))
        return check_fail(checker, i, o->buffer, "has %llu bytes, and %llu are needed",
                          (unsigned long long)checker->s->buffers[o->buffer].bytes, (unsigned long long)w->bytes);
    if (w->read && !now->alive)
        return check_fail(checker, i, o->buffer, "is read, but nothing was written there, or something else since");
    if (w->read && now->version != w->before)
        return check_fail(checker, i, o->buffer, "holds version %d, and version %d is needed", now->version, w->before);
    return 0;
}

int check_contents_before(checker *checker, int i)
{
    const task *t = &checker->s->tasks[i];
    for (int k = 0; k < checker->wants_n; k++) {
        int failed = check_want(checker, i, &checker->wants[k]);
        if (failed)
            return failed;
    }
    for (int o = t->operand0; o < t->operand0 + t->operands_n; o++)
        if (!checker->used[o])
            return check_fail(checker, i, checker->s->operands[o].buffer, "is an operand, but such a task has no use for it");
    memset(checker->used + t->operand0, 0, (size_t)t->operands_n);
    return 0;
}

void check_contents_after(checker *checker, int i)
{
    const task *t = &checker->s->tasks[i];
    for (int k = 0; k < checker->wants_n; k++) {
        const want *w = &checker->wants[k];
        int at = w->write ? find_operand(checker, t, w) : -1;
        if (at >= 0)
            checker->contents[checker->s->operands[at].buffer] = (content){true, w->after};
    }
}

/* ---- the end ---- */

static int check_placement(const checker *checker, int i)
{
    const buffer *b = &checker->s->buffers[i];
    const content *now = &checker->contents[i];
    int version;
    switch (b->kind) {
    case OBJECT_WEIGHTS: case OBJECT_SHARD: version = checker->weights[b->index]; break;
    case OBJECT_STATES: version = checker->states[b->index]; break;
    case OBJECT_GRADIENT:
        if (checker->s->kind == SCHEDULE_DRAIN || checker->s->kind == SCHEDULE_EVAL)
            return 0; /* consumed by an update, in this schedule or before */
        version = checker->gradient[b->index];
        break;
    case OBJECT_ROWS_GRADIENT:
        if (checker->s->kind == SCHEDULE_DRAIN || checker->s->kind == SCHEDULE_EVAL)
            return 0;
        version = checker->rows_gradient;
        break;
    default: return 0;
    }
    if (!now->alive || now->version != version)
        return check_fail(checker, -1, i, "is not in its placement when the schedule ends: version %d is there, and %d is the newest",
                          now->version, version);
    return 0;
}

static int check_updates(const checker *checker)
{
    bool updates = checker->s->kind == SCHEDULE_STEP ? !checker->waits : checker->s->kind != SCHEDULE_EVAL;
    for (int k = 0; k < checker->chunks_n && updates; k++)
        if (checker->weights[k] != whole_weights(checker) && checker->chunk_blocks[k])
            return check_fail(checker, -1, -1, "chunk %d is not %s", k, checker->weights[k] ? "gathered" : "updated");
    return 0;
}

static int check_micro(const checker *checker, int m)
{
    for (int block = 1; block <= checker->layers + 1; block++)
        if (checker->saved[saved_at(checker, block, m)] != checker->blocks[block].complete)
            return check_fail(checker, -1, -1, "micro-batch %d does not pass block %d", m, block);
    if (!checker->head_done[m])
        return check_fail(checker, -1, -1, "micro-batch %d does not pass the head", m);
    const int last = checker->first_trained > checker->layers ? checker->layers + 2
                     : checker->first_trained > 1             ? checker->first_trained
                                                              : 1;
    if (is_step(checker) && checker->stream[m] != last)
        return check_fail(checker, -1, -1, "micro-batch %d does not come back through block %d", m, checker->stream[m] - 1);
    return 0;
}

int check_contents_end(checker *checker)
{
    int failed = check_updates(checker);
    for (int m = 0; m < checker->micro_n && !failed && checker->s->kind != SCHEDULE_DRAIN; m++)
        failed = check_micro(checker, m);
    if (!failed && is_step(checker) && checker->sums != checker->sums_needed)
        failed = check_fail(checker, -1, -1, "%d gradients are finished, and there are %d", checker->sums, checker->sums_needed);
    if (!failed && checker->s->kind != SCHEDULE_DRAIN && (checker->inputs != 1 || checker->outputs != 1))
        failed = check_fail(checker, -1, -1, "the batch does not come in, or the losses do not go out");
    for (int i = 0; i < checker->s->placements_n && !failed; i++)
        failed = check_placement(checker, i);
    return failed;
}
