/* The explanation of any plan: it fits a screen, its numbers add up, and its JSON and text say the same. */
#include "report/explain.h"

#include "base/units.h"
#include "sanitized.h"
#include "search/random_problem.h"

#include <math.h>

enum { CASES = SANITIZED ? 12 : 100, CHECKED = SANITIZED ? 1 : 4 };
enum { COLUMNS = 100, LINES = 38 /* beside that of the whole run */, OTHER_LINES = 3 /* beside others; one of them */ };

typedef struct setup { random_case c; costs costs; search_input search; priced_plan best; explain_input input; } setup;

/* A random plan, as if a search had found it; 0: it cannot be built. */
static int setup_open(random_source *r, setup *s)
{
    pt_error e = {0};
    memset(s, 0, sizeof *s);
    if (random_case_open(r, &s->c, &e))
        fail_msg("%s", e.text);
    s->costs = random_costs(r, s->c.model, true);
    s->search = (search_input){.model = s->c.model, .shape = &s->c.shape, .costs = &s->costs, .training = true, .clipping = s->c.clipping,
                               .host_tier = s->c.input.host_tier, .budget = {1u << 28, s->c.input.host_tier ? 1u << 28 : 0, 1u << 28}};
    s->best = (priced_plan){.packing = s->c.packing, .plan = s->c.plan};
    s->input = (explain_input){.search = &s->search, .best = &s->best, .machine = "a machine", .source = "made up", .steps = 10,
                               .watts = 900, .price_per_hour = 80,
                               .room = "1.00 GiB free (/sys/fs/cgroup/a/group/with/a/rather/long/name/of/its/own/memory.max) less 512 MiB "
                                       "for other programs: 512 MiB; 2.00 GiB free (disk) less 1.00 GiB for other programs: 1.00 GiB"};
    int fits = search_price(&s->search, &s->best, &e);
    if (fits < 0)
        fail_msg("%s", e.text);
    return fits;
}

static void check_screen(const char *text, int others)
{
    int lines = 0, first_other = 0;
    for (const char *line = text; *line; lines++) {
        size_t n = strcspn(line, "\n");
        lines -= !strncmp(line, "run ", strlen("run "));
        if (!strncmp(line, "others ", strlen("others ")))
            first_other = lines;
        if (n > COLUMNS)
            fail_msg("%zu columns: %.*s", n, (int)n, line);
        line += n + (line[n] == '\n');
    }
    if (!others)
        first_other = lines;
    if (first_other > LINES) {
        fputs(text, stderr);
        fail_msg("%d lines", first_other);
    }
    assert_true(first_other >= 6);
    assert_in_range(lines - first_other, others, OTHER_LINES * others);
}

static json_int_t integer(const json_t *o, const char *a, const char *b)
{
    return json_integer_value(json_object_get(json_object_get(o, a), b));
}

/* What each queue stands still for, by the name of the other, is no more than it is idle; compute's is in both forms. */
static void check_waits(const json_t *queues, double step_s)
{
    for (int q = 0; q < QUEUES; q++) {
        const json_t *one = json_object_get(queues, queue_names[q]), *waits = json_object_get(one, "waits_s");
        const json_t *of_compute = json_object_get(json_object_get(queues, queue_names[QUEUE_COMPUTE]), "waits_s");
        double left = step_s - json_number_value(json_object_get(one, "busy_s"));
        for (int other = 0; other < QUEUES; other++)
            left -= json_number_value(json_object_get(waits, queue_names[other]));
        assert_true(json_is_object(waits) && left >= -1e-6 * step_s);
        assert_true(json_number_value(json_object_get(one, "waited_for_s")) == json_number_value(json_object_get(of_compute,
            queue_names[q])));
    }
}

static void check_object(const setup *s, const explanation *x)
{
    json_t *o = explain_json(x), *predicted = json_object_get(o, "predicted"), *parts, *value;
    const char *tier_key, *part;
    assert_non_null(o);
    assert_true(json_is_true(json_object_get(o, "fits")));
    assert_true(fabs(json_number_value(json_object_get(predicted, "step_s")) * 1e9 - s->best.step_ns) <= 1e-6 * s->best.step_ns);
    const double tokens = (double)(s->c.shape.batch * s->c.shape.seq_len) * 1e9 / s->best.step_ns;
    assert_int_equal(json_integer_value(json_object_get(o, "ranks")), 1);
    assert_true(fabs(json_number_value(json_object_get(predicted, "tokens_per_s")) - tokens) <= 1e-6 * tokens);
    for (int t = 0; t < TIERS; t++)
        assert_int_equal(integer(predicted, "peak_bytes", tier_names[t]), (json_int_t)s->best.bytes[t]);
    json_object_foreach(json_object_get(o, "memory"), tier_key, parts) {
        json_int_t sum = 0;
        json_object_foreach(parts, part, value)
            sum += json_integer_value(value);
        assert_int_equal(sum - json_integer_value(json_object_get(parts, "free")), integer(predicted, "peak_bytes", tier_key));
        assert_int_equal(sum, integer(predicted, "budget_bytes", tier_key));
    }
    check_waits(json_object_get(o, "queues"), s->best.step_ns * 1e-9);
    plan p;
    pt_error e = {0};
    char *text = json_dumps(json_object_get(o, "plan"), 0);
    assert_non_null(text);
    assert_int_equal(plan_from_json("explained", text, strlen(text), &p, &e), 0);
    assert_int_equal(plan_validate(&p, s->c.model, &s->c.shape, &s->c.packing, s->c.clipping, &e), 0);
    plan_free(&p);
    free(text);
    json_decref(o);
}

static void check_shares(const forecast *f)
{
    share shares[SHARES];
    double sum = 0;
    int n = explain_shares(f, shares);
    for (int i = 0; i < n; i++) {
        assert_true(i == 0 || shares[i].ns <= shares[i - 1].ns);
        sum += shares[i].ns;
    }
    assert_true(sum <= f->step_ns * (1 + 1e-6));
    assert_true(sum >= f->step_ns * (1 - 0.01 * SHARES));
}

/* The same plan with less saved: slower, or as fast. As long a name as there is. */
static int make_others(const setup *s, priced_plan out[EXPLAIN_RIVALS])
{
    int n = 0;
    for (save_level level = SAVE_INPUT; level < SAVE_LEVELS && n < EXPLAIN_RIVALS; level++) {
        priced_plan *c = &out[n];
        pt_error e = {0};
        *c = (priced_plan){.packing = s->c.packing};
        assert_int_equal(plan_alloc(&c->plan, s->c.plan.chunks_n, s->c.plan.blocks_n, &e), 0);
        plan_chunk *chunks = c->plan.chunks;
        plan_block *blocks = c->plan.blocks;
        c->plan = s->c.plan;
        c->plan.chunks = memcpy(chunks, s->c.plan.chunks, (size_t)s->c.plan.chunks_n * sizeof *chunks);
        c->plan.blocks = memcpy(blocks, s->c.plan.blocks, (size_t)s->c.plan.blocks_n * sizeof *blocks);
        for (int b = 0; b < c->plan.blocks_n; b++)
            blocks[b].level = blocks[b].level < level ? blocks[b].level : level;
        snprintf(c->name, sizeof c->name,
                 "chunks of 128.00 MiB, micro-batches of 16, 4 at a time, updates in the order of the next forward");
        if (search_price(&s->search, c, &e) == 1)
            n++;
        else
            plan_free(&c->plan);
    }
    return n;
}

/* Each stands there with what it takes more than the plan; "why" of the JSON has every one of them whole. */
static void check_others(const explanation *x, const char *text)
{
    json_t *o = explain_json(x), *why = json_object_get(o, "why"), *sentence;
    size_t i;
    int told = 0;
    assert_int_equal(x->rivals_n, x->in->others_n);
    for (int k = 0; k < x->rivals_n; k++)
        assert_true(fabs(x->rivals[k].slower - (x->in->others[k].step_ns / x->in->best->step_ns - 1)) < 1e-6);
    json_array_foreach(why, i, sentence)
        for (const char *at = json_string_value(sentence); (at = strstr(at, "updates in the order of the next forward: ")); at++)
            told++;
    assert_int_equal(told, x->rivals_n);
    assert_true(!x->rivals_n || strstr(text, "\nothers   chunks of 128.00 MiB, "));
    json_decref(o);
}

/* What a day writes, from the plan's own schedules. */
static void check_wear(const setup *s, const explanation *x, const char *text)
{
    char expected[64];
    const double a_day = (double)x->forecast.written_bytes * 86400 / (s->best.step_ns * 1e-9) * 1e-12;
    snprintf(expected, sizeof expected,
             a_day < 999 ? "without a pause, %.3g TB per day" : "without a pause, %.0f TB per day", a_day);
    assert_int_equal(strstr(text, expected) != NULL, x->forecast.written_bytes > 0);
    char phrase[FORECAST_WRITTEN_BYTES], size[32];
    forecast_written(&x->forecast, phrase); /* what a run says before its first step, and after it has moved */
    assert_int_equal(strstr(phrase, expected) != NULL, x->forecast.written_bytes > 0);
    assert_int_equal(strstr(phrase, size_format(size, x->forecast.written_bytes)) != NULL, x->forecast.written_bytes > 0);
}

/* The whole run: its time, the energy and the price of so long. */
static void check_run(const explanation *x, const char *text)
{
    const double hours = 10 * x->forecast.step_ns * 1e-9 / 3600;
    char expected[200], time[32], price[32];
    snprintf(price, sizeof price, hours * 80 < 100 ? "%.2f" : "%.0f", hours * 80);
    snprintf(expected, sizeof expected, "tokens: %s; at most %.3g kWh, at 900 W; costs %s, at 80 an hour\n",
             seconds_format(time, hours * 3600), hours * 0.9, price);
    assert_non_null(strstr(text, "\nrun      10 steps, "));
    assert_non_null(strstr(text, expected));
}

static void any_plan_is_explained_on_one_screen(void **state)
{
    (void)state;
    random_source all = random_open();
    int made = 0;
    for (uint64_t i = 0; made < CASES; i++) {
        random_source r = random_fork(&all, i);
        setup s;
        explanation x;
        pt_error e = {0};
        if (setup_open(&r, &s)) {
            priced_plan others[EXPLAIN_RIVALS];
            s.input.others = others;
            s.input.others_n = make_others(&s, others);
            if (explain(&s.input, &x, &e))
                fail_msg("%s", e.text);
            char *text = explain_text(&x, EXPLAIN_ALL);
            assert_non_null(text);
            check_screen(text, s.input.others_n);
            assert_non_null(strstr(text, " bytes per parameter: weights "));
            assert_non_null(strstr(text, "memory.max)\n         less 512 MiB for other programs"));
            assert_non_null(strstr(text, "\n         2.00 GiB free (disk) less 1.00 GiB for other programs: 1.00 GiB\n"));
            check_others(&x, text);
            check_wear(&s, &x, text);
            check_run(&x, text);
            free(text);
            check_object(&s, &x);
            check_shares(&x.forecast);
            for (int k = 0; k < s.input.others_n; k++)
                plan_free(&others[k].plan);
            made++;
        }
        random_case_close(&s.c);
    }
}

/* Tokens a second of the plan with so much more memory, or a disk as many times as fast. */
static double found(const search_input *in, tier t, uint64_t bytes, double disk)
{
    search_input changed = *in;
    costs c = *in->costs;
    search_result r;
    pt_error e = {0};
    for (int i = 0; i < COST_POINTS; i++) {
        c.read.ns[i] /= disk;
        c.write.ns[i] /= disk;
    }
    c.quota.busy[COST_READ] *= disk; /* the processor time per byte stays the same */
    c.quota.busy[COST_WRITE] *= disk;
    changed.costs = &c;
    changed.budget[t] += bytes;
    assert_int_equal(search_plan(&changed, &r, &e), 0);
    const double rate = (double)(in->shape->batch * in->shape->seq_len) * 1e9 / r.best.step_ns;
    search_result_free(&r);
    return rate;
}

/* 1: it is one of those that can be done here, and brings what is said, or more. */
static int check_help(const explanation *x, const help *h)
{
    char size[32] = "";
    uint64_t bytes = 0;
    pt_error e = {0};
    double then;
    const char *more = strstr(h->what, " more ");
    if (more) {
        snprintf(size, sizeof size, "%.*s", (int)(more - h->what), h->what);
        assert_int_equal(size_parse(size, &bytes, &e), 0);
        then = found(x->in->search, strstr(h->what, "host memory") ? TIER_HOST : TIER_DEVICE, bytes, 1);
    } else if (!strcmp(h->what, "a disk twice as fast")) {
        then = found(x->in->search, TIER_DISK, 0, 2);
    } else {
        return 0;
    }
    assert_true(h->gain >= 0.03);
    if (then < 0.99 * (1 + h->gain) * x->tokens_per_s)
        fail_msg("%s: %g is said, and it brings %g", h->what, h->gain, then / x->tokens_per_s - 1);
    return 1;
}

static void what_would_help_brings_what_is_said(void **state)
{
    (void)state;
    random_source all = random_open();
    int checked = 0;
    for (uint64_t i = 0; checked < CHECKED; i++) {
        random_source r = random_fork(&all, i);
        problem p;
        search_result found;
        explanation x;
        pt_error e = {0};
        problem_open(&r, random_from(&r, 1, 3), &p);
        p.in.training = true;
        p.in.effort = 1;
        if (!search_plan(&p.in, &found, &e)) {
            const explain_input in = {.search = &p.in, .best = &found.best, .machine = "a machine", .source = "made up", .helps = true};
            assert_int_equal(explain(&in, &x, &e), 0);
            for (int k = 0; k < x.helps_n; k++) {
                assert_true(!k || x.helps[k].gain <= x.helps[k - 1].gain);
                checked += check_help(&x, &x.helps[k]);
            }
            search_result_free(&found);
        }
        model_close(p.model);
    }
}

/* A queue that is busy for a part of the step makes the step unsure by that part of its own. */
static void a_step_is_known_as_well_as_what_it_waits_for(void **state)
{
    (void)state;
    const costs none = {0}, measured = {.spread = 0.02, .curves_spread = 0.2}, lost = {.spread = 0.9};
    search_input search = {.costs = &measured};
    const explain_input in = {.search = &search};
    explanation x = {.in = &in, .forecast = {.step_ns = 1000}};
    x.forecast.busy_ns[QUEUE_COMPUTE] = 900;
    x.forecast.busy_ns[QUEUE_READ] = 50;
    assert_true(fabs(forecast_known_to(&x.forecast, x.in->search->costs) - 0.018) < 1e-12);
    x.forecast.busy_ns[QUEUE_READ] = 500;
    assert_true(fabs(forecast_known_to(&x.forecast, x.in->search->costs) - 0.1) < 1e-12);
    search.costs = &none;
    assert_true(forecast_known_to(&x.forecast, x.in->search->costs) == 0);
    search.costs = &lost;
    assert_true(forecast_known_to(&x.forecast, x.in->search->costs) > 0.5);
}

static void how_well_a_step_is_known_is_told_where_it_was_measured(void **state)
{
    (void)state;
    static const struct { double spread, step_ns, disk; const char *words; } cases[] = {
        {0, 1e9, 0, NULL}, {0.001, 1e9, 0, ", within 10% in most runs"}, {0.1, 1e9, 0, ", within 26% in most runs"},
        {0.001, 1e9, 0.1, ", within 10% in most runs"}, {0.001, 1e9, 0.3, ", within 10% if the disk keeps its pace"},
        {0.9, 1e9, 0, ", roughly (the machine was busy"}, {0.001, 1e6, 0.3, ", roughly (so short a step"}};
    random_source all = random_open(), r;
    setup s;
    pt_error e = {0};
    uint64_t i = 0;
    for (r = random_fork(&all, i); !setup_open(&r, &s); r = random_fork(&all, ++i))
        random_case_close(&s.c);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        explanation x;
        s.costs.spread = s.costs.curves_spread = cases[k].spread;
        assert_int_equal(explain(&s.input, &x, &e), 0);
        x.forecast.busy_ns[QUEUE_COMPUTE] = x.forecast.step_ns = cases[k].step_ns;
        x.forecast.busy_ns[QUEUE_READ] = cases[k].disk * cases[k].step_ns;
        x.forecast.busy_ns[QUEUE_WRITE] = 0;
        char *text = explain_text(&x, EXPLAIN_ALL);
        assert_non_null(text);
        if (cases[k].words)
            assert_non_null(strstr(text, cases[k].words));
        else
            assert_true(!strstr(text, "in most runs") && !strstr(text, "roughly"));
        free(text);
    }
    random_case_close(&s.c);
}

/* The first of them with what, and large factors are no percentages. */
static void what_other_plans_are_compared_with_is_said(void **state)
{
    (void)state;
    random_source all = random_open(), r;
    setup s;
    pt_error e = {0};
    explanation x;
    uint64_t i = 0;
    for (r = random_fork(&all, i); !setup_open(&r, &s); r = random_fork(&all, ++i))
        random_case_close(&s.c);
    assert_int_equal(explain(&s.input, &x, &e), 0);
    x.rivals[0] = (rival){"all recompute", 0.068, "recomputing"};
    x.rivals[1] = (rival){policy_names[POLICY_PROTRAIN], 0, ""};
    x.rivals[2] = (rival){policy_names[POLICY_ZERO_OFFLOAD], 8.126, "waiting"};
    x.rivals_n = 3;
    char *text = explain_text(&x, EXPLAIN_ALL);
    assert_non_null(text);
    assert_non_null(strstr(text, "\nothers   all recompute: 6.8% slower than this plan, recomputing\n"
                                 "         as the ProTrain paper plans: as fast\n"
                                 "         as ZeRO-Offload plans: takes 9.13 times as long, waiting\n"));
    free(text);
    random_case_close(&s.c);
}

/* Each layer stands in exactly one line, and the lines together name all of them. */
static void every_layer_is_named_once(void **state)
{
    (void)state;
    random_source r = random_open();
    for (int i = 0; i < 200; i++) {
        plan p;
        pt_error e = {0};
        char line[160];
        int layers = random_from(&r, 2, 9), passing = random_one_in(&r, 2) ? 0 : random_from(&r, 1, layers), seen[9] = {0}, all = 0;
        assert_int_equal(plan_alloc(&p, 1, layers, &e), 0);
        for (int b = 0; b < layers; b++)
            p.blocks[b] = (plan_block){(save_level)random_below(&r, SAVE_LEVELS), (tier)random_below(&r, 2)};
        for (int k = 0; explain_layers(&p, passing, k, line, sizeof line); k++) {
            all += strncmp(line, "all ", 4) == 0;
            for (const char *at = line; *at && *at != ':'; at += *at != ':') {
                if (*at < '0' || *at > '9' || all)
                    continue;
                int from = *at - '0', to = at[1] == '-' ? at[2] - '0' : from;
                for (int b = from; b <= to; b++)
                    seen[b]++;
                at += at[1] == '-' ? 2 : 0;
            }
        }
        for (int b = 0; b < layers; b++)
            assert_int_equal(all ? all : seen[b], 1);
        plan_free(&p);
    }
}

static void what_is_missing_is_named_with_the_change_that_mends_it(void **state)
{
    (void)state;
    search_input in = {.budget = {100, 50, 1000}};
    const uint64_t least[TIERS] = {120, 50, 2048};
    char change[160];
    assert_int_equal(missing_bytes(&in, least), 1068);
    search_write_options(&in, least, change, sizeof change);
    assert_string_equal(change, "`device_memory` 120B `disk_memory` 2KiB");
    in.threads_bytes = 8; /* which a budget is without */
    search_write_options(&in, least, change, sizeof change);
    assert_string_equal(change, "`device_memory` 128B `disk_memory` 2KiB");
    json_t *o = explain_misfit(&in, least, 1040, json_pack("[s, s]", change, "`batch_size` 2"), "`batch_size` 2", "too small");
    assert_true(json_is_false(json_object_get(o, "fits")));
    assert_int_equal(json_integer_value(json_object_get(o, "missing_bytes")), 1040);
    assert_string_equal(json_string_value(json_object_get(o, "smallest_change")), change);
    assert_int_equal(json_array_size(json_object_get(o, "changes")), 2);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_plan_is_explained_on_one_screen),
        cmocka_unit_test(what_would_help_brings_what_is_said),
        cmocka_unit_test(a_step_is_known_as_well_as_what_it_waits_for),
        cmocka_unit_test(how_well_a_step_is_known_is_told_where_it_was_measured),
        cmocka_unit_test(what_other_plans_are_compared_with_is_said),
        cmocka_unit_test(every_layer_is_named_once),
        cmocka_unit_test(what_is_missing_is_named_with_the_change_that_mends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
