/* bench_dataset.c - tokenizing a large text into the cache, and reading samples from it.
 *
 *     bench_dataset MODEL_DIR FILE.txt MIB [threads]
 *
 * Repeats the text to a file of MIB MiB in a temporary folder, opens it as a dataset and prints
 * MB/s in all and a thread (wall and processor time), the growth of the peak RSS meanwhile (what
 * tokenizing takes beside the tokenizer itself), and samples/s of 1,024 shuffled tokens.
 */
#include "data/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { T = 1024, SAMPLES = 20000 };

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long peak_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_dataset: %s\n", what);
    exit(1);
}

/* Writes the text over and over until `bytes` are there. */
static void repeat(const char *from, const char *to, long bytes)
{
    static char block[1 << 16];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    if (!in || !out)
        fail("cannot open the text or the temporary file");
    while (bytes > 0) {
        size_t n = fread(block, 1, sizeof block, in);
        if (n == 0)
            rewind(in);
        fwrite(block, 1, n, out);
        bytes -= (long)n;
    }
    fclose(in);
    if (fclose(out) != 0)
        fail("cannot write the temporary file");
}

static void time_samples(dataset *d)
{
    static int32_t ids[T], targets[T], first[T];
    pt_error e;
    double start = now(CLOCK_MONOTONIC);
    for (uint64_t s = 0; s < SAMPLES; s++)
        if (dataset_sample(d, s, dataset_windows(d), &(dataset_row){ids, targets, first, NULL}, NULL, &e) < 0)
            fail(e.text);
    printf("samples: %.0f/s (%.1f us each, %d tokens)\n", SAMPLES / (now(CLOCK_MONOTONIC) - start),
           1e6 * (now(CLOCK_MONOTONIC) - start) / SAMPLES, T);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        fail("usage: bench_dataset MODEL_DIR FILE.txt MIB [threads]");
    char text[] = "/tmp/bench-XXXXXX.txt";
    int fd = mkstemps(text, 4), threads = argc > 4 ? atoi(argv[4]) : 1;
    if (fd < 0)
        fail("cannot make a temporary file");
    close(fd);
    long bytes = atol(argv[3]) << 20;
    repeat(argv[2], text, bytes);
    tokenizer *t;
    dataset *d;
    pt_error e;
    if (tokenizer_open(argv[1], &t, &e) < 0)
        fail(e.text);
    const char *paths[] = {text};
    dataset_options o = {.paths = paths, .paths_n = 1, .tokenizer = t, .seq_len = T, .vocab = tokenizer_vocab_size(t),
                         .seed = 1, .shuffle = true, .documents = true, .threads = threads};
    long before = peak_kib();
    double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    int rc = dataset_open(&o, &d, &e);
    wall = now(CLOCK_MONOTONIC) - wall;
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    unlink(text);
    if (rc < 0)
        fail(e.text);
    printf("%ld MiB, %d threads: %llu tokens, %.1f MB/s, %.1f MB/s a core used, peak RSS grew by %ld KiB\n",
           bytes >> 20, threads, (unsigned long long)dataset_tokens(d), 1e-6 * (double)bytes / wall,
           1e-6 * (double)bytes / cpu, peak_kib() - before);
    time_samples(d);
    dataset_close(d);
    tokenizer_close(t);
    return 0;
}
