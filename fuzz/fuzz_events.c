/* fuzz_events.c - any bytes as an event file that a run finds when it is resumed: it is cut back to records of ours, and goes on. */
#include "train/events.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Frames are made around what the input has, so that checksums are right where its first byte says so. */
static size_t framed(const uint8_t *data, size_t n, unsigned char *out)
{
    size_t made = 0;
    while (n > 1) {
        const uint64_t length = data[0] < n - 1 ? data[0] : n - 1;
        uint32_t crc = crc32c(&length, 8);
        crc = (crc >> 15 | crc << 17) + 0xa282ead8;
        memcpy(out + made, &length, 8);
        memcpy(out + made + 8, &crc, 4);
        memcpy(out + made + 12, data + 1, length);
        crc = crc32c(data + 1, length);
        crc = (crc >> 15 | crc << 17) + 0xa282ead8;
        memcpy(out + made + 12 + length, &crc, 4);
        made += length + 16;
        data += length + 1;
        n -= length + 1;
    }
    return made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char folder[64];
    char path[128];
    pt_error e = {0};
    events v;
    struct stat first, second;
    unsigned char *out = malloc(20 * n + 64);
    if (!folder[0]) {
        strcpy(folder, "/dev/shm/pt-fuzz-XXXXXX");
        assert(mkdtemp(folder));
    }
    assert(out);
    size_t bytes = n && data[0] & 1 ? framed(data + 1, n - 1, out) : n;
    snprintf(path, sizeof path, "%s/" EVENTS_NAME, folder);
    FILE *f = fopen(path, "wb");
    assert(f && fwrite(bytes == n ? data : out, 1, bytes, f) == bytes && !fclose(f));
    assert(!events_open(&v, folder, 5, true, &e) && !stat(path, &first));
    assert(!events_write(&v, &(pt_step){.step = 5}, NULL, 0, &e));
    events_close(&v);
    assert(!stat(path, &second) && second.st_size > first.st_size);
    assert(!events_open(&v, folder, 5, false, &e) && !stat(path, &first) && first.st_size == second.st_size);
    events_close(&v);
    free(out);
    return 0;
}
