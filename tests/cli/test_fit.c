/* What a plan needs, and what is said where that is not there: plan and train agree to the byte, and advice leads to an end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/planned.h"
#include "sanitized.h"

#include <sys/resource.h>

#define MIB ((json_int_t)1 << 20)

static const char *const tiers[] = {"device", "host", "disk"};

static json_int_t bytes_of(const json_t *o, const char *tier) { return json_integer_value(json_object_get(o, tier)); }

static const char *last_sentence(void) { return strstr(text_of(scratch_path("err")), "protrain: "); }

/* ---- plan and train ---- */

/* The bytes of each tier that plan says and that train says of the plan that it finds itself. */
static void predictions(words of, const char *data, bool evaluates, json_int_t planned[3], json_int_t trained[3])
{
    static int runs;
    char out[200], path[260];
    pt_error e = {0};
    json_t *o;
    const words evaluation = evaluates ? WORDS("--eval-data", data, "--quiet") : WORDS("--quiet");
    arguments more = {0};
    add_arguments(&more, evaluation);
    add_argument(&more, "--json");
    assert_int_equal(plan_with(of, more.v + 1), 0);
    o = printed();
    for (int t = 0; t < 3; t++)
        planned[t] = (json_int_t)tier_number(o, "peak_bytes", tiers[t]);
    json_decref(o);
    snprintf(out, sizeof out, "%s/trained-%d", scratch, runs++);
    add_arguments(&more, WORDS("--data", data, "--steps", "1", "--out", out));
    if (run("train", of, more.v + 1))
        fail_msg("%s", text_of(scratch_path("err")));
    o = printed(); /* the line of the only step */
    snprintf(path, sizeof path, "%s/summary.json", out);
    json_t *summary;
    assert_int_equal(json_file_load(path, 0, &summary, &e), 0);
    for (int t = 0; t < 3; t++) {
        snprintf(path, sizeof path, "%s_predicted_bytes", tiers[t]);
        trained[t] = bytes_of(o, path);
        assert_true(bytes_of(json_object_get(json_object_get(summary, "memory_bytes"), tiers[t]), "predicted") == trained[t]);
    }
    json_decref(summary);
    json_decref(o);
}

/* Both find the same. */
static void plan_says_what_train_says_with_and_without_an_evaluation(void **state)
{
    (void)state;
    char data[700];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    static const char *const budgets[][2] = {{"64MiB", "0"}, {"300KiB", "64MiB"}, {"1MiB", "16MiB"}};
    for (size_t i = 0; i < 2 * sizeof budgets / sizeof *budgets; i++) {
        json_int_t planned[3], trained[3];
        const bool evaluates = i % 2;
        const words of = WORDS("--model", fixture("llama"), "--machine", "laptop16", "--seq-len", "8", "--device-memory", budgets[i / 2][0],
                               "--host-memory", budgets[i / 2][1], "--disk-memory", "0");
        predictions(of, data, evaluates, planned, trained);
        if (memcmp(planned, trained, sizeof planned) || !planned[0] || !planned[1] != !strcmp(budgets[i / 2][1], "0"))
            fail_msg("%s, evaluates %d: planned %lld, trained %lld bytes", budgets[i / 2][0], evaluates, (long long)planned[0],
                     (long long)trained[0]);
    }
}

/* A third of a billion parameters. */
static const char middle[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 1024, \"intermediate_size\": 4096, \"num_hidden_layers\": 16,"
    " \"num_attention_heads\": 16, \"max_position_embeddings\": 1024, \"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\","
    " \"tie_word_embeddings\": false}";

/* Of a plan that does not fit, so that nothing has to be measured. */
static json_int_t disk_budget(words more)
{
    const words of = WORDS("--model", put_text("config.json", middle), "--device", "cpu", "--seq-len", "8", "--device-memory", "1MiB",
                           "--out",
                           scratch_path("runs/one"), "--json", "--quiet");
    assert_int_equal(plan_with(of, more), 3);
    json_t *o = printed();
    json_int_t bytes = bytes_of(json_object_get(o, "budget_bytes"), "disk");
    json_decref(o);
    return bytes;
}

static void assert_less_by(json_int_t all, json_int_t left, json_int_t bytes)
{
    const json_int_t others = 512 * MIB; /* what other programs may write meanwhile */
    if (all - left < bytes - others || all - left > bytes + others)
        fail_msg("%lld of %lld bytes are left, not %lld less", (long long)left, (long long)all, (long long)bytes);
}

/* As a run would take it from what is free. */
static void a_plan_leaves_room_on_the_disk_for_what_the_run_saves(void **state)
{
    (void)state;
    const json_int_t parameters = 16ll * (4 * 1024 * 1024 + 3 * 1024 * 4096) + 2ll * 32000 * 1024;
    const json_int_t all = disk_budget(WORDS("--save-every", "0"));
    if (all < 10 * parameters + 1024 * MIB)
        skip(); /* a disk that is nearly full, or RAM */
    assert_less_by(all, disk_budget(WORDS("--save-every", "10")), 8 * parameters);
    assert_less_by(all, disk_budget(WORDS("--save-every", "10", "--steps", "9")), 0);
    assert_less_by(all, disk_budget(WORDS("--save-every", "10", "--steps", "10", "--save-dtype", "bf16")), 10 * parameters);
    assert_less_by(all, disk_budget(WORDS("--save-dtype", "bf16")), -2 * parameters);
}

/* ---- what does not fit ---- */

/* "--host-memory 24.5GiB" in the first change that is told; 0: not this tier */
static json_int_t advised(const json_t *o, const char *tier)
{
    char start[32], size[32];
    snprintf(start, sizeof start, "--%s-memory ", tier);
    const char *at = strstr(json_string_value(json_object_get(o, "smallest_change")), start);
    return at && sscanf(at + strlen(start), "%31s", size) == 1 ? size_of(size) : 0;
}

/* Text and keys agree, tier by tier; gives what is missing in all. */
static json_int_t check_misfit(words options, words more)
{
    assert_int_equal(plan_with(options, more), 3);
    json_t *o = printed(), *predicted = json_object_get(o, "predicted");
    const char *said = last_sentence();
    json_int_t sum = 0, missing = json_integer_value(json_object_get(o, "missing_bytes"));
    assert_true(json_is_false(json_object_get(o, "fits")) && json_is_null(json_object_get(o, "plan")));
    assert_true(json_is_null(json_object_get(predicted, "step_s")) && json_is_null(json_object_get(predicted, "tokens_per_s")));
    assert_true(json_equal(json_object_get(predicted, "budget_bytes"), json_object_get(o, "budget_bytes")));
    assert_true(json_equal(json_object_get(predicted, "peak_bytes"), json_object_get(o, "least_bytes")));
    for (int t = 0; t < 3; t++) {
        json_int_t less = (json_int_t)(tier_number(o, "peak_bytes", tiers[t]) - tier_number(o, "budget_bytes", tiers[t]));
        less = less > 0 ? less : 0;
        if (advised(o, tiers[t]) != (less ? (json_int_t)tier_number(o, "peak_bytes", tiers[t]) : 0))
            fail_msg("%s: %lld bytes less: %s", tiers[t], (long long)less, said);
        sum += less;
    }
    if (sum != missing)
        fail_msg("%lld bytes are missing: %s", (long long)missing, said);
    const json_t *change;
    size_t i;
    json_array_foreach(json_object_get(o, "changes"), i, change)
        if (!strstr(said, json_string_value(change)))
            fail_msg("%s is not in: %s", json_string_value(change), said);
    json_decref(o);
    return missing;
}

static void what_is_missing_is_said_with_every_key(void **state)
{
    (void)state;
    const words of = WORDS("--model", fixture("llama"), "--machine", "laptop16", "--seq-len", "8", "--json", "--disk-memory", "0");
    json_int_t one = check_misfit(of, WORDS("--device-memory", "1MiB"));
    assert_true(check_misfit(of, WORDS("--device-memory", "1048577")) == one - 1);
    json_int_t split = check_misfit(of, WORDS("--device-memory", "64KiB", "--host-memory", "1MiB"));
    assert_true(check_misfit(of, WORDS("--device-memory", "65537B", "--host-memory", "1MiB")) == split - 1);
}

/* ---- what a machine has not ---- */

/* Of 100 million parameters, in layers of 3 million: three chunks of 4 MiB. */
static const char larger[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 512, \"intermediate_size\": 2048, \"num_hidden_layers\": 24,"
    " \"num_attention_heads\": 8, \"num_key_value_heads\": 8, \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-05,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": 2}";

/* Few parameters, and very many values between them. */
static const char broad[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 8, \"intermediate_size\": 65536, \"num_hidden_layers\": 1,"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-05,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": true, \"bos_token_id\": 1, \"eos_token_id\": 2}";

/* On a machine that has no more than this (ulimit -v). */
static int plan_within(rlim_t bytes, words options, words more)
{
    struct rlimit before;
    arguments a = {0};
    add_argument(&a, "plan");
    add_arguments(&a, options);
    add_arguments(&a, more);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &(struct rlimit){bytes, before.rlim_max}), 0);
    pid_t child = program_start(&a, scratch_path("out"), scratch_path("err"));
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    return program_wait(child);
}

/* Does what it is told, each option in place of the last of its name, until something fits; gives the number of tries. That RAM is what
 * is missing is said first. */
static int follow_advice(rlim_t bytes, words options, char taken[256])
{
    enum { MOST = 6 };
    static char words_of[MOST][256];
    arguments more = {0};
    add_argument(&more, "--quiet");
    taken[0] = 0;
    for (int tries = 1; tries <= MOST; tries++) {
        int status = plan_within(bytes, options, more.v + 1);
        if (!status)
            return tries;
        if (status != 3)
            fail_msg("%d: %s", status, text_of(scratch_path("err")));
        assert_true(tries > 1 || strstr(last_sentence(), " more RAM than is free here)"));
        json_t *o = printed();
        assert_non_null(strstr(last_sentence(), json_string_value(json_object_get(o, "smallest_change"))));
        snprintf(taken, 256, "%s", json_string_value(json_object_get(o, "smallest_change")));
        json_decref(o);
        if (tries == MOST || !*taken)
            break;
        snprintf(words_of[tries - 1], 256, "%s", taken);
        for (char *w = strtok(words_of[tries - 1], " "); w; w = strtok(NULL, " "))
            add_argument(&more, w);
    }
    fail_msg("advice leads nowhere: %s", text_of(scratch_path("err")));
    return 0;
}

/* No other program takes of a limit of this process, and it is named where it is what is too little. */
static void a_limit_of_the_process_is_used_and_named(void **state)
{
    (void)state;
    NOT_SANITIZED(); /* where shadows are kept, there can be no limit */
    char model[200];
    const words few = WORDS("--model", fixture("llama"), "--seq-len", "8", "--json");
    if (plan_within(400 * MIB, few, WORDS("--quiet")))
        fail_msg("%s", text_of(scratch_path("err")));
    json_t *o = printed();
    assert_true(tier_number(o, "budget_bytes", "device") > 200 * (double)MIB);
    json_decref(o);
    snprintf(model, sizeof model, "%s", put_text("larger.json", larger));
    assert_int_equal(plan_within(400 * MIB, WORDS("--model", model, "--seq-len", "16", "--disk-memory", "0", "--json"),
                                 WORDS("--quiet")), 3);
    assert_non_null(strstr(last_sentence(), "free (ulimit -v) less 128.00 MiB for the program itself"));
}

/* Its states are more than there is of RAM, and the disk may take them. */
static void where_ram_is_missing_the_disk_is_the_advice(void **state)
{
    (void)state;
    NOT_SANITIZED(); /* where shadows are kept, there can be no limit */
    uint64_t there;
    pt_error e = {0};
    char model[200], taken[256];
    assert_int_equal(disk_free_bytes(scratch, &there, &e), 0);
    if (disk_is_memory(scratch) || there < (uint64_t)16 << 30)
        skip();
    snprintf(model, sizeof model, "%s", put_text("larger.json", larger));
    const words of = WORDS("--model", model, "--seq-len", "16", "--batch-size", "1", "--disk-path", scratch, "--disk-memory", "0",
                           "--json", "--search-effort", "0.1");
    for (int given = 0; given < 3; given++) {
        static const char *const device[] = {NULL, "64MiB", "4MiB"};
        arguments a = {0};
        add_arguments(&a, of);
        if (device[given])
            add_arguments(&a, WORDS("--device-memory", device[given]));
        int tries = follow_advice(1200 * MIB, a.v + 1, taken);
        printf("%s after %d tries\n", taken, tries);
        assert_non_null(strstr(taken, "--disk-memory "));
        assert_int_equal(tries, 2);
    }
}

/* Its values are more than there is of RAM, and half of the sequences have half of them. */
static void where_ram_is_missing_and_no_disk_helps_a_smaller_step_is_the_advice(void **state)
{
    (void)state;
    NOT_SANITIZED(); /* where shadows are kept, there can be no limit */
    char model[200], taken[256];
    snprintf(model, sizeof model, "%s", put_text("broad.json", broad));
    const words of = WORDS("--model", model, "--seq-len", "256", "--batch-size", "8", "--disk-path", scratch, "--disk-memory", "0",
                           "--json", "--search-effort", "0.1");
    assert_int_equal(follow_advice(1000 * MIB, of, taken), 2);
    assert_int_equal(strncmp(taken, "--batch-size ", 13), 0);
}

/* Its states are more than there is, of sequences that cannot be shorter: more memory is what it takes, and how much is said. */
static void where_nothing_helps_the_memory_that_is_missing_is_said(void **state)
{
    (void)state;
    NOT_SANITIZED(); /* where shadows are kept, there can be no limit */
    if (!disk_is_memory("/dev/shm"))
        skip(); /* a disk would help */
    char model[200];
    char needs[32], more[32];
    snprintf(model, sizeof model, "%s", put_text("larger.json", larger));
    const words of = WORDS("--model", model, "--seq-len", "16", "--batch-size", "1", "--disk-path", "/dev/shm", "--disk-memory", "0",
                           "--json", "--search-effort", "0.1");
    assert_int_equal(plan_within(1200 * MIB, of, WORDS("--quiet")), 3);
    json_t *o = printed();
    const json_t *changes = json_object_get(o, "changes"); /* the last of them is more memory */
    const char *change = json_string_value(json_array_get(changes, json_array_size(changes) - 1));
    assert_string_equal(json_string_value(json_object_get(o, "smaller_step")), "");
    if (sscanf(change, "--device-memory %30s (%30s more RAM than is free here)", needs, more) != 2 || !strstr(last_sentence(), change))
        fail_msg("%s: %s", change, last_sentence());
    assert_true(size_of(needs) == (json_int_t)tier_number(o, "peak_bytes", "device"));
    assert_true(size_of(more) < size_of(needs) && size_of(needs) - size_of(more) < 1200 * MIB);
    json_decref(o);
}

/* What it lacks is the file's, whatever is free here. */
static void of_another_machine_nothing_here_is_asked(void **state)
{
    (void)state;
    NOT_SANITIZED();
    char model[200];
    snprintf(model, sizeof model, "%s", put_text("config.json", large));
    const words of = WORDS("--model", model, "--machine", "rtx3090", "--disk-memory", "0", "--json", "--search-effort", "0.1");
    assert_int_equal(plan_with(of, WORDS("--quiet")), 3);
    assert_null(strstr(last_sentence(), "free here"));
    json_t *o = printed();
    char disk[32], less[32], host[32], more[32];
    const json_t *changes = json_object_get(o, "changes");
    const size_t n = json_array_size(changes);
    assert_true(n >= 2);
    assert_int_equal(sscanf(json_string_value(json_array_get(changes, 0)), "--disk-memory %30s", disk), 1);
    assert_int_equal(sscanf(json_string_value(json_array_get(changes, n - 1)), "--host-memory %30s (%30s more RAM than the machine has)",
                            host, more), 2);
    json_decref(o);
    if (plan_with(of, WORDS("--host-memory", host)) || plan_with(of, WORDS("--disk-memory", disk)))
        fail_msg("%s or %s: %s", host, disk, text_of(scratch_path("err")));
    one_less(disk, less);
    assert_int_equal(plan_with(of, WORDS("--disk-memory", less)), 3);
}

/* The words of a change, as a shell cuts them: what stands in brackets at its end is no option. */
static void split_change(const char *change, char room[600], arguments *out)
{
    snprintf(room, 600, "%s", change);
    char *note = strstr(room, " ("), *rest = NULL;
    if (note)
        *note = 0;
    for (char *word = strtok_r(room, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        const size_t length = strlen(word);
        const bool quoted = word[0] == '\'' && length > 1;
        if (quoted)
            word[length - 1] = 0;
        add_argument(out, word + quoted);
    }
}

enum { STEP, LAYERS, ADAPTERS, ON_4_BITS, BOTH, STATES, WAYS_OUT };

static void count_way(const char *text, int seen[WAYS_OUT])
{
    seen[STEP] += !strncmp(text, "--batch-size ", 13);
    seen[LAYERS] += !strncmp(text, "--train-blocks ", 15);
    seen[ADAPTERS] += !strcmp(text, "--lora 16");
    seen[ON_4_BITS] += !strcmp(text, "--lora 16 --base nf4") || !strcmp(text, "--base nf4");
    seen[BOTH] += strstr(text, "--base nf4 --batch-size ") != NULL;
    seen[STATES] += !strcmp(text, "--optimizer adamw8bit") || !strcmp(text, "--optimizer apollo_mini");
}

/* Follows all that is said. Where no smaller step is among it that is said too, of nothing else. */
static void follow_ways(words of, int seen[WAYS_OUT])
{
    char room[600];
    const json_t *change;
    size_t k;
    assert_int_equal(plan_with(of, WORDS("--disk-memory", "0", "--json", "--quiet")), 3);
    json_t *o = printed(), *changes = json_object_get(o, "changes");
    const bool smaller = *json_string_value(json_object_get(o, "smaller_step"));
    assert_true(json_array_size(changes) > 0);
    assert_true(smaller == !strstr(last_sentence(), " memory, nor does a smaller step: give --"));
    json_array_foreach(changes, k, change) {
        const char *text = json_string_value(change);
        arguments more = {0};
        add_arguments(&more, WORDS("--disk-memory", "0", "--quiet", "--search-effort", "0.1"));
        split_change(text, room, &more);
        count_way(text, seen);
        if (plan_with(of, more.v + 1))
            fail_msg("%s: %s", text, last_sentence());
    }
    json_decref(o);
}

/* Less memory, smaller steps, a disk, layers by turns, adapters, 4 bits, states in 8 bits: whatever is said, a plan comes of it. */
static void every_way_out_leads_to_a_plan(void **state)
{
    (void)state;
    NOT_SANITIZED();
    static const char *const budgets[] = {"3400MiB", "1600MiB", "600MiB", "420MiB"};
    int seen[WAYS_OUT] = {0};
    char model[200], wide[200];
    snprintf(model, sizeof model, "%s", put_text("config.json", middle));
    snprintf(wide, sizeof wide, "%s", put_text("broad.json", broad));
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++)
        follow_ways(WORDS("--model", model, "--machine", "laptop16", "--seq-len", "1024", "--batch-size", "2", "--device-memory",
                          budgets[i]), seen);
    follow_ways(WORDS("--model", model, "--machine", "laptop16", "--seq-len", "256", "--device-memory", "500MiB", "--lora", "8"), seen);
    follow_ways(WORDS("--model", model, "--machine", "laptop16", "--seq-len", "256", "--device-memory", "600MiB", "--optimizer", "muon",
                      "--save-dtype", "fp32"), seen);
    follow_ways(WORDS("--model", wide, "--machine", "laptop16", "--seq-len", "256", "--batch-size", "24", "--lanes", "4",
                      "--device-memory", "500MiB"), seen); /* of each lane as many sequences */
    for (int i = 0; i < WAYS_OUT; i++)
        if (!seen[i])
            fail_msg("no way of kind %d was said", i);
}

/* ---- a plan that is given ---- */

/* Plans the larger model, and puts the plan into a file; json_decref what is printed. */
static json_t *put_plan(words of, char file[200])
{
    pt_error e = {0};
    if (plan_with(of, WORDS("--device-memory", "128MiB", "--host-memory", "4GiB", "--json")))
        fail_msg("%s", text_of(scratch_path("err")));
    json_t *o = printed();
    snprintf(file, 200, "%s/planned.json", scratch);
    assert_int_equal(file_write_json(file, json_object_get(o, "plan"), &e), 0);
    return o;
}

/* A layer here lies in two or three of the 49 chunks, which are all on the host. */
static void a_given_plan_with_too_few_buffers_names_them_and_its_file(void **state)
{
    (void)state;
    pt_error e = {0};
    char model[200], file[200];
    snprintf(model, sizeof model, "%s", put_text("larger.json", larger));
    const words of = WORDS("--model", model, "--machine", "laptop16", "--seq-len", "16", "--disk-memory", "0", "--quiet");
    json_t *o = put_plan(of, file), *plan = json_object_get(o, "plan");
    json_object_set_new(plan, "chunk_bytes", json_integer(4196352));
    json_object_set_new(plan, "chunks", json_pack("[{s:i, s:s, s:s}]", "count", 49, "home", "host", "update", "host"));
    for (int n = 1; n <= 3; n++) {
        json_object_set_new(plan, "n_buffer", json_integer(n));
        assert_int_equal(file_write_json(file, plan, &e), 0);
        int status = plan_with(of, WORDS("--plan", file, "--device-memory", "128MiB", "--host-memory", "4GiB"));
        if (n == 3 && status)
            fail_msg("%s", text_of(scratch_path("err")));
        if (n < 3)
            check_refusal("too few buffers", status, 3, WORDS("planned.json: ", "buffers for weights", "raise n_buffer"));
    }
    json_decref(o);
}

static void a_given_plan_names_all_tiers_that_are_too_small(void **state)
{
    (void)state;
    json_int_t peak[2];
    char model[200], plan[200], wants[160], device[32], host[32];
    snprintf(model, sizeof model, "%s", put_text("larger.json", larger));
    const words of = WORDS("--model", model, "--device", "cpu", "--machine", "laptop16", "--seq-len", "16", "--disk-memory", "0");
    json_t *o = put_plan(of, plan);
    for (int t = 0; t < 2; t++)
        peak[t] = (json_int_t)tier_number(o, "peak_bytes", tiers[t]);
    json_decref(o);
    size_option(device, (uint64_t)peak[0]);
    size_option(host, (uint64_t)peak[1]);
    snprintf(wants, sizeof wants, "give --device-memory %s --host-memory %s, or leave --plan out", device, host);
    int status = plan_with(of, WORDS("--plan", plan, "--device-memory", "8MiB", "--host-memory", "1GiB"));
    check_refusal("two tiers", status, 3, WORDS("planned.json", " of device memory (the budget is 8.00 MiB)",
                                                " of host memory (the budget is 1.00 GiB)", wants));
    if (plan_with(of, WORDS("--plan", plan, "--device-memory", device, "--host-memory", host)))
        fail_msg("%s", text_of(scratch_path("err")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_says_what_train_says_with_and_without_an_evaluation),
        cmocka_unit_test(a_plan_leaves_room_on_the_disk_for_what_the_run_saves),
        cmocka_unit_test(what_is_missing_is_said_with_every_key),
        cmocka_unit_test(a_limit_of_the_process_is_used_and_named),
        cmocka_unit_test(where_ram_is_missing_the_disk_is_the_advice),
        cmocka_unit_test(where_ram_is_missing_and_no_disk_helps_a_smaller_step_is_the_advice),
        cmocka_unit_test(where_nothing_helps_the_memory_that_is_missing_is_said),
        cmocka_unit_test(of_another_machine_nothing_here_is_asked),
        cmocka_unit_test(every_way_out_leads_to_a_plan),
        cmocka_unit_test(a_given_plan_with_too_few_buffers_names_them_and_its_file),
        cmocka_unit_test(a_given_plan_names_all_tiers_that_are_too_small),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
