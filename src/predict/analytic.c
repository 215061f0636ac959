/* analytic.c - computes the costs of a step on another machine.
 *
 * Each block runs against a queue that computes nothing. For every op that is submitted to it, the queue adds its time (op_times.c). So
 * the recomputation of every save level, the slices of the head and all other work of the blocks is counted as it is. Tensors have
 * addresses in an unused range, which nothing reads. The bytes of an op are those of its operands, each once; attention counts the pairs
 * of query and key that it visits.
 *
 * A transfer takes its latency plus bytes / bandwidth. Concurrent work shares a memory: two users that alone take a and b of its bandwidth
 * B, together more than B, are both slowed down by (a + b) / B. Exchanges between ranks take as long as the links inside a machine or the
 * network need, whichever is longer.
 */
#include "layer/block.h"
#include "predict/analytic.h"
#include "predict/op_times.h"

#include <string.h>

/* ---- the counting queue ---- */

typedef struct meter {
    queue queue;
    device device;
    const model *model;
    op_rates rates;
    double ns;
} meter;

static double max_of(double a, double b) { return a > b ? a : b; }

static void meter_submit(queue *q, const op *o)
{
    meter *m = (meter *)q;
    m->ns += op_time_ns(&m->rates, o, m->model->config.vocab);
}

static const device_table meter_table = {.submit = meter_submit};

/* ---- blocks ---- */

/* The start of an address range that is never read. */
static char *address(int i) { return (char *)(uintptr_t)((uint64_t)(i + 1) << 40); }

typedef struct blocks {
    meter meter;
    const model *model;
    const step_shape *shape;
    const void **slices;
    int slices_n;
} blocks;

static double metered(blocks *b)
{
    double ns = b->meter.ns;
    b->meter.ns = 0;
    return ns;
}

static block_weights weights_of(const blocks *b, int block)
{
    const int64_t outputs = model_outputs(&b->model->config), slice = b->shape->slice_rows;
    const bool head = block == b->model->blocks_n - 1;
    block_weights w = {.slices = b->slices, .slices_n = head ? (int)((outputs + slice - 1) / slice) : b->slices_n};
    if (b->model->config.input_width && !block)
        w.input_slices = b->slices, w.input_slices_n = b->slices_n;
    for (int role = 0; role < PARAM_ROLES; role++)
        if (b->model->blocks[block].param_of_role[role] >= 0)
            w.param[role] = address(role);
    return w;
}

static block_unit unit_of(const blocks *b)
{
    return (block_unit){.dropout = 1, .stream = residual_bytes(b->model, b->shape) ? (float *)address(65) : NULL, .carried = address(66),
                        .carried_gradient = address(67)};
}

static void price_layer(blocks *b, int block, layer_cost *out)
{
    const block_context ctx = {b->model, b->shape, &b->meter.queue};
    const block_unit unit = unit_of(b);
    block_weights w = weights_of(b, block);
    char *saved = address(60), *workspace = address(61), *x = address(62);
    float *accumulators = (float *)address(63);
    for (int level = 0; level < SAVE_LEVELS; level++) {
        layer_layout layout;
        layer_layout_init(&layout, b->model, block - 1, b->shape, (save_level)level);
        layer_forward(&ctx, block, &layout, &w, &unit, saved, workspace, x);
        out->forward_ns[level] = metered(b);
        if (block < model_first_trained(b->model))
            continue;
        layer_backward(&ctx, block, &layout, &w, &unit, saved, workspace, x, accumulators, false);
        out->backward_ns[level] = metered(b);
    }
}

static void price_layers(blocks *b, costs *out)
{
    layer_kinds kinds;
    model_layer_kinds(b->model, shape_length(b->shape), &kinds);
    out->kinds_n = kinds.n;
    memcpy(out->kind_of_layer, kinds.of_layer, sizeof out->kind_of_layer);
    for (int k = 0; k < kinds.n; k++)
        price_layer(b, kinds.first[k] + 1, &out->layer[k]);
}

static void price_ends(blocks *b, costs *out)
{
    const block_context ctx = {b->model, b->shape, &b->meter.queue};
    const block_unit unit = unit_of(b);
    int head = b->model->blocks_n - 1;
    block_weights w = weights_of(b, 0);
    embedding_forward(&ctx, &w, &unit, address(60));
    out->embed_ns = metered(b);
    w = weights_of(b, head);
    float *loss = (float *)address(62), *accumulators = (float *)address(63);
    head_forward_backward(&ctx, &w, &unit, address(60), address(61), (head_output){.loss = loss},
                          model_first_trained(b->model) < head ? address(64) : NULL, accumulators, false, 1);
    out->head_ns = metered(b);
    head_forward_backward(&ctx, &w, &unit, address(60), address(61), (head_output){.loss = loss}, NULL, NULL, false, 1);
    out->head_eval_ns = metered(b);
}

/* One slice of the vocabulary's table: the rows of every unit, then the rounding. */
static void price_embed_finish(blocks *b, costs *out)
{
    const step_shape *shape = b->shape;
    const model_config *m = &b->model->config;
    int64_t rows = shape->slice_rows < m->vocab ? shape->slice_rows : m->vocab;
    for (int64_t i = 0; i < shape->units_n; i++)
        queue_submit(&b->meter.queue, &(op){OP_EMBEDDING_BACKWARD, .embedding_backward = {
            .type = shape->type, .accumulate = i > 0, .rows = shape->unit_rows, .cols = m->hidden, .table_rows = rows}});
    queue_submit(&b->meter.queue, &(op){OP_GRADIENT_FINISH,
                                        .gradient_finish = {.type = shape->type,
                                                            .rows = rows,
                                                            .cols = m->hidden,
                                                            .acc2 = head_adds_to_embedding(b->model) ? (const float *)address(0) : NULL}});
    out->embed_finish = (cost_curve){1, {(double)(rows * m->hidden)}, {metered(b)}};
}

static int price_blocks(const machine_spec *x, const model *m, const step_shape *shape, costs *out, pt_error *e)
{
    blocks b = {.model = m, .shape = shape};
    b.slices_n = (int)((m->config.vocab + shape->slice_rows - 1) / shape->slice_rows);
    b.slices = malloc((size_t)b.slices_n * sizeof *b.slices);
    if (!b.slices)
        return pt_fail(e, PT_FAILED, "out of memory for the %d slices of the vocabulary", b.slices_n);
    for (int i = 0; i < b.slices_n; i++)
        b.slices[i] = address(70);
    b.meter = (meter){.device.table = &meter_table, .model = m, .rates = op_rates_of(x)};
    b.meter.queue.device = &b.meter.device;
    price_layers(&b, out);
    price_ends(&b, out);
    price_embed_finish(&b, out);
    free(b.slices);
    return 0;
}

/* ---- by amount ---- */

static cost_curve line(double fixed_ns, double ns_per_amount)
{
    return (cost_curve){2, {1, 1e9}, {fixed_ns + ns_per_amount, fixed_ns + 1e9 * ns_per_amount}};
}

static cost_curve link_curve(double latency_s, double bandwidth)
{
    return bandwidth > 0 ? line(latency_s * 1e9, 1e9 / bandwidth) : (cost_curve){0};
}

static double reached(const machine_spec *x, tier t) { return x->memory_bandwidth[t] * x->memory_efficiency[t]; }

/* At which the host's cores read and write for an update. */
static double host_update_bandwidth(const machine_spec *x)
{
    const double memory = reached(x, TIER_HOST), cores = x->host_cores * x->core_bandwidth;
    return cores > 0 && cores < memory ? cores : memory;
}

/* A rank receives what it does not have itself of the data of all `ranks`: from the others of its machine, and from other machines. */
static cost_curve exchange_curve(const machine_spec *x, int ranks)
{
    const int here = machine_ranks_here(x, ranks);
    const double inside = (here - 1.0) / ranks * 1e9 / x->collective_bandwidth;
    const double outside = here < ranks ? (double)(ranks - here) / ranks * 1e9 / x->network_bandwidth : 0;
    return line(x->collective_latency_s * 1e9, max_of(inside, outside));
}

static void price_amounts(const machine_spec *x, const step_shape *shape, costs *out)
{
    double gradient = (double)dtype_bytes(shape->type), update = rule_bytes(shape_optimizer(shape)->rules[0], shape->type),
           kernel = x->kernel_s * 1e9;
    double device = 1e9 / reached(x, TIER_DEVICE);
    out->finish = line(kernel, (4 + gradient) * device);
    out->update_device = line(kernel, update * device);
    if (x->memory_bytes[TIER_HOST])
        out->update_host = line(0, update * 1e9 / host_update_bandwidth(x));
    const double whole = 1e9 / (x->bf16_flops * x->matmul_efficiency), ops = 20; /* matmuls, and passes over their operands */
    out->whole_device = line(ops * kernel, whole);
    if (x->memory_bytes[TIER_HOST])
        out->whole_host = line(0, whole);
    out->to_device = link_curve(x->link_latency_s, x->to_device_bandwidth);
    out->from_device = link_curve(x->link_latency_s, x->from_device_bandwidth);
    out->read = link_curve(x->disk_latency_s, x->read_bandwidth);
    out->write = link_curve(x->disk_latency_s, x->write_bandwidth);
    if (shape_ranks(shape) > 1 && x->collective_bandwidth > 0)
        out->gather = out->scatter = exchange_curve(x, shape_ranks(shape));
}

/* ---- contention ---- */

/* The share of a memory's bandwidth that each class uses alone. */
typedef struct demand { double total, of[COST_CLASSES]; } demand;

static void share_memory(costs *costs, const demand *d)
{
    for (int a = 0; a < COST_CLASSES; a++)
        for (int b = 0; b < COST_CLASSES; b++) {
            double both = d->of[a] + d->of[b];
            if (a != b && d->of[a] > 0 && d->of[b] > 0 && both > d->total)
                costs->slow[a][b] = max_of(costs->slow[a][b], both / d->total);
        }
}

static void both_slow(costs *costs, cost_class a, cost_class b, double times)
{
    costs->slow[a][b] = max_of(costs->slow[a][b], times);
    costs->slow[b][a] = max_of(costs->slow[b][a], times);
}

static void price_contention(const machine_spec *x, costs *costs)
{
    bool host = x->memory_bytes[TIER_HOST] > 0;
    demand device = {.total = reached(x, TIER_DEVICE)}, ram = {.total = host ? reached(x, TIER_HOST) : 0};
    demand *disk_end = x->cuda && host ? &ram : &device; /* the other end of disk transfers */
    device.of[COST_MEMORY] = device.total;
    device.of[COST_TO_DEVICE] = ram.of[COST_TO_DEVICE] = x->to_device_bandwidth;
    device.of[COST_FROM_DEVICE] = ram.of[COST_FROM_DEVICE] = x->from_device_bandwidth;
    ram.of[COST_HOST] = host ? host_update_bandwidth(x) : 0;
    disk_end->of[COST_READ] = x->read_bandwidth;
    disk_end->of[COST_WRITE] = x->write_bandwidth;
    share_memory(costs, &device);
    share_memory(costs, &ram);
    if (host)
        both_slow(costs, COST_TO_DEVICE, COST_FROM_DEVICE, 1 / x->link_both_ways);
    if (x->memory_bytes[TIER_DISK])
        both_slow(costs, COST_READ, COST_WRITE, 1 / x->disk_both_ways);
    if (host && !x->cuda) { /* one processor and one memory do the work of both */
        both_slow(costs, COST_HOST, COST_MATH, 2);
        both_slow(costs, COST_HOST, COST_MEMORY, 2);
        for (cost_class copy = COST_TO_DEVICE; copy <= COST_FROM_DEVICE; copy++) {
            both_slow(costs, COST_MEMORY, copy, 2);
            both_slow(costs, COST_HOST, copy, 2);
        }
    }
}

/* The host tier of a CPU is in the same RAM: a copy reads and writes it. */
static machine_spec with_host_tier(const machine_spec *x)
{
    machine_spec y = *x;
    if (x->cuda || x->memory_bytes[TIER_HOST])
        return y;
    y.memory_bytes[TIER_HOST] = x->memory_bytes[TIER_DEVICE];
    y.memory_bandwidth[TIER_HOST] = x->memory_bandwidth[TIER_DEVICE];
    y.memory_efficiency[TIER_HOST] = x->memory_efficiency[TIER_DEVICE];
    y.to_device_bandwidth = y.from_device_bandwidth = reached(x, TIER_DEVICE) / 2;
    y.link_both_ways = 0.5;
    return y;
}

int costs_analytic(const machine_spec *x, const model *m, const step_shape *shape, costs *out, pt_error *e)
{
    const machine_spec all = with_host_tier(x);
    step_shape plain = *shape;
    plain.compare = (preference_rule){PREFERENCE_NONE}; /* pairs: a task of the head computes it twice, and has the price of both */
    costs_init(out);
    int failed = price_blocks(x, m, &plain, out, e);
    if (failed)
        return failed;
    price_amounts(&all, shape, out);
    price_contention(&all, out);
    out->task_ns = x->kernel_s * 1e9;
    return costs_validate(out, m, x->name, e);
}
