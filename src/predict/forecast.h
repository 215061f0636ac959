/* forecast.h - predicts a plan's steady step: where its time goes, and where every byte lives.
 *
 * A steady step is one in the middle of a run: the step's schedule with the updates of the previous step in it, or the step and then its
 * updates, as the plan says. Times come from the simulator, memory from the buffers of the schedules.
 *
 *   step = needed + again + slowed + waits + outside                     of the compute queue
 *          needed   the computation of any plan, alone on the machine
 *          again    recomputation
 *          slowed   contention with transfers and host updates, and with what the host does for them
 *          waits    for another queue, including the time after its last task
 *          outside  of the schedule: the batch, sums, metrics, and the rest of a period whose processor time is used up
 */
#ifndef PT_FORECAST_H
#define PT_FORECAST_H

#include "predict/simulate.h"

typedef enum memory_part {
    PART_WEIGHTS,
    PART_OPTIMIZER,   /* slabs, and in bf16 mode low halves of trained parameters; those of frozen ones count as weights */
    PART_GRADIENTS,   /* waiting gradients, and accumulators */
    PART_ACTIVATIONS, /* what layers save for backward, and the residual stream */
    PART_WORKSPACE,   /* temporaries, the batch, losses, tables */
    PART_ROOM,        /* gaps at that moment, scratch for loading and saving */
    MEMORY_PARTS
} memory_part;
extern const char *const part_names[MEMORY_PARTS];

typedef struct forecast {
    double step_ns;
    double busy_ns[QUEUES], alone_ns[QUEUES]; /* alone: without contention */
    /* [a][b]: a was idle while b ran the task that everything waited for: if a copy waits for its read, the disk has the time of the read.
     * For compute also after its last task, until all is done. */
    double wait_ns[QUEUES][QUEUES];
    double phase_ns[PHASES];
    double needed_ns, again_ns;
    double bound_ns;                          /* time of the busiest queue alone: a lower bound for any order of the same work */
    uint64_t read_bytes, written_bytes;       /* disk */
    uint64_t written[MEMORY_PARTS];           /* of them: what of each part */
    uint64_t bytes[TIERS];                    /* arenas */
    uint64_t part[TIERS][MEMORY_PARTS];       /* at the fullest moment; they add up to the arena */
} forecast;

/* kinds: all schedules of the run, whose memory counts. If the costs are all zero, only memory is predicted. */
int forecast_make(const schedule_input *in, unsigned kinds, const costs *costs, forecast *out, pt_error *e);

/* The relative increase of the step if the times of one queue were off by their uncertainty, for the queue where that is most. 0: the costs
 * were not measured. */
double forecast_known_to(const forecast *f, const costs *costs);
/* Whether the disk is at work for a good part of the step. A disk slows down once its cache is full, and where others use it, which no
 * measurement of a moment shows. */
bool forecast_needs_disk(const forecast *f);
/* ", within 10% in most runs", ", within 10% if the disk keeps its pace"; ", roughly ..." if the error may be a half, or the step is short;
 * "" if nothing was measured. The error is larger than the uncertainty of the measurements: of the plans that ran on five machines
 * (bench/results/predict-*.jsonl), nine of ten took at most FORECAST_OFF longer or shorter than predicted. */
#define FORECAST_OFF 0.1
#define FORECAST_SHORT_S 0.05 /* shorter steps were not collected */
enum { FORECAST_SURE_BYTES = 64 };
const char *forecast_sure_words(const forecast *f, const costs *costs, char out[FORECAST_SURE_BYTES]);

/* The bytes that a day of such steps writes, compared with what disks are rated for: about 600 TB per TB of a consumer's disk. `f` must
 * write something. */
enum { FORECAST_WEAR_BYTES = 160 };
const char *forecast_wear(const forecast *f, char out[FORECAST_WEAR_BYTES]);
/* The writes of a step: "; 1.21 GiB written to the disk a step, without a pause ...". "": nothing is written. */
enum { FORECAST_WRITTEN_BYTES = FORECAST_WEAR_BYTES + 64 };
const char *forecast_written(const forecast *f, char out[FORECAST_WRITTEN_BYTES]);

/* The schedules of a steady step of a plan with this time of update: *second is -1 if there is only one. */
void steady_schedules(update_time update, schedule_kind *first, int *second);

#endif
