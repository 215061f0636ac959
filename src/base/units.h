/* units.h - sizes, times and counts as text. */
#ifndef PT_UNITS_H
#define PT_UNITS_H

#include "base/error.h"

#include <stdint.h>

/* Reads a SIZE: bytes ("1048576", "512B"), or a number with a decimal unit (kB KB MB GB TB: powers of 1000) or a binary one (KiB MiB GiB
 * TiB, and K M G T alone: powers of 1024), in upper or lower case, with at most one space before the unit. "1.5GiB" is exact; fractions of
 * a byte are cut off. PT_USAGE: not a size, negative, or more than 2^63 - 1 bytes. */
int size_parse(const char *text, uint64_t *bytes, pt_error *e);

/* The step to which advised sizes are rounded up, so that they are short: a power of two between 1/128 and 1/64 of the size. */
uint64_t size_granule(uint64_t bytes);
uint64_t size_round_up(uint64_t bytes);
uint64_t size_round_down(uint64_t bytes);
/* size_round_up in a form that size_parse reads exactly: "24.5GiB". Returns buf. */
char *size_option(char buf[32], uint64_t bytes);

/* Each writes into `buf` and returns it. */
char *size_format(char buf[32], uint64_t bytes);     /* "512 B"  "96.00 MiB"  "1.50 GiB" */
char *seconds_format(char buf[32], double seconds);  /* "850 us"  "12.3 ms"  "4.21 s"  "3m05s"  "2h03m"  "4d02h" */
char *count_format(char buf[32], uint64_t count);    /* "950"  "32.0K"  "124.4M"  "7.2B" */
/* The ending of a noun after the number n: "%d thread%s". */
const char *plural(uint64_t n);                      /* ""  "s" */
/* What stands between a folder and the name of a file in it: nothing if the folder is "" (the current one) or ends with a slash. */
const char *slash_after(const char *folder);         /* ""  "/" */

#endif
