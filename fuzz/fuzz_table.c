/* fuzz_table.c - libFuzzer target: rows out of tables. The first byte of the input chooses: the rest is a file, or changes to one of
 * tests/fixtures/tables, three bytes each: where (two), and what is flipped there. What is read must be JSON. */
#include "data/documents.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A small file can hold much text, packed. */
enum { TABLE_BYTES = 65536, TABLE_ROWS = 1000, TABLE_TEXT = 1 << 24, TABLE_SEEN = -100 };
static const struct { const char *name; data_kind kind; } table_files[] = {
    {"snappy.parquet", DATA_PARQUET}, {"delta.parquet", DATA_PARQUET}, {"split.parquet", DATA_PARQUET}, {"zstd.parquet", DATA_PARQUET},
    {"plain.parquet", DATA_PARQUET}, {"brotli.parquet", DATA_PARQUET}, {"lz4.parquet", DATA_PARQUET}, {"stream.arrow", DATA_ARROW},
    {"zstd.arrow", DATA_ARROW}, {"lz4.arrow", DATA_ARROW}, {"views.arrow", DATA_ARROW}, {"large_views.arrow", DATA_ARROW},
    {"runs.arrow", DATA_ARROW}, {"dictionary.arrow", DATA_ARROW}, {"dictionaries_of_lists.arrow", DATA_ARROW},
    {"replaced.arrow", DATA_ARROW}, {"added.arrow", DATA_ARROW}};
enum { TABLE_FILES = sizeof table_files / sizeof *table_files };

typedef struct table_tally { uint64_t rows, text, hash; } table_tally;

static int table_begin(void *arg, record_place at, pt_error *e)
{
    table_tally *t = arg;
    if (at.line != ++t->rows)
        abort();
    return t->rows > TABLE_ROWS ? TABLE_SEEN : 0;
}

static int table_text(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e)
{
    table_tally *t = arg;
    json_t *record;
    pt_error why = {0};
    if ((t->text += n) > TABLE_TEXT)
        return TABLE_SEEN;
    for (size_t i = 0; i < n; i++)
        t->hash = t->hash * 31 + (unsigned char)p[i];
    if (record_parse("fuzz", (record_place){1, 0}, p, n, &record, &why) && strstr(why.text, "not valid JSON"))
        abort();
    json_decref(record);
    return 0;
}

static int table_end(void *arg, pt_error *e) { return 0; }

/* The code of reading n bytes as a table. */
static int table_read(data_kind kind, const void *p, size_t n, table_tally *t, pt_error *e)
{
    static int fd = -1;
    if (fd < 0 && (fd = memfd_create("fuzz", MFD_CLOEXEC)) < 0)
        abort();
    if (ftruncate(fd, 0) < 0 || pwrite(fd, p, n, 0) != (ssize_t)n || lseek(fd, 0, SEEK_SET) < 0)
        abort();
    const document_sink sink = {t, table_begin, table_text, table_end, NULL, 0, NULL};
    *t = (table_tally){0};
    return documents_read(fd, "fuzz", kind, DOCUMENT_RECORD, &sink, e);
}

static size_t table_load(const char *name, uint8_t *out)
{
    char path[600];
    snprintf(path, sizeof path, "%s/tables/%s", PT_FIXTURES, name);
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(out, 1, TABLE_BYTES, f) : 0;
    if (!n || fclose(f))
        abort();
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t good[TABLE_FILES][TABLE_BYTES], file[TABLE_BYTES];
    static size_t sizes[TABLE_FILES];
    pt_error e = {0};
    table_tally rows;
    if (n < 1)
        return 0;
    const unsigned which = data[0] % (2 * TABLE_FILES);
    const data_kind kind = table_files[which % TABLE_FILES].kind;
    if (which < TABLE_FILES && !sizes[which])
        sizes[which] = table_load(table_files[which].name, good[which]);
    const size_t size = which < TABLE_FILES ? sizes[which] : 0;
    memcpy(file, good[which % TABLE_FILES], size);
    for (size_t i = 1; size && i + 3 <= n; i += 3)
        file[(data[i] | data[i + 1] << 8) % size] ^= data[i + 2];
    const int rc = size ? table_read(kind, file, size, &rows, &e) : table_read(kind, data + 1, n - 1, &rows, &e);
    if (rc == PT_FAILED && (!e.text[0] || strlen(e.text) >= sizeof e.text))
        abort();
    return 0;
}
