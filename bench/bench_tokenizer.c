/* bench_tokenizer.c - speed of text to ids on one core.
 *
 *     bench_tokenizer TOKENIZER_DIR FILE...
 *
 * Encodes each file again and again for about two seconds of processor time, and prints MB/s (10^6 bytes
 * a second of processor time of this thread) for the first time, cold cache, and for all the rest.
 */
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) {
        perror(path);
        exit(1);
    }
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    if (!text || fread(text, 1, *n, f) != *n) {
        perror(path);
        exit(1);
    }
    fclose(f);
    return text;
}

static void fail(const pt_error *e)
{
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

static void measure(const tokenizer *t, const char *path)
{
    encoder *c;
    pt_error e;
    id_list ids = {0};
    size_t n, rounds = 0;
    char *text = read_file(path, &n);
    if (encoder_open(t, &c, &e))
        fail(&e);
    double cold = 0, start = now(), first = start, end;
    do {
        ids.n = 0;
        if (encoder_run(c, text, n, 0, &ids, &e))
            fail(&e);
        end = now();
        if (rounds++ == 0) {
            cold = end - start;
            first = end;
        }
    } while (end - start < 2 || rounds < 2);
    double mb = (double)n * 1e-6;
    printf("%6.1f MB/s  %6.1f cold  %5.2f bytes/id  %s\n", mb * (double)(rounds - 1) / (end - first), mb / cold,
           (double)n / (double)ids.n, path);
    encoder_close(c);
    id_list_free(&ids);
    free(text);
}

int main(int argc, char **argv)
{
    tokenizer *t;
    pt_error e;
    if (argc < 3) {
        fprintf(stderr, "bench_tokenizer TOKENIZER_DIR FILE...\n");
        return 2;
    }
    double start = now();
    if (tokenizer_open(argv[1], &t, &e))
        fail(&e);
    printf("%6.2f s to open %s\n", now() - start, argv[1]);
    for (int i = 2; i < argc; i++)
        measure(t, argv[i]);
    tokenizer_close(t);
    return 0;
}
