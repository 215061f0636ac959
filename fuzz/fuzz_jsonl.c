/* fuzz_jsonl.c - libFuzzer target: documents out of .jsonl and .json files. The first byte of the
 * input chooses the type, the rest is the file. */
#include "data/documents.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct tally {
    bool open; /* between begin and end */
    uint64_t documents, bytes;
} tally;

static int tally_begin(void *arg, record_place at, pt_error *e)
{
    tally *t = arg;
    if (t->open || at.line == 0)
        abort();
    t->open = true;
    t->documents++;
    return 0;
}

static int tally_text(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e)
{
    tally *t = arg;
    if (!t->open)
        abort();
    for (size_t i = 0; i < n; i++) /* every byte may be read */
        t->bytes += 1 + (p[i] == 0);
    return 0;
}

static int tally_end(void *arg, pt_error *e)
{
    tally *t = arg;
    if (!t->open)
        abort();
    t->open = false;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1;
    if (n < 1)
        return 0;
    if (fd < 0 && (fd = memfd_create("fuzz", MFD_CLOEXEC)) < 0)
        abort();
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data + 1, n - 1, 0) != (ssize_t)(n - 1) || lseek(fd, 0, SEEK_SET) < 0)
        abort();
    tally t = {0};
    pt_error e = {0};
    const document_sink sink = {&t, tally_begin, tally_text, tally_end, NULL, 0, NULL};
    int rc = documents_read(fd, "fuzz", data[0] & 1 ? DATA_JSON : DATA_JSONL, DOCUMENT_TEXT, &sink, &e);
    if (rc == 0 ? t.open : !e.text[0] || strlen(e.text) >= sizeof e.text)
        abort();
    return 0;
}
