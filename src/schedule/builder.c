#include "schedule/builder.h"

#include <stdlib.h>
#include <string.h>

const char *const queue_names[QUEUES] = {"compute", "to_device", "from_device", "host", "read", "write", "ranks"};
const char *const object_names[OBJECT_KINDS] = {"weights", "states", "gradient", "shard", "saved", "accumulator",
                                                "stream gradient", "stream", "carried", "carried gradient", "rows", "open layer",
                                                "workspace", "batch", "loss", "sumsq", "routing", "rope", "rows' gradients",
                                                "partial sums", "partial sums of a tied table", "sums of rows"};
const char *const task_names[TASK_KINDS] = {"input", "output", "copy", "read", "write", "look_up", "embed", "layer", "head",
                                            "head_eval", "layer_backward", "finish", "embed_finish", "rows_finish", "update",
                                            "embed_backward", "scatter", "scatter_tied", "heads", "gather"};

bool builder_room(builder *b, void **array, int n, int *capacity, size_t size)
{
    if (b->failed)
        return false;
    if (n < *capacity)
        return true;
    int grown = *capacity ? *capacity * 2 : 256;
    void *more = realloc(*array, (size_t)grown * size);
    if (!more) {
        b->failed = pt_fail(b->e, PT_FAILED, "out of memory while building a schedule");
        return false;
    }
    *array = more;
    *capacity = grown;
    return true;
}

int builder_buffer(builder *b, object_kind kind, int index, int micro, tier t, uint64_t bytes)
{
    schedule *sched = b->s;
    if (!builder_room(b, (void **)&sched->buffers, sched->buffers_n, &b->buffers_capacity, sizeof *sched->buffers))
        return -1;
    sched->buffers[sched->buffers_n] =
        (buffer){.kind = kind, .index = index, .micro = micro, .tier = t, .bytes = bytes, .slot = -1, .first = -1, .last = -1,
                 .idle = -1, .idle_end = -1};
    return sched->buffers_n++;
}

int builder_task(builder *b, task_kind kind, queue_kind q, int block, int micro, int chunk, int64_t key)
{
    schedule *sched = b->s;
    int capacity = b->tasks_capacity;
    if (!builder_room(b, (void **)&b->keys, sched->tasks_n, &capacity, sizeof *b->keys) ||
        !builder_room(b, (void **)&sched->tasks, sched->tasks_n, &b->tasks_capacity, sizeof *sched->tasks))
        return -1;
    b->keys[sched->tasks_n] = key;
    sched->tasks[sched->tasks_n] = (task){.kind = kind, .queue = q, .block = block, .micro = micro, .chunk = chunk, .share = 1,
                                  .operand0 = sched->operands_n};
    return sched->tasks_n++;
}

void builder_operand(builder *b, int buffer_index, unsigned use)
{
    schedule *sched = b->s;
    if (!builder_room(b, (void **)&sched->operands, sched->operands_n, &b->operands_capacity, sizeof *sched->operands))
        return;
    sched->operands[sched->operands_n++] = (operand){buffer_index, (use & USE_READ) != 0, (use & USE_WRITE) != 0};
    sched->tasks[sched->tasks_n - 1].operands_n++;
}

/* A counting sort: keys are small, because they count the items of the program. */
int builder_sort(builder *b)
{
    schedule *sched = b->s;
    int64_t most = 0;
    for (int i = 0; i < sched->tasks_n; i++)
        most = b->keys[i] > most ? b->keys[i] : most;
    int *start = calloc((size_t)most + 2, sizeof *start);
    task *sorted = malloc(((size_t)sched->tasks_n + 1) * sizeof *sorted);
    if (!start || !sorted) {
        free(start);
        free(sorted);
        return pt_fail(b->e, PT_FAILED, "out of memory while building a schedule");
    }
    for (int i = 0; i < sched->tasks_n; i++)
        start[b->keys[i] + 1]++;
    for (int64_t k = 0; k < most; k++)
        start[k + 1] += start[k];
    for (int i = 0; i < sched->tasks_n; i++)
        sorted[start[b->keys[i]]++] = sched->tasks[i];
    free(start);
    free(sched->tasks);
    sched->tasks = sorted;
    return 0;
}

void schedule_free(schedule *sched)
{
    free(sched->tasks);
    free(sched->operands);
    free(sched->buffers);
    memset(sched, 0, sizeof *sched);
}

int task_find(const schedule *sched, const task *t, object_kind kind, int index, int micro)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        const buffer *b = &sched->buffers[sched->operands[i].buffer];
        if (b->kind == kind && b->index == index && b->micro == micro)
            return sched->operands[i].buffer;
    }
    return -1;
}

void builder_start(builder *b)
{
    for (int i = 0; i < b->objects_n; i++) {
        b->objects[i].use = -1;
        for (int t = 0; t < TIERS; t++)
            b->objects[i].slot[t] = -1;
    }
}

void builder_close(builder *b)
{
    for (int t = 0; t < TIERS; t++)
        for (int k = 0; k < CACHES; k++)
            free(b->caches[t][k].slots);
    free(b->objects);
    free(b->uses);
    free(b->keys);
    free(b->item.needs);
    free(b->item.plain);
}
