/* packing.h - packs whole examples into windows, by best fit.
 *
 * An example of n ids takes n - 1 places, because the last id is only a target. Examples come in a seeded order. In each block of 65,536
 * the longest are placed first; each goes to the window where it leaves the least room, or to a new one if none has room. Memory does not
 * grow with the data: the result is written to an unnamed file, with random access to the windows. The same ids, seed and options
 * give the same windows.
 */
#ifndef PT_DATA_PACKING_H
#define PT_DATA_PACKING_H

#include "data/share.h"
#include "data/token_file.h"

typedef struct packing_options {
    int64_t seq_len;
    uint64_t seed;
    bool shuffle;        /* else examples are in file order, and windows in the order of their first examples */
    bool alone;          /* one example per window */
    bool pairs;          /* examples 2i and 2i + 1 are a pair; pairs are packed as a whole, and `share` is of pairs */
    bool scored; int64_t padding; /* an example's last id is its label, the only target. One that is cut keeps it, behind its first ids; ids
                                   * of padding at their end go, too */
    bool labels;         /* one of a pair may have one place and nothing to learn: it is missing */
    pt_long longer;      /* what to do with examples of more than seq_len places */
    data_share share;         /* of the examples */
    const char *folder;  /* folder of the unnamed file; NULL: the one for temporary files */
    const char *(*file_name)(void *arg, uint32_t file); void *arg; /* for messages */
} packing_options;

typedef struct packed_example {
    uint64_t start;          /* index of its first id */
    uint64_t number;         /* of the example, or the pair, in the file */
    uint32_t places, learned;
    uint32_t label;          /* scored: what stands behind its ids; pairs have the same behind both */
    float margin;            /* of a pair */
    uint32_t chosen;         /* places of the first example of a pair; 0: not a pair */
    uint32_t rejected;       /* offset from `start` of the first id of a pair's second example */
} packed_example;

typedef struct window_packing {
    int fd, index_fd;        /* a packed_example for each example; for each window the number of its first example, then their total */
    uint64_t windows, examples /* pairs are one */, tokens, learned; /* tokens: places in use; learned: targets */
    uint64_t cut, dropped;   /* examples that were too long */
    uint64_t longest, longest_line; uint32_t longest_file; /* of those, the longest: its places uncut, its record; line 0: a text */
    uint64_t unlearned;      /* examples left out because no learned token is left in them */
} window_packing;

int packing_make(const token_file *f, const packing_options *o, window_packing *out, pt_error *e); /* then packing_close, also on error */
void packing_close(window_packing *p);

/* The examples of window w: their number, and the number of the first. */
int packing_window(const window_packing *p, uint64_t w, uint64_t *first, uint64_t *n, pt_error *e);
int packing_examples(const window_packing *p, uint64_t first, size_t n, packed_example *out, pt_error *e);

#endif
