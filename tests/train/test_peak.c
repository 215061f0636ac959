/* The memory that a run says it used: nothing beyond that has been written, and when everything has run once, it is what was
 * predicted, to the byte. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "few_bits.h"
#include "random_plan.h"

#include "io/scratch.h"
#include "run/executor.h"
#include "model/weights.h"
#include "run/state.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum { CASES = SANITIZED ? 24 : 60 };

/* ---- the disk ---- */

/* The end of what any channel has written. */
static atomic_ullong disk_written;

static int note_write(void *context, bool is_write, uint64_t offset, size_t bytes, int result)
{
    unsigned long long end = offset + bytes, most = atomic_load(&disk_written);
    while (is_write && end > most && !atomic_compare_exchange_weak(&disk_written, &most, end)) {}
    return result;
}

/* The file that the executor has open in the scratch folder. */
static struct stat disk_file_stat(void)
{
    struct stat found = {0};
    int files = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        char link[300], path[300];
        snprintf(link, sizeof link, "/proc/self/fd/%.20s", entry->d_name);
        ssize_t n = readlink(link, path, sizeof path - 1);
        path[n < 0 ? 0 : n] = 0;
        if (strncmp(path, scratch, strlen(scratch)) == 0 && stat(link, &found) == 0)
            files++;
    }
    closedir(d);
    assert_int_equal(files, 1);
    return found;
}

/* All of it is taken when it is opened, and it never grows. */
static void check_disk_file(const executor *x)
{
    if (!executor_bytes(x, TIER_DISK))
        return;
    struct stat st = disk_file_stat();
    assert_int_equal((uint64_t)st.st_size, executor_bytes(x, TIER_DISK));
    assert_true((uint64_t)st.st_blocks * 512 >= executor_bytes(x, TIER_DISK));
}

/* ---- memory ---- */

/* The arena of a tier in memory, found by something that lives there; NULL: nothing does. */
static const char *arena_of(const executor *x, tier t)
{
    const schedule *s = executor_schedule(x, SCHEDULE_EVAL);
    for (int i = 0; i < s->placements_n; i++) {
        uint64_t offset;
        if (s->buffers[i].tier == t)
            return executor_placement(x, s->buffers[i].kind, s->buffers[i].index, &offset) - s->buffers[i].offset;
    }
    return NULL;
}

static uint64_t written_beyond_peak(const executor *x)
{
    uint64_t n = 0;
    for (int t = TIER_DEVICE; t <= TIER_HOST; t++) {
        const char *arena = executor_bytes(x, t) ? arena_of(x, t) : NULL;
        uint64_t i = executor_peak_bytes(x, t), word;
        for (; arena && i + sizeof word <= executor_bytes(x, t); i += sizeof word) {
            memcpy(&word, arena + i, sizeof word);
            n += word != 0;
        }
        for (; arena && i < executor_bytes(x, t); i++)
            n += arena[i] != 0;
    }
    const uint64_t written = atomic_load(&disk_written), peak = executor_peak_bytes(x, TIER_DISK);
    return n + (written > peak ? written - peak : 0);
}

static void random_batch(executor *x, const random_case *c, random_source *r)
{
    executor_batch b = executor_input(x);
    for (int64_t i = 0; i < c->shape.batch * c->shape.seq_len; i++) {
        b.ids[i] = random_below(r, (int)c->model->config.vocab);
        b.targets[i] = random_below(r, (int)c->model->config.vocab);
    }
}

/* A weight as it is kept: what is frozen without low halves is bf16. */
static float kept_of(const state *s, int index, float v)
{
    const model *m = s->in->model;
    bf16 high;
    uint16_t low;
    if (m->params[index].trainable || !m->stored_bf16 || param_type(&m->params[index], s->in->shape->type) == PT_F32)
        return v;
    master_split(v, &high, &low);
    return bf16_to_f32(high);
}

/* All of a parameter's. */
static void keep(const state *s, int index, float *values)
{
    const param *p = &s->in->model->params[index];
    for (int64_t k = 0; k < p->rows * p->cols && p->storage == STORAGE_PLAIN; k++)
        values[k] = kept_of(s, index, values[k]);
    if (p->storage == STORAGE_PLAIN)
        return;
    char *piece = few_bits_piece(s->in->model, index, values, NF4_BLOCK, NULL);
    assert_non_null(piece);
    dequantize_rows(p, piece, 0, p->rows, values);
    free(piece);
}

/* Entries of the largest state of a parameter; those of low rank may have more than it has values. */
static int64_t most_entries(const schedule_input *in, int index)
{
    int64_t most = in->model->params[index].rows * in->model->params[index].cols;
    for (int kind = 0; kind < state_kinds(in); kind++)
        most = state_entries(in, kind, index) > most ? state_entries(in, kind, index) : most;
    return most;
}

/* Whatever was trained before, wherever it lies. */
static void check_begun(state *s, const model *m, uint64_t seed)
{
    pt_error e = {0};
    for (int i = 0; i < m->params_n; i++) {
        const int64_t rows = m->params[i].rows, n = rows * m->params[i].cols;
        float *v = malloc((size_t)most_entries(s->in, i) * sizeof *v), *want = malloc((size_t)n * sizeof *want);
        assert_true(v && want);
        weights_init(m, seed, i, 0, rows, want);
        keep(s, i, want);
        for (int kind = 0; kind < state_kinds(s->in); kind++) {
            const int64_t entries = state_entries(s->in, kind, i);
            assert_int_equal(entries ? state_read(s, kind, i, 0, entries, v, &e) : 0, 0);
            for (int64_t k = 0; k < entries; k++)
                assert_true(v[k] == (kind == STATE_MASTER ? want[k] : 0));
        }
        free(v);
        free(want);
    }
}

/* What training leaves, in every chunk; the first is in the window at the end. */
static void scribble(state *s, const model *m)
{
    pt_error e = {0};
    for (int i = m->params_n; i-- > 0;) {
        const int64_t n = most_entries(s->in, i);
        float *v = malloc((size_t)n * sizeof *v);
        assert_non_null(v);
        for (int64_t k = 0; k < n; k++)
            v[k] = 7;
        for (int kind = 0; kind < state_kinds(s->in); kind++) {
            const int64_t entries = state_entries(s->in, kind, i);
            assert_int_equal(entries ? state_write(s, kind, i, 0, entries, v, &e) : 0, 0);
        }
        free(v);
    }
}

/* Each schedule that the plan has, then loading: after each of them only what was counted is touched. */
static void run_all(executor *x, const random_case *c, unsigned kinds, random_source *r)
{
    static const schedule_kind order[] = {SCHEDULE_EVAL, SCHEDULE_DRAIN, SCHEDULE_STEP, SCHEDULE_STEP_UPDATE};
    update_params u = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .momentum = MUON_MOMENTUM, .step = 1, .grad_scale = 1};
    pt_error e = {0};
    state s;
    assert_int_equal(optimizer_args_parse(shape_optimizer(&c->shape), NULL, &u.args, &e), 0);
    assert_int_equal(written_beyond_peak(x), 0);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (!(kinds & 1u << order[i]))
            continue;
        random_batch(x, c, r);
        assert_int_equal(executor_run(x, order[i], 1, &u, &e), 0);
        assert_int_equal(written_beyond_peak(x), 0);
    }
    state_open(&s, x);
    assert_int_equal(state_init(&s, r->seed, &e), 0);
    check_begun(&s, c->model, r->seed);
    scribble(&s, c->model);
    assert_int_equal(state_init(&s, r->seed + 1, &e), 0);
    check_begun(&s, c->model, r->seed + 1);
    assert_int_equal(state_close(&s, &e), 0);
    assert_int_equal(written_beyond_peak(x), 0);
    assert_int_equal(disk_written, executor_bytes(x, TIER_DISK)); /* and all of that was needed */
    check_disk_file(x);
}

/* False where the plan has too few buffers. */
static bool try_case(random_source *r, uint64_t *unused, int *on_disk)
{
    random_case c;
    device *d;
    executor *x;
    pt_error e = {0};
    assert_int_equal(random_case_open(r, &c, &e), 0);
    assert_int_equal(device_cpu_open(&(device_options){.threads = 2}, &d, &e), 0);
    executor_options o = {.device = d, .host = d, .input = c.input, .budget = {1u << 30, 1u << 30, 1u << 30}, .disk_path = scratch,
                          .disk = &(disk_options){.fault = note_write}, .threads = 2,
                          .schedules = 1u << SCHEDULE_EVAL | 1u << SCHEDULE_STEP};
    if (c.plan.update != UPDATE_BACKWARD)
        o.schedules |= 1u << SCHEDULE_DRAIN | (c.plan.update == UPDATE_NEXT_FORWARD ? 1u << SCHEDULE_STEP_UPDATE : 0);
    disk_written = 0;
    int failed = executor_open(&o, &x, &e);
    if (!failed) {
        check_disk_file(x);
        run_all(x, &c, o.schedules, r);
        for (int t = 0; t < TIERS; t++)
            *unused += executor_bytes(x, t) - executor_peak_bytes(x, t);
        *on_disk += executor_bytes(x, TIER_DISK) > 0;
        executor_close(x);
    }
    d->table->close(d);
    random_case_close(&c);
    assert_true(!failed || failed == PT_DOES_NOT_FIT);
    return !failed;
}

static void what_was_used_is_what_was_predicted_and_no_byte_more(void **state)
{
    (void)state;
    random_source r = random_open();
    int on_disk = 0;
    for (int done = 0; done < CASES;) {
        uint64_t unused = 0;
        done += try_case(&r, &unused, &on_disk);
        assert_int_equal(unused, 0);
    }
    assert_true(on_disk >= CASES / 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_used_is_what_was_predicted_and_no_byte_more),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
