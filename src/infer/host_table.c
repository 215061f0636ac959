/* host_table.c - the table of layers' inputs in host memory. */
#include "infer/inference_parts.h"

#include <string.h>

const param *host_table(const model *m, const device *d)
{
    return device_is_gpu(d) && !d->info.shares_ram ? block_param(m, &m->blocks[0], PARAM_LAYER_TOKENS) : NULL;
}

uint64_t host_table_rows_bytes(const param *table, pt_dtype type, int64_t rows)
{
    return table ? (uint64_t)(rows * table->cols) * dtype_bytes(type) : 0;
}

uint64_t inference_host_bytes(const model *m, pt_dtype type, const device *d, int streamed)
{
    const param *table = host_table(m, d);
    return table ? host_table_rows_bytes(table, type, table->rows + inference_rows_of(m, d, streamed)) : 0;
}

const char *host_table_submit_rows(inference *infer, const int32_t *ids, int64_t n)
{
    const param *table = host_table(infer->model, infer->device);
    const size_t row = (size_t)host_table_rows_bytes(table, infer->shape.type, 1);
    if (!table)
        return NULL;
    char *rows = infer->table + (size_t)table->rows * row;
    for (int64_t i = 0; i < n; i++)
        memcpy(rows + (size_t)i * row, infer->table + (size_t)ids[i] * row, row);
    queue_submit(infer->queue, &(op){OP_COPY, .copy = {infer->arena + infer->layout.rows, rows, (size_t)n * row}});
    return infer->arena + infer->layout.rows;
}
