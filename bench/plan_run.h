/* plan_run.h - runs plans of a model, without data or files of weights, and says what was predicted and what they took. */
#ifndef PT_BENCH_PLAN_RUN_H
#define PT_BENCH_PLAN_RUN_H

#include "base/units.h"
#include "machine/machine.h"
#include "profile/profile.h"
#include "search/search.h"

enum { PROFILES_MOST = 32 };

typedef struct setting {
    const char *folder;      /* of the disk tier */
    char name[400];          /* model, step and tiers, in words */
    model *model;
    step_shape shape;
    device *device;
    search_input search;
    profile_request request;
    profile_result profile;  /* its costs: of each the median of `profiles`, of contention the mean */
    costs profiles[PROFILES_MOST];
    int profiles_n;
} setting;

/* v: CONFIG BATCH SEQ_LEN UNIT_SEQS HOST_MEMORY. CONFIG is a config.json; UNIT_SEQS 0: the usual unit; HOST_MEMORY 0: two tiers, device
 * and disk, else three. The device gets two fifths of what is free, less the host's part, for memory is kept from plan to plan; the
 * disk 64 GiB. */
int setting_open(setting *g, char **v, const char *folder, pt_error *e);

/* Profiles n times more. A virtual machine's share of a processor and of a disk changes within seconds: one profile is of a moment. */
int setting_profile(setting *g, int n, pt_error *e);

/* Seconds that a steady step is predicted to take, and its queues' busy seconds in the schedule whose tasks are timed. */
int plan_predict(const setting *g, const priced_plan *c, double *seconds, double busy[QUEUES], pt_error *e);
/* A step's wall time, and what simulation says when each kind of work costs what it took in this very step: what is left then is
 * the simulation's own error. */
typedef struct step_run { double seconds, with_own_times; } step_run;
/* steps_n steady steps; the one before them meets memory that was just cleared and does not count. busy: of the last one, without a
 * drain. */
int plan_execute(const setting *g, const priced_plan *c, int steps_n, step_run *steps, double busy[QUEUES], pt_error *e);

/* NaN of no values. */
double quantile(const double *v, int n, double at);

#endif
