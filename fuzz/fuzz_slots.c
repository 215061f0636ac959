/* fuzz_slots.c - any bytes as the header and a record of a file of slots: refused, or with slots and sizes that fill the file.
 *
 * The first byte: 1: the header gets its magic number and checksum; 2: so does the record, if its text has room. Then the size of the file
 * in blocks (2 bytes), the header, the record. */
#include "run/slots_parts.h"

#include "base/sum.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { RECORD_MOST = 1 << 20 };

static size_t take(void *to, size_t bytes, const uint8_t **data, size_t n)
{
    const size_t have = n < bytes ? n : bytes;
    memcpy(to, *data, have);
    *data += have;
    return n - have;
}

static void mend_record(char *record, const slots_header *h)
{
    record_head head;
    memcpy(&head, record, sizeof head);
    head.magic = COMMIT_MAGIC;
    head.layout = h->layout;
    memcpy(record, &head, sizeof head);
    const uint64_t before = sizeof head + h->regions_n * sizeof(record_region);
    if (head.text_bytes > h->record_bytes - before - sizeof(uint64_t))
        return;
    const uint64_t used = before + head.text_bytes, sum = slots_record_sum(record, used);
    memcpy(record + used, &sum, sizeof sum);
}

static void read_record(const slots_header *h, const char *record)
{
    slots_record r;
    if (!slots_record_parse(record, h, &r))
        return;
    uint64_t end = DISK_ALIGN + 2 * h->record_bytes;
    for (uint64_t i = 0; i < h->regions_n; i++) {
        const record_region x = slots_region_at(&r, i);
        assert(x.slot <= 1);
        end += 2 * x.bytes;
    }
    assert(end == h->file_bytes && r.step >= 0);
    const volatile uint64_t sum = sum_bytes(0, 0, r.text, r.text_bytes); /* all of it can be read */
    (void)sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char block[DISK_ALIGN] = {0};
    slots_header h = {0};
    if (n < 3)
        return 0;
    const int mends = data[0];
    const uint64_t size = (uint64_t)(data[1] | data[2] << 8) * DISK_ALIGN;
    data += 3;
    n = take(&h, sizeof h, &data, n - 3);
    if (mends & 1) {
        h.magic = SLOTS_MAGIC;
        h.sum = sum_bytes(SLOTS_MAGIC, 0, &h, offsetof(slots_header, sum));
    }
    memcpy(block, &h, sizeof h);
    if (!slots_header_parse(block, size, &h) || h.record_bytes > RECORD_MOST)
        return 0;
    char *record = calloc(1, h.record_bytes); /* exactly, so that a sanitizer sees what reads on */
    assert(record);
    take(record, h.record_bytes, &data, n);
    if (mends & 2)
        mend_record(record, &h);
    read_record(&h, record);
    free(record);
    return 0;
}
