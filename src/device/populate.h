/* populate.h - takes the pages of a mapping now. */
#ifndef PT_POPULATE_H
#define PT_POPULATE_H

#include <stddef.h>

/* base: the start of anonymous pages that nothing has been written to; bytes: whole pages. By up to `threads` threads,
 * the caller among them. 0, or -1 with errno where the system has no memory for all of them. */
int populate(void *base, size_t bytes, int threads);

#endif
