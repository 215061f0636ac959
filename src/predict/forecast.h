/* forecast.h - what a plan's steady step will be: where its time goes, and where every byte lies.
 *
 * A steady step is one between others: the step's schedule with the updates of the step before in it, or the step and
 * then its updates, as the plan has it. Times come from the simulator, memory from the schedules' own buffers.
 *
 *   step = needed + again + slowed + waits + outside                     of the compute queue
 *          needed   what every plan has to compute, alone on the machine
 *          again    what was not kept and is computed again
 *          slowed   lost to transfers and host updates that run beside it, and to what the host does for them
 *          waits    nothing to do until another queue is ready, or done at the end
 *          outside  of the schedule: the batch, sums, metrics, and what is left of a period whose processor time is used up
 */
#ifndef PT_FORECAST_H
#define PT_FORECAST_H

#include "predict/simulate.h"

typedef enum memory_part {
    PART_WEIGHTS,
    PART_OPTIMIZER,   /* what it keeps, and in bf16 mode the low halves of the master weights; frozen ones' count as weights */
    PART_GRADIENTS,   /* those that wait for their update, and the accumulators */
    PART_ACTIVATIONS, /* what layers save for backward, and the residual stream */
    PART_WORKSPACE,   /* temporaries, the batch, losses, tables */
    PART_ROOM,        /* gaps at that moment, room for loading and saving */
    MEMORY_PARTS
} memory_part;
extern const char *const part_names[MEMORY_PARTS];

typedef struct forecast {
    double step_ns;
    double busy_ns[QUEUES], alone_ns[QUEUES]; /* alone: if nothing slowed anything down */
    double wait_ns[QUEUES][QUEUES];           /* [a][b]: a stood still while b worked for what it waited for in the end: of a copy
                                                 that waits for its read, the read's time is the disk's. Compute's also after
                                                 its last task, until all is done */
    double phase_ns[PHASES];
    double needed_ns, again_ns;
    double bound_ns;                          /* the busiest queue alone: no order of the same work is faster */
    uint64_t read_bytes, written_bytes;       /* of the disk */
    uint64_t bytes[TIERS];                    /* arenas */
    uint64_t part[TIERS][MEMORY_PARTS];       /* at the fullest moment; they add up to the arena */
} forecast;

/* kinds: all schedules that the run will need (their memory counts). The costs may be all zero: then only memory is said. */
int forecast_make(const schedule_input *in, unsigned kinds, const costs *c, forecast *out, pt_error *e);

/* What a queue whose times are off by as much as they are unsure would add to the step, relative to it: of the queue that would add
 * most. 0: the costs were not measured. */
double forecast_known_to(const forecast *f, const costs *c);
/* Whether the disk is at work for a good part of the step. A disk slows down once its cache is full, and where others use it, which no
 * measurement of a moment shows. */
bool forecast_needs_disk(const forecast *f);
/* ", within 10% in most runs", ", within 10% if the disk keeps its pace", or "" where nothing was measured; ", roughly ..." where it may be
 * off by half, or the step is short. What it is off by is more than what the measurements differ by among themselves: of the plans that
 * were run on five machines (bench/results/predict-*.jsonl) nine of ten took at most FORECAST_OFF longer or shorter than predicted. */
#define FORECAST_OFF 0.1
#define FORECAST_SHORT_S 0.05 /* of shorter steps too little is known: they were not collected */
enum { FORECAST_SURE_BYTES = 64 };
const char *forecast_sure_words(const forecast *f, const costs *c, char out[FORECAST_SURE_BYTES]);

/* What a day of such steps writes, beside what disks are rated for: about 600 TB for each TB of a consumer's disk. `f` writes something. */
enum { FORECAST_WEAR_BYTES = 160 };
const char *forecast_wear(const forecast *f, char out[FORECAST_WEAR_BYTES]);
/* With what a step writes: "; 1.21 GiB written to the disk a step, without a pause ...". "": nothing is written. */
enum { FORECAST_WRITTEN_BYTES = FORECAST_WEAR_BYTES + 64 };
const char *forecast_written(const forecast *f, char out[FORECAST_WRITTEN_BYTES]);

/* The schedules of a steady step of a plan with such updates: *second is -1 where there is one. */
void steady_schedules(update_time update, schedule_kind *first, int *second);

#endif
