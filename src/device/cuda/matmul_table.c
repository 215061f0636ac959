/* matmul_table.c - reads and writes tables of matmul algorithms. */
#include "device/cuda/matmul_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 11, ALL_FIELDS = FIELDS + MATMUL_WORDS, LINES_MOST = 4096, FILE_MOST = 4 << 20, SIZE_DIGITS = 12, WORD_DIGITS = 16 };

static const char *const layouts[] = {"NT", "NN", "TN"};
static const char *const types[] = {[PT_F32] = "f32", [PT_BF16] = "bf16"};
static const char *const added[] = {"none", "bias", "sums"};
static const char *const rows[] = {"many", "few"};

#define NAMES(list) list, (int)(sizeof list / sizeof *list)

typedef struct place { const char *file; int line; } place;

static int refuse(place at, const char *what, const char *field, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%.200s:%d: %s%s%.40s%s: make the table again with tools/gpu-check tune", at.file, at.line, what,
                   field ? " \"" : "", field ? field : "", field ? "\"" : "");
}

/* ---- fields ---- */

static int read_name(const char *field, const char *const *names, int n, int64_t *out)
{
    for (int i = 0; i < n; i++)
        if (names[i] && !strcmp(field, names[i])) {
            *out = i;
            return 0;
        }
    return -1;
}

static int read_size(const char *field, int64_t *out)
{
    const size_t n = strlen(field);
    if (!n || n > SIZE_DIGITS || strspn(field, "0123456789") != n)
        return -1;
    *out = strtoll(field, NULL, 10);
    return 0;
}

static int read_alignment(const char *field, int64_t *out)
{
    return read_size(field, out) || *out < 1 || *out > MATMUL_ALIGN_MOST || (*out & (*out - 1)) ? -1 : 0;
}

static int read_word(const char *field, uint64_t *out)
{
    const size_t n = strlen(field);
    if (!n || n > WORD_DIGITS || strspn(field, "0123456789abcdef") != n)
        return -1;
    *out = strtoull(field, NULL, 16);
    return 0;
}

/* A line's fields, or the first one that is wrong. */
static const char *wrong_field(char *const *field, matmul_line *out)
{
    matmul_key *k = &out->key;
    int64_t extra;
    if (read_name(field[0], NAMES(layouts), &k->layout))
        return field[0];
    if (read_name(field[1], NAMES(types), &k->type))
        return field[1];
    if (read_name(field[2], NAMES(types), &k->out_type))
        return field[2];
    if (read_name(field[3], NAMES(added), &extra))
        return field[3];
    k->bias = extra == 1, k->accumulate = extra == 2;
    if (read_name(field[4], NAMES(rows), &k->few))
        return field[4];
    int64_t *const sizes[] = {&k->m, &k->n, &k->k}, *const aligned[] = {&k->align_a, &k->align_b, &k->align_c};
    for (int i = 0; i < 3; i++) {
        if (read_size(field[5 + i], sizes[i]) || (*sizes[i] == 0) != (i == 0 && k->layout != MATMUL_TN))
            return field[5 + i];
        if (read_alignment(field[8 + i], aligned[i]))
            return field[8 + i];
    }
    for (int i = 0; i < MATMUL_WORDS; i++)
        if (read_word(field[FIELDS + i], &out->words[i]))
            return field[FIELDS + i];
    return NULL;
}

/* ---- lines ---- */

static int append(matmul_table *t, const matmul_line *line, place at, pt_error *e)
{
    if (matmul_table_find(t, &line->key))
        return refuse(at, "this matmul already has a line", NULL, e);
    if (t->n == LINES_MOST)
        return refuse(at, "the table has too many lines", NULL, e);
    if ((t->n & (t->n - 1)) == 0) { /* room for a power of two */
        matmul_line *more = realloc(t->lines, (size_t)(t->n ? 2 * t->n : 1) * sizeof *more);
        if (!more)
            return pt_fail(e, PT_FAILED, "no memory for the table of matmul algorithms");
        t->lines = more;
    }
    t->lines[t->n++] = *line;
    return 0;
}

static int read_line(matmul_table *t, char *text, place at, bool ours, pt_error *e)
{
    char *field[ALL_FIELDS + 1], *next = NULL;
    matmul_line line = {.file = at.file, .line = at.line};
    int n = 0;
    for (char *f = strtok_r(text, " ", &next); f && n <= ALL_FIELDS; f = strtok_r(NULL, " ", &next))
        field[n++] = f;
    if (n != ALL_FIELDS)
        return refuse(at, n < ALL_FIELDS ? "a line ends too early" : "a line has too many fields", NULL, e);
    const char *wrong = wrong_field(field, &line);
    if (wrong)
        return refuse(at, "a field is", wrong, e);
    return ours ? append(t, &line, at, e) : 0;
}

int matmul_table_add(matmul_table *t, const char *text, size_t bytes, const char *file, const char *gpu, pt_error *e)
{
    static const char kind[] = "gpu ";
    char line[MATMUL_LINE_BYTES];
    place at = {file, 0};
    bool known = false, ours = false;
    int failed = 0;
    for (const char *end = text + bytes; text < end && !failed;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((newline ? newline : end) - text);
        const char *comment = memchr(text, '#', n);
        const size_t used = comment ? (size_t)(comment - text) : n;
        at.line++;
        if (memchr(text, 0, used) || used >= sizeof line)
            return refuse(at, used >= sizeof line ? "a line is too long" : "a line has a zero byte", NULL, e);
        memcpy(line, text, used);
        line[used] = 0;
        for (size_t last = used; last && line[last - 1] == ' '; last--)
            line[last - 1] = 0;
        text = newline ? newline + 1 : end;
        if (!strncmp(line, kind, sizeof kind - 1)) {
            known = true;
            ours = !strcmp(line + sizeof kind - 1, gpu);
        } else if (line[0]) {
            failed = known ? read_line(t, line, at, ours, e) : refuse(at, "a line comes before the first \"gpu\"", NULL, e);
        }
    }
    return failed;
}

int matmul_table_read(matmul_table *t, const char *file, const char *gpu, pt_error *e)
{
    FILE *f = fopen(file, "re");
    char *text = f ? malloc(FILE_MOST) : NULL;
    size_t bytes = text ? fread(text, 1, FILE_MOST, f) : 0;
    int failed = !f || (text && ferror(f)) ? pt_fail(e, PT_FAILED, "%.200s: the table of matmul algorithms cannot be read: %s", file,
                                                     strerror(errno))
                 : !text                   ? pt_fail(e, PT_FAILED, "no memory for the table of matmul algorithms")
                 : bytes == FILE_MOST      ? pt_fail(e, PT_FAILED, "%.200s: the table of matmul algorithms is too long", file)
                                           : matmul_table_add(t, text, bytes, file, gpu, e);
    free(text);
    if (f)
        fclose(f);
    return failed;
}

void matmul_table_close(matmul_table *t)
{
    free(t->lines);
    *t = (matmul_table){0};
}

/* ---- use ---- */

const matmul_line *matmul_table_find(const matmul_table *t, const matmul_key *key)
{
    for (int i = 0; i < t->n; i++)
        if (!memcmp(&t->lines[i].key, key, sizeof *key))
            return &t->lines[i];
    return NULL;
}

/* FNV-1a. */
static uint64_t hash(uint64_t h, const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
    return h;
}

uint32_t matmul_table_checksum(const matmul_table *t)
{
    uint64_t sum = 0;
    for (int i = 0; i < t->n; i++) {
        const uint64_t h = hash(0xcbf29ce484222325u, &t->lines[i].key, sizeof t->lines[i].key);
        sum += hash(h, t->lines[i].words, sizeof t->lines[i].words);
    }
    const uint32_t folded = (uint32_t)(sum ^ sum >> 32);
    return t->n && !folded ? 1 : folded;
}

void matmul_line_write(const matmul_key *k, const uint64_t words[MATMUL_WORDS], char out[MATMUL_LINE_BYTES])
{
    int used = snprintf(out, MATMUL_LINE_BYTES, "%s %s %s %s %s %lld %lld %lld %lld %lld %lld", layouts[k->layout], types[k->type],
                        types[k->out_type], added[k->bias ? 1 : k->accumulate ? 2 : 0], rows[k->few != 0], (long long)k->m, (long long)k->n,
                        (long long)k->k, (long long)k->align_a, (long long)k->align_b, (long long)k->align_c);
    for (int i = 0; i < MATMUL_WORDS; i++)
        used += snprintf(out + used, (size_t)(MATMUL_LINE_BYTES - used), " %llx", (unsigned long long)words[i]);
}
