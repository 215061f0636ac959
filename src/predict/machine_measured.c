/* machine_measured.c - writes a measured machine as a machine file, for planning elsewhere.
 *
 * A profile has the times of a model's blocks, a machine file the rates of the hardware. The file gets the arithmetic rate with which the
 * computed costs equal the measured time of a layer, and the memory bandwidth of updates.
 */
#include "predict/analytic.h"

#include <string.h>

/* The rate between the last two points, or up to the last one if noise has reversed them. */
static double rate_of(const cost_curve *curve)
{
    int i = curve->n - 1;
    if (i < 0)
        return 0;
    bool rises = i > 0 && curve->ns[i] > curve->ns[i - 1];
    double ns = curve->ns[i] - (rises ? curve->ns[i - 1] : 0), amount = curve->amount[i] - (rises ? curve->amount[i - 1] : 0);
    return ns > 0 ? amount / ns * 1e9 : 0;
}

/* The part of the first point's time that this rate does not explain. */
static double latency_of(const cost_curve *curve, double rate)
{
    double s = curve->n && rate > 0 ? curve->ns[0] * 1e-9 - curve->amount[0] / rate : 0;
    return s < 0 ? 0 : s > 1 ? 1 : s;
}

static double layer_ns(const costs *costs) { return costs->layer[0].forward_ns[SAVE_ALL] + costs->layer[0].backward_ns[SAVE_ALL]; }

/* Computed costs fall monotonically with the rate, so bisection finds it. */
static int fit_flops(machine_spec *x, const model *m, const step_shape *shape, double measured_ns, pt_error *e)
{
    double low = 1e6, high = 1e18;
    for (int i = 0; i < 60; i++) {
        double middle = low * __builtin_sqrt(high / low);
        costs costs;
        x->bf16_flops = x->fp32_flops = middle;
        int failed = costs_analytic(x, m, shape, &costs, e);
        if (failed)
            return failed;
        if (layer_ns(&costs) > measured_ns)
            low = middle;
        else
            high = middle;
    }
    return 0;
}

/* The host behind a link, if a plan could have needed it; else it was not measured and is left out. */
static void measure_host(const costs *costs, double update_bytes, machine_spec *out)
{
    double update = rate_of(&costs->update_host), to = rate_of(&costs->to_device), from = rate_of(&costs->from_device);
    double slow = costs->slow[COST_TO_DEVICE][COST_FROM_DEVICE];
    if (!(update > 0) || !(to > 0) || !(from > 0)) {
        out->memory_bytes[TIER_HOST] = 0;
        return;
    }
    out->memory_bandwidth[TIER_HOST] = update * update_bytes;
    out->to_device_bandwidth = to;
    out->from_device_bandwidth = from;
    out->link_latency_s = latency_of(&costs->to_device, to);
    out->link_both_ways = slow > 1 ? 1 / slow : 1;
}

int machine_measured(const char *name, bool cuda, const uint64_t memory_bytes[TIERS], const costs *costs, const model *m,
                     const step_shape *shape, machine_spec *out, pt_error *e)
{
    *out = (machine_spec){.cuda = cuda, .matmul_efficiency = 1, .memory_efficiency = {1, 1, 1}, .disk_both_ways = 1, .link_both_ways = 1,
                          .ranks = 1};
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, name);
    memcpy(out->memory_bytes, memory_bytes, sizeof out->memory_bytes);
    const double update_bytes = rule_bytes(shape_optimizer(shape)->rules[0], shape->type);
    measure_host(costs, update_bytes, out);
    out->memory_bandwidth[TIER_DEVICE] = rate_of(&costs->update_device) * update_bytes;
    out->read_bandwidth = rate_of(&costs->read);
    out->write_bandwidth = rate_of(&costs->write);
    out->disk_latency_s = latency_of(&costs->read, out->read_bandwidth);
    if (out->read_bandwidth > 0 && costs->slow[COST_READ][COST_WRITE] > 1)
        out->disk_both_ways = 1 / costs->slow[COST_READ][COST_WRITE];
    if (!(out->memory_bandwidth[TIER_DEVICE] > 0) || !(layer_ns(costs) > 0))
        return pt_fail(e, PT_FAILED, "%s: neither updates nor layers have been measured", name);
    return fit_flops(out, m, shape, layer_ns(costs), e);
}

static void add_sources(json_t *to, const char *const *figures, const char *source)
{
    for (; *figures; figures++)
        json_object_set_new(to, *figures, json_string(source));
}

json_t *machine_to_json(const machine_spec *x, const char *source)
{
    json_t *device = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "memory_bytes", (json_int_t)x->memory_bytes[TIER_DEVICE],
                               "memory_bandwidth", x->memory_bandwidth[TIER_DEVICE], "memory_efficiency", x->memory_efficiency[TIER_DEVICE],
                               "bf16_flops", x->bf16_flops, "fp32_flops", x->fp32_flops, "matmul_efficiency", x->matmul_efficiency,
                               "kernel_s", x->kernel_s);
    json_t *all = json_pack("{s:s, s:s, s:o, s:{s:s, s:s, s:s}}", "name", x->name, "kind", x->cuda ? "cuda" : "cpu", "device", device,
                            "sources", "device.memory_bandwidth", source, "device.bf16_flops", source, "device.fp32_flops", source);
    json_t *sources = json_object_get(all, "sources");
    if (all && x->memory_bytes[TIER_HOST]) {
        json_object_set_new(all, "host", json_pack("{s:I, s:f, s:f}", "memory_bytes", (json_int_t)x->memory_bytes[TIER_HOST],
                                                   "memory_bandwidth",
                                                   x->memory_bandwidth[TIER_HOST], "memory_efficiency", x->memory_efficiency[TIER_HOST]));
        json_object_set_new(all, "link", json_pack("{s:f, s:f, s:f, s:f}", "to_device_bandwidth", x->to_device_bandwidth,
                                                   "from_device_bandwidth", x->from_device_bandwidth, "latency_s", x->link_latency_s,
                                                   "both_ways", x->link_both_ways));
        add_sources(sources, (const char *const[]){"host.memory_bandwidth", "link.to_device_bandwidth", "link.from_device_bandwidth",
                                                   "link.latency_s", "link.both_ways", NULL}, source);
    }
    if (all && x->memory_bytes[TIER_DISK] && x->read_bandwidth > 0 && x->write_bandwidth > 0) {
        json_object_set_new(all, "disk", json_pack("{s:I, s:f, s:f, s:f, s:f}", "bytes", (json_int_t)x->memory_bytes[TIER_DISK],
                                                   "read_bandwidth", x->read_bandwidth, "write_bandwidth", x->write_bandwidth,
                                                   "latency_s", x->disk_latency_s, "both_ways", x->disk_both_ways));
        add_sources(sources, (const char *const[]){"disk.read_bandwidth", "disk.write_bandwidth", "disk.latency_s", "disk.both_ways", NULL},
                    source);
    }
    return all;
}
