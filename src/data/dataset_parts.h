/* dataset_parts.h - inside of a dataset, for the files that make one. */
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
    bool packed;   /* windows are made of examples */
    bool chats;    /* which are conversations */
    int64_t eos;   /* ends a document where those of a stream are apart, -1: nothing does */
    data_share share;   /* of the windows of a stream */
    window_packing packing;
    char summary[512], notice[4096];
};

/* recognize.c: what all files are, by the first record of each; `asked` is what the user says. *chats: the last file's are
 * conversations. */
int data_recognize(const data_files *files, pt_data_format asked, pt_data_format *format, bool *chats, pt_error *e);

#endif
