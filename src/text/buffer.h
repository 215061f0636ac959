/* buffer.h - appends to the lists of tokenizer.h, whose capacity at least doubles when it grows. */
#ifndef PT_TEXT_BUFFER_H
#define PT_TEXT_BUFFER_H

#include "text/tokenizer.h"

#include <string.h>

int text_buffer_reserve(text_buffer *b, size_t extra, pt_error *e);
int id_list_reserve(id_list *list, size_t extra, pt_error *e);

static inline int text_buffer_append(text_buffer *b, const void *bytes, size_t n, pt_error *e)
{
    if (n > b->capacity - b->n) {
        int status = text_buffer_reserve(b, n, e);
        if (status)
            return status;
    }
    if (n)
        memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
    return 0;
}

int id_list_append(id_list *list, const id_list *more, pt_error *e);

static inline int id_list_push(id_list *list, uint32_t id, pt_error *e)
{
    if (list->n == list->capacity) {
        int status = id_list_reserve(list, 1, e);
        if (status)
            return status;
    }
    list->ids[list->n++] = id;
    return 0;
}

#endif
