/* protrain report from outside: the summary's numbers, what the page holds, and what it says of damaged folders. */
#include "base/json.h"
#include "io/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "io/scratch.h"
#include "program.h"

#define PLAN                                                                                                                      \
    "{\"made_for\": {\"model_type\": \"%s\", \"parameters\": 1000, \"layers\": 4, \"seq_len\": 8, \"batch\": 2, \"dtype\": \"bf16\"}, "   \
    "\"chunk_bytes\": 65536, \"n_buffer\": 2, \"n_update\": 1, \"n_swap\": 1, \"micro_batch\": 2, \"visit\": 1, "                    \
    "\"update\": \"next_forward\", \"chunks\": [{\"count\": 3, \"home\": \"host\", \"update\": \"host\"}], "                         \
    "\"blocks\": [{\"count\": 3, \"save\": \"input\", \"place\": \"device\"}, {\"count\": 1, \"save\": \"all\", \"place\": \"host\"}]}"

#define MACHINE                                                                                                                   \
    "{\"name\": \"%s\", \"kind\": \"cpu\", \"device\": {\"memory_bytes\": 17179869184, \"memory_bandwidth\": 1e10, "                   \
    "\"bf16_flops\": 1e12, \"fp32_flops\": 1e12}}"

static const char *put_text(const char *name, const char *text)
{
    scratch_put(name, text, strlen(text));
    return scratch_path(name);
}

static int report(const char *folder, const char *const *more)
{
    arguments a = {0};
    add_argument(&a, "report");
    add_argument(&a, scratch_path(folder));
    add_arguments(&a, more);
    return program_wait(program_start(&a, scratch_path("out"), scratch_path("err")));
}

static const char *const none[] = {NULL}, *const json[] = {"--json", NULL};

static const char *said(void) { return text_of(scratch_path("err")); }

/* A run of 6 steps that planned again after the second, evaluated twice. */
static void write_metrics(const char *path)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int s = 1; s <= 6; s++) {
        static const double times[] = {9, 8, 4, 0.25, 0.4375, 0.5}, losses[] = {5, 4.5, 4, 3, 3.5, 3.25};
        fprintf(f, "{\"step\":%d,\"loss\":%g,\"grad_norm\":%d,\"lr\":0.001,\"tokens\":%d,\"learned_tokens\":%d,\"step_s\":%g,"
                   "\"predicted_step_s\":%g,"
                   "\"tokens_per_s\":%g,\"device_peak_bytes\":900,\"device_predicted_bytes\":1000,\"device_budget_bytes\":2048,"
                   "\"host_peak_bytes\":70,\"host_predicted_bytes\":80,\"host_budget_bytes\":90",
                s, losses[s - 1], 7 - s, 16 * s, 5 * s, times[s - 1], s < 3 ? 8.0 : 0.35, 16 / times[s - 1]);
        fputs(s % 3 ? "}\n" : s == 3 ? ",\"eval_loss\":4.75}\n" : ",\"eval_loss\":4.25}\n", f);
    }
    assert_int_equal(fclose(f), 0);
}

static void write_run(const char *name, const char *model, const char *machine)
{
    char path[64], text[2048];
    pt_error e = {0};
    assert_int_equal(tree_remove(scratch_path(name), &e), 0);
    assert_int_equal(dir_make(scratch_path(name), &e), 0);
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    write_metrics(scratch_path(path));
    snprintf(path, sizeof path, "%s/plan.json", name);
    snprintf(text, sizeof text, PLAN, model);
    put_text(path, text);
    snprintf(path, sizeof path, "%s/machine.json", name);
    snprintf(text, sizeof text, MACHINE, machine);
    put_text(path, text);
}

static json_t *summary(const char *folder)
{
    pt_error e = {0};
    json_t *o;
    if (report(folder, json))
        fail_msg("%s", said());
    if (json_file_load(scratch_path("out"), JSON_REJECT_DUPLICATES, &o, &e))
        fail_msg("%s", e.text);
    return o;
}

static double number(const json_t *o, const char *key)
{
    if (!json_is_number(json_object_get(o, key)))
        fail_msg("%s is not a number", key);
    return json_number_value(json_object_get(o, key));
}

static int tier_bytes(const json_t *o, const char *what, const char *tier)
{
    return (int)number(json_object_get(o, what), tier);
}

/* The page of a run; free() it. */
static char *page_of(const char *folder)
{
    char path[64], *text;
    size_t n;
    pt_error e = {0};
    if (report(folder, none))
        fail_msg("%s", said());
    snprintf(path, sizeof path, "%s/report.html", folder);
    assert_non_null(strstr(text_of(scratch_path("out")), path));
    if (file_read_all(scratch_path(path), 1 << 24, &text, &n, &e))
        fail_msg("%s", e.text);
    assert_int_equal(strlen(text), n);
    return text;
}

static void check_holds(const char *page, const char *const *texts)
{
    for (; *texts; texts++)
        if (!strstr(page, *texts))
            fail_msg("\"%s\" is not in the page", *texts);
}

/* ---- what is said of a good folder ---- */

static void the_summary_has_the_runs_numbers(void **state)
{
    (void)state;
    write_run("run", "llama", "a machine");
    json_t *o = summary("run");
    assert_true(number(o, "steps") == 6 && number(o, "first_step") == 1 && number(o, "tokens") == 96);
    assert_true(number(o, "learned_tokens") == 30);
    assert_true(number(o, "first_loss") == 5 && number(o, "last_loss") == 3.25);
    assert_true(number(o, "min_loss") == 3 && number(o, "min_loss_step") == 4);
    assert_true(number(o, "eval_loss") == 4.25);
    assert_true(number(o, "seconds") == 22.1875);
    /* of the plan that ran last, but for its first: 0.25, 0.4375, 0.5 */
    assert_true(number(o, "median_step_s") == 0.4375 && number(o, "predicted_step_s") == 0.35);
    assert_true(fabs(number(o, "error_percent") - 25) < 1e-9);
    assert_true(fabs(number(o, "tokens_per_s") - 16 / 0.4375) < 1e-3);
    assert_int_equal(tier_bytes(o, "peak_bytes", "device"), 900);
    assert_int_equal(tier_bytes(o, "predicted_bytes", "host"), 80);
    assert_int_equal(tier_bytes(o, "budget_bytes", "host"), 90);
    assert_null(json_object_get(json_object_get(o, "peak_bytes"), "disk"));
    assert_int_equal(json_array_size(json_object_get(o, "notes")), 0);
    json_decref(o);
    assert_false(path_exists(scratch_path("run/report.html")));
}

static void the_settings_are_on_the_page_and_in_the_summary(void **state)
{
    (void)state;
    write_run("run", "llama", "a machine");
    put_text("run/summary.json", "{\"command\": \"protrain train --out '<b>'\", \"started\": \"2026-11-29 08:00:00 UTC\", "
                                 "\"settings\": {\"lr\": 1e-4, \"data\": [\"a&b.txt\", \"c.txt\"], \"document-mask\": true}, "
                                 "\"data\": {\"windows\": 12}}");
    char *page = page_of("run");
    check_holds(page, (const char *const[]){"<th>lr</th><td>0.0001</td>", "<td>a&amp;b.txt<br>c.txt</td>",
                                            "<th>document-mask</th><td>true</td>", "protrain train --out &#39;&lt;b&gt;&#39;",
                                            "2026-11-29 08:00:00 UTC", "<th>windows</th><td>12</td>", "lowest 4.2500 (step 6)", NULL});
    free(page);
    json_t *o = summary("run");
    assert_true(number(o, "best_step") == 6 && number(o, "best_eval_loss") == 4.25);
    assert_true(number(json_object_get(o, "settings"), "lr") == 1e-4);
    assert_int_equal(json_array_size(json_object_get(o, "notes")), 0);
    json_decref(o);
    put_text("run/summary.json", "{\"settings\": ");
    o = summary("run");
    assert_int_equal(json_array_size(json_object_get(o, "notes")), 1);
    json_decref(o);
}

static void the_page_holds_the_runs_numbers_and_needs_nothing_else(void **state)
{
    (void)state;
    write_run("run", "llama", "a machine");
    char *page = page_of("run");
    check_holds(page, (const char *const[]){"llama, 1.0K parameters, 4 layers; 2 sequences of 8 tokens per step, bf16", "a machine",
                                            "<b>30</b>", "tokens trained on, of 96",
                                            "<b>3.2500</b>", "5.0000 after step 1, lowest 3.0000 (step 4)", "<b>4.2500</b>",
                                            "437.5 ms", "predicted 350.0 ms (+25.0%)",
                                            "used 900 B, predicted 1000 B, of a budget of 2.00 KiB",
                                            "step 4: training 3<", "step 6: evaluation 4.25<", "layers   0-2: input saved",
                                            "layer 3: all saved, on the host", "updates  in the order of the next forward", NULL});
    static const char *const never[] = {"<script", "http://", "https://", "src=", "href=", "url(", "nan", "inf"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strstr(page, never[i]))
            fail_msg("\"%s\" is in the page", never[i]);
    free(page);
    assert_int_equal(report("run", (const char *const[]){"--out", scratch_path("else.html"), NULL}), 0);
    assert_true(path_exists(scratch_path("else.html")));
}

/* A run on pairs is shown by its rewards; its loss is no language model's. */
static void a_run_on_pairs_shows_its_rewards(void **state)
{
    (void)state;
    write_run("pairs", "llama", "a machine");
    FILE *f = fopen(scratch_path("pairs/metrics.jsonl"), "w");
    assert_non_null(f);
    for (int s = 1; s <= 3; s++)
        fprintf(f, "{\"step\":%d,\"loss\":0.5,\"reward_chosen\":%g,\"reward_rejected\":%g,\"reward_margin\":%g,\"reward_accuracy\":0.75,"
                   "\"eval_loss\":0.625,\"eval_reward_margin\":-0.5,\"eval_reward_accuracy\":0.25}\n", s, 0.5 * s, -0.25 * s, 0.75 * s);
    assert_int_equal(fclose(f), 0);
    char *page = page_of("pairs");
    check_holds(page, (const char *const[]){"Loss per pair", "<b>Rewards</b>", "chosen</span>", "rejected</span>", "step 3: chosen 1.5<",
                                            "Reward margin", "step 3: training 2.25<", "step 3: evaluation -0.5<", "step 3: training 75%<",
                                            "<b>2.25</b><span>reward margin; the chosen reply preferred in 75%", "<b>0.6250</b>",
                                            "evaluation loss per pair; margin -0.5, the chosen reply preferred in 25%", NULL});
    assert_null(strstr(page, "perplexity"));
    assert_null(strstr(page, "nats per token"));
    free(page);
    f = fopen(scratch_path("pairs/metrics.jsonl"), "w");
    assert_non_null(f);
    fputs("{\"step\":1,\"loss\":0.5,\"reward_chosen\":0.5,\"reward_accuracy\":0.5,\"kl\":1.25}\n" /* only good replies */
          "{\"step\":2,\"loss\":0.25,\"reward_chosen\":1,\"reward_rejected\":-1,\"reward_margin\":2,\"reward_accuracy\":0.75,\"kl\":1.5,"
          "\"eval_loss\":0.5,\"eval_kl\":0.125}\n", f);
    assert_int_equal(fclose(f), 0);
    page = page_of("pairs");
    check_holds(page, (const char *const[]){"Loss per reply", "loss per reply after", "reward margin; replies on their side of the KL: 75%",
                                            "step 2: training 1.5<", "step 2: evaluation 0.125<", NULL});
    assert_null(strstr(page, "perplexity"));
    free(page);
    write_run("run", "llama", "a machine");
    page = page_of("run");
    assert_null(strstr(page, "eward"));
    assert_null(strstr(page, "KL"));
    assert_non_null(strstr(page, "perplexity"));
    free(page);
}

static void a_model_with_experts_shows_their_load(void **state)
{
    (void)state;
    write_run("experts", "olmoe", "a machine");
    FILE *f = fopen(scratch_path("experts/metrics.jsonl"), "w");
    assert_non_null(f);
    fputs("{\"step\":1,\"loss\":0.5,\"expert_load_max\":2.5,\"experts_idle\":0.25}\n"
          "{\"step\":2,\"loss\":0.25,\"expert_load_max\":1.5,\"experts_idle\":0}\n", f);
    assert_int_equal(fclose(f), 0);
    char *page = page_of("experts");
    check_holds(page, (const char *const[]){"<b>1.5</b><span>load of the busiest expert, 1: balanced; 0% of experts idle",
                                            "step 1: load 2.5<", "step 1: idle 25%<", NULL});
    free(page);
}

static void text_from_files_and_names_is_escaped(void **state)
{
    (void)state;
    write_run("<b>\xff & 'x'\a", "<script>x()", "\\\"a\\\" <img>&");
    char *page = page_of("<b>\xff & 'x'\a");
    check_holds(page, (const char *const[]){"&lt;b&gt;? &amp; &#39;x&#39; ", "&lt;script&gt;x()", "&quot;a&quot; &lt;img&gt;&amp;", NULL});
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<img"));
    free(page);
}

/* Adapters, a base in few bits, documents and lanes as well: the parts come from the run itself. */
static void a_run_of_the_program_shows_what_its_memory_holds_and_its_last_step(void **state)
{
    (void)state;
    static const char *const ways[][8] = {
        {"--dtype", "bf16"}, {"--freeze", "*embed*", "--freeze", "model.layers.0.*", "--optimizer", "adamw8bit"},
        {"--lora", "2", "--base", "nf4", "--lanes", "2"}, {"--document-mask", "--micro-batch", "2"}};
    char data[700], model[600];
    snprintf(model, sizeof model, "%s/models/llama", PT_FIXTURES);
    snprintf(data, sizeof data, "%s/tokens.npy", model);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        arguments a = {0};
        char out[16];
        snprintf(out, sizeof out, "real%zu", i);
        add_arguments(&a, (const char *const[]){"train", "--model", model, "--data", data, "--seq-len", "8", "--steps", "3",
                                                "--device-memory", "64MiB", "--trace", "--quiet", "--out", scratch_path(out), NULL});
        add_arguments(&a, ways[i]);
        if (program_wait(program_start(&a, scratch_path("out"), scratch_path("err"))))
            fail_msg("%s", said());
        json_t *o = summary(out);
        assert_int_equal(json_array_size(json_object_get(o, "notes")), 0);
        assert_int_equal(tier_bytes(o, "budget_bytes", "device"), 64 << 20);
        json_decref(o);
        char *page = page_of(out);
        check_holds(page, (const char *const[]){"</i>weights ", "</i>activations ", "compute, predicted", "compute, ran", NULL});
        free(page);
    }
}

/* ---- damage ---- */

static void expect_refusal(const char *folder, const char *const *words)
{
    int status = report(folder, json);
    const char *text = said();
    if (status != 1)
        fail_msg("%s: exit status %d: %s", *words, status, text);
    for (; *words; words++)
        if (!strstr(text, *words))
            fail_msg("\"%s\" is not in: %s", *words, text);
}

static void expect_note(const char *folder, const char *word)
{
    json_t *o = summary(folder);
    const char *text = json_string_value(json_array_get(json_object_get(o, "notes"), 0));
    if (!text || !strstr(text, word) || !strstr(said(), word))
        fail_msg("\"%s\" is not in the notes: %s", word, text ? text : "none");
    json_decref(o);
    char *page = page_of(folder);
    assert_non_null(strstr(page, "note: "));
    free(page);
}

static void append(const char *name, const char *text, size_t n)
{
    FILE *f = fopen(scratch_path(name), "ab");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void metrics_that_do_not_hold_are_refused_by_line_and_key(void **state)
{
    (void)state;
    static const struct { const char *line, *words[4]; } cases[] = {
        {"{\"step\":7,\"loss\":NaN}\n", {"metrics.jsonl: line 7", "not valid JSON"}},
        {"{\"step\":7,\"loss\":\n", {"line 7", "not valid JSON"}},
        {"{\"step\":7,\"loss\":\"3\"}\n", {"line 7", "\"loss\"", "a string"}},
        {"{\"step\":7,\"loss\":-1}\n", {"line 7", "\"loss\"", "from 0"}},
        {"{\"step\":7,\"loss\":1e300}\n", {"line 7", "\"loss\""}},
        {"{\"step\":7}\n", {"line 7", "\"loss\"", "missing"}},
        {"{\"step\":6,\"loss\":1}\n", {"line 7", "step 6 follows step 6"}},
        {"{\"step\":1e18,\"loss\":1}\n", {"line 7", "\"step\""}},
        {"{\"step\":7,\"loss\":1,\"loss\":2}\n", {"line 7", "duplicate"}},
        {"{\"step\":7,\"loss\":1,\"step_s\":-2}\n", {"line 7", "\"step_s\""}},
        {"{\"step\":7,\"loss\":1,\"host_peak_bytes\":-2}\n", {"line 7", "\"host_peak_bytes\""}},
        {"{\"step\":7,\"loss\":1,\"x\":\"\xff\"}\n", {"line 7", "decode byte 0xff"}},
        {"[1, 2]\n", {"line 7", "a list"}},
        {"\n", {"line 7"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_run("bad", "llama", "m");
        append("bad/metrics.jsonl", cases[i].line, strlen(cases[i].line));
        expect_refusal("bad", cases[i].words);
    }
}

static void a_last_line_that_a_kill_has_torn_is_left_out(void **state)
{
    (void)state;
    static const struct { const char *text; size_t n; } tails[] = {{"{\"step\":7,\"loss\":3.", 19}, {"{", 1}, {"\0\0\0\0", 4}};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        write_run("torn", "llama", "m");
        append("torn/metrics.jsonl", tails[i].text, tails[i].n);
        expect_note("torn", "line 7");
        json_t *o = summary("torn");
        assert_true(number(o, "steps") == 6);
        json_decref(o);
    }
    write_run("torn", "llama", "m");
    append("torn/metrics.jsonl", "{\"step\":7,\"loss\":2}", 19); /* complete but for its newline */
    json_t *o = summary("torn");
    assert_true(number(o, "steps") == 7 && number(o, "last_loss") == 2 && json_is_null(json_object_get(o, "error_percent")));
    json_decref(o);
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    expect_refusal("nowhere", (const char *const[]){"nowhere", "does not exist", "output folder", NULL});
    write_run("less", "llama", "m");
    assert_int_equal(unlink(scratch_path("less/plan.json")), 0);
    expect_note("less", "plan.json is missing");
    write_run("less", "llama", "m");
    put_text("less/plan.json", "{\"chunk_bytes\": -1}");
    expect_note("less", "plan.json");
    write_run("less", "llama", "m");
    put_text("less/machine.json", "{\"name\": \"\xff\"}");
    expect_note("less", "machine.json");
    write_run("less", "llama", "m");
    put_text("less/trace.json", "{\"traceEvents\": [{\"ph\": \"X\", \"pid\": 9}]}");
    expect_note("less", "traceEvents[0]");
    put_text("less/metrics.jsonl", "");
    expect_refusal("less", (const char *const[]){"metrics.jsonl", "no step", NULL});
    assert_int_equal(unlink(scratch_path("less/metrics.jsonl")), 0);
    expect_refusal("less", (const char *const[]){"metrics.jsonl", "does not exist", NULL});
    expect_refusal("less/plan.json", (const char *const[]){"plan.json", "is not a folder", NULL});
}

/* Parts that are not what was predicted last are left out, and damaged ones are noted. */
static void parts_of_another_plan_are_left_out(void **state)
{
    (void)state;
    static const char parts[] =
        "{\"device\": {\"weights\": 100, \"optimizer\": 400, \"gradients\": 100, \"activations\": 200, \"workspace\": %d, \"room\": 0},"
        " \"host\": {\"weights\": 80, \"optimizer\": 0, \"gradients\": 0, \"activations\": 0, \"workspace\": 0, \"room\": 0}}";
    char text[512];
    for (int off = 0; off < 2; off++) {
        write_run("parts", "llama", "m");
        snprintf(text, sizeof text, parts, 200 + off);
        put_text("parts/memory.json", text);
        char *page = page_of("parts");
        assert_true((strstr(page, "</i>weights ") != NULL) == !off);
        free(page);
    }
    put_text("parts/memory.json", "{\"device\": {\"weights\": -1}}");
    expect_note("parts", "memory.json: device: \"weights\"");
}

static void a_page_replaces_a_page_and_nothing_else(void **state)
{
    (void)state;
    write_run("run", "llama", "m");
    for (int again = 0; again < 2; again++)
        assert_int_equal(report("run", (const char *const[]){"--out", scratch_path("page.html"), NULL}), 0);
    put_text("notes.txt", "mine");
    assert_int_equal(report("run", (const char *const[]){"--out", scratch_path("notes.txt"), NULL}), 1);
    assert_non_null(strstr(said(), "notes.txt: this file exists and is not a page: give a new --out"));
    assert_string_equal(text_of(scratch_path("notes.txt")), "mine");
    assert_int_equal(report("run", (const char *const[]){"--out", scratch_path("run"), NULL}), 2);
    assert_non_null(strstr(said(), "this is a folder"));
}

static void a_page_that_cannot_be_written_leaves_nothing(void **state)
{
    (void)state;
    write_run("run", "llama", "m");
    const char *const into[] = {"--out", scratch_path("no/such/page.html"), NULL};
    assert_int_equal(report("run", into), 1);
    assert_non_null(strstr(said(), "no/such/page.html"));
    assert_int_equal(report("run", (const char *const[]){"--json", "--out", "x", NULL}), 2);
    arguments a = {0};
    add_argument(&a, "report");
    assert_int_equal(program_wait(program_start(&a, scratch_path("out"), scratch_path("err"))), 2);
}

static int full_disk(const char *folder)
{
    char page[64], filler[64];
    snprintf(page, sizeof page, "%s/page.html", folder);
    snprintf(filler, sizeof filler, "%s/filler", folder);
    FILE *f = fopen(filler, "wb");
    while (f && fputc('x', f) != EOF) /* until it is full */
        ;
    if (f)
        (void)fclose(f);
    int status = report("run", (const char *const[]){"--out", page, NULL});
    bool good = status == 1 && strstr(said(), "the disk is full") && !path_exists(page);
    strcat(page, ".tmp");
    return good && !path_exists(page) ? 0 : 1;
}

static void a_full_disk_is_said_and_leaves_nothing(void **state)
{
    (void)state;
    write_run("run", "llama", "m");
    int status = on_small_disk(1 << 14, full_disk);
    if (status == -1)
        skip();
    assert_int_equal(status, 0);
}

/* ---- length ---- */

static void a_long_run_makes_a_page_of_the_same_size(void **state)
{
    (void)state;
    write_run("long", "llama", "m");
    FILE *f = fopen(scratch_path("long/metrics.jsonl"), "w");
    for (int s = 1; s <= 60000; s++)
        fprintf(f, "{\"step\":%d,\"loss\":%s,\"grad_norm\":1.5,\"lr\":1e-3,\"tokens\":%d,\"step_s\":0.5,\"eval_loss\":3.5}\n", s,
                s == 43210 ? "99.5" : "3", s);
    fclose(f);
    char *page = page_of("long");
    assert_in_range(strlen(page), 10000, 600000);
    assert_non_null(strstr(page, "to 99.5)"));
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_summary_has_the_runs_numbers),
        cmocka_unit_test(the_settings_are_on_the_page_and_in_the_summary),
        cmocka_unit_test(the_page_holds_the_runs_numbers_and_needs_nothing_else),
        cmocka_unit_test(a_run_on_pairs_shows_its_rewards),
        cmocka_unit_test(a_model_with_experts_shows_their_load),
        cmocka_unit_test(text_from_files_and_names_is_escaped),
        cmocka_unit_test(a_run_of_the_program_shows_what_its_memory_holds_and_its_last_step),
        cmocka_unit_test(metrics_that_do_not_hold_are_refused_by_line_and_key),
        cmocka_unit_test(a_last_line_that_a_kill_has_torn_is_left_out),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(parts_of_another_plan_are_left_out),
        cmocka_unit_test(a_page_replaces_a_page_and_nothing_else),
        cmocka_unit_test(a_page_that_cannot_be_written_leaves_nothing),
        cmocka_unit_test(a_full_disk_is_said_and_leaves_nothing),
        cmocka_unit_test(a_long_run_makes_a_page_of_the_same_size),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
