#include "data/arrow_parts.h"

#include "text/utf8.h"

#include <stdlib.h>

enum { T_NULL = 1, T_INT, T_REAL, T_BINARY, T_TEXT, T_BOOL, T_DECIMAL, T_DATE, T_TIME, T_TIMESTAMP, T_INTERVAL, T_LIST, T_STRUCT, T_UNION,
       T_FIXED, T_FIXED_LIST, T_MAP, T_DURATION, T_LARGE_BINARY, T_LARGE_TEXT, T_LARGE_LIST, T_RUNS, T_BINARY_VIEW,
       T_TEXT_VIEW, T_LIST_VIEW, T_LARGE_LIST_VIEW };

static int refuse_type(const arrow_table *table, const arrow_field *a, const char *what, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: column \"%.*s\" has %s, which is not supported: write it as text, numbers, lists or structs",
                   table->path, (int)(a->name_bytes < 80 ? a->name_bytes : 80), a->name, what);
}

/* Bits as bytes: 8, 16, 32 or 64. */
static uint64_t bytes_of(flat *f, uint64_t bits)
{
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
        f->failed = true;
    return bits / 8;
}

static void set(arrow_field *a, arrow_kind kind, uint64_t width)
{
    a->kind = kind;
    a->width = width;
}

/* Sets kind and width by the type at a place, a table of the kind `type`. */
static int take_type(const arrow_table *table, flat *f, arrow_field *a, uint64_t type, size_t at, pt_error *e)
{
    static const uint64_t intervals[] = {4, 8, 16};
    const uint64_t first = at ? flat_number(f, at, 0, 2, type == T_DATE) : 0;
    switch (type) {
    case T_NULL: set(a, A_NULL, 0); break;
    case T_INT: set(a, flat_number(f, at, 1, 1, 0) ? A_SIGNED : A_UNSIGNED, bytes_of(f, flat_number(f, at, 0, 4, 0))); break;
    case T_REAL: set(a, first == 0 ? A_HIDDEN : A_REAL, first == 0 ? 2 : first == 1 ? 4 : 8); break;
    case T_BOOL: set(a, A_BOOL, 0); break;
    case T_TEXT: case T_LARGE_TEXT: set(a, A_TEXT, type == T_TEXT ? 4 : 8); break;
    case T_BINARY: case T_LARGE_BINARY: set(a, A_BINARY, type == T_BINARY ? 4 : 8); break;
    case T_DECIMAL: set(a, A_HIDDEN, flat_number(f, at, 2, 4, 128) / 8); break;
    case T_DATE: set(a, A_SIGNED, first == 0 ? 4 : 8); break;
    case T_TIME: set(a, A_SIGNED, bytes_of(f, flat_number(f, at, 1, 4, 32))); break;
    case T_TIMESTAMP: case T_DURATION: set(a, A_SIGNED, 8); break;
    case T_INTERVAL: set(a, A_HIDDEN, first < 3 ? intervals[first] : 0); break;
    case T_LIST: case T_MAP: case T_LARGE_LIST: set(a, A_LIST, type == T_LARGE_LIST ? 8 : 4); break;
    case T_STRUCT: set(a, A_STRUCT, 0); break;
    case T_FIXED: set(a, A_FIXED, flat_number(f, at, 0, 4, 0)); break;
    case T_FIXED_LIST: set(a, A_FIXED_LIST, flat_number(f, at, 0, 4, 0)); break;
    case T_TEXT_VIEW: set(a, A_TEXT_VIEW, 0); break;
    case T_BINARY_VIEW: set(a, A_BINARY_VIEW, 0); break;
    case T_LIST_VIEW: case T_LARGE_LIST_VIEW: set(a, A_LIST_VIEW, type == T_LIST_VIEW ? 4 : 8); break;
    case T_RUNS: set(a, A_RUNS, 0); break;
    case T_UNION: return refuse_type(table, a, "a union", e);
    default: return refuse_type(table, a, "a type that this reader does not know", e);
    }
    if (a->width > INT32_MAX)
        f->failed = true;
    return 0;
}

/* The fields of a vector of n, at `first`; *size grows by those below. */
static int take_fields(arrow_table *table, flat *f, size_t first, size_t n, uint32_t *size, int depth, pt_error *e);

/* How many children a field of its kind has; of structs any. */
static bool has_its_children(const arrow_field *a, size_t n)
{
    const bool list = a->kind == A_LIST || a->kind == A_FIXED_LIST || a->kind == A_LIST_VIEW;
    return a->kind == A_STRUCT || n == (a->kind == A_RUNS ? 2 : list ? 1 : 0);
}

static int take_name(const arrow_table *table, flat *f, size_t field, arrow_field *a, pt_error *e)
{
    const size_t name = flat_vector(f, field, 0, 1, &a->name_bytes);
    if (a->name_bytes)
        a->name = (const char *)f->p + name;
    const bool fine = !f->failed && utf8_valid_prefix(a->name, a->name_bytes) == a->name_bytes && !memchr(a->name, 0, a->name_bytes);
    return fine ? 0 : arrow_damaged(table, "the schema", e);
}

/* The dictionary of an id, of fields that may share it: they have the same values. */
static int find_dictionary(arrow_table *table, uint64_t id, const arrow_field *values, uint32_t *out, pt_error *e)
{
    size_t i = 0;
    while (i < table->dictionaries_n && table->dictionaries[i].id != id)
        i++;
    *out = (uint32_t)i;
    if (i < table->dictionaries_n)
        return 0;
    arrow_dictionary *list = realloc(table->dictionaries, (i + 1) * sizeof *list);
    if (!list)
        return pt_fail(e, PT_FAILED, "out of memory: the dictionaries of %s", table->path);
    table->dictionaries = list;
    list[table->dictionaries_n++] = (arrow_dictionary){.id = id, .values = values};
    return 0;
}

static int take_values(arrow_table *table, flat *f, size_t field, uint32_t *size, int depth, pt_error *e);

/* A field of indices into a dictionary, and the field of its values. */
static int take_index(arrow_table *table, flat *f, size_t field, size_t dictionary, uint32_t *size, int depth, pt_error *e)
{
    if (table->fields_n == ARROW_FIELDS_MAX)
        return arrow_damaged(table, "the schema", e);
    arrow_field *a = &table->fields[table->fields_n++];
    const size_t type = flat_table(f, dictionary, 1);
    *a = (arrow_field){.name = "", .kind = A_INDEX, .children = 1, .size = 1, .width = 4};
    int rc = take_name(table, f, field, a, e);
    if (type)
        a->width = bytes_of(f, flat_number(f, type, 0, 4, 0));
    if (rc == 0 && f->failed)
        rc = arrow_damaged(table, "the schema", e);
    if (rc == 0)
        rc = take_values(table, f, field, &a->size, depth, e);
    if (rc == 0)
        rc = find_dictionary(table, flat_number(f, dictionary, 0, 8, 0), a + 1, &a->dictionary, e);
    *size += a->size;
    return rc;
}

static int take_field(arrow_table *table, flat *f, size_t field, uint32_t *size, int depth, pt_error *e)
{
    const size_t dictionary = flat_table(f, field, 4);
    return dictionary ? take_index(table, f, field, dictionary, size, depth, e) : take_values(table, f, field, size, depth, e);
}

/* A field whatever its dictionary. */
static int take_values(arrow_table *table, flat *f, size_t field, uint32_t *size, int depth, pt_error *e)
{
    size_t n;
    if (table->fields_n == ARROW_FIELDS_MAX || depth == ARROW_DEEPEST)
        return arrow_damaged(table, "the schema", e);
    arrow_field *a = &table->fields[table->fields_n++];
    *a = (arrow_field){.name = ""};
    int rc = take_name(table, f, field, a, e);
    if (rc == 0)
        rc = take_type(table, f, a, flat_number(f, field, 2, 1, 0), flat_table(f, field, 3), e);
    const size_t children = flat_vector(f, field, 5, 4, &n);
    if (rc == 0 && (f->failed || !has_its_children(a, n)))
        rc = arrow_damaged(table, "the schema", e);
    if (rc < 0)
        return rc;
    a->children = (uint32_t)n;
    a->size = 1;
    rc = take_fields(table, f, children, n, &a->size, depth + 1, e);
    if (rc == 0 && a->kind == A_RUNS && (a[1].kind != A_SIGNED || a[1].width < 2))
        rc = arrow_damaged(table, "the schema", e);
    *size += a->size;
    return rc;
}

static int take_fields(arrow_table *table, flat *f, size_t first, size_t n, uint32_t *size, int depth, pt_error *e)
{
    int rc = 0;
    for (size_t k = 0; k < n && rc == 0; k++) {
        const size_t field = flat_follow(f, first + 4 * k);
        rc = f->failed ? arrow_damaged(table, "the schema", e) : take_field(table, f, field, size, depth, e);
    }
    return rc;
}

int arrow_take_schema(arrow_table *table, flat *f, size_t schema, pt_error *e)
{
    size_t n;
    const bool big_endian = flat_number(f, schema, 0, 2, 0);
    const size_t first = flat_vector(f, schema, 1, 4, &n);
    if (f->failed || table->fields)
        return arrow_damaged(table, "the schema", e);
    if (big_endian)
        return pt_fail(e, PT_FAILED, "%s: the numbers of this Arrow file are big-endian: write it on a little-endian machine", table->path);
    table->fields = calloc(ARROW_FIELDS_MAX, sizeof *table->fields);
    if (!table->fields)
        return pt_fail(e, PT_FAILED, "out of memory: the fields of %s", table->path);
    table->fields[0] = (arrow_field){.name = "", .kind = A_STRUCT, .children = (uint32_t)n, .size = 1};
    table->fields_n = 1;
    uint32_t size = 1;
    const int rc = take_fields(table, f, first, n, &size, 0, e);
    table->fields[0].size = size;
    return rc;
}
