/* post_processor.h - the `post_processor` section: ids before and after a text.
 *
 * Only a template's form for a single text is used. ByteLevel post-processors only change offsets, which are not used here. */
#ifndef PT_POST_PROCESSOR_H
#define PT_POST_PROCESSOR_H

#include "text/tokenizer.h"

#include <jansson.h>

typedef struct post_processor {
    id_list before, after;
} post_processor;

int post_processor_open(post_processor *p, const json_t *section, pt_error *e); /* NULL or JSON null: none */
void post_processor_close(post_processor *p);

#endif
