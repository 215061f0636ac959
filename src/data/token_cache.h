/* token_cache.h - the token cache of some files: found again where it was made of the same, else made. */
#ifndef PT_DATA_TOKEN_CACHE_H
#define PT_DATA_TOKEN_CACHE_H

#include "data/dataset.h"
#include "data/examples.h"
#include "data/files.h"
#include "data/token_file.h"

typedef struct token_source {
    const dataset_options *o;
    const data_files *files;
    const example_rules *rules; /* of records; NULL: texts and ids */
    const id_file *in_place;    /* the one file, whose ids are used where they are; NULL: they are copied */
} token_source;

/* *damaged: there was one, which is made anew; its path is in `path` then. */
int token_cache_open(const token_source *s, token_file *out, bool *damaged, char path[4096], pt_error *e);

#endif
