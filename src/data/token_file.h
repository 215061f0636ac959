/* token_file.h - the token cache: a file with one stream of ids and the starts of its documents.
 *
 *   byte 0        token_header (4096 bytes, written last)
 *   ids_offset    ids, uint16 or uint32, little-endian; for examples the top bit says that an id is learned
 *   docs_offset   for each document the index of its first id, uint64, ascending from 0; for each example a token_example
 *   sums_offset   for each 64 KiB of the ids, then of the document starts, a checksum, uint64
 *
 * It is written as NAME.partial under an exclusive lock, synced and renamed, so that NAME is complete or absent. A second process that
 * needs the same cache waits and then finds it. The header has the key of the inputs, and the file's size: a cache of other data, or a
 * truncated one, is not opened. Without a folder the cache is an unnamed temporary file.
 *
 * Checksums are verified: a cache of at most 1 GiB completely when it is opened (no slower than reading it), so that a damaged one is
 * rebuilt; in a larger one each 64 KiB when they are first read, so that a run need not wait.
 *
 * A single .npy or .bin file is not copied: its ids stay there (`in_place`), and the cache holds the result of checking them, and their
 * hash.
 *
 * Everything is read with pread through small buffers on the stack, because the pages of a mapped file would count in the memory budget.
 */
#ifndef PT_DATA_TOKEN_FILE_H
#define PT_DATA_TOKEN_FILE_H

#include "data/hash.h"
#include "data/id_file.h"

typedef struct token_example {
    uint64_t start;          /* index of its first id */
    uint64_t line;           /* of its record in the file; 0: unknown */
    uint32_t file;           /* number of the file */
    uint32_t learned;        /* number of learned ids; the first id never is */
    float margin;            /* of the pair that begins here, as its record has it; else 0 */
    uint32_t unused;
} token_example;

enum { UNKNOWN_TEXT = 64 };
typedef struct unknown_tally { /* of ids from text, and how many of them are the unknown token */
    uint64_t ids, unknown;
    uint64_t line;           /* of the first unknown token's record; 0: it is in a text */
    uint32_t file;           /* of the first unknown token, as in token_example */
    char text[UNKNOWN_TEXT]; /* the word with the first unknown token; "": not searched for */
} unknown_tally;

typedef struct record_tally { uint64_t n, line; uint32_t file; } record_tally; /* how many records, and where the first is */

enum { UNREAD_KEYS = 6, UNREAD_NAME = 32 };
typedef struct unread_tally { /* keys that look like content and were not read (unread.h) */
    struct { uint64_t records; char name[UNREAD_NAME]; } keys[UNREAD_KEYS]; /* 0 records: no more */
    uint64_t line;           /* of the first record with one */
    uint32_t file;
} unread_tally;

typedef struct token_tally { /* of the records that examples were made from */
    uint64_t records, unlearned; /* unlearned: without a learned id; they are left out */
    uint64_t others;             /* of another format than the first one */
    uint64_t tokens, learned;    /* of all records */
    record_tally same;           /* pairs whose replies are equal */
    record_tally misplaced;      /* with a weight that has no effect */
    record_tally nulls;          /* with null in tools or tool calls */
    unread_tally unread;
    unknown_tally unknown;
} token_tally;

typedef struct token_file {
    int fd;                  /* the cache */
    char *path;
    id_file ids;             /* in the cache, or in the data file itself */
    uint64_t documents, docs_offset, checksums_offset;
    token_tally tally;       /* of examples */
    _Atomic uint64_t *checked; /* a bit per checksum: verified */
    char fingerprint[33];    /* hash of ids and document starts, in hex */
} token_file;

/* Opens the cache `path` if it is complete and has the key `key`. 1: opened; 0: absent, outdated, truncated or damaged (*damaged): build
 * it. source: the data file if the cache describes one, else NULL. */
int token_file_open(const char *path, data_hash key, const id_file *source, token_file *out, bool *damaged, pt_error *e);
void token_file_close(token_file *f);

/* Ids [start, start + n), as id_file_read; verifies checksums of the cache's own ids. */
int token_file_ids(const token_file *f, uint64_t start, size_t n, int64_t vocab, uint32_t *out, pt_error *e);

/* The last document that starts at or before id `position`: its number and its start. */
int token_file_document(const token_file *f, uint64_t position, uint64_t *document, uint64_t *start,
                        pt_error *e);
/* Starts of the documents [first, first + n). */
int token_file_starts(const token_file *f, uint64_t first, size_t n, uint64_t *out, pt_error *e);

/* Document i as an example, *ids_n its length. In a cache without marks all ids except the first are learned. */
int token_file_example(const token_file *f, uint64_t i, token_example *out, uint64_t *ids_n, pt_error *e);

typedef struct token_writer token_writer;

/* path: the final name; NULL: an unnamed temporary file. Waits for another process that writes the same cache. id_bytes: 2 or 4, with room
 * for a mark; 0: ids are in place and only described. */
int token_writer_open(const char *path, unsigned id_bytes, bool marked, token_writer **out, pt_error *e);
void token_writer_close(token_writer *w); /* removes an unfinished file */

int token_writer_document(token_writer *w, pt_error *e); /* the next id starts a document */
int token_writer_ids(token_writer *w, const uint32_t *ids, size_t n, pt_error *e);
/* Writes a whole example of a marked cache; sets x->start. Learned ids have ID_LEARNED. */
int token_writer_example(token_writer *w, const token_example *x, const uint32_t *ids, size_t n, pt_error *e);
void token_writer_tally(token_writer *w, const token_tally *tally); /* stored in the header */

/* Writes the rest and the header, syncs and renames, then opens the result. */
int token_writer_finish(token_writer *w, data_hash key, const id_file *source, token_file *out, pt_error *e);

#endif
