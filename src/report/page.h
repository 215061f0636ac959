/* page.h - a run as one HTML file with styles and pictures, without scripts and network access. */
#ifndef PT_PAGE_H
#define PT_PAGE_H

#include "report/run_folder.h"

#define PAGE_BEGINS "<!doctype html>"
/* malloc'ed text, its length in *n; NULL: out of memory. */
char *page_make(const run_folder *rf, size_t *n);

#endif
