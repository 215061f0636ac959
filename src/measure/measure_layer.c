/* measure_layer.c - a decoder layer for one unit: forward, backward with everything saved, and the recomputation of each other save level.
 *
 *   backward(level) = recompute(level) + backward(everything saved) - the time saved because backward finds recomputed tensors in the cache
 *   forward(level)  = forward(input saved) + the additional time of saving everything, in proportion to the bytes saved beyond the input
 *
 * Tensors that are not saved go to a workspace, which stays in the cache. So forward is up to 20% faster if less is saved.
 *
 * Every round runs all of these. Each stage uses another set of weights and saved tensors, because a layer whose weights are in the cache
 * would be too fast. Together, the sets exceed every cache or are as large as all that a step touches. In backward, the cache is full of
 * the gradients of the layer that was processed before, which must be written back first; in forward it is not.
 *
 * If several micro-batches pass through a layer in one visit, its gradient accumulators stay in the cache. If each micro-batch passes
 * through all layers, every layer has its own accumulators, and they come from memory (cold). The additional time does not depend on the
 * number of rows. It is measured with the few rows that run first, with several sets of accumulators in turn that fill 256 MiB.
 * Initializing accumulators takes longest, because those of the layer before must be written back as well.
 *
 * The second and later units of a visit find the layer's weights in the cache (warm). The time saved is measured with the few rows, too,
 * with everything and with nothing saved. Levels between are interpolated by the time of their recomputation.
 *
 * Layers without backward run only forward. Gradients are computed only for trained parameters.
 *
 * If a unit takes too long or does not fit, fewer rows run: fewer sequences, then shorter ones. The time of the unit is extrapolated
 * linearly from very few rows and these, because a part of the work (reading weights, adding to their gradients) does not depend on the
 * number of rows. Attention grows with the square of the length. So if sequences are shortened, it is measured separately
 * (measure_attention.c): its time at the short length is subtracted, and its time at the full length is added. */
#include "measure/heating.h"
#include "measure/measure_parts.h"

#include "base/clock.h"

#include <math.h>

enum { SETS = 64, CHECK_SETS = 8 };
/* Limits on differences between disturbed times; idle machines have not exceeded them. The least time of forward without saving, as a
 * fraction of forward with everything saved; and the largest part of recomputation that running backward right after it saves. */
#define SAVING_NOTHING_LEAST 0.75
#define SAVED_TOGETHER_MOST 0.5
enum { ROUNDS_OF_FEW = 7 }; /* with only three, the median of a difference varied between 0.2 and 1 ms */

typedef struct layer_bench {
    const model *model;
    step_shape shape;
    int block, sets_n;
    bool backwards; /* has a backward pass */
    bool again;     /* also time each pass right after itself, with warm weights */
    bool rounding;  /* round gradients between passes, as a step does; left out if memory is short */
    layer_layout layouts[SAVE_LEVELS];
    block_weights w[SETS];
    char *saved[SETS];
    char *workspace, *out, *dx, *gradient, *rounded;
    float *accumulators;
    int accumulators_n;     /* sets; the first one is rounded */
    double *sumsq;
    unit_data data;
    samples forward, forward_input, forward_warm, backward, backward_warm, first, cold, recompute[SAVE_ALL], both, both_warm;
} layer_bench;

/* ---- memory ---- */

static uint64_t stream_bytes(const layer_bench *y)
{
    return (uint64_t)(y->shape.unit_rows * y->model->config.hidden) * dtype_bytes(y->shape.type);
}

static uint64_t workspace_bytes(const layer_bench *y)
{
    uint64_t most = 0;
    for (int l = 0; l < SAVE_LEVELS; l++) {
        const layer_layout *k = &y->layouts[l];
        most = k->forward_workspace > most ? k->forward_workspace : most;
        most = k->backward_workspace > most ? k->backward_workspace : most;
    }
    return most;
}

/* Of the level that saves most, which need not be the last if activations are saved as codes. */
static uint64_t saved_bytes(const layer_bench *y)
{
    uint64_t most = 0;
    for (int level = 0; level < SAVE_LEVELS; level++)
        most = y->layouts[level].saved_bytes > most ? y->layouts[level].saved_bytes : most;
    return most;
}

static void layout(area *a, void *arg)
{
    layer_bench *y = arg;
    for (int i = 0; i < y->sets_n; i++) {
        area_weights(a, &y->shape, y->block, &y->w[i], NULL);
        y->saved[i] = area_take(a, saved_bytes(y), PATTERN_VALUES);
    }
    y->workspace = area_take(a, workspace_bytes(y), PATTERN_NONE);
    y->out = area_take(a, stream_bytes(y), PATTERN_NONE);
    unit_data_take(a, &y->shape, 1, &y->data);
    unit_stream_take(a, y->model, &y->shape, &y->data.unit);
    if (!y->backwards)
        return;
    y->dx = area_take(a, stream_bytes(y), PATTERN_GRADIENTS);
    y->gradient = area_take(a, stream_bytes(y), PATTERN_GRADIENTS);
    const uint64_t n = (uint64_t)accumulator_elements(y->model, y->block);
    y->accumulators = n ? area_take(a, (uint64_t)y->accumulators_n * n * sizeof(float), PATTERN_SMALL) : NULL;
    if (!y->rounding || !n)
        return;
    y->rounded = area_take(a, n * dtype_bytes(y->shape.type), PATTERN_NONE);
    y->sumsq = area_take(a, (n / (uint64_t)y->model->config.hidden / SUMSQ_ROWS + 1) * sizeof(double), PATTERN_NONE);
}

/* Sizes for `rows` rows of a unit, and as many sets as the budget allows. A step touches 18 bytes per parameter: weights, two moments, a
 * gradient and its accumulator. */
static void resize(layer_bench *y, bench *b, int64_t rows)
{
    const uint64_t cache = bench_beyond_cache(b), step = (uint64_t)y->model->parameters * 18, enough = cache < step ? cache : step;
    y->shape = shape_cut(b->r->shape, rows);
    y->accumulators_n = 1;
    for (int l = 0; l < SAVE_LEVELS; l++)
        layer_layout_init(&y->layouts[l], y->model, y->block - 1, &y->shape, l);
    y->sets_n = 1;
    uint64_t one = area_bytes(b, layout, y);
    y->sets_n = 2;
    uint64_t set = area_bytes(b, layout, y) - one, budget = b->r->budget[TIER_DEVICE];
    int64_t n = (int64_t)(enough / set) + 1;
    n = n > SETS ? SETS : n;
    while (n > 1 && one + (uint64_t)(n - 1) * set > budget)
        n--;
    y->sets_n = (int)n;
}

/* As many sets of accumulators as there are layers, as fill 256 MiB, or as fit. Two are too few: the one that is not rounded would stay in
 * the cache. */
static void add_accumulators(layer_bench *y, bench *b)
{
    const uint64_t enough = 256u << 20, one = (uint64_t)accumulator_elements(y->model, y->block) * sizeof(float);
    const int64_t layers = y->model->config.layers, most = one ? 2 + (int64_t)(enough / one) : 1;
    y->accumulators_n = (int)(most < layers ? most : layers);
    while (y->accumulators_n > 2 && area_bytes(b, layout, y) > b->r->budget[TIER_DEVICE])
        y->accumulators_n--;
    if (y->accumulators_n <= 2)
        y->accumulators_n = 1;
}

/* ---- runs ---- */

static block_context context_of(const layer_bench *y, queue *q) { return (block_context){y->model, &y->shape, q}; }

/* In the order of a round. */
enum { STAGE_FORWARD_INPUT, STAGE_FORWARD, STAGE_BACKWARD, STAGE_FIRST, STAGE_COLD, STAGE_RECOMPUTE,
       STAGE_BOTH = STAGE_RECOMPUTE + SAVE_ALL, STAGES };

/* Each stage uses another set than the one before. */
static int set_of(const layer_bench *y, int stage, int turn) { return (int)(((int64_t)turn * STAGES + stage) % y->sets_n); }

static void forward_of(queue *q, layer_bench *y, int level, int weights, int saved)
{
    block_context ctx = context_of(y, q);
    layer_forward(&ctx, y->block, &y->layouts[level], &y->w[weights], &y->data.unit, y->saved[saved], y->workspace, y->out);
}

static void forward(queue *q, void *arg, int level, int turn)
{
    const int set = set_of(arg, level == SAVE_ALL ? STAGE_FORWARD : STAGE_FORWARD_INPUT, turn);
    forward_of(q, arg, level, set, set);
}

/* With the weights of the pass before, and the saved tensors that were used least recently. */
static void forward_warm(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    const int set = set_of(y, STAGE_FORWARD, turn);
    forward_of(q, y, level, set, (set + y->sets_n / 2) % y->sets_n);
}

/* For a round of this stage alone. */
static void forward_alone(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    forward_of(q, y, level, turn % y->sets_n, turn % y->sets_n);
}

static void recompute(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    block_context ctx = context_of(y, q);
    const int set = set_of(y, STAGE_RECOMPUTE + SAVE_ALL - 1 - level, turn);
    layer_recompute(&ctx, y->block, &y->layouts[level], &y->w[set], &y->data.unit, y->saved[set], y->workspace);
}

static void backward_of(queue *q, layer_bench *y, int level, int weights, int saved, float *sums, bool first)
{
    block_context ctx = context_of(y, q);
    layer_backward(&ctx, y->block, &y->layouts[level], &y->w[weights], &y->data.unit, y->saved[saved], y->workspace, y->dx, sums, first);
}

/* Levels below SAVE_ALL recompute within backward. */
static int backward_set(const layer_bench *y, int level, int turn)
{
    return set_of(y, level == SAVE_ALL ? STAGE_BACKWARD : STAGE_BOTH, turn);
}

static void backward(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    const int set = backward_set(y, level, turn);
    backward_of(q, y, level, set, set, y->accumulators, false);
}

static void backward_warm(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    const int set = backward_set(y, level, turn);
    backward_of(q, y, level, set, (set + y->sets_n / 2) % y->sets_n, y->accumulators, false);
}

/* The accumulators that were used least recently. */
static float *other_accumulators(const layer_bench *y, int turn)
{
    const int64_t sums = 1 + turn % (y->accumulators_n - 1);
    return y->accumulators + sums * accumulator_elements(y->model, y->block);
}

static void backward_first(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    const int set = set_of(y, STAGE_FIRST, turn);
    backward_of(q, y, level, set, set, other_accumulators(y, 2 * turn), true);
}

static void backward_cold(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    const int set = set_of(y, STAGE_COLD, turn);
    backward_of(q, y, level, set, set, other_accumulators(y, 2 * turn + 1), false);
}

/* Forward adds to the residual stream and backward to its gradient, so they would grow from round to round. */
static void restore(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    if (y->backwards)
        queue_submit(q, &(op){OP_COPY, .copy = {y->dx, y->gradient, stream_bytes(y)}});
    if (y->data.unit.stream)
        queue_submit(q, &(op){OP_ZERO, .copy = {.dst = y->data.unit.stream, .bytes = residual_bytes(y->model, &y->shape)}});
}

/* Before the backward pass of a layer, a step rounds the gradients of the layer above it. They and their accumulators are dirty lines in
 * the cache. */
static void round_gradients(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    const int64_t cols = y->model->config.hidden;
    if (y->rounding && y->accumulators)
        queue_submit(q, &(op){OP_GRADIENT_FINISH, .gradient_finish = {
            .type = y->shape.type, .rows = accumulator_elements(y->model, y->block) / cols, .cols = cols, .acc = y->accumulators,
            .g = y->rounded, .sumsq = y->sumsq}});
}

static int rounds(layer_bench *y, queue *q, int turn, int least, double seconds, pt_error *e)
{
    stage stages[2 * STAGES + 3] = {
        {restore, 0, NULL}, {forward, SAVE_INPUT, &y->forward_input}, {forward, SAVE_ALL, &y->forward}};
    int n = 3;
    if (y->again)
        stages[n++] = (stage){forward_warm, SAVE_ALL, &y->forward_warm};
    if (!y->backwards)
        return measure_rounds(q, stages, n, y, turn, least, seconds, e);
    stages[n++] = (stage){round_gradients, 0, NULL};
    stages[n++] = (stage){backward, SAVE_ALL, &y->backward};
    if (y->again)
        stages[n++] = (stage){backward_warm, SAVE_ALL, &y->backward_warm};
    if (y->accumulators_n > 1) {
        stages[n++] = (stage){round_gradients, 0, NULL};
        stages[n++] = (stage){backward_first, SAVE_ALL, &y->first};
        stages[n++] = (stage){backward_cold, SAVE_ALL, &y->cold};
    }
    for (int level = SAVE_ALL - 1; level >= 0; level--) {
        stages[n++] = (stage){round_gradients, 0, NULL};
        stages[n++] = (stage){recompute, level, &y->recompute[level]};
    }
    if (y->again) {
        stages[n++] = (stage){round_gradients, 0, NULL};
        stages[n++] = (stage){backward, SAVE_INPUT, &y->both};
        stages[n++] = (stage){backward_warm, SAVE_INPUT, &y->both_warm};
    }
    return measure_rounds(q, stages, n, y, turn, least, seconds, e);
}

static void forget(layer_bench *y)
{
    samples *const all[] = {&y->forward, &y->forward_input, &y->forward_warm, &y->backward, &y->backward_warm,
                            &y->first, &y->cold, &y->both, &y->both_warm};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]->n = 0;
    for (int level = 0; level < SAVE_ALL; level++)
        y->recompute[level].n = 0;
}

/* Seconds of a round by the current medians, without the stages that run only with few rows. */
static double round_s(const layer_bench *y)
{
    double ns = samples_median(&y->forward) + samples_median(&y->forward_input) + samples_median(&y->backward);
    for (int level = 0; level < SAVE_ALL; level++)
        ns += samples_median(&y->recompute[level]);
    return ns * 1e-9;
}

/* The same rounds that are timed afterwards. */
static int heat(layer_bench *y, bench *b, pt_error *e)
{
    enum { ROUNDS = 4 }; /* the queue waits after them */
    heating h = heating_begin(clock_s());
    int failed = 0;
    do
        failed = rounds(y, b->compute, 0, ROUNDS, 0, e);
    while (!failed && heating_goes_on(&h, clock_s(), ROUNDS));
    forget(y);
    return failed;
}

/* Which rows experts have is data. Backward finds it in the saved tensors, where a forward pass has to put it. */
static int choose_experts(layer_bench *y, bench *b, pt_error *e)
{
    if (layer_tensor_named(&y->layouts[SAVE_ALL].program, "order") == LAYER_NONE)
        return 0;
    for (int set = 0; set < y->sets_n; set++)
        forward_of(b->compute, y, SAVE_ALL, set, set);
    return queue_sync(b->compute, queue_signal(b->compute), e);
}

/* Measures with `rows` rows; the samples go to y. all: also with cold accumulators and warm weights. warm: one round is a warm-up. */
static int run(layer_bench *y, bench *b, int64_t rows, bool all, bool warm, int least, double seconds, pt_error *e)
{
    area a;
    resize(y, b, rows);
    y->again = all;
    if (all)
        add_accumulators(y, b);
    forget(y);
    int failed = area_open(b, TIER_DEVICE, &a, "a layer", layout, y, e);
    if (failed)
        return failed;
    failed = choose_experts(y, b, e);
    if (!failed && warm)
        failed = rounds(y, b->compute, 0, 1, 0, e);
    forget(y);
    if (!failed && !all && device_is_gpu(b->r->device)) /* few rows take little power, and serve for differences */
        failed = heat(y, b, e);
    if (!failed)
        failed = rounds(y, b->compute, warm, least, seconds, e);
    area_close(&a);
    return failed;
}

/* ---- results ---- */

/* Medians of a run. Attention is subtracted and kept separately. */
typedef struct part {
    step_shape shape;
    double forward, forward_input, backward, recompute[SAVE_ALL];
    attention_ns attention;
} part;

static double at_least(double x, double least) { return x > least ? x : least; }

static part part_of(const layer_bench *y, const attention_ns *attention)
{
    part p = {.shape = y->shape, .attention = *attention};
    p.forward = at_least(samples_median(&y->forward) - attention->forward, 0);
    p.forward_input = at_least(samples_median(&y->forward_input) - attention->forward, 0);
    p.backward = at_least(samples_median(&y->backward) - attention->backward, 0);
    for (int level = 0; level < SAVE_ALL; level++)
        p.recompute[level] = at_least(samples_median(&y->recompute[level]) - (level == SAVE_INPUT ? attention->forward : 0), 0);
    return p;
}

static double at_rows(const part *few, double few_ns, const part *many, double many_ns, int64_t rows)
{
    return ns_at_rows((double)few->shape.unit_rows, few_ns, (double)many->shape.unit_rows, many_ns, (double)rows);
}

/* The fraction of the bytes saved beyond the input. */
static double share_saved(const layer_bench *y, int level)
{
    const double least = (double)y->layouts[SAVE_INPUT].saved_bytes, all = (double)y->layouts[SAVE_ALL].saved_bytes;
    return all > least ? fmin(1, ((double)y->layouts[level].saved_bytes - least) / (all - least)) : level == SAVE_ALL;
}

static void take_results(const layer_bench *y, const part *few, const part *many, int64_t rows, const attention_ns *whole, layer_cost *out)
{
    const double all = at_rows(few, few->forward, many, many->forward, rows);
    const double least = fmin(at_rows(few, few->forward_input, many, many->forward_input, rows), all);
    const double input = y->forward.by_work ? fmax(least, SAVING_NOTHING_LEAST * all) : least;
    for (int level = 0; level < SAVE_LEVELS; level++) {
        out->forward_ns[level] = input + share_saved(y, level) * (all - input) + whole->forward;
        out->backward_ns[level] = at_rows(few, few->backward, many, many->backward, rows) + whole->backward;
        if (level < SAVE_ALL)
            out->backward_ns[level] += at_rows(few, few->recompute[level], many, many->recompute[level], rows);
    }
    out->backward_ns[SAVE_INPUT] += whole->forward;
}

/* Sets *spread if both ran often enough; otherwise it remains that of fewer rows. */
static void tell_spread(const layer_bench *y, double *spread)
{
    double forward = *spread, backward = *spread;
    samples_tell(&y->forward, &forward);
    samples_tell(&y->backward, &backward);
    *spread = at_least(forward, backward);
}

/* ---- a layer ---- */

/* `most`, halved until the rows fit the budget. If not even one row fits, the rounding of gradients is left out. */
static int64_t rows_that_fit(layer_bench *y, bench *b, int64_t most)
{
    for (y->rounding = true;; y->rounding = false) {
        for (int64_t rows = most; rows > 0; rows /= 2) {
            resize(y, b, rows);
            if (area_bytes(b, layout, y) <= b->r->budget[TIER_DEVICE])
                return rows;
        }
        if (!y->rounding)
            return 1;
    }
}

/* Few enough rows to be quick on a slow machine. */
static int64_t few_rows(const bench *b, int block)
{
    const double flops = 2e9;
    int64_t rows = b->r->shape->unit_rows;
    const double of_row = layer_flops(b->r->model, block - 1, b->r->shape) / (double)rows;
    while (rows > 64 && of_row * (double)rows > flops)
        rows /= 2;
    return rows;
}

/* The time of attention at the length that was run; 0 if sequences were not shortened. */
static int attention_of(bench *b, const layer_bench *y, attention_ns *ran, double seconds, pt_error *e)
{
    *ran = (attention_ns){0};
    return y->shape.seq_len < shape_length(b->r->shape) ? measure_attention(b, y->block, &y->shape, seconds, ran, e) : 0;
}

/* Measures as many rows as time and memory allow, after `few_rows` have been run. */
static int measure_more(layer_bench *y, bench *b, int64_t few_rows, double seconds, layer_result *out, pt_error *e)
{
    const step_shape *full = b->r->shape;
    attention_ns few_ran, many_ran, whole = {0};
    double row_s = round_s(y) / (double)y->shape.unit_rows;
    int failed = attention_of(b, y, &few_ran, seconds / 16, e);
    part few = part_of(y, &few_ran), few_whole = part_of(y, &whole);
    int64_t rows = rows_that_fit(y, b, full->unit_rows);
    step_shape shape = shape_cut(full, rows);
    for (; shape.unit_rows > few_rows && row_s * (double)shape.unit_rows > seconds; shape = shape_cut(full, rows))
        rows /= 2;
    /* On a GPU, the first run loads kernels and the library chooses them; and the time of few rows says little about that of many. */
    const bool warm = device_is_gpu(b->r->device) || row_s * (double)shape.unit_rows * 4 < seconds;
    if (!failed)
        failed = run(y, b, rows, false, warm, 1, seconds, e);
    bool shorter = !failed && y->shape.seq_len < shape_length(full);
    if (!failed)
        failed = attention_of(b, y, &many_ran, seconds / 8, e);
    if (!failed && shorter)
        failed = measure_attention(b, y->block, full, seconds / 4, &whole, e);
    if (failed)
        return failed;
    part many = part_of(y, &many_ran);
    if (!shorter) /* attention then scales with the rows like everything else, so it is not subtracted from few rows either */
        few = few_whole;
    take_results(y, &few, &many, full->unit_rows, &whole, &out->cost);
    tell_spread(y, &out->spread);
    return 0;
}

static double less(const samples *shorter, const samples *longer) { return at_least(samples_median(longer) - samples_median(shorter), 0); }

/* The time of a level's recomputation as a fraction of that with only the input saved. */
static double share_again(const layer_bench *y, int level)
{
    const double all = samples_median(&y->recompute[SAVE_INPUT]);
    return level < SAVE_ALL && all > 0 ? fmin(samples_median(&y->recompute[level]) / all, 1) : 0;
}

/* The time saved by running backward right after recomputation. */
static double saved_together(const layer_bench *y)
{
    const double again = samples_median(&y->recompute[SAVE_INPUT]), most = y->both.by_work ? again * SAVED_TOGETHER_MOST : again;
    return y->both.n ? fmin(at_least(again + samples_median(&y->backward) - samples_median(&y->both), 0), most) : 0;
}

static void take_warm_and_cold(const layer_bench *y, layer_cost *out)
{
    const double all = less(&y->backward_warm, &y->backward), input = less(&y->both_warm, &y->both);
    out->warm_forward_ns = less(&y->forward_warm, &y->forward);
    for (int level = 0; level < SAVE_LEVELS; level++)
        out->warm_backward_ns[level] = all + share_again(y, level) * (input - all);
    out->first_accumulators_ns = y->first.n ? less(&y->backward, &y->first) : 0;
    out->cold_accumulators_ns = y->cold.n ? less(&y->backward, &y->cold) : 0;
}

int measure_layer(bench *b, int block, double seconds, layer_result *out, pt_error *e)
{
    layer_bench y = {.model = b->r->model, .block = block, .backwards = block >= model_first_trained(b->r->model)};
    const step_shape *full = b->r->shape;
    int64_t few = rows_that_fit(&y, b, few_rows(b, block));
    const bool all = few == full->unit_rows;
    const int rounds = seconds > 1 ? TELLING : ROUNDS_OF_FEW; /* a slow layer */
    int failed = run(&y, b, few, true, true, rounds, all ? seconds : seconds / 8, e);
    if (failed)
        return failed;
    take_warm_and_cold(&y, &out->cost);
    double together[SAVE_LEVELS];
    for (int level = 0; level < SAVE_LEVELS; level++)
        together[level] = share_again(&y, level) * saved_together(&y);
    out->cut_rows = y.shape.unit_rows;
    out->spread = 0;
    tell_spread(&y, &out->spread);
    if (!all) {
        failed = measure_more(&y, b, few, seconds, out, e);
    } else {
        attention_ns none = {0};
        part whole = part_of(&y, &none);
        take_results(&y, &whole, &whole, full->unit_rows, &none, &out->cost);
    }
    for (int level = 0; level < SAVE_ALL && !failed; level++)
        out->cost.backward_ns[level] = fmax(out->cost.backward_ns[level] - together[level], out->cost.backward_ns[SAVE_ALL]);
    return failed;
}

static int accumulators_for_few(layer_bench *y, bench *b)
{
    resize(y, b, rows_that_fit(y, b, few_rows(b, y->block)));
    add_accumulators(y, b);
    return y->accumulators_n;
}

/* Layers differ in memory only by what they train. */
static layer_bench largest_layer(const bench *b)
{
    const model *m = b->r->model;
    layer_bench y = {.model = m, .block = 1, .backwards = model_first_trained(m) <= m->config.layers};
    for (int block = 2; block <= m->config.layers; block++)
        if (accumulator_elements(m, block) > accumulator_elements(m, y.block))
            y.block = block;
    return y;
}

uint64_t layer_memory(bench *b)
{
    layer_bench y = largest_layer(b);
    accumulators_for_few(&y, b);
    const uint64_t few = area_bytes(b, layout, &y);
    resize(&y, b, rows_that_fit(&y, b, b->r->shape->unit_rows));
    const uint64_t full = area_bytes(b, layout, &y);
    return few > full ? few : full;
}

/* The number of sets counts as well: with too few, weights stay in the cache and times are too short. */
bool layer_suffices(bench *b, bench *before)
{
    layer_bench now = largest_layer(b), then = now;
    const int64_t full = b->r->shape->unit_rows;
    resize(&now, b, rows_that_fit(&now, b, full));
    resize(&then, before, rows_that_fit(&then, before, full));
    const bool as_large = then.rounding >= now.rounding && then.shape.unit_rows >= now.shape.unit_rows && then.sets_n >= now.sets_n;
    return as_large && accumulators_for_few(&then, before) >= accumulators_for_few(&now, b);
}

int check_layer(bench *b, int64_t rows, double *ns, pt_error *e)
{
    layer_bench y = {.model = b->r->model, .block = 1};
    area a;
    resize(&y, b, rows);
    y.sets_n = y.sets_n < CHECK_SETS ? y.sets_n : CHECK_SETS; /* filling more takes longer than the check */
    int failed = area_open(b, TIER_DEVICE, &a, "a layer", layout, &y, e);
    if (failed)
        return failed;
    failed = measure_least(b->compute, forward_alone, &y, SAVE_ALL, ns, e);
    area_close(&a);
    return failed;
}
