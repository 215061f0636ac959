/* show.h - a plan in a line, for tests of what a search finds. */
#ifndef PT_SEARCH_SHOW_H
#define PT_SEARCH_SHOW_H

#include "search/random_problem.h"

static inline void show(const char *name, const plan *p, const uint64_t bytes[TIERS])
{
    print_message("    %-6s %lld KiB, %d buffers, %d update, %d swap, micro %lld x %d, time %d; chunks", name,
                  (long long)p->chunk_bytes >> 10,
                  p->n_buffer, p->n_update, p->n_swap, (long long)p->micro_batch, p->visit, (int)p->update);
    for (int i = 0; i < p->chunks_n; i++)
        print_message(" %d%d", (int)p->chunks[i].placement, (int)p->chunks[i].update);
    print_message("; layers");
    for (int i = 0; i < p->blocks_n; i++)
        print_message(" %d%d", (int)p->blocks[i].level, (int)p->blocks[i].place);
    print_message("; bytes %llu %llu %llu\n", (unsigned long long)bytes[0], (unsigned long long)bytes[1], (unsigned long long)bytes[2]);
}

#endif
