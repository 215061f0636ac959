/* examples.h - turns a record of a data file into token ids with marks of the learned ones. */
#ifndef PT_DATA_EXAMPLES_H
#define PT_DATA_EXAMPLES_H

#include "chat/chat.h"
#include "data/labels.h"

/* The date that templates see, 26 July 2024, noon UTC: ids must not depend on the day of the run. */
#define EXAMPLES_TODAY ((time_t)1721995200)

typedef struct example_rules {
    pt_data_format format;     /* a format of records, not text */
    bool one_format;           /* all records have it; else those of conversations may have each its own */
    pt_train_on on;            /* what is learned; not AUTO */
    pt_train_on asked;         /* the same as the user gave it, for records of other formats */
    bool plain;                /* special tokens in contents are plain text */
    bool labels;               /* a record is a desirable reply, an undesirable one, or a pair of both */
    bool scored;               /* a score of the last token is learned: an example's last id is the number of its label, and nothing else is
                                * learned */
    const label_names *names;  /* of the labels; NULL: of all examples 0 */
    bool predicts;             /* scored: records need no label. The number of labels in its place means none */
    int64_t padding;           /* scored: such ids at the end do not count; -1: none */
    const tokenizer *tokenizer;
    const chat_source *chat;   /* NULL: none; `no_chat` says why */
    const pt_error *no_chat;
    time_t now;                /* the date that templates print */
} example_rules;

/* Replaces AUTO by its meaning. PT_USAGE: the format has no such part. */
int examples_learned(pt_data_format f, pt_train_on *on, pt_error *e);

/* For formats other than PT_DATA_PREFERENCE. Removes what is read from the record; `where` is its file and line. */
int example_make(const example_rules *r, encoder *encoder, json_t *record, const char *where, chat_tokens *out, pt_error *e);
/* Whether a record is two examples: of PT_DATA_PREFERENCE, or with labels. */
static inline bool example_is_pair(const example_rules *r) { return r->format == PT_DATA_PREFERENCE || r->labels; }
/* Then: the chosen example and the rejected one. With labels, that of the record's label, and none (no ids) for the other. */
int example_make_pair(const example_rules *r, encoder *encoder, json_t *record, const char *where, chat_tokens out[2], pt_error *e);

#endif
