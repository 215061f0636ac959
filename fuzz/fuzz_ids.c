/* fuzz_ids.c - libFuzzer target: .npy and .bin files of token ids. The first byte of the input
 * chooses the type, the rest is the file. */
#include "data/id_file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FUZZ_IDS = 1024, FUZZ_VOCAB = 50257 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1;
    if (n < 1)
        return 0;
    if (fd < 0 && (fd = memfd_create("fuzz", MFD_CLOEXEC)) < 0)
        abort();
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data + 1, n - 1, 0) != (ssize_t)(n - 1))
        abort();
    id_file f;
    pt_error e = {0};
    int rc = id_file_open(fd, "fuzz", data[0] & 1 ? DATA_BIN : DATA_NPY, &f, &e);
    if (rc == 0 && f.offset + f.n * f.id_bytes != n - 1)
        abort(); /* a header that was accepted describes the file to the byte */
    for (uint64_t at = 0; rc == 0 && at < f.n; at += FUZZ_IDS) {
        uint32_t ids[FUZZ_IDS];
        size_t k = f.n - at < FUZZ_IDS ? (size_t)(f.n - at) : FUZZ_IDS;
        rc = id_file_read(&f, at, k, FUZZ_VOCAB, ids, &e);
        for (size_t i = 0; rc == 0 && i < k; i++)
            if (ids[i] >= FUZZ_VOCAB)
                abort();
    }
    if (rc < 0 && (!e.text[0] || strlen(e.text) >= sizeof e.text))
        abort();
    return 0;
}
