#include "text/buffer.h"

#include <stdlib.h>
#include <string.h>

/* Makes room for `extra` more items of `size` bytes in *items, which has n of at most *capacity. */
static int grow(void **items, size_t n, size_t *capacity, size_t extra, size_t size, pt_error *e)
{
    if (extra <= *capacity - n)
        return 0;
    size_t wanted;
    if (__builtin_add_overflow(n, extra, &wanted) || wanted > SIZE_MAX / 2 / size)
        return pt_fail(e, PT_FAILED, "a text of %zu + %zu items is too long to hold; split the input", n, extra);
    size_t doubled = 2 * *capacity < 64 ? 64 : 2 * *capacity;
    if (wanted < doubled)
        wanted = doubled;
    void *moved = realloc(*items, wanted * size);
    if (!moved)
        return pt_fail(e, PT_FAILED, "no memory for %zu bytes of text or ids; free some memory or split the input",
                       wanted * size);
    *items = moved;
    *capacity = wanted;
    return 0;
}

int text_buffer_reserve(text_buffer *b, size_t extra, pt_error *e)
{
    return grow((void **)&b->bytes, b->n, &b->capacity, extra, 1, e);
}

int id_list_reserve(id_list *list, size_t extra, pt_error *e)
{
    return grow((void **)&list->ids, list->n, &list->capacity, extra, sizeof *list->ids, e);
}

int id_list_append(id_list *list, const id_list *more, pt_error *e)
{
    int status = id_list_reserve(list, more->n, e);
    if (status || more->n == 0)
        return status;
    memcpy(list->ids + list->n, more->ids, more->n * sizeof *more->ids);
    list->n += more->n;
    return 0;
}

void text_buffer_free(text_buffer *b)
{
    free(b->bytes);
    memset(b, 0, sizeof *b);
}

void id_list_free(id_list *list)
{
    free(list->ids);
    memset(list, 0, sizeof *list);
}
