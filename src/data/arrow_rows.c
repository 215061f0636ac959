#include "data/arrow_parts.h"

#include "data/documents.h"

static int write_value(arrow_table *table, const arrow_field *a, uint64_t i, pt_error *e);

static int misfit(const arrow_table *table, const arrow_field *a, const char *what, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: row %llu: column \"%.*s\" %s", table->path, (unsigned long long)table->row + 1,
                   (int)(a->name_bytes < 80 ? a->name_bytes : 80), a->name, what);
}

static bool bit(arrow_slice s, uint64_t i) { return s.p[i / 8] >> i % 8 & 1; }

static uint64_t unsigned_at(arrow_slice s, uint64_t i, uint64_t width)
{
    uint64_t value = 0;
    memcpy(&value, s.p + i * width, width);
    return value;
}

static int write_signed(arrow_table *table, const arrow_field *a, uint64_t i, pt_error *e)
{
    const unsigned unused = (unsigned)(64 - 8 * a->width);
    return row_signed(&table->json, (int64_t)(unsigned_at(a->data, i, a->width) << unused) >> unused, e);
}

static int write_real(arrow_table *table, const arrow_field *a, uint64_t i, pt_error *e)
{
    float f;
    double d;
    if (a->width == 4)
        memcpy(&f, a->data.p + 4 * i, 4);
    else
        memcpy(&d, a->data.p + 8 * i, 8);
    return row_real(&table->json, a->width == 4 ? (double)f : d, e);
}

/* The range of value i in what the offsets count, of which there are `most`. */
static bool range_of(const arrow_field *a, uint64_t i, uint64_t most, uint64_t *first, uint64_t *n)
{
    *first = unsigned_at(a->offsets, i, a->width);
    const uint64_t end = unsigned_at(a->offsets, i + 1, a->width);
    *n = end - *first;
    return *first <= end && end <= most;
}

static int write_bytes(arrow_table *table, const arrow_field *a, const uint8_t *p, uint64_t n, pt_error *e)
{
    if (table->json.n + n > DOCUMENT_RECORD_MAX)
        return misfit(table, a, "makes the record larger than 256 MiB", e);
    const int rc = row_bytes(&table->json, (const char *)p, n, e);
    return rc == ROW_NOTHING && (a->kind == A_TEXT || a->kind == A_TEXT_VIEW) ? misfit(table, a, "is not UTF-8: write it as UTF-8", e) : rc;
}

static int write_elements(arrow_table *table, const arrow_field *a, uint64_t first, uint64_t n, pt_error *e)
{
    int rc = row_word(&table->json, "[", e);
    for (uint64_t k = 0; k < n && rc == 0; k++) {
        rc = row_comma(&table->json, e);
        const size_t before = table->json.n;
        if (rc == 0)
            rc = write_value(table, a + 1, first + k, e);
        if (rc == ROW_NOTHING) {
            table->json.n = before;
            rc = row_word(&table->json, "null", e);
        }
        if (rc == 0 && table->json.n > DOCUMENT_RECORD_MAX)
            rc = misfit(table, a, "makes the record larger than 256 MiB", e);
    }
    return rc < 0 ? rc : row_word(&table->json, "]", e);
}

static int write_children(arrow_table *table, const arrow_field *a, uint64_t i, pt_error *e)
{
    const arrow_field *child = a + 1;
    int rc = row_word(&table->json, "{", e);
    for (uint32_t k = 0; k < a->children && rc >= 0; k++, child += child->size) {
        const size_t before = table->json.n;
        rc = row_comma(&table->json, e);
        if (rc == 0)
            rc = row_string(&table->json, child->name, child->name_bytes, e);
        if (rc == 0)
            rc = row_word(&table->json, ":", e);
        if (rc == 0 && (rc = write_value(table, child, i, e)) == ROW_NOTHING)
            table->json.n = before;
        if (rc >= 0 && table->json.n > DOCUMENT_RECORD_MAX)
            rc = misfit(table, child, "makes the record larger than 256 MiB", e);
    }
    return rc < 0 ? rc : row_word(&table->json, "}", e);
}

/* Value i: its length in four bytes, and up to twelve bytes, or the first four of more, a buffer and a place in it. */
static bool view_of(const arrow_field *a, uint64_t i, const uint8_t **p, uint64_t *n)
{
    enum { INSIDE = 12 };
    uint32_t length, buffer, at;
    const uint8_t *view = a->data.p + i * ARROW_VIEW;
    memcpy(&length, view, 4);
    *n = length;
    *p = view + 4;
    if (length <= INSIDE)
        return true;
    memcpy(&buffer, view + 8, 4);
    memcpy(&at, view + 12, 4);
    if (buffer >= a->views_n || at > a->views[buffer].n || length > a->views[buffer].n - at)
        return false;
    *p = a->views[buffer].p + at;
    return true;
}

static bool list_view_of(const arrow_field *a, uint64_t i, uint64_t *first, uint64_t *n)
{
    const uint64_t most = a[1].length;
    *first = unsigned_at(a->offsets, i, a->width);
    *n = unsigned_at(a->data, i, a->width);
    return *first <= most && *n <= most - *first;
}

static int write_damaged(const arrow_table *table, const arrow_field *a, pt_error *e)
{
    return misfit(table, a, "is damaged: get the file again", e);
}

/* The value of the run that entry i is in: the first that ends behind it. */
static int write_run(arrow_table *table, const arrow_field *a, uint64_t i, pt_error *e)
{
    const arrow_field *ends = a + 1, *values = ends + ends->size;
    uint64_t low = 0, high = ends->length;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (unsigned_at(ends->data, middle, ends->width) > i)
            high = middle;
        else
            low = middle + 1;
    }
    return low < ends->length && low < values->length ? write_value(table, values, low, e) : write_damaged(table, a, e);
}

/* The batch of a dictionary that has value i; NULL: none. */
static const arrow_batch *batch_of(const arrow_dictionary *d, uint64_t i)
{
    size_t low = 0, high = d->batches_n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (d->batches[middle].first + d->batches[middle].length > i)
            high = middle;
        else
            low = middle + 1;
    }
    return low < d->batches_n ? &d->batches[low] : NULL;
}

static int write_of_dictionary(arrow_table *table, const arrow_field *a, uint64_t i, pt_error *e)
{
    const uint64_t index = unsigned_at(a->data, i, a->width);
    const arrow_batch *b = batch_of(&table->dictionaries[a->dictionary], index);
    if (!b)
        return misfit(table, a, "has an index that no dictionary before it has: write the dictionaries first, or get the file again", e);
    if (table->dictionaries_deep == ARROW_DICTIONARIES_DEEPEST)
        return misfit(table, a, "has dictionaries in dictionaries, more than 8 deep: write it without them", e);
    table->dictionaries_deep++;
    const int rc = write_value(table, b->fields + 1, index - b->first, e);
    table->dictionaries_deep--;
    return rc;
}

static int write_value(arrow_table *table, const arrow_field *a, uint64_t i, pt_error *e)
{
    uint64_t first, n;
    const uint8_t *p;
    if (a->valid.n && !bit(a->valid, i))
        return ROW_NOTHING;
    switch (a->kind) {
    case A_SIGNED: return write_signed(table, a, i, e);
    case A_UNSIGNED: return row_unsigned(&table->json, unsigned_at(a->data, i, a->width), e);
    case A_REAL: return write_real(table, a, i, e);
    case A_BOOL: return row_word(&table->json, bit(a->data, i) ? "true" : "false", e);
    case A_TEXT: case A_BINARY:
        return range_of(a, i, a->data.n, &first, &n) ? write_bytes(table, a, a->data.p + first, n, e) : write_damaged(table, a, e);
    case A_TEXT_VIEW: case A_BINARY_VIEW: return view_of(a, i, &p, &n) ? write_bytes(table, a, p, n, e) : write_damaged(table, a, e);
    case A_FIXED: return write_bytes(table, a, a->data.p + i * a->width, a->width, e);
    case A_LIST: return range_of(a, i, a[1].length, &first, &n) ? write_elements(table, a, first, n, e) : write_damaged(table, a, e);
    case A_LIST_VIEW: return list_view_of(a, i, &first, &n) ? write_elements(table, a, first, n, e) : write_damaged(table, a, e);
    case A_FIXED_LIST: return write_elements(table, a, i * a->width, a->width, e);
    case A_STRUCT: return write_children(table, a, i, e);
    case A_RUNS: return write_run(table, a, i, e);
    case A_INDEX: return write_of_dictionary(table, a, i, e);
    default: return ROW_NOTHING;
    }
}

int arrow_write_row(arrow_table *table, uint64_t i, pt_error *e)
{
    table->json.n = 0;
    table->dictionaries_deep = 0;
    return write_children(table, table->fields, i, e);
}
