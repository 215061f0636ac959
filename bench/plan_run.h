/* plan_run.h - runs plans of a model, without data or files of weights, and says what was predicted and what they took. */
#ifndef PT_BENCH_PLAN_RUN_H
#define PT_BENCH_PLAN_RUN_H

#include "base/units.h"
#include "profile/machine.h"
#include "profile/profile.h"
#include "search/search.h"

typedef struct setting {
    const char *folder;      /* of the disk tier */
    char name[400];          /* model, step and tiers, in words */
    model *model;
    step_shape shape;
    device *device;
    search_input search;
    profile_request request;
    profile_result profile;
    double speed;            /* of the machine while it was profiled, as in machine_speed */
} setting;

/* v: CONFIG BATCH SEQ_LEN UNIT_SEQS HOST_MEMORY. CONFIG is a config.json; UNIT_SEQS 0: the usual unit; HOST_MEMORY 0: two tiers, device
 * and disk, else three. The device gets half of what is free, less the host's part; the disk 64 GiB. */
int setting_open(setting *g, char **v, const char *folder, pt_error *e);

/* Products of matrices a second, over a third of a second. A virtual machine's share of a processor changes within seconds, so that
 * what was profiled then and what runs now differ by more than any prediction: this is measured beside both. Negative: an error. */
double machine_speed(const setting *g, pt_error *e);
/* Profiles three times, each with the machine's speed before and after it: of each cost the median, at the mean of these speeds. */
int setting_profile(setting *g, pt_error *e);

/* Seconds that a steady step is predicted to take, and its queues' busy seconds in the schedule whose tasks are timed;
 * on a machine that computes `drift` times as fast as when it was profiled (1: as then). */
int plan_predict(const setting *g, const candidate *c, double drift, double *seconds, double busy[QUEUES], pt_error *e);
/* A step's wall time, and how fast the machine was around it beside when it was profiled. */
typedef struct step_run { double seconds, drift; } step_run;
/* steps_n steady steps; the one before them meets fresh memory and does not count. busy: of the last one. */
int plan_execute(const setting *g, const candidate *c, int steps_n, step_run *steps, double busy[QUEUES], pt_error *e);

/* NaN of no values. */
double quantile(const double *v, int n, double at);

#endif
