/* rule.h - a plan by one simple rule: everything resident if it fits, else the least that has to give way.
 *
 * A ladder of plans, each more economical than the one before; the first that fits the budgets is taken:
 *   1. all on the device, and everything saved for backward; then less and less saved
 *   2. as many of the first chunks as fit on the device, the others on the host, then on the disk
 *   3. saved sets move out too
 */
#ifndef PT_RULE_H
#define PT_RULE_H

#include "schedule/schedule.h"

typedef struct rule_input {
    const model *model;
    const step_shape *shape;
    uint64_t budget[TIERS];
    bool training, clipping;
    bool host_tier;
    int64_t micro_batch;  /* 0: one unit */
    unsigned kinds;       /* bit set of the schedules that will run */
} rule_input;

/* Fills plan and packing (to be freed by the caller). PT_DOES_NOT_FIT with what is missing. `least` (may be NULL)
 * gets what the most economical plan needs. */
int rule_plan(const rule_input *in, packing *k, plan *p, uint64_t least[TIERS], pt_error *e);

#endif
