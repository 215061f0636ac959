#include "text/unicode.h"

#include "text/buffer.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <utf8proc.h>

/* Characters that NFC never changes, whatever their neighbours: they neither compose with the previous character nor are reordered. A quick
 * test; utf8proc decides about all others. */
static bool is_plain(uint32_t c)
{
    return c < 0x300 || (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30a1 && c <= 0x30fa) ||
           (c >= 0x3000 && c <= 0x3029) || (c >= 0x2010 && c <= 0x2027) || (c >= 0xff01 && c <= 0xff5e) ||
           (c >= 0x410 && c <= 0x482) || c == 0x30fc;
}

bool unicode_surely_nfc(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint64_t eight;
        if (n - i >= 8 && (memcpy(&eight, text + i, 8), !(eight & 0x8080808080808080u))) {
            i += 8;
            continue;
        }
        unsigned length;
        if (!is_plain(utf8_read(text + i, &length)))
            return false;
        i += length;
    }
    return true;
}

typedef struct code_points {
    utf8proc_int32_t *c;
    size_t n, capacity;
} code_points;

static int code_points_reserve(code_points *p, size_t n, pt_error *e)
{
    if (n <= p->capacity)
        return 0;
    size_t capacity = n > 2 * p->capacity ? n : 2 * p->capacity;
    utf8proc_int32_t *moved = realloc(p->c, capacity * sizeof *moved);
    if (!moved)
        return pt_fail(e, PT_FAILED, "no memory to normalize a text of %zu characters; split it", n);
    p->c = moved;
    p->capacity = capacity;
    return 0;
}

static int decompose(const char *text, size_t n, utf8proc_option_t options, code_points *out, pt_error *e)
{
    int status = code_points_reserve(out, n + 1, e), boundary = 0;
    for (size_t i = 0; i < n && !status;) {
        unsigned length;
        utf8proc_int32_t c = (utf8proc_int32_t)utf8_read(text + i, &length);
        utf8proc_ssize_t room = (utf8proc_ssize_t)(out->capacity - out->n - 1), count;
        count = utf8proc_decompose_char(c, out->c + out->n, room, options, &boundary);
        if (count < 0)
            return pt_fail(e, PT_FAILED, "cannot normalize the text: %s; is it UTF-8?", utf8proc_errmsg(count));
        if (count > room) {
            status = code_points_reserve(out, out->n + (size_t)count + 1, e);
            continue;
        }
        out->n += (size_t)count;
        i += length;
    }
    return status;
}

/* Sorts n marks by their combining classes, stably. One pass per class: exchanging neighbours would be quadratic for a text of only
 * marks. */
static int sort_marks(utf8proc_int32_t *marks, size_t n, pt_error *e)
{
    utf8proc_int32_t *sorted = malloc(n * (sizeof *sorted + 1));
    if (!sorted)
        return pt_fail(e, PT_FAILED, "no memory to normalize %zu combining marks; split the text", n);
    unsigned char *classes = (unsigned char *)(sorted + n);
    size_t done = 0;
    for (size_t i = 0; i < n; i++)
        classes[i] = (unsigned char)utf8proc_get_property(marks[i])->combining_class;
    for (unsigned class = 1; class < 256 && done < n; class++)
        for (size_t i = 0; i < n; i++)
            if (classes[i] == class)
                sorted[done++] = marks[i];
    memcpy(marks, sorted, n * sizeof *marks);
    free(sorted);
    return 0;
}

static int order_marks(code_points *p, pt_error *e)
{
    int status = 0;
    for (size_t i = 0; i < p->n && !status; i++) {
        size_t start = i;
        bool ordered = true;
        for (int before = 0, class; i < p->n && (class = utf8proc_get_property(p->c[i])->combining_class) != 0; i++) {
            ordered &= class >= before;
            before = class;
        }
        if (!ordered)
            status = sort_marks(p->c + start, i - start, e);
    }
    return status;
}

static int normalize_part(utf8proc_option_t options, const char *text, size_t n, text_buffer *out, pt_error *e)
{
    code_points p = {0};
    int status = decompose(text, n, options, &p, e);
    if (!status)
        status = order_marks(&p, e);
    if (!status) {
        utf8proc_ssize_t length = utf8proc_reencode(p.c, (utf8proc_ssize_t)p.n, options);
        status = length < 0 ? pt_fail(e, PT_FAILED, "cannot normalize the text: %s; is it UTF-8?", utf8proc_errmsg(length))
                            : text_buffer_append(out, p.c, (size_t)length, e);
    }
    free(p.c);
    return status;
}

/* An ASCII character never combines with the text before it, so the text is normalized in parts that start with one; runs of ASCII are
 * copied. */
int unicode_normalize(unicode_form form, const char *text, size_t n, text_buffer *out, pt_error *e)
{
    static const int options[] = {
        [UNICODE_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [UNICODE_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [UNICODE_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [UNICODE_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    for (size_t i = 0; i < n;) {
        size_t start = i;
        while (i < n && (unsigned char)text[i] < 0x80)
            i++;
        size_t ascii = i - start;
        if (i < n && ascii > 0)
            i = start + --ascii; /* the last one may combine with the next character */
        int status = text_buffer_append(out, text + start, ascii, e);
        if (status || i == n)
            return status;
        start = i++;
        while (i < n && (unsigned char)text[i] >= 0x80)
            i++;
        if (form == UNICODE_NFC && unicode_surely_nfc(text + start, i - start))
            status = text_buffer_append(out, text + start, i - start, e);
        else
            status = normalize_part((utf8proc_option_t)options[form], text + start, i - start, out, e);
        if (status)
            return status;
    }
    return 0;
}

int unicode_lowercase(const char *text, size_t n, text_buffer *out, pt_error *e)
{
    for (size_t i = 0; i < n;) {
        unsigned length;
        uint32_t c = utf8_read(text + i, &length);
        int status = text_buffer_reserve(out, 8, e);
        if (status)
            return status;
        if (c == 0x130) { /* I with a dot: the only character whose lower case has two code points */
            memcpy(out->bytes + out->n, "i\xcc\x87", 3);
            out->n += 3;
        } else {
            out->n += utf8_write((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), out->bytes + out->n);
        }
        i += length;
    }
    return 0;
}

bool unicode_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool unicode_is_letter(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool unicode_is_number(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool unicode_is_word(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
           category == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d;
}

bool unicode_is_visible(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_SO &&
           !(category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME);
}

size_t unicode_spaces_at_start(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n) {
        unsigned length;
        if (!unicode_is_space(utf8_read(text + i, &length)))
            break;
        i += length;
    }
    return i;
}

uint32_t unicode_last(const char *text, size_t n, unsigned *length)
{
    size_t i = n - 1;
    while (i > 0 && ((unsigned char)text[i] & 0xc0) == 0x80)
        i--;
    return utf8_read(text + i, length);
}

size_t unicode_spaces_at_end(const char *text, size_t n)
{
    size_t end = n;
    unsigned length;
    while (end > 0 && unicode_is_space(unicode_last(text, end, &length)))
        end -= length;
    return n - end;
}
