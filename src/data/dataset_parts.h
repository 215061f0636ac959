/* dataset_parts.h - internal parts of a dataset, shared by its files. */
#ifndef PT_DATASET_PARTS_H
#define PT_DATASET_PARTS_H

#include "data/dataset.h"
#include "data/files.h"
#include "data/packing.h"

struct dataset {
    token_file tokens;
    int source_fd; /* of a data file whose ids are used in place, or -1 */
    char *source_path;
    int64_t seq_len, vocab;
    uint64_t seed;
    bool shuffle, documents;
    bool prompts;  /* of chosen replies: their tokens are targets too */
    bool margins, scored;
    bool labels;
    bool pairs;    /* examples are pairs */
    int64_t unlabelled; /* the label that means none, which is no target; 0: all examples have one */
    int64_t mismatched;
    bool packed;   /* windows consist of examples */
    bool chats;    /* the examples are conversations */
    int64_t eos;   /* the id that ends a document of a stream whose documents do not see each other; -1: none */
    data_share share;   /* of the windows of a stream */
    window_packing packing;
    char files[512], summary[512], notice[4096];
};

/* recognize.c: the format of all files, from the first record of each; `asked` is the user's option. *chats: a file has
 * conversations. PT_FAILED: `columns` has a key that none of a file's first records has, or no file has records. */
int data_recognize(const data_files *files, const column_names *columns, pt_data_format asked, pt_data_format *format, bool *chats,
                   pt_error *e);

#endif
