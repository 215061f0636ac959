/* token_cache.h - the token cache of a set of files: reused if it was built from the same inputs, else built. */
#ifndef PT_DATA_TOKEN_CACHE_H
#define PT_DATA_TOKEN_CACHE_H

#include "data/dataset.h"
#include "data/examples.h"
#include "data/files.h"
#include "data/token_file.h"

typedef struct token_source {
    const dataset_options *o;
    const data_files *files;
    const example_rules *rules; /* for records; NULL: texts and ids */
    const id_file *in_place;    /* a single file whose ids are read in place; NULL: ids are copied */
} token_source;

/* *damaged: the existing cache was damaged, and has been rebuilt. path: of the cache. */
int token_cache_open(const token_source *s, token_file *out, bool *damaged, char path[4096], pt_error *e);

#endif
