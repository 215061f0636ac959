/* plan_file.h - random plans in files, for --plan. Include after fixture.h. */
#ifndef PT_TEST_PLAN_FILE_H
#define PT_TEST_PLAN_FILE_H

#include "random_plan.h"

/* ranks: 0: one. ranges: by ranges of experts. */
typedef struct plan_case {
    pt_dtype type;
    int64_t batch, seq_len;
    bool clipping, host_tier, ranges;
    const optimizer *optimizer;
    int lanes, ranks;
} plan_case;

/* Whether its schedule has buffers enough. */
static inline bool plan_can_be_built(const model *m, const step_shape *shape, const packing *k, const plan *p, bool host_tier)
{
    const schedule_input in = {.model = m, .shape = shape, .packing = k, .plan = p, .training = true, .host_tier = host_tier};
    schedule s;
    if (schedule_build(&in, SCHEDULE_STEP, &s, NULL))
        return false;
    schedule_free(&s);
    return p->update != UPDATE_NEXT_FORWARD || (!schedule_build(&in, SCHEDULE_STEP_UPDATE, &s, NULL) && (schedule_free(&s), true));
}

/* Any plan that works, into the file `path`. */
static inline void write_random_plan(random_source *random, const model *m, const plan_case *c, const char *path)
{
    pt_error e = {0};
    step_shape shape;
    packing k;
    plan p;
    step_shape_init(&shape, m, c->type, c->batch, c->seq_len);
    if (on_gpu())
        step_shape_for_gpu(&shape, m);
    shape.optimizer = c->optimizer;
    if (c->lanes > 1)
        step_shape_in_lanes(&shape, m, c->lanes);
    const step_shape whole = shape;
    must(step_shape_of_rank(&shape, &whole, c->ranks > 1 ? c->ranks : 1, 0, &e), &e);
    for (bool good = false; !good;) {
        must(random_packing(random, m, &shape, &k, &e), &e);
        must(random_plan(random, m, &shape, &k, c->clipping, c->host_tier, &p, &e), &e);
        good = (p.ranges || !c->ranges) && plan_can_be_built(m, &shape, &k, &p, c->host_tier);
        if (good) {
            char *json = plan_to_json(&p, m, &shape);
            assert_non_null(json);
            must(file_write_atomic(path, json, strlen(json), &e), &e);
            free(json);
        }
        plan_free(&p);
        packing_free(&k);
    }
}

#endif
