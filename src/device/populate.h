/* populate.h - populates the pages of a mapping. */
#ifndef PT_POPULATE_H
#define PT_POPULATE_H

#include <stddef.h>

/* base: the start of anonymous pages that were never written; bytes: whole pages. Uses up to `threads` threads, including the caller. 0, or
 * -1 with errno if memory runs out. */
int populate(void *base, size_t bytes, int threads);

#endif
