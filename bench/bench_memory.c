/* bench_memory.c - what a run really takes of the RAM, beside its budget.
 *
 *     bench_memory MODEL [BATCH [SEQ_LEN [fp32|bf16 [STEPS]]]]     default: 1 64 bf16 2
 *
 * MODEL is a folder with config.json (weights are random; for a GPT-2 124M copy bench/shapes/gpt2-124m.json there). Trains some steps
 * on random ids under budgets from what keeps everything in memory down to the least that the planner accepts, each in a process of its
 * own, and prints the budget, what the plan says, the process's peak (VmHWM), and the time of the last step. The run saves a checkpoint
 * at its end, because saving needs memory too. Exit status 1 if a peak is more than the budget + 96 MiB. */
#include "base/rng.h"
#include "base/units.h"
#include "io/files.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

enum { SWEEP = 5 };
static const uint64_t allowance = 96 * MIB;

typedef struct job {
    pt_train_options o;
    const char *data[1];
    char folder[64], tokens[128], out[128];
} job;

typedef struct answer { int failed; pt_error e; uint64_t predicted, disk, peak; double step_s; char plan[512]; } answer;

static int fail(const pt_error *e)
{
    fprintf(stderr, "bench_memory: %s\n", e->text);
    return 1;
}

/* Random ids below `vocab` as an .npy file. */
static int write_tokens(const char *path, int64_t n, int64_t vocab, pt_error *e)
{
    char header[128];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\0\x76\0", 10);
    int used = snprintf(header + 10, 118, "{'descr': '<u4', 'fortran_order': False, 'shape': (%lld,), }", (long long)n);
    header[10 + used] = ' ';
    header[127] = '\n';
    size_t bytes = sizeof header + (size_t)n * 4;
    char *all = malloc(bytes);
    if (!all)
        return pt_fail(e, PT_FAILED, "out of memory");
    memcpy(all, header, sizeof header);
    for (int64_t i = 0; i < n; i++) {
        uint32_t w[4];
        rng_words(1, RNG_TEST, 0, (uint64_t)i, w);
        w[0] %= (uint32_t)vocab;
        memcpy(all + sizeof header + i * 4, w, 4);
    }
    int failed = file_write_atomic(path, all, bytes, e);
    free(all);
    return failed;
}

static uint64_t peak_of_process(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return (uint64_t)kib << 10;
}

static void train(const job *j, answer *a)
{
    pt_trainer *t;
    pt_step s;
    pt_summary m;
    int more = 1;
    a->failed = pt_trainer_open(&j->o, &t, &a->e);
    if (a->failed)
        return;
    while (more > 0 && (more = pt_trainer_step(t, &s, &a->e)) > 0)
        a->step_s = s.step_s;
    a->failed = more < 0 ? more : pt_trainer_save(t, &a->e);
    pt_trainer_summary(t, &m);
    for (int i = 0; i < m.memory_n; i++)
        *(strcmp(m.memory[i].tier, "disk") ? &a->predicted : &a->disk) += m.memory[i].predicted_bytes;
    snprintf(a->plan, sizeof a->plan, "%s", m.plan);
    pt_trainer_close(t);
    a->peak = peak_of_process();
}

/* In a process of its own. */
static answer measure(job *j, uint64_t budget)
{
    answer a = {.failed = PT_FAILED};
    int channel[2];
    pt_error e;
    j->o.device_memory = budget;
    snprintf(a.e.text, sizeof a.e.text, "the process has died");
    if (pipe(channel))
        return a;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        train(j, &a);
        _exit(write(channel[1], &a, sizeof a) != sizeof a);
    }
    close(channel[1]);
    answer got;
    if (child > 0 && read(channel[0], &got, sizeof got) == sizeof got)
        a = got;
    close(channel[0]);
    waitpid(child, NULL, 0);
    tree_remove(j->out, &e);
    return a;
}

/* Prints a line; 1 if the process took too much or failed. */
static int show(job *j, uint64_t budget)
{
    char b[32], p[32], d[32], h[32], s[32];
    answer a = measure(j, budget);
    if (a.failed)
        return fail(&a.e);
    bool good = a.peak <= budget + allowance;
    printf("%12s %12s %12s %12s %8.0f %10s  %s\n", size_format(b, budget), size_format(p, a.predicted), size_format(d, a.disk),
           size_format(h, a.peak), ((double)a.peak - (double)budget) / (double)MIB, seconds_format(s, a.step_s), good ? "" : "TOO MUCH");
    printf("    %s\n", a.plan);
    return !good;
}

/* The least budget, from the refusal of a smaller one. */
static uint64_t least_budget(job *j, pt_error *e)
{
    answer a = measure(j, 1);
    const char *advice = a.failed ? strstr(a.e.text, "--device-memory ") : NULL;
    *e = a.e;
    return advice ? strtoull(advice + strlen("--device-memory "), NULL, 10) : 0;
}

static int sweep(job *j, const model *m)
{
    char count[32];
    pt_error e;
    uint64_t most = 0, least = least_budget(j, &e);
    if (!least)
        return fail(&e);
    answer all = measure(j, PT_AUTO);
    if (all.failed)
        return fail(&all.e);
    most = all.predicted;
    printf("%s, %s parameters, %lld x %lld tokens, %s\n", m->config.model_type, count_format(count, (uint64_t)m->parameters),
           (long long)j->o.batch_size, (long long)j->o.seq_len, j->o.precision == PT_PRECISION_BF16 ? "bf16" : "fp32");
    printf("%12s %12s %12s %12s %8s %10s\n", "budget", "predicted", "disk", "VmHWM", "+ MiB", "step");
    int bad = 0;
    for (int i = 0; i < SWEEP; i++) {
        double part = (double)i / (SWEEP - 1);
        bad |= show(j, i < SWEEP - 1 ? (uint64_t)((double)most * pow((double)least / (double)most, part)) : least);
    }
    return bad;
}

int main(int argc, char **argv)
{
    static job j;
    pt_error e = {0};
    model *m;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_memory MODEL [BATCH [SEQ_LEN [fp32|bf16 [STEPS]]]]\n");
        return 2;
    }
    pt_train_defaults(&j.o);
    j.o.model = argv[1];
    j.o.batch_size = argc > 2 ? atoll(argv[2]) : 1;
    j.o.seq_len = argc > 3 ? atoll(argv[3]) : 64;
    j.o.precision = argc > 4 && strcmp(argv[4], "fp32") == 0 ? PT_PRECISION_FP32 : PT_PRECISION_BF16;
    j.o.steps = argc > 5 ? atoll(argv[5]) : 2;
    j.o.init_random = true;
    strcpy(j.folder, "bench_memory-XXXXXX");
    if (model_open(argv[1], NULL, NULL, &m, &e))
        return fail(&e);
    if (!mkdtemp(j.folder))
        return perror("bench_memory"), 1;
    snprintf(j.tokens, sizeof j.tokens, "%s/ids.npy", j.folder);
    snprintf(j.out, sizeof j.out, "%s/out", j.folder);
    j.data[0] = j.tokens;
    j.o.data = j.data;
    j.o.data_n = 1;
    j.o.out = j.out;
    int status = write_tokens(j.tokens, j.o.steps * j.o.batch_size * j.o.seq_len + 1, m->config.vocab, &e) ? fail(&e) : sweep(&j, m);
    model_close(m);
    tree_remove(j.folder, &e);
    return status;
}
