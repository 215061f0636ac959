/* item.c - items of a program; each becomes one task. */
#include "schedule/builder.h"

#include <stdlib.h>

void item_begin(builder *b, int64_t key)
{
    b->serial++;
    b->item.needs_n = b->item.plain_n = 0;
    b->item.key = key;
}

void item_needs(builder *b, tier t, int object, unsigned use)
{
    item *i = &b->item;
    const int buffer = cache_use(b, t, object, use, &i->key);
    if (builder_room(b, (void **)&i->needs, i->needs_n, &i->needs_capacity, sizeof *i->needs))
        i->needs[i->needs_n++] = (need){object, t, use, buffer};
}

void item_operand(builder *b, int buffer, unsigned use)
{
    item *i = &b->item;
    if (builder_room(b, (void **)&i->plain, i->plain_n, &i->plain_capacity, sizeof *i->plain))
        i->plain[i->plain_n++] = (need){.buffer = buffer, .use = use};
}

void item_workspace(builder *b, uint64_t bytes)
{
    if (!bytes || b->recording)
        return;
    const int at = builder_buffer(b, OBJECT_WORKSPACE, -1, -1, TIER_DEVICE, bytes);
    if (bytes != b->workspace_bytes)
        b->workspace_slot = b->s->slots_n++;
    b->workspace_bytes = bytes;
    if (at >= 0)
        b->s->buffers[at].slot = b->workspace_slot;
    item_operand(b, at, USE_WRITE);
}

void item_is_part(builder *b, int part, double share)
{
    if (b->recording || b->failed)
        return;
    b->s->tasks[b->s->tasks_n - 1].part = part;
    b->s->tasks[b->s->tasks_n - 1].share = share;
}

void item_exchanges(builder *b, bool backward, uint64_t bytes)
{
    if (b->recording || b->failed)
        return;
    b->s->tasks[b->s->tasks_n - 1].backward = backward;
    b->s->tasks[b->s->tasks_n - 1].bytes = bytes;
}

void item_end(builder *b, task_kind kind, queue_kind q, int block, int micro, int chunk, bool first)
{
    const item *x = &b->item;
    if (b->recording || b->failed)
        return;
    builder_task(b, kind, q, block, micro, chunk, x->key);
    if (b->failed)
        return;
    b->s->tasks[b->s->tasks_n - 1].first = first;
    for (int i = 0; i < x->needs_n; i++)
        builder_operand(b, x->needs[i].buffer, x->needs[i].use);
    for (int i = 0; i < x->plain_n; i++)
        builder_operand(b, x->plain[i].buffer, x->plain[i].use);
    for (int i = 0; i < x->needs_n; i++)
        cache_used(b, x->needs[i].tier, x->needs[i].object, x->needs[i].use, x->key);
    if (q == QUEUE_COMPUTE)
        b->now = x->key + 1;
}
