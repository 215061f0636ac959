#include "timings.h"

#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

processor_use processor_use_now(void)
{
    processor_use use = {0};
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *thread; d && (thread = readdir(d));) {
        char path[300];
        long long work, waited;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", thread->d_name);
        FILE *f = *thread->d_name == '.' ? NULL : fopen(path, "re");
        if (f && fscanf(f, "%lld %lld", &work, &waited) == 2) {
            use.work_ns += work;
            use.waited_ns += waited;
        }
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
    return use;
}

const char *timing_compare(double predicted_s, double measured_s, char out[TIMING_TEXT])
{
    const double least_s = 1e-3, ratio = measured_s / predicted_s; /* shorter times are mostly overhead */
    out[0] = 0;
    if (!(predicted_s >= least_s) || !(measured_s >= least_s))
        return out;
    if (ratio < 2)
        snprintf(out, TIMING_TEXT, " (%+.1f%%)", 100 * (ratio - 1));
    else
        snprintf(out, TIMING_TEXT, ratio < 10 ? " (%.1fx)" : " (%.0fx)", fmin(ratio, 1e9));
    return out;
}

/* Says which prediction is the first, and which are corrections. */
static void print_corrections(const pt_summary *m)
{
    if (m->corrected_step)
        fprintf(stderr, "the prediction was corrected after step %lld; percentages and factors compare with the first prediction\n",
                (long long)m->corrected_step);
    if (m->moved_step)
        fprintf(stderr, "the plan changed after step %lld: \"corrected\", \"measured\" and memory are those of the new plan\n",
                (long long)m->moved_step);
}

/* Its own threads do not wait for each other if each has a processor. */
static bool has_processors(int threads)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) || threads <= CPU_COUNT(&allowed);
}

static void print_busy(const pt_timing *step, const pt_summary *m, const processor_use *used)
{
    const double waited = (double)used->waited_ns, wanted = waited + (double)used->work_ns, much = 0.1, longer = 1.25;
    if (used->work_ns > 0 && waited > much * wanted && step->measured_s > longer * step->predicted_s && has_processors(m->threads))
        fprintf(stderr, "the machine was busy: other programs had the processors for %.0f%% of the time that this run could have "
                        "computed; predictions assume an idle machine\n", 100 * waited / wanted);
}

void timings_print(const pt_trainer *t, const pt_summary *m, const processor_use *used)
{
    pt_timing times[PT_TIMINGS];
    char a[32], compared[TIMING_TEXT];
    int n = pt_trainer_timings(t, times);
    if (n)
        print_corrections(m);
    if (n && strcmp(m->measured_of, "steady steps"))
        fprintf(stderr, "measured: %s\n", m->measured_of);
    for (int i = 0; i < n; i++) {
        const pt_timing *x = &times[i];
        fprintf(stderr, "%-11s predicted %9s", x->name, pt_seconds_text(a, x->predicted_s));
        if (m->corrected_step)
            fprintf(stderr, ", corrected %9s", pt_seconds_text(a, x->corrected_s));
        timing_compare(x->predicted_s, x->measured_s, compared);
        fprintf(stderr, ", measured %9s%s\n", pt_seconds_text(a, x->measured_s), compared);
    }
    if (n)
        print_busy(times, m, used);
}
