/* processor.h - what the system says about its processor. `root` replaces "/" in tests; "": none. */
#ifndef PT_PROCESSOR_H
#define PT_PROCESSOR_H

#include <stddef.h>
#include <stdint.h>

/* "unknown processor" if the system does not say. An ARM64 processor with two kinds of cores has the names of both. */
void processor_name(const char *root, char *out, size_t n);

/* The size of the largest cache of processor 0; 0: not known. */
uint64_t processor_cache_bytes(const char *root);

#endif
