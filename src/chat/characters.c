/* characters.c - counts, compares, finds and strips in strings, in linear time; each byte is paid for in steps. */
#include "chat/value.h"
#include "text/utf8.h"

#include <string.h>

bool text_equal(arena *a, text x, text y)
{
    if (x.n != y.n || x.s == y.s)
        return x.n == y.n;
    arena_step(a, x.n / STEP_COMPARES);
    return !memcmp(x.s, y.s, x.n);
}

size_t text_length(arena *a, text t)
{
    size_t n = 0;
    arena_step(a, t.n / STEP_COUNTS);
    for (size_t i = 0; i < t.n; i++)
        n += (t.s[i] & 0xc0) != 0x80;
    return n;
}

size_t text_offset(arena *a, text t, size_t character)
{
    size_t i = 0;
    for (; i < t.n; i++)
        if ((t.s[i] & 0xc0) != 0x80 && character-- == 0)
            break;
    arena_step(a, i / STEP_COUNTS);
    return i;
}

const char *text_find(arena *a, text t, text what)
{
    if (!what.n)
        return t.s;
    const char *found = memmem(t.s, t.n, what.s, what.n);
    arena_step(a, 1 + ((found ? (size_t)(found - t.s) : t.n) + what.n) / STEP_SEARCHES);
    return found;
}

static char from_end(text t, size_t i) { return t.s[t.n - 1 - i]; }

/* Knuth, Morris and Pratt's search, from the end. */
const char *text_find_last(arena *a, text t, text what)
{
    if (what.n > t.n)
        return NULL;
    if (!what.n)
        return t.s + t.n;
    uint32_t *border = arena_take(a, what.n * sizeof *border); /* by length - 1 of an end of `what`: the longest other end that begins it */
    arena_step(a, what.n / STEP_SEARCHES);
    border[0] = 0;
    for (size_t i = 1, k = 0; i < what.n; i++) {
        while (k && from_end(what, i) != from_end(what, k))
            k = border[k - 1];
        k += from_end(what, i) == from_end(what, k);
        border[i] = (uint32_t)k;
    }
    size_t i = 0, k = 0;
    while (i < t.n && k < what.n) {
        while (k && from_end(t, i) != from_end(what, k))
            k = border[k - 1];
        k += from_end(t, i++) == from_end(what, k);
    }
    arena_step(a, 1 + i / STEP_SEARCHES);
    return k == what.n ? t.s + t.n - i : NULL;
}

bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool strips(arena *a, const char *s, unsigned n, const text *characters)
{
    unsigned length;
    return characters ? text_find(a, *characters, (text){s, n}) != NULL : is_space(utf8_read(s, &length));
}

text text_strip(arena *a, text t, const text *characters, bool left, bool right)
{
    const size_t before = t.n;
    while (left && t.n) {
        unsigned n;
        utf8_read(t.s, &n);
        if (!strips(a, t.s, n, characters))
            break;
        t.s += n;
        t.n -= n;
    }
    while (right && t.n) {
        unsigned n = 1;
        while ((t.s[t.n - n] & 0xc0) == 0x80)
            n++;
        if (!strips(a, t.s + t.n - n, n, characters))
            break;
        t.n -= n;
    }
    arena_step(a, (before - t.n) / STEP_SEARCHES);
    return t;
}

value text_concat(arena *a, value x, value y)
{
    if (!y.text.n)
        return x;
    if (!x.text.n)
        return y;
    char *s = arena_extend(a, x.text.s, x.text.n, y.text.n);
    memcpy(s + x.text.n, y.text.s, y.text.n);
    return value_text((text){s, x.text.n + y.text.n});
}
