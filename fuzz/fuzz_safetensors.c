/* fuzz_safetensors.c - any bytes as a safetensors file, as an index, or as both: refused with a
 * sentence, or every tensor can be found and read to its last byte.
 *
 * The first byte of the input says which; the rest is the file. With an even one it is the whole
 * file; with an odd one a header to which the right length is put in front, so that the mutations
 * reach what lies behind that check. Bit 1 makes it the index of a folder with one small shard. */
#include "io/files.h"
#include "io/safetensors.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void write_file(int fd, const void *data, size_t n)
{
    ssize_t done = n ? write(fd, data, n) : 0;
    assert(done == (ssize_t)n);
}

static void tensors_read(const safetensors *st)
{
    static char bytes[1 << 16];
    static float values[1 << 12];
    for (size_t i = 0; i < safetensors_count(st); i++) {
        const safetensors_tensor *t = safetensors_at(st, i);
        pt_error e = {0};
        assert(safetensors_find(st, t->name) != NULL);
        assert(t->rank <= SAFETENSORS_MAX_RANK);
        uint64_t tail = t->bytes < sizeof bytes ? t->bytes : sizeof bytes;
        int status = safetensors_read(st, t, t->bytes - tail, tail, bytes, &e);
        assert(!t->dtype_is_known == (status != 0));
        if (t->dtype_is_known)
            assert(t->bytes == t->elements * dtype_bytes(t->dtype));
        uint64_t some = t->elements < 1 << 12 ? t->elements : 1 << 12;
        safetensors_read_f32(st, t, t->elements - some, some, values, &e);
    }
}

static char folder[32];

static void folder_remove(void) { tree_remove(folder, NULL); }

/* A folder with model.safetensors.index.json = the input, and one good shard, kept for all inputs. */
static const char *index_path(const uint8_t *data, size_t n)
{
    static char index[64];
    static int fd = -1;
    static const char shard[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    if (!index[0]) {
        char path[64];
        const char *memory = "/dev/shm"; /* no disk to wait for */
        snprintf(folder, sizeof folder, "%s/pt-fuzz-XXXXXX", path_is_folder(memory) ? memory : "/tmp");
        assert(mkdtemp(folder) && !atexit(folder_remove));
        snprintf(path, sizeof path, "%s/s", folder);
        FILE *f = fopen(path, "wb");
        uint64_t length = sizeof shard - 1;
        assert(f && fwrite(&length, 8, 1, f) && fwrite(shard, sizeof shard - 1, 1, f) && fwrite("\0\0\0", 4, 1, f));
        fclose(f);
        snprintf(index, sizeof index, "%s/model.safetensors.index.json", folder);
        fd = open(index, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    int truncated = ftruncate(fd, 0);
    assert(!truncated && lseek(fd, 0, SEEK_SET) == 0);
    write_file(fd, data, n);
    return index;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n)
        return 0;
    uint8_t kind = *data++;
    n--;
    char path[64];
    int fd = memfd_create("fuzz.safetensors", MFD_CLOEXEC);
    assert(fd >= 0);
    if (kind & 1) {
        uint64_t length = n;
        write_file(fd, &length, 8);
    }
    write_file(fd, data, n);
    if (kind & 1)
        write_file(fd, "0123456789abcdef", 16); /* data of up to 16 bytes */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    pt_error e = {0};
    safetensors *st;
    int status = safetensors_open(kind & 2 ? index_path(data, n) : path, &st, &e);
    if (status)
        assert(status == PT_FAILED && strlen(e.text) > 10);
    else
        tensors_read(st);
    safetensors_close(st);
    close(fd);
    return 0;
}
