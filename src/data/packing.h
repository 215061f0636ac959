/* packing.h - which examples go into which window: whole ones, by best fit.
 *
 * An example of n ids takes n - 1 places: the last id is a target alone. Examples come in a seeded order; of each 65,536 of them the
 * longest is placed first, each into the window that it leaves the least room in, and a new one where none has room for it. The memory
 * that takes does not grow with the data; what goes where is written to an unnamed file, from which any window can be read at once.
 * The same ids, seed and options give the same windows.
 */
#ifndef PT_DATA_PACKING_H
#define PT_DATA_PACKING_H

#include "data/share.h"
#include "data/token_file.h"

typedef struct packing_options {
    int64_t seq_len;
    uint64_t seed;
    bool shuffle;        /* else examples come as in the files, and windows by their first */
    bool alone;          /* an example a window */
    pt_long longer;      /* what becomes of examples with more than seq_len places */
    data_share share;         /* of the examples */
    const char *folder;  /* of the unnamed file; NULL: where temporary files go */
    const char *(*file_name)(void *arg, uint32_t file); void *arg; /* for messages */
} packing_options;

typedef struct packed_example {
    uint64_t start;          /* index of its first id */
    uint32_t places, learned;
} packed_example;

typedef struct packing {
    int fd, index_fd;        /* packed_example of all windows; for each window its first one's number, and behind the last */
    uint64_t windows, examples, tokens, learned; /* tokens: places that are taken; learned: targets */
    uint64_t cut, dropped;   /* examples that were too long */
    uint64_t unlearned;      /* examples that are left out: nothing to learn is in what was left of them */
} packing;

int packing_make(const token_file *f, const packing_options *o, packing *out, pt_error *e); /* packing_close, on error too */
void packing_close(packing *p);

/* Examples of window w: how many, and the number of its first one. */
int packing_window(const packing *p, uint64_t w, uint64_t *first, uint64_t *n, pt_error *e);
int packing_examples(const packing *p, uint64_t first, size_t n, packed_example *out, pt_error *e);

#endif
