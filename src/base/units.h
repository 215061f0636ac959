/* units.h - sizes, times and counts as people write and read them. */
#ifndef PT_UNITS_H
#define PT_UNITS_H

#include "base/error.h"

#include <stdint.h>

/* Reads a SIZE: bytes ("1048576", "512B"), or a number with a decimal (kB KB MB GB TB: powers of
 * 1000) or binary unit (KiB MiB GiB TiB, and K M G T alone: powers of 1024), in any case, with at
 * most one space before the unit. "1.5GiB" is exact; what falls below one byte is cut off.
 * PT_USAGE: not a size, negative, or more than 2^63 - 1 bytes. */
int size_parse(const char *text, uint64_t *bytes, pt_error *e);

/* Sizes that are advised: multiples of a power of two between 1/128 and 1/64 of them, so that they are short to write. */
uint64_t size_granule(uint64_t bytes);
uint64_t size_round_up(uint64_t bytes);
uint64_t size_round_down(uint64_t bytes);
/* size_round_up, as size_parse reads it back without loss: "24.5GiB". Returns buf. */
char *size_option(char buf[32], uint64_t bytes);

/* Each writes into `buf` and returns it. */
char *size_format(char buf[32], uint64_t bytes);     /* "512 B"  "96.00 MiB"  "1.50 GiB" */
char *seconds_format(char buf[32], double seconds);  /* "850 us"  "12.3 ms"  "4.21 s"  "3m05s"  "2h03m"  "4d02h" */
char *count_format(char buf[32], uint64_t count);    /* "950"  "32.0K"  "124.4M"  "7.2B" */
/* What follows a noun that n counts: "%d thread%s". */
const char *plural(uint64_t n);                      /* ""  "s" */

#endif
