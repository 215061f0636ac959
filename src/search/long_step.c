/* long_step.c - steps of very many micro-batches.
 *
 * All micro-batches are alike, so a step of thousands of units is searched as a step of some hundreds, divided in the same ways. The plan
 * found is also a plan of the long step and is priced as such at the end, unless building it would take more than seconds. The
 * additional memory of the long step, which does not depend on the plan, is first taken from the device's budget: the batch's tokens and,
 * if the embedding is trained, the stream gradients.
 */
#include "search/walk.h"

#include <string.h>

enum { MANY = 8192, ENOUGH = 2048 }; /* units times layers */
enum { TASKS = 1 << 17 };            /* built in about a second */

static int64_t units_times_layers(const search_input *in, int64_t units) { return units * in->model->config.layers; }

/* A number of units that is small enough and allows the step's micro-batches and visits: as large a multiple of their common divisor as the
 * limit allows. 0: the step's micro-batches have more units. */
static int64_t fewer_units(const search_input *in)
{
    const step_shape *shape = in->shape;
    const int64_t least = in->micro_batch ? in->micro_batch / shape->unit_seqs : shape_together(shape);
    const int64_t enough = ENOUGH / in->model->config.layers;
    int64_t units = enough;
    while (units > 0 && (shape->units_n % units || units % least))
        units--;
    return units ? enough / units * units : 0;
}

static uint64_t page(uint64_t bytes) { return align_up(bytes, 4096); }

/* Memory on the device for each unit of a step, with any plan. */
static uint64_t bytes_of_unit(const search_input *in)
{
    const step_shape *shape = in->shape;
    const uint64_t tokens = (uint64_t)shape->unit_rows * (batch_token_bytes(in->model, shape) + LOSS_TOKEN_BYTES);
    const bool streams = in->training && model_first_trained(in->model) == 0;
    const uint64_t routing = routing_bytes(in->model, shape) / (uint64_t)shape->units_n;
    return tokens + routing + (streams ? page((uint64_t)(shape->unit_rows * in->model->config.hidden) * dtype_bytes(shape->type)) : 0);
}

typedef struct shorter { search_input in; step_shape shape; costs costs; uint64_t beside; double times; } shorter;

static void shorten(const search_input *in, int64_t units, shorter *s)
{
    const int64_t all = in->shape->units_n;
    *s = (shorter){.in = *in, .shape = *in->shape, .costs = *in->costs, .times = (double)all / (double)units};
    s->in.part_of_units = all;
    s->shape.units_n = units;
    while (s->shape.lanes > 1 && units % s->shape.lanes)
        s->shape.lanes--;
    s->shape.batch = units * s->shape.unit_seqs;
    s->beside = bytes_of_unit(in) * (uint64_t)(all - units);
    for (int i = 0; i < s->costs.embed_finish.n; i++)
        s->costs.embed_finish.ns[i] /= s->times;
    s->in.shape = &s->shape;
    s->in.costs = &s->costs;
}

/* A micro-batch goes through each block forward and backward. */
static bool has_too_many_tasks(const search_input *in, const plan *plan)
{
    return in->shape->batch / plan->micro_batch > TASKS / 2 / in->model->blocks_n;
}

/* Scales the result to the long step: it takes about as many times as long. */
static void lengthen(const shorter *s, search_result *r)
{
    for (int i = 0; i < r->others_n; i++) {
        r->others[i].step_ns *= s->times;
        r->others[i].bytes[TIER_DEVICE] += s->beside;
    }
    r->least[TIER_DEVICE] += r->least[TIER_DEVICE] ? s->beside : 0;
    r->best.step_ns *= s->times;
    r->best.bytes[TIER_DEVICE] += s->beside;
}

/* The plan of a shorter step as one of the long step. 1: it fits; 0: it does not, and needs *more bytes on the device. */
static int prove(const search_input *in, priced_plan *c, uint64_t *more, pt_error *e)
{
    const uint64_t budget = in->budget[TIER_DEVICE];
    if (has_too_many_tasks(in, &c->plan))
        return 1;
    int fits = search_price(in, c, e);
    *more = c->bytes[TIER_DEVICE] > budget ? c->bytes[TIER_DEVICE] - budget : budget / 64;
    return fits;
}

static int plan_shorter(const search_input *in, const shorter *s, search_result *out, pt_error *e)
{
    search_input x = s->in;
    const uint64_t budget = in->budget[TIER_DEVICE];
    x.budget[TIER_DEVICE] = budget > s->beside ? budget - s->beside : 0;
    int failed = search_whole(&x, out, e);
    lengthen(s, out);
    return failed;
}

/* ---- the step itself ---- */

static void scale(double *ns, size_t n, double by)
{
    for (size_t i = 0; i < n; i++)
        ns[i] *= by;
}

static void lengthen_forecast(const shorter *s, forecast *f)
{
    double *all[] = {&f->step_ns, f->busy_ns, f->alone_ns, f->wait_ns[0], f->phase_ns, &f->needed_ns, &f->again_ns, &f->bound_ns};
    const size_t n[] = {1, QUEUES, QUEUES, QUEUES * QUEUES, PHASES, 1, 1, 1};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        scale(all[i], n[i], s->times);
    f->read_bytes = (uint64_t)((double)f->read_bytes * s->times);
    f->written_bytes = (uint64_t)((double)f->written_bytes * s->times);
    for (int p = 0; p < MEMORY_PARTS; p++)
        f->written[p] = (uint64_t)((double)f->written[p] * s->times);
    f->bytes[TIER_DEVICE] += s->beside;
    f->part[TIER_DEVICE][PART_WORKSPACE] += s->beside;
}

int search_forecast(const search_input *in, const priced_plan *c, unsigned kinds, forecast *out, pt_error *e)
{
    const int64_t visit = c->plan.micro_batch / in->shape->unit_seqs * c->plan.visit;
    const int64_t units = has_too_many_tasks(in, &c->plan) ? fewer_units(in) / visit * visit : 0;
    shorter s;
    if (units)
        shorten(in, units, &s);
    const search_input *of = units ? &s.in : in;
    const schedule_input x = search_schedules(of, &c->packing, &c->plan);
    int failed = forecast_make(&x, kinds, of->costs, out, e);
    if (units)
        lengthen_forecast(&s, out);
    return failed;
}

int search_plan(const search_input *in, search_result *out, pt_error *e)
{
    enum { TRIES = 4 }; /* corrections of the error of a layout */
    const int64_t units = units_times_layers(in, in->shape->units_n) > MANY ? fewer_units(in) : 0;
    shorter s;
    uint64_t more = 0;
    if (!units)
        return search_whole(in, out, e);
    shorten(in, units, &s);
    for (int i = 0; i < TRIES; i++, s.beside += more) {
        if (i)
            search_result_free(out);
        int failed = plan_shorter(in, &s, out, e);
        int fits = failed ? failed : in->unproven ? 1 : prove(in, &out->best, &more, e);
        if (fits)
            return fits < 0 ? fits : failed;
    }
    return pt_fail(e, PT_DOES_NOT_FIT, "it does not fit: no plan was found within these budgets");
}
