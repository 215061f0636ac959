/* misfit_text.h - sentences about what does not fit, for training (train/misfit.h) and evaluation. */
#ifndef PT_MISFIT_TEXT_H
#define PT_MISFIT_TEXT_H

#include "run/budgets.h"
#include "search/search.h"

enum { MISFIT_CHANGE_BYTES = BUDGETS_CHANGE_BYTES + 160 };
/* "`host_memory` 86GiB (25.25GiB more RAM than the machine has)"; whose: "the machine has", "is free here". */
void misfit_say_change(const search_input *in, const search_room *room, const uint64_t budget[TIERS], const char *whose,
                       char out[MISFIT_CHANGE_BYTES]);
/* "23.50 GiB of device memory and 60.80 GiB of host memory" */
void misfit_say_budgets(const search_input *in, char *out, size_t n);
/* Appends to the text, as far as there is room. */
void misfit_append(char *out, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
