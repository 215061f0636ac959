/* attention_ahead.h - prefetches rows while matmuls run.
 *
 * The rows of one head are pages apart, so the hardware prefetcher does not find them, and too many prefetches at once delay each other. So
 * rows are put on a list, and each block of a matmul prefetches a few of its lines. The last rows put on the list are needed first.
 */
#ifndef PT_ATTENTION_AHEAD_H
#define PT_ATTENTION_AHEAD_H

#include "device/cpu/kernels/attention_operand.h"

enum { MOST_LISTED = 12, LINE_BYTES = 64 };

typedef struct listed_rows { const char *row; int64_t pitch, rows, bytes, byte; } listed_rows;
typedef struct rows_ahead { listed_rows list[MOST_LISTED]; int64_t count; } rows_ahead;

/* Adds `rows` rows of dim elements, ld apart; the first is at element `offset` of the tensor. */
static inline void rows_add_ahead(rows_ahead *a, pt_dtype type, const void *tensor, int64_t offset, int64_t ld, int64_t rows, int64_t dim)
{
    const int64_t size = (int64_t)dtype_bytes(type);
    if (rows > 0 && a->count < MOST_LISTED)
        a->list[a->count++] = (listed_rows){row_of(type, tensor, offset), ld * size, rows, dim * size, 0};
}

/* Adds the keys and values [key, key + count) of a kv head, as far as they exist; base: its offset in k and v. */
static inline void keys_add_ahead(rows_ahead *a, const op_attention *o, int64_t base, int64_t key, int64_t count)
{
    const int64_t keys = least(count, o->kv_len - key), at = base + key * o->ldkv;
    rows_add_ahead(a, o->type, o->v, at, o->ldkv, keys, o->dim);
    rows_add_ahead(a, o->type, o->k, at, o->ldkv, keys, o->dim);
}

/* Prefetches `lines` lines of the list into the L2 cache. */
static inline void rows_prefetch(rows_ahead *a, int64_t lines)
{
    while (a->count && lines > 0) {
        listed_rows *w = &a->list[a->count - 1];
        for (; lines > 0 && w->rows > 0; lines--) {
            __builtin_prefetch(w->row + w->byte, 0, 2);
            w->byte += LINE_BYTES;
            if (w->byte >= w->bytes && --w->rows > 0)
                w->row += w->pitch, w->byte = 0;
        }
        a->count -= w->rows == 0;
    }
}

/* Prefetches the rest of all rows but the first `count` on the list. */
static inline void rows_prefetch_down_to(rows_ahead *a, int64_t count)
{
    while (a->count > count)
        rows_prefetch(a, a->list[a->count - 1].rows * (a->list[a->count - 1].bytes / LINE_BYTES + 1));
}

#endif
