#include "data/parquet_parts.h"

#include "base/json.h"
#include "io/files.h"
#include "text/utf8.h"

#include <stdlib.h>

enum { FOOTER_MAX = 1 << 30, TAIL = 8 };

int parquet_read_at(parquet_file *f, void *p, size_t n, uint64_t at, pt_error *e) { return fd_pread_all(f->fd, p, n, at, f->path, e); }

static int bad_footer(const parquet_file *f, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: the footer of this Parquet file is damaged: get the file again", f->path);
}

/* ---- the schema ---- */

static parquet_meaning meaning_of_converted(int64_t type)
{
    enum { UTF8 = 0, MAP, MAP_KEY_VALUE, LIST, ENUM, DECIMAL, UINT_8 = 11, UINT_64 = 14, JSON = 19, BSON, INTERVAL };
    return type == UTF8 || type == ENUM || type == JSON            ? P_TEXT
           : type == MAP || type == MAP_KEY_VALUE || type == LIST  ? P_LIST
           : type == DECIMAL || type == BSON || type == INTERVAL   ? P_HIDDEN
           : type >= UINT_8 && type <= UINT_64                     ? P_UNSIGNED : P_PLAIN;
}

static bool is_signed(thrift *t)
{
    bool is = true;
    unsigned type;
    for (int id = 0; thrift_field(t, &id, &type);)
        if (id == 2)
            is = thrift_bool(t, type);
        else
            thrift_skip(t, type);
    return is;
}

/* A union: one field, whose number is the type. */
static parquet_meaning take_logical(thrift *t)
{
    enum { STRING = 1, MAP, LIST, ENUM, DECIMAL, INTEGER = 10, JSON = 12, BSON, UUID, FLOAT16 };
    parquet_meaning meaning = P_PLAIN;
    unsigned type;
    for (int id = 0; thrift_field(t, &id, &type);) {
        if (id == INTEGER && type == THRIFT_STRUCT) {
            meaning = is_signed(t) ? P_PLAIN : P_UNSIGNED;
            continue;
        }
        meaning = id == STRING || id == ENUM || id == JSON                                       ? P_TEXT
                  : id == MAP || id == LIST                                                      ? P_LIST
                  : id == DECIMAL || id == BSON || id == UUID || id == FLOAT16                    ? P_HIDDEN : P_PLAIN;
        thrift_skip(t, type);
    }
    return meaning;
}

static void take_element(thrift *t, parquet_node *n)
{
    unsigned type;
    int64_t physical = P_GROUP, width = 0, repetition = P_REQUIRED, children = 0;
    parquet_meaning converted = P_PLAIN, logical = P_PLAIN;
    for (int id = 0; thrift_field(t, &id, &type);)
        switch (id) {
        case 1: physical = thrift_int(t, type); break;
        case 2: width = thrift_int(t, type); break;
        case 3: repetition = thrift_int(t, type); break;
        case 4: n->name = thrift_binary(t, type, &n->name_bytes); break;
        case 5: children = thrift_int(t, type); break;
        case 6: converted = meaning_of_converted(thrift_int(t, type)); break;
        case 10:
            if (type == THRIFT_STRUCT)
                logical = take_logical(t);
            else
                t->failed = true;
            break;
        default: thrift_skip(t, type);
        }
    if (children > 0)
        physical = P_GROUP;
    if (physical < 0 || physical > P_GROUP || (physical == P_GROUP) != (children > 0) || children > PARQUET_NODES_MAX || repetition < 0 ||
        repetition > P_REPEATED || (physical == P_FIXED && (width < 1 || width > 1 << 20)) ||
        utf8_valid_prefix(n->name, n->name_bytes) != n->name_bytes || memchr(n->name, 0, n->name_bytes))
        t->failed = true;
    n->type = (parquet_type)physical;
    n->width = (uint32_t)width;
    n->repetition = (parquet_repetition)repetition;
    n->children = (uint32_t)children;
    n->meaning = logical != P_PLAIN ? logical : converted;
}

/* Sets what follows from the place of node i below one of these levels; its size in the end. */
static bool place_node(parquet_file *f, size_t i, unsigned definition, unsigned repeats, int depth)
{
    if (i >= f->nodes_n || depth == PARQUET_DEEPEST)
        return false;
    parquet_node *n = &f->nodes[i];
    n->definition = (uint8_t)(definition += i > 0 && n->repetition != P_REQUIRED);
    n->repeats = (uint8_t)(repeats += i > 0 && n->repetition == P_REPEATED);
    n->leaf = (uint32_t)f->leaves_n;
    f->leaves_n += n->type != P_GROUP;
    n->size = 1;
    for (uint32_t k = 0; k < n->children; k++) {
        if (!place_node(f, i + n->size, definition, repeats, depth + 1))
            return false;
        n->size += f->nodes[i + n->size].size;
    }
    n->leaves = (uint32_t)f->leaves_n - n->leaf;
    return true;
}

static bool take_schema(parquet_file *f, thrift *t, unsigned type)
{
    unsigned element;
    const size_t n = thrift_list(t, type, &element);
    if (f->nodes || element != THRIFT_STRUCT || n < 1 || n > PARQUET_NODES_MAX || !(f->nodes = calloc(n, sizeof *f->nodes)))
        return false;
    f->nodes_n = n;
    for (size_t i = 0; i < n; i++) {
        f->nodes[i].name = "";
        take_element(t, &f->nodes[i]);
    }
    return !t->failed && place_node(f, 0, 0, 0, 0) && f->nodes[0].size == n;
}

static bool take_footer(parquet_file *f)
{
    thrift t = {.p = (uint8_t *)f->footer.bytes, .end = (uint8_t *)f->footer.bytes + f->footer.n};
    unsigned type, element;
    bool fine = true;
    for (int id = 0; fine && thrift_field(&t, &id, &type);)
        if (id == 2) {
            fine = take_schema(f, &t, type);
        } else if (id == 4) {
            thrift groups = t;
            f->groups_left = thrift_list(&groups, type, &element);
            f->groups = groups;
            fine = !f->groups_left || element == THRIFT_STRUCT;
            thrift_skip(&t, type);
        } else {
            thrift_skip(&t, type);
        }
    return fine && !t.failed && f->nodes;
}

/* What the file is instead of Parquet. */
static int refuse_kind(parquet_file *f, const char *begin, size_t n, const char *end, pt_error *e)
{
    if (text_is_lfs_pointer(begin, n))
        return pt_fail(e, PT_FAILED, LFS_POINTER_TEXT, f->path);
    if (n >= 4 && (!memcmp(begin, "PARE", 4) || !memcmp(end, "PARE", 4)))
        return pt_fail(e, PT_FAILED, "%s: this Parquet file is encrypted: write it without encryption", f->path);
    if (n < 4 || memcmp(begin, "PAR1", 4))
        return pt_fail(e, PT_FAILED, "%s: this is not a Parquet file: it does not begin with PAR1", f->path);
    return pt_fail(e, PT_FAILED, "%s: this Parquet file does not end with PAR1: it is cut off: get it again", f->path);
}

int parquet_open(parquet_file *f, pt_error *e)
{
    struct stat st;
    char begin[128] = "", end[TAIL] = "";
    uint32_t n;
    if (fstat(f->fd, &st) < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot examine this file", f->path);
    f->size = (uint64_t)st.st_size;
    const size_t first = f->size < sizeof begin ? (size_t)f->size : sizeof begin;
    int rc = parquet_read_at(f, begin, first, 0, e);
    if (rc == 0 && f->size >= TAIL)
        rc = parquet_read_at(f, end, TAIL, f->size - TAIL, e);
    if (rc < 0)
        return rc;
    if (f->size < 4 + TAIL || memcmp(begin, "PAR1", 4) || memcmp(end + 4, "PAR1", 4))
        return refuse_kind(f, begin, first, end + 4, e);
    memcpy(&n, end, 4);
    if (n > f->size - 4 - TAIL || n > FOOTER_MAX)
        return bad_footer(f, e);
    rc = text_buffer_reserve(&f->footer, n + 1, e);
    if (rc == 0)
        rc = parquet_read_at(f, f->footer.bytes, n, f->size - TAIL - n, e);
    f->footer.n = n;
    return rc < 0 ? rc : take_footer(f) ? 0 : bad_footer(f, e);
}

void parquet_close(parquet_file *f)
{
    text_buffer_free(&f->footer);
    free(f->nodes);
}

/* ---- row groups ---- */

typedef struct chunk { int64_t type, codec, values, bytes, data, dictionary; bool elsewhere, encrypted; } chunk;

static void take_metadata(thrift *t, chunk *c)
{
    unsigned type;
    for (int id = 0; thrift_field(t, &id, &type);)
        switch (id) {
        case 1: c->type = thrift_int(t, type); break;
        case 4: c->codec = thrift_int(t, type); break;
        case 5: c->values = thrift_int(t, type); break;
        case 7: c->bytes = thrift_int(t, type); break;
        case 9: c->data = thrift_int(t, type); break;
        case 11: c->dictionary = thrift_int(t, type); break;
        default: thrift_skip(t, type);
        }
}

static void take_chunk(thrift *t, chunk *c)
{
    unsigned type;
    *c = (chunk){.type = -1};
    for (int id = 0; thrift_field(t, &id, &type);) {
        c->elsewhere = c->elsewhere || id == 1;
        c->encrypted = c->encrypted || id == 8;
        if (id == 3 && type == THRIFT_STRUCT)
            take_metadata(t, c);
        else
            thrift_skip(t, type);
    }
}

static int take_codec(const parquet_file *f, int64_t codec, parquet_column *out, pt_error *e)
{
    static const struct { int packing; const char *name; } codecs[] = {
        {BLOCK_PLAIN, "no codec"}, {BLOCK_SNAPPY, "Snappy"}, {BLOCK_GZIP, "gzip"}, {-1, "LZO"}, {BLOCK_BROTLI, "Brotli"},
        {-1, "LZ4 in Hadoop's frames"}, {BLOCK_ZSTD, "Zstandard"}, {BLOCK_LZ4, "LZ4"}};
    const parquet_node *n = out->node;
    const bool known = codec >= 0 && codec < (int64_t)(sizeof codecs / sizeof *codecs);
    if (!known || codecs[codec].packing < 0)
        return pt_fail(e, PT_FAILED, "%s: column \"%.*s\" is compressed by %s: write the file with Snappy, gzip or Zstandard", f->path,
                       (int)(n->name_bytes < 80 ? n->name_bytes : 80), n->name, known ? codecs[codec].name : "an unknown codec");
    out->codec = (block_packing)codecs[codec].packing;
    return 0;
}

static int open_column(parquet_file *f, const chunk *c, parquet_column *out, pt_error *e)
{
    const int64_t begin = c->dictionary > 0 && c->dictionary < c->data ? c->dictionary : c->data;
    if (c->elsewhere)
        return pt_fail(e, PT_FAILED, "%s: this Parquet file has columns in other files: name those", f->path);
    if (c->encrypted)
        return pt_fail(e, PT_FAILED, "%s: this Parquet file has encrypted columns: write it without encryption", f->path);
    const bool within = begin >= 4 && (uint64_t)begin <= f->size && (uint64_t)c->bytes <= f->size - (uint64_t)begin;
    int rc = take_codec(f, c->codec, out, e);
    if (rc < 0)
        return rc;
    if (c->type != (int64_t)out->node->type || c->values < 0 || c->bytes < 0 || (c->values && !within))
        return bad_footer(f, e);
    out->at = (uint64_t)begin;
    out->end = (uint64_t)(begin + c->bytes);
    out->left = (uint64_t)c->values;
    out->page_left = 0;
    out->ended = false;
    out->dictionary.n = out->dictionary.bytes.n = 0;
    return parquet_column_next(out, e);
}

static int open_columns(parquet_file *f, thrift *t, unsigned type, parquet_column *columns, pt_error *e)
{
    unsigned element;
    int rc = 0;
    chunk c;
    if (thrift_list(t, type, &element) != f->leaves_n || (f->leaves_n && element != THRIFT_STRUCT))
        return bad_footer(f, e);
    for (size_t i = 0; i < f->leaves_n && rc == 0; i++) {
        take_chunk(t, &c);
        rc = t->failed ? bad_footer(f, e) : open_column(f, &c, &columns[i], e);
    }
    return rc;
}

int parquet_group(parquet_file *f, parquet_column *columns, uint64_t *rows, pt_error *e)
{
    thrift *t = &f->groups;
    unsigned type;
    bool has_columns = false;
    int64_t n = -1;
    int rc = 0;
    f->groups_left--;
    for (int id = 0; rc == 0 && thrift_field(t, &id, &type);)
        if (id == 1 && !has_columns) {
            rc = open_columns(f, t, type, columns, e);
            has_columns = true;
        } else if (id == 3) {
            n = thrift_int(t, type);
        } else {
            thrift_skip(t, type);
        }
    *rows = (uint64_t)n;
    return rc < 0 ? rc : t->failed || n < 0 || !has_columns ? bad_footer(f, e) : 0;
}
