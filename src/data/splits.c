#include "data/splits.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

static int is_letter(unsigned char c) { return isalpha(c) || c >= 0x80; }

static data_split split_of_word(const char *word, size_t n)
{
    static const struct { const char *word; data_split split; } words[] = {
        {"train", SPLIT_TRAIN}, {"training", SPLIT_TRAIN}, {"validation", SPLIT_VALIDATION}, {"valid", SPLIT_VALIDATION},
        {"val", SPLIT_VALIDATION}, {"evaluation", SPLIT_VALIDATION}, {"eval", SPLIT_VALIDATION}, {"dev", SPLIT_VALIDATION},
        {"test", SPLIT_TEST}, {"testing", SPLIT_TEST}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == n && !strncasecmp(words[i].word, word, n))
            return words[i].split;
    return SPLIT_NONE;
}

data_split data_split_of(const char *name)
{
    data_split found = SPLIT_NONE;
    while (*name && !found) {
        size_t n = 0;
        while (is_letter((unsigned char)name[n]))
            n++;
        found = split_of_word(name, n);
        name += n ? n : 1;
    }
    return found;
}
