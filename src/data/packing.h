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
    bool pairs;          /* examples 0 and 1 go together, 2 and 3, ...: what is packed are pairs; `share` is of them */
    pt_long longer;      /* what becomes of examples with more than seq_len places */
    data_share share;         /* of the examples */
    const char *folder;  /* of the unnamed file; NULL: where temporary files go */
    const char *(*file_name)(void *arg, uint32_t file); void *arg; /* for messages */
} packing_options;

typedef struct packed_example {
    uint64_t start;          /* index of its first id */
    uint32_t places, learned;
    uint32_t chosen;         /* of a pair: places of its first example; 0: it is none */
    uint32_t rejected;       /* of a pair: where the first id of its other example is, from `start` on */
} packed_example;

typedef struct window_packing {
    int fd, index_fd;        /* packed_example of all windows; for each window its first one's number, and behind the last */
    uint64_t windows, examples /* pairs are one */, tokens, learned; /* tokens: places that are taken; learned: targets */
    uint64_t cut, dropped;   /* examples that were too long */
    uint64_t unlearned;      /* examples that are left out: nothing to learn is in what was left of them */
} window_packing;

int packing_make(const token_file *f, const packing_options *o, window_packing *out, pt_error *e); /* packing_close, on error too */
void packing_close(window_packing *p);

/* Examples of window w: how many, and the number of its first one. */
int packing_window(const window_packing *p, uint64_t w, uint64_t *first, uint64_t *n, pt_error *e);
int packing_examples(const window_packing *p, uint64_t first, size_t n, packed_example *out, pt_error *e);

#endif
