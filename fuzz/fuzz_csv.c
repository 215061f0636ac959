/* fuzz_csv.c - libFuzzer target: rows of CSV. The first byte of the input says how large the pieces are that it comes in; the rows must not
 * depend on that. */
#include "data/csv.h"

typedef struct tally { uint64_t rows, fields, bytes, hash; int rc; } tally;

static void count(tally *t, const csv_reader *c)
{
    t->rows++;
    for (size_t i = 0; i < c->fields_n; i++) {
        const csv_slice s = csv_field(c, i);
        t->fields++;
        t->bytes += s.n;
        for (size_t k = 0; k < s.n; k++) /* every byte may be read */
            t->hash = t->hash * 31 + (unsigned char)s.p[k];
    }
}

static tally read_in_pieces(const char *p, size_t n, size_t piece)
{
    csv_reader c = {.line = 1};
    tally t = {0};
    pt_error e = {0};
    for (size_t at = 0, used; at < n && t.rc >= 0; at += used) {
        t.rc = csv_take(&c, p + at, n - at < piece ? n - at : piece, &used, &e);
        if (t.rc > 0)
            count(&t, &c);
        else if (t.rc == 0 && used != (n - at < piece ? n - at : piece))
            abort();
    }
    if (t.rc >= 0 && (t.rc = csv_end(&c, &e)) > 0)
        count(&t, &c);
    if ((t.rc < 0) != (e.text[0] != 0))
        abort();
    csv_free(&c);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1)
        return 0;
    const tally whole = read_in_pieces((const char *)data + 1, n - 1, SIZE_MAX), pieces = read_in_pieces((const char *)data + 1, n - 1,
        1 + data[0] % 7);
    if (memcmp(&whole, &pieces, sizeof whole))
        abort();
    return 0;
}
