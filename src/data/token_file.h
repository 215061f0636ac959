/* token_file.h - the token cache: one stream of ids and where its documents start, in a file.
 *
 *   byte 0        token_header (4096 bytes, written last)
 *   ids_offset    ids, uint16 or uint32, little-endian; of examples the top bit says that an id is learned
 *   docs_offset   for each document the index of its first id, uint64, ascending from 0; for each example a token_example
 *   sums_offset   for each 64 KiB of the ids, then of the document starts, their sum, uint64
 *
 * It is written as NAME.partial under an exclusive lock, synced and renamed, so that NAME is
 * whole or not there; a second process that wants the same cache waits and then finds it. The
 * header holds the key of what the ids were made from and the file's own size: a cache of other
 * data, or a cut one, is not opened. Without a folder the cache is an unnamed temporary file.
 *
 * What is read is compared with its sum: all of a cache of at most 1 GiB when it is opened (no slower than reading it), so that a damaged
 * one is made anew; of a larger one each 64 KiB when they are first read, so that a run need not wait for all of it.
 *
 * A single .npy or .bin is not copied: its ids stay where they are (`in_place`), and the cache
 * holds what would otherwise have to be found out again: that they were checked, and their hash.
 *
 * Everything is read with pread through small buffers on the stack. (Pages of a mapped file count
 * as the process's own, and the budget of memory is hard.)
 */
#ifndef PT_DATA_TOKEN_FILE_H
#define PT_DATA_TOKEN_FILE_H

#include "data/hash.h"
#include "data/id_file.h"

typedef struct token_example {
    uint64_t start;          /* index of its first id */
    uint64_t line;           /* of its record in the file; 0: not known */
    uint32_t file;           /* number of the file among those that the cache was made from */
    uint32_t learned;        /* how many of its ids, of which the first is none */
} token_example;

enum { UNKNOWN_TEXT = 64 };
typedef struct unknown_tally { /* of all ids made from text, those that say "unknown" */
    uint64_t ids, unknown;
    uint64_t line;           /* of the record of the first; 0: it is in a text */
    uint32_t file;           /* of the first, as in token_example */
    char text[UNKNOWN_TEXT]; /* the word that the first is in; "": not looked for */
} unknown_tally;

typedef struct token_tally { /* of the records that examples were made from */
    uint64_t records, unlearned; /* unlearned: without an id to learn; they are left out */
    uint64_t tokens, learned;    /* of all records */
    uint64_t same, same_line;    /* pairs of which both replies are the same; the line of the first, in file same_file */
    uint64_t misplaced, misplaced_line; /* records with a weight where none is read; the line of the first, in file misplaced_file */
    uint32_t same_file, misplaced_file;
    unknown_tally unknown;
} token_tally;

typedef struct token_file {
    int fd;                  /* the cache */
    char *path;
    id_file ids;             /* in the cache, or in the data file itself */
    uint64_t documents, docs_offset, checksums_offset;
    token_tally tally;       /* of examples */
    _Atomic uint64_t *checked; /* a bit for each sum: what it is of has been compared with it */
    char fingerprint[33];    /* of ids and document starts, in hex */
} token_file;

/* Opens the cache `path` if it is whole and its key is `key`. 1: opened; 0: not there, or stale,
 * or cut, or damaged (*damaged): build it. source: the data file if the cache describes one, else NULL. */
int token_file_open(const char *path, data_hash key, const id_file *source, token_file *out, bool *damaged, pt_error *e);
void token_file_close(token_file *f);

/* Ids [start, start + n) as id_file_read gives them; ids of the cache are compared with their checksums. */
int token_file_ids(const token_file *f, uint64_t start, size_t n, int64_t vocab, uint32_t *out, pt_error *e);

/* The last document that starts at or before id `position`: its number, and its start. */
int token_file_document(const token_file *f, uint64_t position, uint64_t *document, uint64_t *start,
                        pt_error *e);
/* Starts of the documents [first, first + n). */
int token_file_starts(const token_file *f, uint64_t first, size_t n, uint64_t *out, pt_error *e);

/* Document i as an example, *ids_n its length. Of a cache without marks all ids but the first are learned. */
int token_file_example(const token_file *f, uint64_t i, token_example *out, uint64_t *ids_n, pt_error *e);

typedef struct token_writer token_writer;

/* path: the final name; NULL: an unnamed temporary file. Waits for another process that is writing
 * the same cache. id_bytes: 2 or 4, so that a mark fits beside an id; 0: ids are in place and only described. */
int token_writer_open(const char *path, unsigned id_bytes, bool marked, token_writer **out, pt_error *e);
void token_writer_close(token_writer *w); /* unfinished: leaves nothing behind */

int token_writer_document(token_writer *w, pt_error *e); /* the next id is the first of a document */
int token_writer_ids(token_writer *w, const uint32_t *ids, size_t n, pt_error *e);
/* A whole example of a marked cache; x->start is set here. Learned ids have ID_LEARNED. */
int token_writer_example(token_writer *w, const token_example *x, const uint32_t *ids, size_t n, pt_error *e);
void token_writer_tally(token_writer *w, const token_tally *tally); /* is kept in the header */

/* Writes the rest and the header, syncs and renames; then opens the result. */
int token_writer_finish(token_writer *w, data_hash key, const id_file *source, token_file *out, pt_error *e);

#endif
