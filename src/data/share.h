/* share.h - some of n things held out, at random but evenly: of each of `held` runs of neighbours one. Nothing is listed: the i-th of
 * either part is computed, in the order of the whole. */
#ifndef PT_DATA_SHARE_H
#define PT_DATA_SHARE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum share_part { SHARE_ALL, SHARE_KEPT, SHARE_HELD } share_part;

typedef struct data_share {
    share_part part;
    uint64_t seed, n, held;
} data_share;

/* part SHARE_ALL: `fraction` is not looked at; else at least one of n is in either part, where n is 2 or more. */
data_share share_of(share_part part, uint64_t seed, double fraction, uint64_t n);
uint64_t share_count(const data_share *s);            /* of the part */
uint64_t share_item(const data_share *s, uint64_t i); /* the i-th of the part: its number in the whole */

#endif
