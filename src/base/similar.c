#include "base/similar.h"

#include <string.h>

enum { NAME_MOST = 32 }; /* compared letters of an option */

static int least(int a, int b) { return a < b ? a : b; }

/* The optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. */
static int distance(const char *a, int a_n, const char *b, int b_n)
{
    int d[NAME_MOST + 1][NAME_MOST + 1];
    for (int i = 0; i <= a_n; i++)
        for (int k = 0; k <= b_n; k++) {
            if (!i || !k) {
                d[i][k] = i + k;
                continue;
            }
            d[i][k] = least(d[i - 1][k - 1] + (a[i - 1] != b[k - 1]), least(d[i - 1][k], d[i][k - 1]) + 1);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                d[i][k] = least(d[i][k], d[i - 2][k - 2] + 1);
        }
    return d[a_n][b_n];
}

int word_fewest(size_t length) { return (int)(length < NAME_MOST ? length : NAME_MOST) / 3 + 1; }

bool word_is_nearer(const char *typed, size_t length, const char *name, int *fewest)
{
    const int typed_n = length < NAME_MOST ? (int)length : NAME_MOST, name_n = (int)strnlen(name, NAME_MOST);
    const bool begins = typed_n > 3 && strncmp(name, typed, (size_t)typed_n) == 0;
    const int apart = begins ? 0 : distance(typed, typed_n, name, name_n);
    if (apart >= *fewest)
        return false;
    *fewest = apart;
    return true;
}
