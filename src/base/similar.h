/* similar.h - the name that was probably meant. */
#ifndef PT_SIMILAR_H
#define PT_SIMILAR_H

#include <stdbool.h>
#include <stddef.h>

/* Whether `name` is more similar to the `length` letters than the best so far: it begins with them, or fewer letters differ. Initialise
 * *fewest with word_fewest. */
int word_fewest(size_t length);
bool word_is_nearer(const char *typed, size_t length, const char *name, int *fewest);

#endif
