/* examples.h - a record of a data file to token ids, and which of them are learned. */
#ifndef PT_DATA_EXAMPLES_H
#define PT_DATA_EXAMPLES_H

#include "chat/chat.h"

typedef struct example_rules {
    pt_data_format format;     /* of records, not text */
    pt_train_on on;            /* what is learned, not AUTO */
    const tokenizer *tokenizer;
    const chat_source *chat;   /* NULL: there is none, and `no_chat` says why */
    const pt_error *no_chat;
    time_t now;                /* what templates print as today */
} example_rules;

/* AUTO becomes what it stands for. PT_USAGE: the format has nothing of the kind. */
int examples_learned(pt_data_format f, pt_train_on *on, pt_error *e);

/* `record`, which is changed; `where` is its file and line. */
int example_make(const example_rules *r, encoder *c, json_t *record, const char *where, chat_tokens *out, pt_error *e);

#endif
