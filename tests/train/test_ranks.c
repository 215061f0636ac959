/* Several ranks, as threads with memory of their own that only the transport crosses: whatever the plan says and however many share the
 * step, the losses, weights and moments after some steps are those of one rank with the same lanes, to the last bit, by any transport. Peak
 * memory is what the schedules say, on every rank. The files that they export, together or by rank 0, are those of one rank. Devices may
 * have memory of their own, which exchanges pass through the host: shielded ones (test_device.h), and those that PROTRAIN_TEST_DEVICE
 * names, of which each rank has one, and some exchange by NCCL. On CPUs, rows of the embedding without a token are not sent.
 *
 * PT_RANKS_PLANS=n runs n plans instead of the default. */
#include "io/files.h"
#include "model/lanes.h"
#include "run/executor.h"
#include "run/state.h"

#include "random_plan.h"
#include "sanitized.h"
#include "test_device.h"

#include "train/state_values.h"

#include "comm/linked.h"
#include "comm/staged.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/together.h"

enum { STEPS = 3, PLANS_OF_A_MODEL = 6, DEFAULT_PLANS = SANITIZED ? 24 : 60, EMULATED_PLANS = SANITIZED ? 2 : 6, EMULATED_HEADS = 40 };
enum { RANKS_MOST = 8, DOCUMENT = 7 };

typedef struct outcome { float *values; size_t n; float *losses; double norm[STEPS]; } outcome;

static void outcome_free(outcome *o)
{
    free(o->values);
    free(o->losses);
}

/* What all ranks are to do; `input` is that of one rank but for shape and packing. */
typedef struct job { const model *model; step_shape shape; const plan *plan; bool clipping, host_tier; uint64_t seed;
                    transport by; bool shielded, linked; size_t staged; together together; uint64_t *sent; /* by rank 0, or NULL */
                    const char *folder; bool spread; } job; /* folder: where the state is exported */

/* Counts what goes to other ranks. */
typedef struct counting { comm base; comm *inner; uint64_t *sent; } counting;

static int count_exchange(comm *base, const comm_move *moves, int n, pt_error *e)
{
    counting *c = (counting *)base;
    for (int i = 0; i < n; i++)
        *c->sent += moves[i].peer == base->rank ? 0 : moves[i].send_bytes;
    return comm_exchange(c->inner, moves, n, e);
}

static void count_abort(comm *base, const pt_error *why) { comm_abort(((counting *)base)->inner, why); }
static bool count_over(comm *base, pt_error *why) { return comm_over(((counting *)base)->inner, why); }
static const comm_table counting_table = {.exchange = count_exchange, .abort = count_abort, .over = count_over};

typedef struct worker { job *j; int ranks, rank, failed; outcome *out; pt_error e; } worker;

/* The rank's sequences of the step's. */
static void fill_batch(executor *x, const model *m, const step_shape *s, uint64_t seed, int step)
{
    executor_batch b = executor_input(x);
    const int64_t n = s->batch * s->seq_len, first = s->rank * n;
    for (int64_t i = 0; i < n; i++) {
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 1000 + (uint32_t)step, (uint64_t)(first + i), w);
        b.ids[i] = (int32_t)(w[0] % (uint32_t)m->config.vocab);
        b.first[i] = (int32_t)(shape_position(s, i) / DOCUMENT * DOCUMENT);
        b.targets[i] = first + i && w[2] % 16 == 0 ? -100 : (int32_t)(w[1] % (uint32_t)m->config.vocab);
    }
    if (s->documents)
        executor_place(x);
}

static int random_state(executor *x, const model *m, uint64_t seed, pt_error *e)
{
    state s;
    state_open(&s, x);
    int failed = state_init(&s, seed, e);
    for (int i = 0; i < m->params_n && !failed; i++) {
        const int64_t n = m->params[i].rows * m->params[i].cols;
        float *v = malloc((size_t)n * sizeof *v);
        for (int64_t k = 0; v && k < n; k++)
            v[k] = (float)rng_normal(seed, RNG_TEST, (uint32_t)i, (uint64_t)k) * 0.1f;
        failed = state_write(&s, STATE_MASTER, i, 0, n, v, e);
        free(v);
    }
    int closed = state_close(&s, e);
    return failed ? failed : closed;
}

/* All of it, as a checkpoint has it. */
static int export_files(executor *x, const job *j, pt_error *e)
{
    state s;
    state_open(&s, x);
    int failed = state_share(&s, j->spread, e);
    if (!failed)
        failed = state_export(&s, j->folder, "model", PT_BF16, (weights_layout){0}, e);
    for (int kind = 0; kind < state_kinds(s.in) && !failed; kind++)
        failed = state_export_kind(&s, kind, false, j->folder, e);
    int closed = state_close(&s, failed ? NULL : e);
    return failed ? failed : closed;
}

static double norm_of(const executor *x, const model *m)
{
    double sum = 0;
    for (int64_t i = 0; i < sumsq_count(m); i++)
        sum += executor_sumsq(x)[i];
    return sqrt(sum);
}

static int train(executor *x, const job *j, outcome *o, pt_error *e)
{
    const schedule_input *in = executor_input_of(x);
    const int64_t tokens = j->shape.batch * j->shape.seq_len;
    update_params u = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .momentum = MUON_MOMENTUM, .weight_decay = 0.1f,
                       .grad_scale = 1};
    bool pending = false;
    int failed = optimizer_args_parse(shape_optimizer(in->shape), NULL, &u.args, e);
    u.args.update_proj_gap = 2;
    for (int step = 0; step < STEPS && !failed; step++) {
        fill_batch(x, in->model, in->shape, j->seed, step);
        executor_set_dropout(x, j->seed + (uint64_t)step + 1);
        if (in->plan->update == UPDATE_BACKWARD)
            u.step = step + 1;
        failed = executor_run(x, pending ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP, 1.0f / (float)tokens, &u, e);
        if (failed)
            return failed;
        if (o->losses)
            memcpy(o->losses + step * tokens, executor_losses(x), (size_t)tokens * sizeof(float));
        const double norm = o->norm[step] = norm_of(x, in->model);
        u.step = step + 1;
        u.grad_scale = j->clipping ? (float)(0.5 / norm) : 1;
        pending = in->plan->update == UPDATE_NEXT_FORWARD;
        if (in->plan->update == UPDATE_END || (pending && step == STEPS - 1))
            failed = executor_run(x, SCHEDULE_DRAIN, 0, &u, e);
    }
    return failed;
}

/* Each rank its own. */
static int open_device(const job *j, int rank, device **d, device **host, pt_error *e)
{
    char name[16];
    snprintf(name, sizeof name, "cuda:%d", rank);
    return test_device_named(j->shielded ? "shielded" : strcmp(test_device_name(), "cuda") ? test_device_name() : name, 1, d, host, e);
}

/* Where saving needs no more, the highest buffer of a schedule ends where it said. */
static int check_peak(const executor *x, pt_error *e)
{
    for (int t = 0; t < TIERS; t++)
        if (executor_peak_bytes(x, (tier)t) > executor_bytes(x, (tier)t))
            return pt_fail(e, PT_FAILED, "%llu bytes of %s are used, and %llu planned", (unsigned long long)executor_peak_bytes(x, (tier)t),
                           tier_names[t], (unsigned long long)executor_bytes(x, (tier)t));
    return 0;
}

static int work(worker *w, pt_error *e)
{
    job *j = w->j;
    char folder[64];
    step_shape shape;
    packing packing;
    comm *c = NULL, *staged = NULL, *linked = NULL;
    char why[LINKED_WHY_BYTES];
    device *d = NULL, *host = NULL;
    executor *x = NULL;
    int failed = step_shape_of_rank(&shape, &j->shape, w->ranks, w->rank, e);
    if (!failed)
        failed = pack(j->model, &shape, j->plan->chunk_bytes, &packing, e);
    if (failed)
        return failed;
    snprintf(folder, sizeof folder, "ranks_%d_%d", (int)getpid(), w->rank);
    executor_options o = {.input = {.model = j->model, .shape = &shape, .packing = &packing, .plan = j->plan, .training = true,
                                    .host_tier = j->host_tier},
                          .budget = {1u << 30, 1u << 30, 1u << 30}, .disk_path = folder, .threads = 1, .schedules = 1u << SCHEDULE_STEP};
    if (j->plan->update != UPDATE_BACKWARD)
        o.schedules |= 1u << SCHEDULE_DRAIN | (j->plan->update == UPDATE_NEXT_FORWARD ? 1u << SCHEDULE_STEP_UPDATE : 0);
    failed = w->ranks > 1 ? together_open(&j->together, w->rank, &c, e) : 0;
    if (!failed)
        failed = open_device(j, w->rank, &d, &host, e);
    if (!failed && c && device_is_gpu(d))
        failed = comm_staged_open(c, d, j->staged, &staged, e);
    if (!failed && staged && j->linked)
        failed = comm_linked_open(staged, d, (uint64_t)w->rank + 1, &linked, why, e);
    if (!failed && staged && j->linked && !linked)
        failed = pt_fail(e, PT_FAILED, "not linked: %s", why);
    o.device = d, o.host = host, o.comm = c, o.device_comm = linked ? linked : staged;
    counting counted = {.inner = c, .sent = j->sent};
    if (c && j->sent && !w->rank) {
        counted.base = (comm){&counting_table, c->rank, c->ranks, c->machine};
        o.comm = &counted.base;
    }
    if (!failed)
        failed = executor_open(&o, &x, e);
    if (!failed)
        failed = random_state(x, j->model, j->seed, e);
    if (!failed)
        failed = train(x, j, w->out, e);
    if (!failed)
        failed = state_values(x, j->model, &w->out->values, &w->out->n, e);
    if (!failed && j->folder)
        failed = export_files(x, j, e);
    if (!failed)
        failed = check_peak(x, e);
    if (failed && c)
        comm_abort(c, e);
    executor_close(x);
    comm_close(linked);
    comm_close(staged);
    device_close(d, host);
    comm_close(c);
    packing_free(&packing);
    rmdir(folder);
    return failed;
}

static void *run_worker(void *arg)
{
    worker *w = arg;
    w->failed = work(w, &w->e);
    return NULL;
}

/* The outcome that rank 0 has; all have the same norms. */
static int run_ranks(job *j, int ranks, outcome *o, pt_error *e)
{
    worker w[RANKS_MOST];
    outcome out[RANKS_MOST] = {0};
    pthread_t thread[RANKS_MOST];
    together_make(&j->together, j->by, ranks);
    for (int r = 0; r < ranks; r++) {
        out[r].losses = calloc((size_t)(j->shape.batch * j->shape.seq_len) * STEPS, sizeof(float));
        w[r] = (worker){.j = j, .ranks = ranks, .rank = r, .out = &out[r]};
        assert_int_equal(pthread_create(&thread[r], NULL, run_worker, &w[r]), 0);
    }
    int failed = 0;
    for (int r = 0; r < ranks; r++) {
        pthread_join(thread[r], NULL);
        if (w[r].failed && !failed) {
            failed = w[r].failed;
            *e = w[r].e;
        }
        if (!failed && r)
            assert_memory_equal(out[r].norm, out[0].norm, sizeof out[0].norm);
        if (r)
            outcome_free(&out[r]);
    }
    together_free(&j->together);
    *o = out[0];
    return failed;
}

static void assert_same(const outcome *a, const outcome *b, const job *j, int ranks)
{
    const size_t losses = (size_t)(j->shape.batch * j->shape.seq_len) * STEPS;
    char *json = plan_to_json(j->plan, j->model, &j->shape);
    for (size_t i = 0; i < losses; i++)
        if (f32_bits(a->losses[i]) != f32_bits(b->losses[i]))
            fail_msg("%d ranks of %d lanes, loss %zu differs: %.9g and %.9g\n%s", ranks, j->shape.lanes, i, (double)a->losses[i],
                     (double)b->losses[i], json);
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        if (f32_bits(a->values[i]) != f32_bits(b->values[i]))
            fail_msg("%d ranks of %d lanes, value %zu of %zu differs: %.9g and %.9g\n%s", ranks, j->shape.lanes, i, a->n,
                     (double)a->values[i],
                     (double)b->values[i], json);
    assert_memory_equal(a->norm, b->norm, sizeof a->norm);
    free(json);
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    char path[2][FILE_PATH_BYTES], *data[2];
    size_t n[2];
    pt_error e;
    const char *const folders[] = {a, b};
    for (int i = 0; i < 2; i++)
        if (path_join(path[i], folders[i], name, &e) || file_read_all(path[i], 1u << 30, &data[i], &n[i], &e))
            fail_msg("%s", e.text);
    if (n[0] != n[1] || memcmp(data[0], data[1], n[0]))
        fail_msg("%s has other bytes than %s", path[1], path[0]);
    free(data[0]);
    free(data[1]);
}

static void assert_same_files(const char *a, const char *b, const schedule_input *in)
{
    char name[64];
    assert_same_file(a, b, "model.safetensors");
    for (int kind = 0; kind < state_kinds(in); kind++) {
        snprintf(name, sizeof name, "%s.safetensors", state_name(in, kind));
        assert_same_file(a, b, name);
    }
}

static void make_folder(const char *path)
{
    pt_error e;
    if (tree_remove(path, &e) || dir_make(path, &e))
        fail_msg("%s", e.text);
}

static bool needs_host(void) { return strcmp(test_device_name(), "cpu") != 0; }

/* A step that ranks can share; on an emulated device, one that is soon done. */
static void open_case(random_source *r, random_case *c)
{
    static const int wanted[] = {2, 3, 4, 8, 8}; /* lanes: 2, 3, 4 and 8 ranks are all tried */
    const int lanes = wanted[random_below(r, sizeof wanted / sizeof *wanted)];
    pt_error e = {0};
    for (;;) {
        assert_int_equal(random_case_open(r, c, &e), 0);
        const bool soon = c->shape.batch * c->model->config.heads * c->model->config.layers <= EMULATED_HEADS;
        if (c->shape.units_n > 1 && c->shape.units_n % lanes == 0 && (soon || !test_device_is_emulated()))
            break;
        random_case_close(c);
    }
    c->shape.documents = random_one_in(&(random_source){r->seed + 14, r->n}, 2);
    c->shape.gpu |= needs_host() && optimizer_is_by_device(shape_optimizer(&c->shape)); /* no such update on the host */
    do {
        c->shape.lanes = c->shape.parts > 1 ? (int)c->shape.units_n : random_divisor(r, (int)c->shape.units_n);
    } while (shape_lanes(&c->shape) % lanes);
}

static int random_ranks(random_source *r, const step_shape *whole)
{
    step_shape s;
    int ranks = random_one_in(r, 8) ? 1 : random_from(r, 2, RANKS_MOST);
    while (step_shape_of_rank(&s, whole, ranks, 0, NULL))
        ranks = random_from(r, 2, RANKS_MOST);
    return ranks;
}

static void any_number_of_ranks_gives_the_same_bits(void **unused)
{
    (void)unused;
    random_source seed = random_open();
    const char *asked = getenv("PT_RANKS_PLANS");
    int plans = asked ? atoi(asked) : test_device_is_emulated() ? EMULATED_PLANS : DEFAULT_PLANS;
    int done = 0, refused = 0, of_ranks[RANKS_MOST + 1] = {0}, exported = 0;
    char one[64], many[64];
    snprintf(one, sizeof one, "ranks_%d_one", (int)getpid());
    snprintf(many, sizeof many, "ranks_%d_many", (int)getpid());
    for (uint64_t number = 0; done < plans; number++) {
        random_source r = random_fork(&seed, number);
        random_case c;
        outcome first, other;
        pt_error e = {0};
        open_case(&r, &c);
        random_case_plain(&c);
        job j = {.model = c.model, .shape = c.shape, .plan = &c.plan, .clipping = c.clipping, .seed = number, .folder = one,
                 .host_tier = c.input.host_tier || needs_host()};
        make_folder(one);
        if (run_ranks(&j, 1, &first, &e))
            fail_msg("%s", e.text);
        for (int i = 0; i < PLANS_OF_A_MODEL && done < plans; i++) {
            const int ranks = random_ranks(&r, &c.shape);
            step_shape s;
            assert_int_equal(step_shape_of_rank(&s, &c.shape, ranks, 0, &e), 0);
            plan_free(&c.plan);
            packing_free(&c.packing);
            j.host_tier = needs_host() || !random_one_in(&r, 3);
            j.shielded = !needs_host() && j.host_tier && random_one_in(&r, 2);
            j.linked = test_device_is_standin() && random_one_in(&r, 2);
            j.staged = (size_t)1 << random_from(&r, 10, 20);
            j.by = (transport)random_below(&r, TRANSPORTS);
            j.folder = random_one_in(&r, 3) ? many : NULL;
            j.spread = !random_one_in(&r, 3);
            if (j.folder)
                make_folder(many);
            assert_int_equal(random_packing(&r, c.model, &s, &c.packing, &e), 0);
            assert_int_equal(random_plan(&r, c.model, &s, &c.packing, c.clipping, j.host_tier, &c.plan, &e), 0);
            int failed = run_ranks(&j, ranks, &other, &e);
            if (failed && !strstr(e.text, "more are needed at once"))
                fail_msg("model %d plan %d, %d ranks by %s: %s", (int)number, i, ranks, transport_names[j.by], e.text);
            if (failed) {
                refused++;
            } else {
                assert_same(&first, &other, &j, ranks);
                if (j.folder)
                    assert_same_files(one, many, &(schedule_input){.model = c.model, .packing = &c.packing});
                done++;
                of_ranks[ranks]++;
                exported += j.folder != NULL;
            }
            outcome_free(&other);
        }
        outcome_free(&first);
        random_case_close(&c);
    }
    printf("%d plans: the same bits, %d of them with the same files; %d more had too few buffers. By ranks:", done, exported, refused);
    for (int r = 1; r <= RANKS_MOST; r++)
        printf("%s %d: %d", r > 1 ? "," : "", r, of_ranks[r]);
    printf("\n");
    pt_error e;
    if (tree_remove(one, &e) || tree_remove(many, &e))
        fail_msg("%s", e.text);
    assert_true(plans < DEFAULT_PLANS || (refused < done && of_ranks[1] < done / 3 * 2));
}

/* Each rank looks up the rows of its tokens in its own copy of a table, on the host, on the disk, or some on each; shards of it are
 * gathered. A trained one is updated on the device or on the host. */
static void look_up(bool trained)
{
    enum { TABLE_PLANS = SANITIZED ? 4 : 16, EMULATED_TABLE_PLANS = 2 };
    random_source seed = random_open(), r;
    const int plans = test_device_is_emulated() ? EMULATED_TABLE_PLANS : TABLE_PLANS;
    random_case c;
    outcome first, other;
    int from[TIERS] = {0}, updated[TIERS] = {0}, shards = 0;
    pt_error e = {0};
    for (uint64_t number = trained ? 8000 : 7000;; number++) {
        r = random_fork(&seed, number);
        open_case(&r, &c);
        if (random_case_train_table(&r, &c, trained, &e))
            break;
        random_case_close(&c);
    }
    random_case_plain(&c);
    job j = {.model = c.model, .shape = c.shape, .plan = &c.plan, .clipping = c.clipping, .seed = 1, .host_tier = true};
    if (run_ranks(&j, 1, &first, &e))
        fail_msg("%s", e.text);
    for (int done = 0; done < plans;) {
        int ranks = random_ranks(&r, &c.shape);
        step_shape s;
        assert_int_equal(step_shape_of_rank(&s, &c.shape, ranks, 0, &e), 0);
        plan_free(&c.plan);
        packing_free(&c.packing);
        j.by = (transport)random_below(&r, TRANSPORTS);
        j.staged = (size_t)1 << random_from(&r, 10, 20);
        j.shielded = !needs_host() && random_one_in(&r, 2);
        assert_int_equal(random_packing(&r, c.model, &s, &c.packing, &e), 0);
        assert_int_equal(random_plan(&r, c.model, &s, &c.packing, c.clipping, j.host_tier, &c.plan, &e), 0);
        for (int i = 0; i < c.packing.chunks_n; i++) {
            const bool on_host = trained && random_one_in(&r, 2) && !(c.shape.gpu && c.packing.chunks[i].by_device);
            if (c.packing.chunks[i].looked_up && (done < 2 || random_one_in(&r, 2)))
                c.plan.chunks[i] = (plan_chunk){.placement = done % 2 ? TIER_HOST : TIER_DISK, .update = on_host ? TIER_HOST : TIER_DEVICE};
        }
        const int failed = run_ranks(&j, ranks, &other, &e);
        if (failed && !strstr(e.text, "more are needed at once"))
            fail_msg("%d ranks: %s", ranks, e.text);
        if (!failed)
            assert_same(&first, &other, &j, ranks);
        for (int i = 0; i < c.packing.chunks_n && !failed && ranks > 1; i++) {
            from[c.plan.chunks[i].placement] += plan_looks_up(&c.plan.chunks[i], &c.packing.chunks[i]);
            updated[c.plan.chunks[i].update] += chunk_has_rows(&c.packing, i);
            shards += c.packing.chunks[i].looked_up && c.plan.chunks[i].sharded;
        }
        done += !failed && ranks > 1;
        outcome_free(&other);
    }
    printf("%d plans of several ranks: %d chunks were looked up on the host, %d on the disk, %d gathered, %d updated on the device, "
           "%d on the host\n", plans, from[TIER_HOST], from[TIER_DISK], shards, updated[TIER_DEVICE], updated[TIER_HOST]);
    assert_true(from[TIER_HOST] > 0 && from[TIER_DISK] > 0 && trained == (updated[TIER_DEVICE] + updated[TIER_HOST] > 0));
    outcome_free(&first);
    random_case_close(&c);
}

static void each_rank_looks_up_its_rows(void **unused) { (void)unused; look_up(false); }
static void ranks_train_the_table_that_they_look_up(void **unused) { (void)unused; look_up(true); }

/* Two ranks, of which each has 16 tokens of 8000. A rank sends the other one half of the head's sums and of the weights, and of the
 * embedding's sums next to nothing. */
static void rows_without_a_token_are_not_sent(void **unused)
{
    (void)unused;
    enum { VOCAB = 8000, HIDDEN = 64, REST = 400000 };
    static const char config[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 8000, \"n_positions\": 64, \"n_embd\": 64, \"n_head\": 4, "
                                 "\"n_layer\": 1, \"bos_token_id\": 0, \"eos_token_id\": 0}";
    random_source r = random_open();
    model *m;
    step_shape shape, own;
    packing packing;
    plan plan;
    outcome o;
    uint64_t sent = 0;
    pt_error e = {0};
    if (needs_host())
        skip(); /* GPUs send all rows */
    assert_int_equal(model_from_json("test", config, sizeof config - 1, NULL, NULL, &m, &e), 0);
    step_shape_init(&shape, m, PT_BF16, 2, 16);
    step_shape_in_lanes(&shape, m, 2);
    assert_int_equal(step_shape_of_rank(&own, &shape, 2, 0, &e), 0);
    assert_int_equal(random_packing(&r, m, &own, &packing, &e), 0);
    assert_int_equal(random_plan(&r, m, &own, &packing, true, false, &plan, &e), 0);
    plan.n_buffer = packing.chunks_n;
    for (int c = 0; c < packing.chunks_n; c++)
        plan.chunks[c] = (plan_chunk){TIER_DEVICE, TIER_DEVICE, false};
    job j = {.model = m, .shape = shape, .plan = &plan, .clipping = true, .sent = &sent};
    if (run_ranks(&j, 2, &o, &e))
        fail_msg("%s", e.text);
    const uint64_t sums = VOCAB * HIDDEN / 2 * sizeof(float), weights = sums / 2;
    printf("%llu bytes a step, %llu of them sums of the head and weights\n", (unsigned long long)sent / STEPS,
           (unsigned long long)(sums + weights));
    assert_true(sent / STEPS >= sums + weights && sent / STEPS < sums + weights + REST);
    outcome_free(&o);
    plan_free(&plan);
    packing_free(&packing);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_number_of_ranks_gives_the_same_bits),
                                       cmocka_unit_test(each_rank_looks_up_its_rows),
                                       cmocka_unit_test(ranks_train_the_table_that_they_look_up),
                                       cmocka_unit_test(rows_without_a_token_are_not_sent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
