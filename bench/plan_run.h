/* plan_run.h - runs plans of a model, without data or files of weights, and says what was predicted and what they took. */
#ifndef PT_BENCH_PLAN_RUN_H
#define PT_BENCH_PLAN_RUN_H

#include "base/units.h"
#include "io/disk.h"
#include "profile/machine.h"
#include "profile/profile.h"
#include "search/search.h"

/* Of a machine now: products of matrices a second, bytes a second from and to the disk. Or how they have changed, 1: not at all. */
typedef struct rates { double compute, read, write; } rates;

typedef struct setting {
    const char *folder;      /* of the disk tier */
    char name[400];          /* model, step and tiers, in words */
    model *model;
    step_shape shape;
    device *device;
    search_input search;
    profile_request request;
    profile_result profile;
    rates speed;             /* of the machine while it was profiled */
    disk_file *file;         /* of machine_speed */
    disk_channel *channel;
} setting;

/* v: CONFIG BATCH SEQ_LEN UNIT_SEQS HOST_MEMORY. CONFIG is a config.json; UNIT_SEQS 0: the usual unit; HOST_MEMORY 0: two tiers, device
 * and disk, else three. The device gets half of what is free, less the host's part; the disk 64 GiB. */
int setting_open(setting *g, char **v, const char *folder, pt_error *e);

/* Takes half a second. A virtual machine's share of a processor and of a disk changes within seconds, so that what was profiled
 * then and what runs now differ by more than any prediction: this is measured beside both. */
int machine_speed(const setting *g, rates *out, pt_error *e);
/* Profiles seven times, each with the machine's speed before and after it: of each cost the median, at the mean of these speeds. */
int setting_profile(setting *g, pt_error *e);

/* Seconds that a steady step is predicted to take, and its queues' busy seconds in the schedule whose tasks are timed;
 * on a machine that is `drift` times as fast as when it was profiled. */
extern const rates no_drift;
int plan_predict(const setting *g, const candidate *c, rates drift, double *seconds, double busy[QUEUES], pt_error *e);
/* A step's wall time, how fast the machine was around it beside when it was profiled, and what simulation says when each kind of
 * work costs what it took in this very step: what is left then is the simulation's own error. */
typedef struct step_run { double seconds; rates drift; double with_own_times; } step_run;
/* steps_n steady steps; the one before them meets fresh memory and does not count. busy: of the last one, without a drain. */
int plan_execute(const setting *g, const candidate *c, int steps_n, step_run *steps, double busy[QUEUES], pt_error *e);

/* NaN of no values. */
double quantile(const double *v, int n, double at);

#endif
