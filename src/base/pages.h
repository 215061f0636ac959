/* pages.h - the sizes of the system's pages: 4 KiB, on ARM64 also 16 or 64 KiB. */
#ifndef PT_PAGES_H
#define PT_PAGES_H

#include <stddef.h>

/* A huge page is what one page of a table maps: 2 MiB, or 32 MiB of pages of 16 KiB. 512 MiB, of pages of 64 KiB, are too many to be of
 * use: then the size is that of a page. */
static inline size_t huge_page_bytes(size_t page)
{
    const size_t entries = page / 8, most = (size_t)64 << 20;
    return page * entries <= most ? page * entries : page;
}

#endif
