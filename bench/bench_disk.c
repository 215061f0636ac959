/* bench_disk.c - the disk tier beside fio.
 *
 *     bench_disk [FOLDER [SIZE [CALL...]]]     default: . 1GiB 64MiB 16MiB 4MiB
 *
 * For each CALL size: GB/s of disk_write and disk_read calls of that size through a scratch file
 * of SIZE, in order, then reading and writing at the same time on two channels; beside it fio (if
 * it is installed) with the same file size, pieces of 1 MiB and 16 in flight. The rounds of both
 * alternate, because disks drift; medians are shown. What counts: at least 80% of fio.
 */
#include "base/json.h"
#include "base/units.h"
#include "io/disk.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5 };

typedef struct stream {
    disk_channel *channel;
    char *memory;
    uint64_t bytes, call, begin;
    bool is_write;
    double seconds;
    pt_error e;
} stream;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *stream_run(void *argument)
{
    stream *s = argument;
    double start = now();
    int status = 0;
    for (uint64_t at = 0; at < s->bytes && !status; at += s->call)
        status = s->is_write ? disk_write(s->channel, s->begin + at, s->memory, s->call, &s->e)
                             : disk_read(s->channel, s->begin + at, s->memory, s->call, &s->e);
    s->seconds = now() - start;
    return status ? s : NULL;
}

static double stream_rate(stream *s)
{
    if (stream_run(s)) {
        fprintf(stderr, "%s\n", s->e.text);
        exit(1);
    }
    return (double)s->bytes / s->seconds / 1e9;
}

/* Half of the file is written while the other half is read; bytes of both per second. */
static double both_rate(stream *w, stream *r)
{
    stream a = *w, b = *r;
    a.bytes = b.bytes = w->bytes / 2 / w->call * w->call;
    b.begin = a.bytes;
    pthread_t thread;
    double start = now();
    pthread_create(&thread, NULL, stream_run, &a);
    void *failed_a, *failed_b = stream_run(&b);
    pthread_join(thread, &failed_a);
    if (failed_a || failed_b) {
        fprintf(stderr, "%s%s\n", a.e.text, b.e.text);
        exit(1);
    }
    return (double)(a.bytes + b.bytes) / (now() - start) / 1e9;
}

/* GB/s of one pass by fio, 0 without fio. The file is laid out before the clock starts. */
static double fio_rate(const char *folder, uint64_t bytes, const char *direction)
{
    char command[1024], path[] = "/tmp/pt-fio-XXXXXX";
    int fd = mkstemp(path);
    snprintf(command, sizeof command,
             "fio --name=pt --filename='%s/.pt-fio-file' --size=%llu --bs=1M --iodepth=16 --direct=1 "
             "--ioengine=io_uring --fallocate=posix --overwrite=1 --rw=%s --output-format=json --output=%s "
             ">/dev/null 2>&1", folder, (unsigned long long)bytes, direction, path);
    json_t *result = NULL;
    double rate = 0;
    if (fd >= 0 && !system(command) && !json_file_load(path, 0, &result, NULL)) {
        json_t *job = json_object_get(json_array_get(json_object_get(result, "jobs"), 0), direction);
        rate = (double)json_integer_value(json_object_get(job, "bw_bytes")) / 1e9;
    }
    json_decref(result);
    close(fd);
    unlink(path);
    return rate;
}

/* As the arenas of the CPU device: huge pages where they are to be had. */
static char *memory_take(uint64_t bytes, int value)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "no memory for a SIZE of %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return memset(p, value, bytes);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double v[ROUNDS])
{
    qsort(v, ROUNDS, sizeof *v, compare_double);
    return v[ROUNDS / 2];
}

static void show(const char *what, double ours, double fio)
{
    if (fio > 0)
        printf("    %-22s %6.2f GB/s   fio %6.2f GB/s   %3.0f%%\n", what, ours, fio, 100 * ours / fio);
    else
        printf("    %-22s %6.2f GB/s\n", what, ours);
}

static void call_size_run(const char *folder, stream *w, stream *r)
{
    double ours_w[ROUNDS], ours_r[ROUNDS], both[ROUNDS], fio_w[ROUNDS], fio_r[ROUNDS];
    char buf[32];
    for (int i = 0; i < ROUNDS; i++) {
        ours_w[i] = stream_rate(w);
        fio_w[i] = fio_rate(folder, w->bytes, "write");
        ours_r[i] = stream_rate(r);
        fio_r[i] = fio_rate(folder, r->bytes, "read");
        both[i] = both_rate(w, r);
    }
    printf("  calls of %s\n", size_format(buf, w->call));
    show("write", median(ours_w), median(fio_w));
    show("read", median(ours_r), median(fio_r));
    show("read and write at once", median(both), 0);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".", *defaults[] = {"64MiB", "16MiB", "4MiB"};
    pt_error e = {0};
    uint64_t bytes;
    disk_file *f;
    stream w = {.is_write = true}, r = {0};
    if (size_parse(argc > 2 ? argv[2] : "1GiB", &bytes, &e) || disk_open(folder, bytes, NULL, &f, &e) ||
        disk_channel_open(f, &w.channel, &e) || disk_channel_open(f, &r.channel, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    w.memory = memory_take(bytes, 0x5A);
    r.memory = memory_take(bytes, 0);
    char buf[32];
    printf("%s, %s, O_DIRECT %s, io_uring %s, medians of %d\n", folder, size_format(buf, bytes),
           disk_is_direct(f) ? "yes" : "no", disk_channel_has_uring(w.channel) ? "yes" : "no", ROUNDS);
    w.call = w.bytes = bytes;
    stream_rate(&w); /* every block is written once before it counts */
    int calls = argc > 3 ? argc - 3 : 3;
    for (int i = 0; i < calls; i++) {
        if (size_parse(argc > 3 ? argv[3 + i] : defaults[i], &w.call, &e) || w.call == 0 || w.call > bytes) {
            fprintf(stderr, "%s\n", e.code ? e.text : "a CALL is from 1 byte to SIZE");
            return 1;
        }
        r.call = w.call;
        r.bytes = w.bytes = bytes / w.call * w.call;
        call_size_run(folder, &w, &r);
    }
    char path[4200];
    snprintf(path, sizeof path, "%s/.pt-fio-file", folder);
    unlink(path);
    disk_channel_close(w.channel);
    disk_channel_close(r.channel);
    disk_close(f);
    return 0;
}
