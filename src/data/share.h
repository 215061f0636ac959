/* share.h - holds out a part of n things, random but evenly spread: one from each of `held` groups of neighbours. Nothing is stored: the
 * i-th of either part, in the order of the whole, is computed. */
#ifndef PT_DATA_SHARE_H
#define PT_DATA_SHARE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum share_part { SHARE_ALL, SHARE_KEPT, SHARE_HELD } share_part;

typedef struct data_share {
    share_part part;
    uint64_t seed, n, held;
} data_share;

/* part SHARE_ALL: ignores `fraction`; else either part has at least one thing, if n is 2 or more. */
data_share share_of(share_part part, uint64_t seed, double fraction, uint64_t n);
uint64_t share_count(const data_share *s);            /* size of the part */
uint64_t share_item(const data_share *s, uint64_t i); /* the i-th of the part, as its number in the whole */

#endif
