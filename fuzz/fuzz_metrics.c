/* fuzz_metrics.c - any bytes as metrics.jsonl, trace.json, memory.json or samples.jsonl: refused with a sentence that names the file, or
 * numbers that make sense. The first byte of the input chooses, the rest is the file. */
#include "report/memory_file.h"
#include "report/metrics_file.h"
#include "report/samples_file.h"
#include "report/timeline.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int check_line(void *arg, const metrics_line *x, pt_error *e)
{
    int64_t *step = arg;
    const double numbers[] = {x->grad_norm, x->lr, x->step_s, x->predicted_step_s, x->tokens_per_s, x->eval_loss};
    assert(x->step > *step && x->loss >= 0 && x->loss <= METRICS_MAX && x->tokens >= 0);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert(isnan(numbers[i]) || (numbers[i] >= 0 && numbers[i] <= METRICS_MAX));
    *step = x->step;
    return 0;
}

/* A file with these bytes. */
static void put(const uint8_t *data, size_t n, char path[64])
{
    static int fd = -1;
    if (fd < 0 && (fd = memfd_create("fuzz", MFD_CLOEXEC)) < 0)
        abort();
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, n, 0) != (ssize_t)n)
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
}

static void try_metrics(const uint8_t *data, size_t n)
{
    char path[64];
    pt_error e = {0};
    int64_t step = 0;
    uint64_t torn;
    put(data, n, path);
    if (metrics_file_read(path, check_line, &step, &torn, &e))
        assert(e.code == PT_FAILED && strstr(e.text, path));
    else
        assert(!torn || data[n - 1] != '\n');
}

static void try_trace(const uint8_t *data, size_t n)
{
    timeline *t;
    pt_error e = {0};
    if (timeline_from_json("fuzz/trace.json", (const char *)data, n, &t, &e)) {
        assert(e.code == PT_FAILED && strstr(e.text, "fuzz/trace.json") && !t);
        return;
    }
    assert(t->seconds > 0 && isfinite(t->seconds));
    const float *share = &t->busy[0][0][0][0];
    for (size_t i = 0; i < sizeof t->busy / sizeof *share; i++)
        assert(share[i] >= 0 && isfinite(share[i]));
    timeline_free(t);
}

static void try_samples(const uint8_t *data, size_t n)
{
    char path[64];
    said_samples s;
    pt_error e = {0};
    put(data, n, path);
    if (said_read(path, &s, &e)) {
        assert(e.code == PT_FAILED && strstr(e.text, path) && !s.n);
        return;
    }
    for (int i = 0; i < s.n; i++)
        assert(s.list[i].step >= 0 && s.list[i].prompt && s.list[i].text);
    said_cut(&s, 5);
    said_free(&s);
}

static void try_memory(const uint8_t *data, size_t n)
{
    char path[64];
    uint64_t part[TIERS][MEMORY_PARTS];
    pt_error e = {0};
    put(data, n, path);
    if (memory_file_read(path, part, &e)) {
        assert(e.code == PT_FAILED && strstr(e.text, path));
        return;
    }
    for (int i = 0; i < TIERS * MEMORY_PARTS; i++)
        assert(part[i / MEMORY_PARTS][i % MEMORY_PARTS] <= UINT64_C(1) << 53);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n && data[0] & 1)
        try_trace(data + 1, n - 1);
    else if (n && data[0] & 2)
        try_samples(data + 1, n - 1);
    else if (n && data[0] & 4)
        try_memory(data + 1, n - 1);
    else if (n)
        try_metrics(data + 1, n - 1);
    return 0;
}
