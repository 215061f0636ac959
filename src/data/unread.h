/* unread.h - counts keys of records that no format reads although their values look like content: probably another name was meant. */
#ifndef PT_DATA_UNREAD_H
#define PT_DATA_UNREAD_H

#include "data/token_file.h"
#include "text/buffer.h"

#include <jansson.h>
#include <stdbool.h>

/* `rest`: what reading left of a record. texts: what was made of it (one, or two of a pair); content that they have was read from another
 * key. line, file: of the record. */
void unread_count(const json_t *rest, const text_buffer *const texts[2], uint64_t line, uint32_t file, unread_tally *tally);
void unread_add(unread_tally *all, const unread_tally *more);
/* "\"context\" (in 2 records), \"label\" (in 1 record)"; without `counts`: "\"context\", \"label\"" */
void unread_name(const unread_tally *tally, bool counts, char *out, size_t size);

#endif
