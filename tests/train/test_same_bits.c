/* The test that matters most: whatever the plan says - tiers, places, save levels, chunks, micro-batches, order, buffers,
 * when and where updates run - and however many threads there are, the losses, weights and moments after some steps
 * are the same to the last bit. Queues are real: threads, io_uring, updates on the host beside compute.
 *
 * Half of the models have documents that do not see each other, and half targets that count differently.
 *
 * Where there is a host tier, half of the plans run on a device whose memory the host cannot touch (test_device.h).
 *
 * PT_SAME_BITS_PLANS=n runs n plans instead of the default, but no more than SHIM_PLANS, of small models, where kernels are
 * emulated: a plan then takes seconds. */
#include "base/target.h"
#include "run/executor.h"
#include "run/state.h"
#include "task/task.h"

#include "few_bits.h"
#include "random_plan.h"
#include "sanitized.h"
#include "test_device.h"
#include "train/state_values.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 3, PLANS_OF_A_MODEL = 25, DEFAULT_PLANS = THREADS_SANITIZED ? 8 : SANITIZED ? 20 : 500 };
enum { SHIM_PLANS = 12, SHIM_PLANS_OF_A_MODEL = 4, SHIM_HEADS = 16 };

typedef struct outcome { float *values; size_t n; float *losses; int32_t *routing; } outcome; /* routing: of the last step */

static void outcome_free(outcome *o)
{
    free(o->values);
    free(o->losses);
    free(o->routing);
}

/* A new document in one place of six: many of a token or two, and now and then one that fills its sequence. */
static void fill_documents(executor *x, const step_shape *s, uint64_t seed, int step)
{
    executor_batch b = executor_input(x);
    for (int64_t i = 0; i < s->batch * s->seq_len; i++) {
        const int32_t at = (int32_t)shape_position(s, i);
        const bool begins = !at || (shape_compares(s) && at == shape_length(s) / 2) /* a pair at least */ ||
                            rng_uniform(seed, RNG_TEST, 2000 + (uint32_t)step, (uint64_t)i) < 1.0 / 6;
        b.first[i] = begins ? at : b.first[i - 1];
    }
    executor_place(x);
}

/* Some targets do not count, but the first does: a step may have only one. */
static void fill_batch(executor *x, const model *m, const step_shape *s, uint64_t seed, int step)
{
    executor_batch b = executor_input(x);
    for (int64_t i = 0; i < s->batch * s->seq_len; i++) {
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 1000 + (uint32_t)step, (uint64_t)i, w);
        b.ids[i] = (int32_t)(w[0] % (uint32_t)m->config.vocab);
        const int32_t target = (int32_t)(w[1] % (uint32_t)model_outputs(&m->config));
        b.targets[i] = i && w[2] % 16 == 0 ? (w[2] % 32 ? TARGET_NONE : TARGET_PADDING) : target;
        b.weights[i] = (float)(w[3] % 1000) / 500 * (s->compare.cut > 0 && w[2] % 3 == 0 ? -1 : 1);
    }
    if (s->documents)
        fill_documents(x, s, seed, step);
}

/* What random_state wrote, as it is kept. */
static float initial(const step_shape *s, const model *m, uint64_t seed, int index, int64_t at)
{
    const float v = (float)rng_normal(seed, RNG_TEST, (uint32_t)index, (uint64_t)at) * 0.1f;
    bf16 high;
    uint16_t low;
    if (param_type(&m->params[index], s->type) == PT_F32 || !m->stored_bf16)
        return v;
    master_split(v, &high, &low);
    return bf16_to_f32(high);
}

/* What is kept of a parameter's values. */
static void initial_values(const step_shape *s, const model *m, uint64_t seed, int index, float *v)
{
    const param *p = &m->params[index];
    for (int64_t k = 0; k < p->rows * p->cols; k++)
        v[k] = initial(s, m, seed, index, k);
    if (p->storage == STORAGE_PLAIN)
        return;
    pt_error e = {0};
    for (int64_t k = 0; k < p->rows * p->cols; k++)
        v[k] = (float)rng_normal(seed, RNG_TEST, (uint32_t)index, (uint64_t)k) * 0.1f;
    char *piece = few_bits_piece(m, index, v, 64, &e);
    assert_non_null(piece);
    dequantize_rows(p, piece, 0, p->rows, v);
    free(piece);
}

/* Every token has its rows in each layer with experts. */
static void check_rows(const outcome *o, const random_case *c)
{
    const int64_t entries = routing_entries(c->model, &c->shape), experts = c->model->config.experts;
    const int64_t n = (int64_t)(routing_bytes(c->model, &c->shape) / sizeof(int32_t));
    for (int64_t i = 0; i < n; i++)
        if (i % entries >= experts)
            assert_true(((const float *)o->routing)[i] >= 0);
        else if (i % entries == experts - 1)
            assert_true(o->routing[i] == c->shape.unit_rows * c->model->config.experts_used);
        else
            assert_true(o->routing[i] >= 0 && o->routing[i] <= o->routing[i + 1]);
}

/* What is frozen is what it was; what is trained is not, at least where weights decay: some gradients are zero. */
static void check_frozen(const outcome *o, const random_case *c, uint64_t seed)
{
    const model *m = c->model;
    const float *at = o->values;
    for (int i = 0; i < m->params_n; i++) {
        const int64_t n = m->params[i].rows * m->params[i].cols;
        int64_t same = 0;
        float *was = malloc((size_t)n * sizeof *was);
        assert_non_null(was);
        initial_values(&c->shape, m, seed, i, was);
        for (int64_t k = 0; k < n; k++)
            same += f32_bits(at[k]) == f32_bits(was[k]);
        free(was);
        if (m->params[i].trainable ? same == n && m->params[i].decay : same != n)
            fail_msg("parameter %d, %s: %lld of %lld values are what they were", i, m->params[i].trainable ? "trained" : "frozen",
                     (long long)same,
                     (long long)n);
        at += n;
    }
}

static double norm_of(const executor *x, const model *m)
{
    double sum = 0;
    for (int64_t i = 0; i < sumsq_count(m); i++)
        sum += executor_sumsq(x)[i];
    return sqrt(sum);
}

/* Weights that are not near zero, and so that every piece of every chunk is told from the others. */
static int random_state(state *s, const model *m, uint64_t seed, pt_error *e)
{
    int failed = state_init(s, seed, e);
    for (int i = 0; i < m->params_n && !failed; i++) {
        const param *p = &m->params[i];
        float *v = malloc((size_t)(p->rows * p->cols) * sizeof *v);
        assert_non_null(v);
        for (int64_t k = 0; k < p->rows * p->cols; k++)
            v[k] = (float)rng_normal(seed, RNG_TEST, (uint32_t)i, (uint64_t)k) * 0.1f;
        failed = state_write(s, STATE_MASTER, i, 0, p->rows * p->cols, v, e);
        free(v);
    }
    return failed;
}

/* In documents of one token attention has no choice: the norms of queries and keys get no gradient. */
static bool trains_norms_of_heads(const model *m)
{
    bool only = true;
    for (int i = 0; i < m->params_n; i++)
        only = only && (!m->params[i].trainable || m->params[i].role == PARAM_QNORM || m->params[i].role == PARAM_KNORM);
    return only;
}

/* Parameters that are trained in every turn of layers have taken more steps. */
static void count_step(update_params *u, int step)
{
    u->step = step + 1;
    u->step_always = step + 4;
}

static int train(executor *x, const schedule_input *in, bool clipping, uint64_t seed, outcome *o, pt_error *e)
{
    int64_t tokens = in->shape->batch * in->shape->seq_len;
    update_params u = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .momentum = MUON_MOMENTUM, .weight_decay = 0.1f,
                       .grad_scale = 1};
    bool pending = false;
    int failed = optimizer_args_parse(shape_optimizer(in->shape), NULL, &u.args, e);
    u.args.update_proj_gap = 2;
    for (int step = 0; step < STEPS && !failed; step++) {
        fill_batch(x, in->model, in->shape, seed, step);
        if (in->plan->update == UPDATE_BACKWARD)
            count_step(&u, step);
        executor_set_baseline(x, 0.1f * (float)step);
        executor_set_dropout(x, seed + (uint64_t)step + 1);
        failed = executor_run(x, pending ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP, 1.0f / (float)tokens, &u, e);
        memcpy(o->losses + step * tokens, executor_losses(x), (size_t)tokens * sizeof(float));
        memcpy(o->routing, executor_routing(x), routing_bytes(in->model, in->shape));
        double norm = norm_of(x, in->model);
        assert_true(isfinite(norm) && (norm > 0 || trains_norms_of_heads(in->model)));
        count_step(&u, step);
        u.grad_scale = clipping && norm > 0 ? (float)(0.5 / norm) : 1;
        pending = in->plan->update == UPDATE_NEXT_FORWARD;
        if (!failed && (in->plan->update == UPDATE_END || (pending && step == STEPS - 1)))
            failed = executor_run(x, SCHEDULE_DRAIN, 0, &u, e);
    }
    return failed;
}

static int run_plan(const schedule_input *in, const char *device_name, bool clipping, int threads, uint64_t seed, outcome *o, pt_error *e)
{
    char folder[64];
    snprintf(folder, sizeof folder, "same_bits_%d", (int)getpid());
    memset(o, 0, sizeof *o);
    o->losses = calloc((size_t)(in->shape->batch * in->shape->seq_len) * STEPS, sizeof *o->losses);
    o->routing = malloc(routing_bytes(in->model, in->shape) + 1);
    device *d, *host;
    executor *x = NULL;
    int failed = test_device_named(device_name, threads, &d, &host, e);
    assert_int_equal(failed, 0);
    executor_options options = {.device = d, .host = host, .input = *in, .budget = {1u << 30, 1u << 30, 1u << 30}, .disk_path = folder,
                                .threads = threads, .schedules = 1u << SCHEDULE_STEP};
    if (in->plan->update != UPDATE_BACKWARD)
        options.schedules |= 1u << SCHEDULE_DRAIN | (in->plan->update == UPDATE_NEXT_FORWARD ? 1u << SCHEDULE_STEP_UPDATE : 0);
    failed = executor_open(&options, &x, e);
    state s;
    if (!failed) {
        state_open(&s, x);
        failed = random_state(&s, in->model, seed, e);
        int closed = state_close(&s, e);
        failed = failed ? failed : closed;
    }
    if (!failed)
        failed = train(x, in, clipping, seed, o, e);
    if (!failed)
        failed = state_values(x, in->model, &o->values, &o->n, e);
    executor_close(x);
    device_close(d, host);
    rmdir(folder);
    return failed;
}

static void assert_same(const outcome *a, const outcome *b, const random_case *c, int number, int threads)
{
    size_t losses = (size_t)(c->shape.batch * c->shape.seq_len) * STEPS;
    if (memcmp(a->losses, b->losses, losses * sizeof(float)) == 0 && memcmp(a->values, b->values, a->n * sizeof(float)) == 0 &&
        memcmp(a->routing, b->routing, routing_bytes(c->model, &c->shape)) == 0)
        return;
    char *json = plan_to_json(&c->plan, c->model, &c->shape);
    print_error("plan %d, %d threads: %s\n", number, threads, json);
    free(json);
    for (size_t i = 0; i < losses; i++)
        if (f32_bits(a->losses[i]) != f32_bits(b->losses[i]))
            fail_msg("loss %zu differs: %.9g and %.9g", i, (double)a->losses[i], (double)b->losses[i]);
    for (size_t i = 0; i < a->n; i++)
        if (f32_bits(a->values[i]) != f32_bits(b->values[i]))
            fail_msg("value %zu of %zu differs: %.9g and %.9g", i, a->n, (double)a->values[i], (double)b->values[i]);
    fail_msg("the rows of experts differ");
}

static bool needs_host(void) { return strcmp(test_device_name(), "cpu") != 0; }

/* Some count their steps on over the turns of layers: neighbours of one chunk may differ in that. */
static void mark_always(random_source r, model *m)
{
    const bool any = random_one_in(&r, 3);
    for (int i = 0; i < m->params_n && any; i++)
        m->params[i].always = m->params[i].trainable && random_one_in(&r, 2);
}

/* A model and a step; of an emulated device, attention's tiles take the time: one for each sequence, head and layer. */
static void open_case(random_source *r, random_case *c)
{
    pt_error e = {0};
    assert_int_equal(random_case_open(r, c, &e), 0);
    while (test_device_is_emulated() && c->shape.batch * c->model->config.heads * c->model->config.layers > SHIM_HEADS) {
        random_case_close(c);
        assert_int_equal(random_case_open(r, c, &e), 0);
    }
    mark_always((random_source){r->seed + 10, r->n}, c->model);
    c->shape.documents = random_one_in(r, 2);
    c->shape.weighted = random_one_in(&(random_source){r->seed + 2, r->n}, 2);
    const bool pairs = c->shape.documents && c->shape.seq_len > 1 && shape_parts(&c->shape) == 1;
    if (pairs && random_one_in(&(random_source){r->seed + 3, r->n}, 3)) { /* preferences */
        const train_task *t = train_tasks[1 + random_below(&(random_source){r->seed + 5, r->n}, train_tasks_n - 1)];
        pt_train_options o = {.beta = 0.3, .gamma = 0.2, .label_smoothing = 0.1, .desirable_weight = 1.5, .undesirable_weight = 0.5,
                              .dpo_loss = random_below(&(random_source){r->seed + 4, r->n}, 3),
                              .center_rewards = random_one_in(&(random_source){r->seed + 9, r->n}, 2) ? 0.05 : 0,
                              .ld_alpha = random_one_in(&(random_source){r->seed + 6, r->n}, 2) ? 0.3 : 1};
        c->shape.weighted = t->plane != TASK_PLANE_NONE;
        if (t->rule)
            c->shape.compare = t->rule(&o);
    }
    else
        c->shape.smoothing = random_one_in(&(random_source){r->seed + 7, r->n}, 3) ? 0.1f : 0;
    c->shape.linear = c->model->config.labels == 1;
    c->shape.smoothing = c->shape.linear ? 0 : c->shape.smoothing;
    c->shape.noise = random_one_in(&(random_source){r->seed + 8, r->n}, 3) ? 0.01f : 0;
    c->shape.gpu |= needs_host() && optimizer_is_by_device(shape_optimizer(&c->shape)); /* as a run says it: no such update on the host */
}

/* Another packing and plan for the same model and step. */
static void next_plan(random_source *r, random_case *c)
{
    pt_error e = {0};
    c->input.host_tier = needs_host() || !random_one_in(r, 3);
    assert_int_equal(random_case_pack(r, c, &e), 0);
}

static void every_plan_gives_the_same_bits(void **unused)
{
    (void)unused;
    random_source seed = random_open();
    const char *asked = getenv("PT_SAME_BITS_PLANS");
    int plans = asked ? atoi(asked) : DEFAULT_PLANS, done = 0, refused = 0, models = 0;
    plans = test_device_is_emulated() && plans > SHIM_PLANS ? SHIM_PLANS : plans;
    for (uint64_t number = 0; done < plans; number++, models++) {
        random_source r = random_fork(&seed, number);
        random_case c;
        outcome first, other;
        pt_error e = {0};
        open_case(&r, &c);
        random_case_plain(&c);
        c.input.host_tier |= needs_host();
        if (run_plan(&c.input, test_device_name(), c.clipping, 1, number, &first, &e))
            fail_msg("%s", e.text);
        check_frozen(&first, &c, number);
        check_rows(&first, &c);
        for (int i = 0; i < (test_device_is_emulated() ? SHIM_PLANS_OF_A_MODEL : PLANS_OF_A_MODEL) && done < plans; i++) {
            int threads = random_from(&r, 1, 4);
            next_plan(&r, &c);
            const char *name = !needs_host() && c.input.host_tier && random_one_in(&r, 2) ? "shielded" : test_device_name();
            int failed = run_plan(&c.input, name, c.clipping, threads, number, &other, &e);
            if (failed && failed != PT_DOES_NOT_FIT)
                fail_msg("model %d plan %d: %s", (int)number, i, e.text);
            if (failed) {
                refused++;
            } else {
                assert_same(&first, &other, &c, i, threads);
                done++;
            }
            outcome_free(&other);
        }
        outcome_free(&first);
        random_case_close(&c);
    }
    printf("%d plans of %d models: the same bits; %d more had too few buffers\n", done, models, refused);
    assert_true(refused < done);
}

/* A case whose layers have inputs of their own, from a table that is trained or frozen. */
static void open_table(random_source *seed, bool trained, random_case *c)
{
    pt_error e = {0};
    for (uint64_t number = trained ? 6000 : 5000;; number++) {
        random_source r = random_fork(seed, number);
        open_case(&r, c);
        if (random_case_train_table(&r, c, trained, &e))
            return;
        random_case_close(c);
    }
}

/* Puts chunks of the table on the tier: all of them, or some of them. A trained one is updated on the device or on the host. */
static void place_table(random_source *r, random_case *c, tier place, bool all)
{
    for (int i = 0; i < c->packing.chunks_n; i++) {
        const chunk_t *k = &c->packing.chunks[i];
        const bool on_host = k->trained && c->input.host_tier && random_one_in(r, 2) && !(c->shape.gpu && k->by_device);
        if (k->looked_up && (all || random_one_in(r, 2)))
            c->plan.chunks[i] = (plan_chunk){.placement = place, .update = on_host ? TIER_HOST : TIER_DEVICE};
    }
}

/* On the device, on the host, on the disk, or some on each. */
static void look_up(bool trained)
{
    enum { TABLE_PLANS = SANITIZED ? 6 : 20, SHIM_TABLE_PLANS = 3 };
    random_source r = random_open();
    random_case c;
    outcome first, other;
    pt_error e = {0};
    int from[TIERS] = {0}, updated[TIERS] = {0};
    const int plans = test_device_is_emulated() ? SHIM_TABLE_PLANS : TABLE_PLANS;
    open_table(&r, trained, &c);
    random_case_plain(&c);
    c.input.host_tier |= needs_host();
    if (run_plan(&c.input, test_device_name(), c.clipping, 1, 1, &first, &e))
        fail_msg("%s", e.text);
    for (int done = 0; done < plans;) {
        do
            next_plan(&r, &c);
        while (done == 1 && !c.input.host_tier);
        place_table(&r, &c, done % 2 == 0 || !c.input.host_tier ? TIER_DISK : TIER_HOST, done < 2);
        const int threads = random_from(&r, 1, 4);
        const int failed = run_plan(&c.input, test_device_name(), c.clipping, threads, 1, &other, &e);
        if (failed && failed != PT_DOES_NOT_FIT)
            fail_msg("%s", e.text);
        if (!failed)
            assert_same(&first, &other, &c, done, threads);
        for (tier t = TIER_DEVICE; t <= TIER_DISK && !failed; t++) {
            from[t] += schedule_looks_up(&c.input, t);
            updated[t] += schedule_updates_rows(&c.input, t);
        }
        done += !failed;
        outcome_free(&other);
    }
    printf("%s, %d plans: rows were looked up on the host in %d, on the disk in %d, and updated on the device in %d, on the host in %d\n",
           c.shape.type == PT_BF16 ? "bf16" : "fp32", plans, from[TIER_HOST], from[TIER_DISK], updated[TIER_DEVICE], updated[TIER_HOST]);
    assert_true(from[TIER_DISK] > 0 && from[TIER_HOST] > 0 && trained == (updated[TIER_DEVICE] + updated[TIER_HOST] > 0));
    outcome_free(&first);
    random_case_close(&c);
}

static void rows_are_looked_up_wherever_the_table_is(void **unused) { (void)unused; look_up(false); }
static void rows_are_trained_wherever_the_table_is(void **unused) { (void)unused; look_up(true); }

/* Of a sequence of several blocks of rows: whether a tile is one of them, two, or all rows. groups: of heads. */
static void check_tiles(const char *type, const char *more, bool groups)
{
    char config[640];
    const int used = snprintf(config, sizeof config, "{\"model_type\": \"%s\", \"vocab_size\": 50, \"hidden_size\": 16, "
                              "\"num_attention_heads\": 2, \"num_hidden_layers\": 2, \"intermediate_size\": 24, \"bos_token_id\": 0, "
                              "\"max_position_embeddings\": 8192, \"eos_token_id\": 0%s}", type, more);
    static const int64_t tiles[] = {2 * CPU_GRADIENT_ROWS + 200, 2 * CPU_GRADIENT_ROWS, CPU_GRADIENT_ROWS};
    outcome whole = {0}, other;
    pt_error e = {0};
    for (int i = 0; i < 3; i++) {
        random_case c = {0};
        assert_int_equal(model_from_json("test", config, (size_t)used, NULL, NULL, &c.model, &e), 0);
        step_shape_init(&c.shape, c.model, PT_BF16, 1, tiles[0]);
        c.shape.tile_rows = tiles[i];
        c.shape.whole_heads = groups ? 0 : c.shape.whole_heads;
        assert_int_equal(pack(c.model, &c.shape, 1 << 20, &c.packing, &e), 0);
        assert_int_equal(plan_alloc(&c.plan, c.packing.chunks_n, 2, &e), 0);
        c.input = (schedule_input){.model = c.model, .shape = &c.shape, .packing = &c.packing, .plan = &c.plan, .training = true,
                                   .host_tier = needs_host()};
        random_case_plain(&c);
        c.plan.n_buffer = c.plan.n_update = c.plan.n_swap = 1;
        c.plan.blocks[0].level = SAVE_ATTENTION;
        if (run_plan(&c.input, test_device_name(), true, 2, 1, i ? &other : &whole, &e))
            fail_msg("%s", e.text);
        if (i) {
            assert_same(&whole, &other, &c, i, 2);
            outcome_free(&other);
        }
        random_case_close(&c);
    }
    outcome_free(&whole);
}

static void tiles_give_the_same_bits(void **unused)
{
    (void)unused;
    if (test_device_is_emulated())
        skip();
    check_tiles("llama", "", false);
    check_tiles("llama", ", \"num_key_value_heads\": 2", true);
    check_tiles("gemma4_text", ", \"head_dim\": 8, \"global_head_dim\": 8, \"num_key_value_heads\": 1, \"sliding_window\": 64, "
                               "\"hidden_size_per_layer_input\": 0, \"enable_moe_block\": true, \"num_experts\": 3, "
                               "\"top_k_experts\": 2, \"moe_intermediate_size\": 8", false);
}

/* Attention's sums of a head that is too large for a thread's own memory lie in the layer's workspace, but where one thread more makes
 * it cheaper to do without them. */
static void sums_in_the_workspace_give_the_same_bits(void **unused)
{
    (void)unused;
    static const char config[] = "{\"model_type\": \"llama\", \"vocab_size\": 50, \"hidden_size\": 512, \"num_attention_heads\": 1, "
                                 "\"num_hidden_layers\": 1, \"intermediate_size\": 64, \"max_position_embeddings\": 1024, "
                                 "\"head_dim\": 512, \"bos_token_id\": 0, \"eos_token_id\": 0}";
    random_case c = {0};
    outcome one, two;
    pt_error e = {0};
    if (test_device_is_emulated() || THREADS_SANITIZED)
        skip();
    assert_int_equal(model_from_json("test", config, sizeof config - 1, NULL, NULL, &c.model, &e), 0);
    step_shape_init(&c.shape, c.model, PT_F32, 1, 705);
    assert_true(attention_accumulator_bytes(c.shape.unit_seqs, 705, 1, 512) > 0);
    assert_int_equal(pack(c.model, &c.shape, 1 << 20, &c.packing, &e), 0);
    assert_int_equal(plan_alloc(&c.plan, c.packing.chunks_n, 1, &e), 0);
    c.input = (schedule_input){.model = c.model, .shape = &c.shape, .packing = &c.packing, .plan = &c.plan, .training = true,
                               .host_tier = needs_host()};
    random_case_plain(&c);
    c.plan.n_buffer = c.plan.n_update = c.plan.n_swap = 1;
    c.plan.blocks[0].level = SAVE_INPUT;
    if (run_plan(&c.input, test_device_name(), true, 1, 1, &one, &e) || run_plan(&c.input, test_device_name(), true, 3, 1, &two, &e))
        fail_msg("%s", e.text);
    assert_same(&one, &two, &c, 0, 3);
    outcome_free(&one);
    outcome_free(&two);
    random_case_close(&c);
}

/* Experts large enough to be cut, one or more tensors of all of a layer or some of each: trained; frozen as they are; in each format of few
 * bits, beside adapters, also of the experts. */
enum { RANGE_STYLES = 5 };
static const optimizer *const optimizers_cut[] = {&optimizer_adamw, &optimizer_adamw8bit, &optimizer_muon}; /* others leave experts whole */

static void open_experts(random_source *r, int number, random_case *c)
{
    static const char *const of[][2] = {
        {"qwen3_moe", "\"num_experts\": 9, \"num_experts_per_tok\": 4, \"moe_intermediate_size\": 64"},
        {"granitemoe", "\"num_local_experts\": 9, \"num_experts_per_tok\": 2"},
        {"gpt_oss", "\"num_local_experts\": 9, \"num_experts_per_tok\": 3, \"sliding_window\": 7, \"swiglu_limit\": 0.5, "
                    "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"truncate\": false, "
                    "\"original_max_position_embeddings\": 64}"}};
    const char *const *type = of[number / RANGE_STYLES % 3];
    const int style = number % RANGE_STYLES;
    char config[640];
    pt_error e = {0};
    const int used = snprintf(config, sizeof config, "{\"model_type\": \"%s\", \"vocab_size\": 50, \"hidden_size\": 64, "
                              "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, \"num_hidden_layers\": 2, "
                              "\"intermediate_size\": 64, \"max_position_embeddings\": 256, \"bos_token_id\": 0, "
                              "\"eos_token_id\": 0, %s}", type[0], type[1]);
    *c = (random_case){.clipping = random_one_in(r, 2)};
    if (model_from_json("test", config, (size_t)used, NULL, NULL, &c->model, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < c->model->params_n && style == 1; i++)
        c->model->params[i].trainable = c->model->params[i].trainable && c->model->params[i].kind->use != USE_EXPERTS;
    c->model->stored_bf16 = random_one_in(r, 2);
    if (style > 1) {
        random_adapters(r, c->model);
        assert_int_equal(model_store(c->model, (param_storage)(STORAGE_NF4 + style - 2), &e), 0);
    }
    random_whole = true;
    do
        random_shape(r, c->model, &c->shape);
    while (number < RANGE_STYLES && c->shape.lanes < 2);
    random_whole = false;
    c->shape.optimizer = optimizers_cut[((uint64_t)(number / RANGE_STYLES) + r->seed) % 3];
    c->shape.saved = (saved_form)random_below(r, 3);
    c->input = (schedule_input){.model = c->model, .shape = &c->shape, .packing = &c->packing, .plan = &c->plan, .training = true,
                                .host_tier = true};
    if (pack(c->model, &c->shape, 1 << 20, &c->packing, &e) || plan_alloc(&c->plan, c->packing.chunks_n, 2, &e))
        fail_msg("%s", e.text);
}

static int ranges_of(const random_case *c)
{
    int n = 0;
    for (int i = 0; i < c->packing.pieces_n; i++)
        n += c->model->params[c->packing.pieces[i].param].kind->use == USE_EXPERTS && c->packing.pieces[i].row0 > 0;
    return n;
}

static void ranges_of_experts_give_the_same_bits(void **unused)
{
    (void)unused;
    enum { CASES = 3 * RANGE_STYLES, RANGE_PLANS = 6 };
    random_source seed = random_open();
    int cut[RANGE_STYLES] = {0}, in_parts[RANGE_STYLES] = {0}, in_lanes[RANGE_STYLES] = {0};
    const int cases = test_device_is_emulated() ? 1 : SANITIZED ? RANGE_STYLES : CASES;
    for (int number = 0; number < cases; number++) {
        random_source r = random_fork(&seed, 9000 + (uint64_t)number);
        random_case c;
        outcome first, other;
        pt_error e = {0};
        open_experts(&r, number, &c);
        random_case_plain(&c);
        c.plan.n_buffer = c.plan.n_update = c.plan.n_swap = 2;
        assert_int_equal(ranges_of(&c), 0);
        if (run_plan(&c.input, test_device_name(), c.clipping, 1, 1, &first, &e))
            fail_msg("%s", e.text);
        check_frozen(&first, &c, 1);
        for (int done = 0; done < RANGE_PLANS;) {
            const int threads = random_from(&r, 1, 4);
            do
                next_plan(&r, &c);
            while (number < RANGE_STYLES && !done && !(c.plan.ranges && ranges_of(&c)));
            const int failed = run_plan(&c.input, test_device_name(), c.clipping, threads, 1, &other, &e);
            if (failed && failed != PT_DOES_NOT_FIT)
                fail_msg("model %d: %s", number, e.text);
            if (!failed)
                assert_same(&first, &other, &c, number, threads);
            cut[number % RANGE_STYLES] += failed ? 0 : ranges_of(&c) > 0;
            in_parts[number % RANGE_STYLES] += failed ? 0 : ranges_of(&c) > 0 && c.plan.ranges;
            in_lanes[number % RANGE_STYLES] += failed ? 0 : ranges_of(&c) > 0 && c.plan.ranges && shape_lanes(&c.shape) > 1;
            done += !failed;
            outcome_free(&other);
        }
        outcome_free(&first);
        random_case_close(&c);
    }
    printf("plans with cut experts, and in parts: %d, %d trained, %d, %d frozen, %d, %d in nf4, %d, %d in int8, %d, %d in mxfp4\n", cut[0],
           in_parts[0], cut[1], in_parts[1], cut[2], in_parts[2], cut[3], in_parts[3], cut[4], in_parts[4]);
    for (int i = 0; i < RANGE_STYLES && i < cases; i++)
        assert_true(in_parts[i] > 0 && in_lanes[i] > 0);
}

int main(void)
{
    random_scores = true;
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_plan_gives_the_same_bits),
                                       cmocka_unit_test(ranges_of_experts_give_the_same_bits),
                                       cmocka_unit_test(rows_are_looked_up_wherever_the_table_is),
                                       cmocka_unit_test(rows_are_trained_wherever_the_table_is),
                                       cmocka_unit_test(tiles_give_the_same_bits),
                                       cmocka_unit_test(sums_in_the_workspace_give_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
