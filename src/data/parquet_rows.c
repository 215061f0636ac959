#include "data/parquet_parts.h"

#include "data/documents.h"

#include <stdlib.h>

typedef struct reader {
    parquet_file file;
    parquet_column *columns;
    text_buffer json;
} reader;

static int write_node(reader *r, const parquet_node *n, pt_error *e);
static int write_list(reader *r, const parquet_node *n, const parquet_node *element, pt_error *e);

/* ---- values ---- */

static int not_text(const reader *r, const parquet_node *n, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: row %llu: \"%.*s\" is not UTF-8: write the column as UTF-8", r->file.path,
                   (unsigned long long)r->file.row + 1, (int)(n->name_bytes < 80 ? n->name_bytes : 80), n->name);
}

static int write_bytes(reader *r, const parquet_node *n, byte_slice v, pt_error *e)
{
    if (r->json.n + v.n > DOCUMENT_RECORD_MAX)
        return pt_fail(e, PT_FAILED, "%s: row %llu: a record of more than %d MiB", r->file.path, (unsigned long long)r->file.row + 1,
                       DOCUMENT_RECORD_MAX >> 20);
    const int rc = row_bytes(&r->json, (const char *)v.p, v.n, e);
    return rc == ROW_NOTHING && n->meaning == P_TEXT ? not_text(r, n, e) : rc;
}

static int write_leaf(reader *r, const parquet_node *n, byte_slice v, pt_error *e)
{
    int32_t i;
    int64_t l;
    float f;
    double d;
    if (n->meaning == P_HIDDEN)
        return ROW_NOTHING;
    switch (n->type) {
    case P_BOOLEAN: return row_word(&r->json, v.p[0] ? "true" : "false", e);
    case P_INT32:
        memcpy(&i, v.p, 4);
        return n->meaning == P_UNSIGNED ? row_unsigned(&r->json, (uint32_t)i, e) : row_signed(&r->json, i, e);
    case P_INT64:
        memcpy(&l, v.p, 8);
        return n->meaning == P_UNSIGNED ? row_unsigned(&r->json, (uint64_t)l, e) : row_signed(&r->json, l, e);
    case P_FLOAT: memcpy(&f, v.p, 4); return row_real(&r->json, f, e);
    case P_DOUBLE: memcpy(&d, v.p, 8); return row_real(&r->json, d, e);
    case P_BYTES: case P_FIXED: return write_bytes(r, n, v, e);
    default: return ROW_NOTHING; /* P_INT96 */
    }
}

/* ---- levels ---- */

static parquet_column *first_column(reader *r, const parquet_node *n) { return &r->columns[n->leaf]; }

/* Moves on in all columns below a value that is not there. Its levels must say so in each. */
static int pass(reader *r, const parquet_node *n, pt_error *e)
{
    int rc = 0;
    for (uint32_t i = 0; i < n->leaves && rc == 0; i++) {
        parquet_column *c = first_column(r, n) + i;
        rc = c->ended || c->definition >= n->definition ? parquet_damaged(c, "its levels do not fit those of other columns", e)
                                                        : parquet_column_next(c, e);
    }
    return rc;
}

/* *more: the value of the repeated node n is followed by another of its list. All columns below must agree. */
static int list_goes_on(reader *r, const parquet_node *n, bool *more, pt_error *e)
{
    for (uint32_t i = 0; i < n->leaves; i++) {
        const parquet_column *c = first_column(r, n) + i;
        const bool goes_on = !c->ended && c->repeat >= n->repeats;
        if ((goes_on && c->repeat > n->repeats) || (i && goes_on != *more))
            return parquet_damaged(c, "its levels do not fit those of other columns", e);
        *more = goes_on;
    }
    if (r->json.n > DOCUMENT_RECORD_MAX)
        return pt_fail(e, PT_FAILED, "%s: row %llu: a record of more than %d MiB", r->file.path, (unsigned long long)r->file.row + 1,
                       DOCUMENT_RECORD_MAX >> 20);
    return 0;
}

static int write_children(reader *r, const parquet_node *n, pt_error *e)
{
    const parquet_node *child = n + 1;
    int rc = row_word(&r->json, "{", e);
    for (uint32_t i = 0; i < n->children && rc >= 0; i++, child += child->size) {
        const size_t before = r->json.n;
        rc = row_comma(&r->json, e);
        if (rc == 0)
            rc = row_string(&r->json, child->name, child->name_bytes, e);
        if (rc == 0)
            rc = row_word(&r->json, ":", e);
        if (rc == 0 && (rc = write_node(r, child, e)) == ROW_NOTHING)
            r->json.n = before;
    }
    return rc < 0 ? rc : row_word(&r->json, "}", e);
}

/* In a group that is a list, a repeated group of one element holds the elements; other repeated nodes are the elements, as older writers
 * have it. */
static const parquet_node *element_of(const parquet_node *list)
{
    const parquet_node *n = list + 1;
    const bool holds = n->type == P_GROUP && n->children == 1 && n->meaning != P_LIST &&
                       !(n->name_bytes == 5 && !memcmp(n->name, "array", 5)) &&
                       !(n->name_bytes == list->name_bytes + 6 && !memcmp(n->name, list->name, list->name_bytes) &&
                         !memcmp(n->name + list->name_bytes, "_tuple", 6));
    return holds ? n + 1 : n;
}

/* A value whose levels say that it is there. */
static int write_present(reader *r, const parquet_node *n, pt_error *e)
{
    byte_slice v;
    if (n->type == P_GROUP && n->meaning == P_LIST && n->children == 1 && n[1].repetition == P_REPEATED)
        return write_list(r, n + 1, element_of(n), e);
    if (n->type == P_GROUP)
        return write_children(r, n, e);
    parquet_column *c = first_column(r, n);
    int rc = parquet_column_value(c, &v, e);
    if (rc == 0)
        rc = write_leaf(r, n, v, e);
    const int next = rc < 0 ? rc : parquet_column_next(c, e);
    return next < 0 ? next : rc;
}

/* The values of the repeated node n, each of which is, or holds, an element. */
static int write_list(reader *r, const parquet_node *n, const parquet_node *element, pt_error *e)
{
    bool more = first_column(r, n)->definition >= n->definition;
    int rc = row_word(&r->json, "[", e);
    if (rc == 0 && !more)
        rc = pass(r, n, e);
    while (more && rc >= 0) {
        rc = row_comma(&r->json, e);
        const size_t before = r->json.n;
        if (rc == 0)
            rc = element == n ? write_present(r, n, e) : write_node(r, element, e);
        if (rc == ROW_NOTHING) {
            r->json.n = before;
            rc = row_word(&r->json, "null", e);
        }
        if (rc >= 0)
            rc = list_goes_on(r, n, &more, e);
    }
    return rc < 0 ? rc : row_word(&r->json, "]", e);
}

static int write_node(reader *r, const parquet_node *n, pt_error *e)
{
    const parquet_column *c = first_column(r, n);
    if (c->ended)
        return parquet_damaged(c, "its levels do not fit those of other columns", e);
    if (n->repetition == P_REPEATED)
        return write_list(r, n, n, e);
    if (n->repetition == P_OPTIONAL && c->definition < n->definition) {
        const int rc = pass(r, n, e);
        return rc < 0 ? rc : ROW_NOTHING;
    }
    if (c->definition < n->definition) /* a required value */
        return parquet_damaged(c, "its levels do not fit those of other columns", e);
    return write_present(r, n, e);
}

/* ---- rows ---- */

/* Between two rows, every column begins a new one, or all have ended. */
static int check_between(reader *r, bool ended, pt_error *e)
{
    for (size_t i = 0; i < r->file.leaves_n; i++) {
        const parquet_column *c = &r->columns[i];
        if (c->ended != ended || (!ended && c->repeat))
            return parquet_damaged(c, ended ? "it has more rows than others" : "it has fewer rows than others", e);
    }
    return 0;
}

static int give_rows(reader *r, uint64_t rows, const row_sink *sink, pt_error *e)
{
    int rc = 0;
    for (uint64_t i = 0; i < rows && rc == 0; i++) {
        rc = check_between(r, false, e);
        r->json.n = 0;
        if (rc == 0)
            rc = write_children(r, r->file.nodes, e);
        if (rc == 0)
            rc = sink->row(sink->arg, r->file.row + 1, &r->json, r->file.read, e);
        r->file.row++;
    }
    return rc < 0 ? rc : check_between(r, true, e);
}

static int open_reader(reader *r, pt_error *e)
{
    const parquet_file *f = &r->file;
    int rc = parquet_open(&r->file, e);
    if (rc < 0)
        return rc;
    r->columns = calloc(f->leaves_n + 1, sizeof *r->columns);
    if (!r->columns)
        return pt_fail(e, PT_FAILED, "out of memory: the %zu columns of %s", f->leaves_n, f->path);
    for (size_t i = 0, leaf = 0; i < f->nodes_n; i++)
        if (f->nodes[i].type != P_GROUP)
            r->columns[leaf++] = (parquet_column){.file = &r->file, .node = &f->nodes[i]};
    return 0;
}

int parquet_read(int fd, const char *path, const row_sink *sink, pt_error *e)
{
    reader r = {.file = {.fd = fd, .path = path}};
    uint64_t rows;
    int rc = open_reader(&r, e);
    while (rc == 0 && r.file.groups_left) {
        rc = parquet_group(&r.file, r.columns, &rows, e);
        if (rc == 0)
            rc = give_rows(&r, rows, sink, e);
    }
    for (size_t i = 0; r.columns && i < r.file.leaves_n; i++)
        parquet_column_free(&r.columns[i]);
    free(r.columns);
    text_buffer_free(&r.json);
    parquet_close(&r.file);
    return rc;
}
