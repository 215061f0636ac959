/* profile_agree.c - do the costs of a profile agree with its own checks? A check is compared with the machine, the costs are not.
 * So a cost that is far from its check, or 0, means that the file was changed or damaged.
 *
 *   check / FAR  |........ check ........ the cost ........|  check * FAR + MOMENT_NS
 *
 * A check is the shortest of several runs, on memory that may be cached; a cost is the median or mean of other runs. With three other
 * programs on each of two cores, the costs of valid profiles were 0.26 to 10 times their checks (backward of layers: 3.2 times their
 * share of operations), on an idle machine 0.5 to 2 times. What takes microseconds may wait longer for its turn than it takes. A disk
 * that caches writes or slows down when it is hot may be many times slower during the check, which comes at the end.
 *
 * A profile that says that its times are uncertain (`spread`) may be so many times farther from its checks: four ranks that measure on two
 * cores had costs of 147 times their checks, and a spread of 11. */
#include "profile/profile_parts.h"

#include <math.h>

static const double FAR = 30, DISK_FAR = 300, FINISH_FAR = 120 /* rounding a gradient takes 0.1 to 0.3 of its update */, MOMENT_NS = 10e6;

/* ---- one cost ---- */

typedef struct cost_of_check {
    const char *curve, *check; /* keys; check NULL: there is none */
    size_t curve_at, check_at;
    bool (*there)(const profile_request *r); /* NULL: always */
    double far;
} cost_of_check;

static bool has_host(const profile_request *req) { return req->host_tier; }
static bool has_copies(const profile_request *req) { return req->host_tier && req->transfers; }

#define CHECKED(curve, key, check, there, far) {#curve, key, offsetof(costs, curve), offsetof(profile_result, check), there, far}
static const cost_of_check machine_curves[] = {
    CHECKED(finish, "check", update, NULL, FINISH_FAR),
    CHECKED(update_device, "check", update, NULL, FAR),
    CHECKED(update_host, "check_update_host", update_host, has_host, FAR),
    CHECKED(to_device, "check_to_device", to_device, has_copies, FAR),
    CHECKED(from_device, "check_from_device", from_device, has_copies, FAR),
    CHECKED(read, "check_read", read, links_have_disk, DISK_FAR),
    CHECKED(write, "check_write", write, links_have_disk, DISK_FAR),
};
enum { CURVES = sizeof machine_curves / sizeof *machine_curves };

static int costs_nothing(const char *name, profile_part part, const char *key, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%.300s: %s: \"%s\" costs nothing, and it is needed here: measure again", name,
                   profile_part_names[part], key);
}

static int far_off(const char *name, profile_part part, const char *key, double ns, const char *check, double check_ns, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%.300s: %s: \"%s\" has %.3g ms where its \"%s\" took %.3g ms: they cannot both be right, measure "
                   "again", name, profile_part_names[part], key, ns * 1e-6, check, check_ns * 1e-6);
}

/* FAR for a profile whose spread is this. */
static double far_with(double far, double spread) { return far * (1 + fmax(spread, 0)); }

static bool agrees(double ns, double least, double most, double far) { return ns >= least / far && ns <= most * far + MOMENT_NS; }

/* ---- parts ---- */

static int curve_agrees(const cost_of_check *k, const profile_result *result, const char *name, pt_error *e)
{
    const cost_curve *curve = (const cost_curve *)((const char *)&result->costs + k->curve_at);
    const profile_check *check = k->check ? (const profile_check *)((const char *)result + k->check_at) : NULL;
    const double far = far_with(k->far, result->costs.curves_spread);
    if (!curve->n || !(curve->ns[0] > 0))
        return costs_nothing(name, PROFILE_MACHINE, k->curve, e);
    for (int i = -1; i < curve->n && check && check->amount; i++) { /* the amount of the check, and each point of the curve */
        const double amount = i < 0 ? (double)check->amount : curve->amount[i], ns = cost_at(curve, amount),
                     times = amount / (double)check->amount;
        if (!agrees(ns, check->ns * fmin(times, 1), check->ns * fmax(times, 1), far))
            return far_off(name, PROFILE_MACHINE, k->curve, ns, k->check, check->ns, e);
    }
    return 0;
}

static int quota_agrees(const profile_result *result, const char *name, pt_error *e)
{
    const cost_quota *q = &result->costs.quota;
    for (int a = 0; a < COST_CLASSES && q->period_ns > 0; a++)
        if (q->busy[a] > SLOW_MOST * q->processors)
            return pt_fail(e, PT_FAILED, "%.300s: %s: \"quota\": %s keeps %g processors busy, and at most %g are measured: measure again",
                           name,
                           profile_part_names[PROFILE_MACHINE], cost_class_names[a], q->busy[a], SLOW_MOST * q->processors);
    return 0;
}

/* The measured slowdown is never larger; more than that is noise. */
static int contention_agrees(const profile_result *result, const char *name, pt_error *e)
{
    for (int a = 0; a < COST_CLASSES; a++)
        for (int b = 0; b < COST_CLASSES; b++) {
            const double share = costs_length_most(&result->costs, (cost_class)a);
            const double slow = result->costs.slow[a][b] + fmax(result->costs.slow_more[a][b], 0) * share;
            if (slow > SLOW_MOST * (1 + 1e-6)) /* the digits of a file are rounded */
                return pt_fail(e, PT_FAILED, "%.300s: %s: \"slow\": %s beside %s takes %g times as long, and at most %d are measured: "
                               "measure again", name, profile_part_names[PROFILE_MACHINE], cost_class_names[a], cost_class_names[b],
                               slow, SLOW_MOST);
        }
    return 0;
}

static int machine_agrees(const profile_request *req, const profile_result *result, const char *name, pt_error *e)
{
    int failed = result->costs.task_ns > 0 ? 0 : costs_nothing(name, PROFILE_MACHINE, "task_ns", e);
    for (int i = 0; i < CURVES && !failed; i++)
        if (!machine_curves[i].there || machine_curves[i].there(req))
            failed = curve_agrees(&machine_curves[i], result, name, e);
    if (!failed)
        failed = contention_agrees(result, name, e);
    return failed ? failed : quota_agrees(result, name, e);
}

/* The check ran the first layer forward on some rows of a unit. More rows take longer, at most in proportion to their operations; few rows
 * are relatively slow, because all weights are read. Backward recomputes a layer and does twice its work. */
static int kind_agrees(const profile_request *req, const profile_result *result, int kind, const char *name, pt_error *e)
{
    const layer_cost *c = &result->costs.layer[kind];
    const step_shape *shape = req->shape, cut = shape_cut(shape, result->layer.amount);
    int block = 1;
    while (block < req->model->config.layers && result->costs.kind_of_layer[block - 1] != kind)
        block++;
    const double times = layer_flops(req->model, block - 1, shape) / layer_flops(req->model, 0, &cut);
    const double least = result->layer.ns * fmin(times, 1), most = result->layer.ns * fmax(times, 1),
                 far = far_with(FAR, result->costs.spread);
    for (int level = 0; level < SAVE_LEVELS; level++) {
        if (!agrees(c->forward_ns[level], least, most, far))
            return far_off(name, PROFILE_BLOCKS, "forward_ns", c->forward_ns[level], "check", result->layer.ns, e);
        if (!agrees(c->backward_ns[level], least, 3 * most, far))
            return far_off(name, PROFILE_BLOCKS, "backward_ns", c->backward_ns[level], "check", result->layer.ns, e);
    }
    return 0;
}

/* The head computes forward and backward in one task, compared with the layer's check by their operations. An embedding only copies
 * rows. */
static int ends_agree(const profile_request *req, const profile_result *result, const char *name, pt_error *e)
{
    const step_shape *shape = req->shape, cut = shape_cut(shape, result->layer.amount);
    const double times = model_head_flops(req->model, shape->unit_rows) / layer_flops(req->model, 0, &cut);
    const double rows = (double)shape->unit_rows / (double)cut.unit_rows;
    const double least = result->layer.ns * fmin(times, 1), most = result->layer.ns * fmax(times, 1),
                 far = far_with(FAR, result->costs.spread);
    const costs *costs = &result->costs;
    if (!agrees(costs->head_ns, least, 3 * most, far))
        return far_off(name, PROFILE_BLOCKS, "head_ns", costs->head_ns, "check", result->layer.ns, e);
    if (!agrees(costs->head_eval_ns, least, most, far))
        return far_off(name, PROFILE_BLOCKS, "head_eval_ns", costs->head_eval_ns, "check", result->layer.ns, e);
    if (!agrees(costs->embed_ns, 0, result->layer.ns * fmax(rows, 1), far))
        return far_off(name, PROFILE_BLOCKS, "embed_ns", costs->embed_ns, "check", result->layer.ns, e);
    return 0;
}

static int blocks_agree(const profile_request *req, const profile_result *result, const char *name, pt_error *e)
{
    const costs *costs = &result->costs;
    const struct { const char *key; double ns; } needed[] = {
        {"check", result->layer.ns}, {"embed_ns", costs->embed_ns}, {"head_ns", costs->head_ns}, {"head_eval_ns", costs->head_eval_ns},
        {"step_ns", costs->step_ns}, {"embed_finish", costs->embed_finish.n ? costs->embed_finish.ns[0] : 0}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!(needed[i].ns > 0))
            return costs_nothing(name, PROFILE_BLOCKS, needed[i].key, e);
    int failed = 0;
    for (int kind = 0; kind < costs->kinds_n && !failed; kind++)
        failed = kind_agrees(req, result, kind, name, e);
    return failed ? failed : ends_agree(req, result, name, e);
}

int profile_agrees(profile_part part, const char *name, const profile_request *req, const profile_result *result, pt_error *e)
{
    return part == PROFILE_BLOCKS ? blocks_agree(req, result, name, e) : machine_agrees(req, result, name, e);
}
