/* Which tensors to train within a budget: the choice is nearly the best of all sets, what is proposed fits and trains, what is refused. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "program.h"
#include "seed.h"
#include "train/choice.h"
#include "train/fixture.h"
#include "train/model_options.h"

static uint64_t seed, draws;

static double uniform(void) { return rng_uniform(seed, RNG_TEST, 93, draws++); }

static void choice_options(const fixture *f, const char *const *data, pt_train_options *o)
{
    fixture_options(f, data, NULL, o);
    o->disk_path = scratch;
}

/* ---- the choice ---- */

typedef struct planned { fixture f; pt_train_options o; model *m; step_shape shape; planning p; } planned;

static void planned_open(planned *x, const char *name, uint64_t budget)
{
    static const char *data[1];
    pt_error e = {0};
    memset(x, 0, sizeof *x);
    fixture_open(&x->f, "models", name);
    data[0] = x->f.tokens;
    choice_options(&x->f, data, &x->o);
    x->o.device_memory = budget;
    x->o.disk_memory = 0;
    must(model_of_options(&x->o, 0, NULL, &x->m, &e), &e);
    must(shape_of_options(&x->o, x->m, &x->shape, &e), &e);
    x->p = (planning){.o = &x->o, .model = x->m, .shape = &x->shape};
    must(planning_open_device(&x->p, &x->o, &e), &e);
    must(planning_prepare(&x->p, &e), &e);
}

static void planned_close(planned *x)
{
    planning_close(&x->p);
    model_close(x->m);
    fixture_close(&x->f);
}

static bool set_fits(planned *x, const bool *set, uint64_t needs[TIERS])
{
    pt_error e = {0};
    for (int i = 0; i < x->m->params_n; i++)
        x->m->params[i].trainable = set[i];
    const int fits = search_fits(&x->p.search, needs, &e);
    must(fits < 0 ? fits : 0, &e);
    return fits;
}

/* Device memory of the least plan that trains one parameter of the head, and of that which trains all. */
static void find_range(const char *name, uint64_t *least, uint64_t *all)
{
    planned x;
    uint64_t needs[TIERS];
    planned_open(&x, name, 256u << 20);
    bool *set = calloc((size_t)x.m->params_n, sizeof *set);
    assert_non_null(set);
    set[x.m->params_n - 1] = true;
    assert_true(set_fits(&x, set, needs));
    *least = needs[TIER_DEVICE];
    for (int i = 0; i < x.m->params_n; i++)
        set[i] = x.m->params[i].kind->use != USE_CORRECTION;
    assert_true(set_fits(&x, set, needs));
    *all = needs[TIER_DEVICE];
    free(set);
    planned_close(&x);
}

enum { CANDIDATES = 9 };

/* The largest sum of all sets of the candidates that fit. */
static double best_of_all(planned *x, const int *candidates, const double *contribution, bool *set)
{
    double best = 0;
    for (unsigned bits = 1; bits < 1u << CANDIDATES; bits++) {
        double sum = 0;
        memset(set, 0, (size_t)x->m->params_n * sizeof *set);
        for (int i = 0; i < CANDIDATES; i++)
            if (bits & 1u << i) {
                set[candidates[i]] = true;
                sum += contribution[candidates[i]];
            }
        if (sum > best && set_fits(x, set, NULL))
            best = sum;
    }
    return best;
}

static void the_choice_is_nearly_the_best_set_that_fits(void **state)
{
    (void)state;
    uint64_t least, all;
    double worst = 1, mean = 0;
    const char *given = getenv("PT_SELECT_DRAWS");
    const int turns = given ? atoi(given) : 6;
    find_range("llama", &least, &all);
    for (int turn = 0; turn < turns; turn++) {
        planned x;
        pt_error e = {0};
        int candidates[CANDIDATES];
        planned_open(&x, "llama", least + (uint64_t)(uniform() * (double)(all - least)));
        const size_t n = (size_t)x.m->params_n;
        double *contribution = calloc(n, sizeof *contribution);
        bool *set = calloc(n, sizeof *set);
        choice c = {.contribution = contribution, .candidate = calloc(n, sizeof(bool)), .chosen = calloc(n, sizeof(bool))};
        assert_true(contribution && set && c.candidate && c.chosen);
        for (int i = 0; i < CANDIDATES; i++) {
            do
                candidates[i] = (int)(uniform() * (double)n);
            while (c.candidate[candidates[i]]);
            c.candidate[candidates[i]] = true;
            const param *p = &x.m->params[candidates[i]];
            contribution[candidates[i]] = (double)(p->rows * p->cols) * (0.1 + uniform());
        }
        const double best = best_of_all(&x, candidates, contribution, set);
        const int failed = choice_make(&x.p, x.m, &c, &e);
        if (failed && (failed != PT_DOES_NOT_FIT || best > 0))
            fail_msg("%s, and the best set has %g", e.text, best);
        if (!failed) {
            assert_true(set_fits(&x, c.chosen, NULL) && c.sum <= best * (1 + 1e-12));
            worst = fmin(worst, c.sum / best);
        }
        mean += failed ? 1.0 / turns : c.sum / best / turns;
        free(contribution);
        free(set);
        free(c.candidate);
        free(c.chosen);
        planned_close(&x);
    }
    print_message("of the best sum: %.3f at least, %.3f in the mean\n", worst, mean);
    assert_true(worst >= 0.5 && mean >= 0.85);
}

/* The head's matrix, which every depth of backward has, gains the most for its bytes, but no plan trains it. */
static void a_tensor_that_does_not_fit_is_passed(void **state)
{
    (void)state;
    planned x;
    uint64_t least, all;
    pt_error e = {0};
    int largest = -1, smallest = -1;
    find_range("llama", &least, &all);
    planned_open(&x, "llama", least);
    const size_t n = (size_t)x.m->params_n;
    double *contribution = calloc(n, sizeof *contribution);
    choice c = {.contribution = contribution, .candidate = calloc(n, sizeof(bool)), .chosen = calloc(n, sizeof(bool))};
    assert_true(contribution && c.candidate && c.chosen);
    for (size_t i = 0; i < n; i++) {
        const param *p = &x.m->params[i];
        c.candidate[i] = true;
        contribution[i] = (double)choice_bytes(&x.p, p);
        if (p->block == x.m->blocks_n - 1 && (largest < 0 || choice_bytes(&x.p, p) > choice_bytes(&x.p, &x.m->params[largest])))
            largest = (int)i;
        if (p->block == x.m->blocks_n - 1 && (smallest < 0 || choice_bytes(&x.p, p) < choice_bytes(&x.p, &x.m->params[smallest])))
            smallest = (int)i;
    }
    contribution[largest] *= 10;
    c.chosen[largest] = true;
    while (set_fits(&x, c.chosen, NULL))
        x.p.search.budget[TIER_DEVICE] -= 4096;
    c.chosen[largest] = false;
    c.chosen[smallest] = true;
    assert_true(set_fits(&x, c.chosen, NULL));
    c.chosen[smallest] = false;
    must(choice_make(&x.p, x.m, &c, &e), &e);
    assert_true(c.sum > 0 && !c.chosen[largest] && set_fits(&x, c.chosen, NULL));
    free(contribution);
    free(c.candidate);
    free(c.chosen);
    planned_close(&x);
}

/* ---- what is proposed ---- */

static json_t *select_json(const pt_train_options *o, uint64_t memory, int64_t steps)
{
    char *text;
    pt_error e = {0};
    must(pt_select(o, memory, steps, true, &text, &e), &e);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    free(text);
    return json;
}

static json_t *of_choice(const json_t *json, const char *key) { return json_object_get(json_object_get(json, "select"), key); }

/* Trains with the patterns and the budget alone, and looks at what was taken. */
static void train_proposal(const fixture *f, const pt_train_options *from, const json_t *json, uint64_t memory, const char *name)
{
    pt_trainer *t;
    pt_step s;
    pt_error e = {0};
    pt_summary sum;
    char out[200];
    const char *patterns[400];
    json_t *list = of_choice(json, "train_only"), *value;
    size_t i;
    assert_true(json_array_size(list) <= 400);
    json_array_foreach(list, i, value)
        patterns[i] = json_string_value(value);
    snprintf(out, sizeof out, "%s/%s-proposal", scratch, name);
    pt_train_options o = *from;
    o.out = out;
    o.disk_path = NULL;
    o.device_memory = memory;
    o.disk_memory = 0;
    o.train_only = patterns;
    o.train_only_n = (int)json_array_size(list);
    o.steps = 2;
    must(pt_trainer_open(&o, &t, &e), &e);
    assert_true(pt_trainer_step(t, &s, &e) > 0);
    pt_trainer_summary(t, &sum);
    for (int k = 0; k < sum.memory_n; k++)
        if (sum.memory[k].peak_bytes > (strcmp(sum.memory[k].tier, "device") ? 0 : memory))
            fail_msg("%s: %llu bytes of %s", f->name, (unsigned long long)sum.memory[k].peak_bytes, sum.memory[k].tier);
    pt_trainer_close(t);
}

static void what_is_proposed_fits_and_trains(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gpt2", "mixtral", "qwen3_5", "bamba"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        fixture f;
        pt_train_options o;
        uint64_t least, all;
        char path[600];
        snprintf(path, sizeof path, "%s/models/%s", fixtures_root(), names[k]);
        if (!path_exists(path))
            fail_msg("no fixture %s", names[k]);
        fixture_open(&f, "models", names[k]);
        const char *data[] = {f.tokens};
        find_range(names[k], &least, &all);
        choice_options(&f, data, &o);
        o.device_memory = PT_AUTO;
        o.disk_memory = PT_AUTO;
        const uint64_t memory = (least + (uint64_t)(uniform() * 1.1 * (double)(all - least)) + 65535) / 65536 * 65536;
        json_t *json = select_json(&o, memory, 2);
        assert_true(json_is_true(json_object_get(json, "fits")));
        print_message("%s: %llu of %llu to %llu: %.2f of the contribution\n", names[k], (unsigned long long)memory,
                      (unsigned long long)least, (unsigned long long)all, json_number_value(of_choice(json, "share")));
        train_proposal(&f, &o, json, memory, names[k]);
        json_decref(json);
        fixture_close(&f);
    }
}

static void threads_and_memory_do_not_change_it(void **state)
{
    (void)state;
    fixture f;
    pt_train_options o;
    uint64_t least, all;
    fixture_open(&f, "models", "llama");
    const char *data[] = {f.tokens};
    find_range("llama", &least, &all);
    choice_options(&f, data, &o);
    o.device_memory = PT_AUTO;
    o.disk_memory = 0;
    const uint64_t memory = least + (uint64_t)(uniform() * (double)(all - least));
    o.threads = 1;
    json_t *one = select_json(&o, memory, 3);
    o.threads = 2;
    o.micro_batch = 1;
    json_t *two = select_json(&o, memory, 3);
    assert_true(json_array_size(of_choice(one, "tensors")) > 10);
    for (size_t i = 0; i < json_array_size(of_choice(one, "tensors")); i++) {
        const json_t *a = json_array_get(of_choice(one, "tensors"), i), *b = json_array_get(of_choice(two, "tensors"), i);
        assert_true(json_number_value(json_object_get(a, "contribution")) == json_number_value(json_object_get(b, "contribution")));
    }
    json_decref(one);
    json_decref(two);
    fixture_close(&f);
}

/* ---- a folder with validation files ---- */

static void count_evaluations(void *arg, const char *stage, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    *(int *)arg += !strcmp(stage, "evaluating");
}

/* A run of as many steps would evaluate on the way. */
static void measuring_evaluates_nothing(void **state)
{
    (void)state;
    fixture f;
    pt_train_options o;
    pt_error e = {0};
    int evaluations = 0;
    char folder[200], path[220];
    const char *data[] = {folder}, *const names[] = {"train.npy", "valid.npy"};
    fixture_open(&f, "models", "llama");
    snprintf(folder, sizeof folder, "%s", scratch_path("split"));
    must(dir_make(folder, &e), &e);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        must(file_copy_atomic(f.tokens, path, &e), &e);
    }
    choice_options(&f, data, &o);
    o.device_memory = PT_AUTO;
    o.disk_memory = 0;
    o.progress = count_evaluations;
    o.arg = &evaluations;
    json_decref(select_json(&o, 256 << 20, 40));
    assert_int_equal(evaluations, 0);
    fixture_close(&f);
}

/* ---- killed ---- */

static int folders_left(void)
{
    struct dirent **entries;
    const int n = scandir(scratch, &entries, NULL, NULL);
    int left = 0;
    for (int i = 0; i < n; i++) {
        left += !strncmp(entries[i]->d_name, "protrain-select", strlen("protrain-select"));
        free(entries[i]);
    }
    free(entries);
    return left;
}

/* The next run removes the folder of a run that was killed while it measured, and leaves that of one that measures alone. */
static void the_folder_of_a_killed_run_is_removed(void **state)
{
    (void)state;
    fixture f;
    pt_train_options o;
    arguments a = {0};
    fixture_open(&f, "models", "llama");
    const char *data[] = {f.tokens};
    choice_options(&f, data, &o);
    o.device_memory = PT_AUTO;
    o.disk_memory = 0;
    add_arguments(&a, WORDS("plan", "--model", o.model, "--data", f.tokens, "--seq-len", "16", "--select", "256MiB", "--select-steps",
                            "1000", "--disk-path", scratch));
    const pid_t child = program_start(&a, "/dev/null", scratch_path("err"));
    for (int wait = 0; wait < 6000 && !folders_left(); wait++)
        sleep_seconds(0.01);
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(folders_left(), 1);
    json_decref(select_json(&o, 256 << 20, 2));
    assert_int_equal(folders_left(), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(program_wait(child), 256 + SIGKILL);
    assert_int_equal(folders_left(), 1);
    json_decref(select_json(&o, 256 << 20, 2));
    assert_int_equal(folders_left(), 0);
    fixture_close(&f);
}

/* ---- refusals ---- */

static void refuse(int code, const char *word, uint64_t memory, void (*change)(pt_train_options *))
{
    fixture f;
    pt_train_options o;
    pt_error e = {0};
    char *text;
    fixture_open(&f, "models", "llama");
    const char *data[] = {f.tokens};
    choice_options(&f, data, &o);
    o.device_memory = PT_AUTO;
    o.disk_memory = PT_AUTO;
    change(&o);
    const int got = pt_select(&o, memory, 2, false, &text, &e);
    if (got != code || !strstr(e.text, word))
        fail_msg("%d: %s", got, e.text);
    fixture_close(&f);
}

static void nothing(pt_train_options *o) { (void)o; }
static void no_data(pt_train_options *o) { o->data_n = 0; }
static void with_lora(pt_train_options *o) { o->lora_rank = 4; }
static void with_adapter(pt_train_options *o) { o->adapter = "adapter"; }
static void with_turns(pt_train_options *o) { o->train_blocks = 1; }
static void with_muon(pt_train_options *o) { o->optimizer = PT_OPTIMIZER_MUON; }
static void with_task(pt_train_options *o) { o->task = PT_TASK_CLASSIFY; }
static void with_budget(pt_train_options *o) { o->device_memory = 1 << 30; }
static void with_bits(pt_train_options *o) { o->base = PT_BASE_NF4; }
static void with_machines(pt_train_options *o) { o->machine_file = "rtx4090,h100"; }
static void with_no_model(pt_train_options *o) { o->model = "no-such-folder"; }

static void what_cannot_be_chosen_is_refused(void **state)
{
    (void)state;
    refuse(PT_DOES_NOT_FIT, "no tensor can be trained within", 4096, nothing);
    refuse(PT_USAGE, "`select` is 0", 0, nothing);
    refuse(PT_USAGE, "no data", 1 << 30, no_data);
    refuse(PT_USAGE, "`lora_rank` does not go with `select`", 1 << 30, with_lora);
    refuse(PT_USAGE, "`adapter` does not go with `select`", 1 << 30, with_adapter);
    refuse(PT_USAGE, "`train_blocks` does not go with `select`", 1 << 30, with_turns);
    refuse(PT_USAGE, "`base` does not go with `select`", 1 << 30, with_bits);
    refuse(PT_USAGE, "steps of AdamW", 1 << 30, with_muon);
    refuse(PT_USAGE, "`task` classify", 1 << 30, with_task);
    refuse(PT_USAGE, "leave `device_memory` out", 1 << 30, with_budget);
    refuse(PT_USAGE, "several machines", 1 << 30, with_machines);
    refuse(PT_FAILED, "no-such-folder", 1 << 30, with_no_model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_choice_is_nearly_the_best_set_that_fits),
                                       cmocka_unit_test(a_tensor_that_does_not_fit_is_passed),
                                       cmocka_unit_test(what_is_proposed_fits_and_trains),
                                       cmocka_unit_test(threads_and_memory_do_not_change_it),
                                       cmocka_unit_test(measuring_evaluates_nothing),
                                       cmocka_unit_test(the_folder_of_a_killed_run_is_removed),
                                       cmocka_unit_test(what_cannot_be_chosen_is_refused)};
    seed = test_seed();
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
