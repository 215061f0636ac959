/* tokenize.h - text files -> one stream of ids, on all cores, in memory that does not grow with the data.
 *
 *   reader ---> [job k] [job k+1] ... ring of jobs ... ---> writer
 *   (thread)          \ worker threads, one encoder each /   (the caller's thread)
 *
 * The reader fills jobs with about `piece_bytes` of text: many short documents, or a piece of a long one, cut where that does not change
 * the ids (tokenizer_cut). Records that become examples are never cut. Workers encode jobs in any order; the writer takes them in
 * order. The ids depend neither on the number of threads nor on the size of the pieces. The ring has two jobs per worker and two more,
 * which limits the memory.
 *
 * Errors keep the order of the text: an error travels in its job, and the first one is returned.
 */
#ifndef PT_DATA_TOKENIZE_H
#define PT_DATA_TOKENIZE_H

#include "data/columns.h"
#include "data/examples.h"
#include "data/files.h"
#include "data/token_file.h"

typedef struct tokenize_options {
    const tokenizer *tokenizer;
    const column_names *columns; /* other names of keys; NULL: none */
    const example_rules *rules; /* turn records into examples; NULL: texts into documents */
    int threads;        /* workers, 0: one per core available to the process */
    size_t piece_bytes; /* 0: 256 KiB; at least 1024 */
    int64_t vocab;      /* ids >= vocab are an error */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes); /* from the caller's thread */
    void *progress_arg;
    uint64_t done_bytes, total_bytes; /* of the files before these; of all files */
    uint32_t first_file;              /* number of the first of these files */
} tokenize_options;

/* Reads the n text files in order and appends their documents to `w`: BOS if the tokenizer's template adds it, the text, EOS if there is
 * one. *text_ids: number of ids from text. With rules, appends the examples of their records, up to the last learned id, and adds to *tally
 * (else NULL). */
int tokenize_files(const data_file *files, size_t n, const tokenize_options *o, token_writer *w,
                   uint64_t *text_ids, token_tally *tally, pt_error *e);

#endif
