/* What was measured is used again if it agrees, whatever happens to the cache's files and whoever else uses them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/rng.h"
#include "profile/measure_parts.h"
#include "profile/profile_parts.h"
#include "profile/support.h"

#include <dirent.h>
#include <math.h>
#include <sys/wait.h>

static uint64_t seed;

/* ---- a clock of their own ---- */

/* Every op takes as long as it says here, so that what is timed again agrees, however busy the machine is: long enough that
 * few of them fill the time for which contention is watched. */
static int64_t clock_ns;

static int64_t op_ns(const op *o)
{
    const int64_t each = 1000, long_ns = 20000000;
    switch (o->kind) {
    case OP_COPY: return each + (int64_t)o->copy.bytes;
    case OP_DISK_READ: case OP_DISK_WRITE: return each + 10 * (int64_t)o->disk.bytes;
    default: return long_ns;
    }
}

static void clocked_submit(queue *q, const op *o)
{
    clock_ns += op_ns(o);
    real_table->submit(q, o);
}

static void clocked_mark(queue *q, int64_t *ns) { *ns = clock_ns; }

static void clocked_open(setup *s, int config, int64_t seq_len)
{
    setup_open(s, test_configs[config], PT_F32, 4, seq_len);
    counting_table.submit = clocked_submit;
    counting_table.mark = clocked_mark;
}

/* What was measured there, in a file of its own that requests name from then on. */
static void write_profile(setup *s, int config, bool transfers, profile_result *p, char path[300])
{
    pt_error e = {0};
    clocked_open(s, config, 16);
    s->r.transfers = transfers;
    s->r.host_tier &= transfers;
    profile_must(s, p);
    snprintf(path, 300, "%s/p.json", scratch);
    if (profile_write(path, &s->r, p, &e))
        fail_msg("%s", e.text);
    s->r.file = path;
}

/* ---- files ---- */

/* Calls fn for each file of the cache; returns their number. */
static int each_file(void (*fn)(const char *path))
{
    char folder[256], path[600];
    int n = 0;
    snprintf(folder, sizeof folder, "%s/protrain", scratch);
    DIR *d = opendir(folder);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (fn)
            fn(path);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

static void read_text(const char *path, char **text)
{
    size_t n;
    assert_int_equal(file_read_all(path, 1 << 20, text, &n, NULL), 0);
}

static void put(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

/* ---- the cache ---- */

static void what_was_measured_is_used_again(void **state)
{
    (void)state;
    setup s;
    profile_result first, p;
    clocked_open(&s, 0, 16);
    profile_must(&s, &first);
    assert_int_equal(each_file(NULL), 2);
    profile_must(&s, &p);
    assert_true(p.cached);
    assert_memory_equal(&p.costs, &first.costs, sizeof p.costs);
    s.r.fresh = true;
    profile_must(&s, &p);
    assert_false(p.cached);
    setup_close(&s);
}

static void another_model_of_that_size_and_rows_measures_its_blocks_only(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    clocked_open(&s, 0, 16);
    profile_must(&s, &p);
    step_shape_init(&s.shape, s.model, PT_F32, 8, 8);
    profile_must(&s, &p);
    assert_int_equal(each_file(NULL), 3);
    step_shape_init(&s.shape, s.model, PT_F32, 2, 16); /* a unit has fewer rows, which have less beside transfers */
    profile_must(&s, &p);
    assert_int_equal(each_file(NULL), 5);
    setup_close(&s);
}

/* Neither what is kept nor a file. */
static void a_profile_of_another_quota_does_not_serve(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    pt_error e = {0};
    char path[300];
    write_profile(&s, 0, true, &p, path);
    s.device->info.quota = 1.5;
    assert_int_equal(profile_get(&s.r, &p, &e), PT_FAILED);
    if (!strstr(e.text, "\"quota\" is 0.0 there and 1.5 here"))
        fail_msg("%s", e.text);
    s.r.file = NULL;
    for (int i = 0; i < 4; i++) {
        s.device->info.quota = i / 2 ? 1.25 : 1.5;
        profile_must(&s, &p);
        assert_int_equal(p.cached, i % 2);
    }
    setup_close(&s);
}

/* Of setup_open's two, and of those that move something. */
static double threads_of(int class) { return class == COST_MATH || class == COST_MEMORY ? 2 : 1; }

/* All threads that work at once want so many times as much of it as those of one alone, and stand still together. */
static void what_works_beside_something_waits_for_the_quota_too(void **state)
{
    (void)state;
    int compared = 0;
    setup s;
    profile_result all, some;
    clocked_open(&s, 0, 16);
    counting_table.mark_work = clocked_mark;
    profile_must(&s, &all);
    s.device->info.quota = 0.5;
    profile_must(&s, &some);
    for (int a = 0; a < COST_CLASSES; a++)
        for (int b = 0; b < COST_CLASSES; b++) {
            const double without = all.costs.slow[a][b], with = some.costs.slow[a][b], more = 1 + threads_of(b) / threads_of(a);
            if (without <= 1 || more * without > SLOW_MOST)
                continue;
            if (fabs(with / without / more - 1) > 0.25)
                fail_msg("%s beside %s: %g, under the quota %g", cost_class_names[a], cost_class_names[b], without, with);
            compared++;
        }
    assert_true(compared > 4);
    setup_close(&s);
}

typedef struct check { const char *part, *key, *what; size_t at; } check;
static const check checks[] = {
    {"blocks", "check", "a layer's forward takes", offsetof(profile_result, layer)},
    {"machine", "check", "an update takes", offsetof(profile_result, update)},
    {"machine", "check_update_host", "an update on the host takes", offsetof(profile_result, update_host)},
    {"machine", "check_to_device", "a copy to the device takes", offsetof(profile_result, to_device)},
    {"machine", "check_from_device", "a copy from the device takes", offsetof(profile_result, from_device)},
    {"machine", "check_read", "a disk read takes", offsetof(profile_result, read)},
    {"machine", "check_write", "a disk write takes", offsetof(profile_result, write)},
};
enum { CHECKS = sizeof checks / sizeof *checks };

/* As if this had been measured on a machine so many times as fast. A file of the other part stays as it is. */
static void slow_down(const char *path, const check *c, double times)
{
    char *text, key[64];
    read_text(path, &text);
    snprintf(key, sizeof key, "\"%s\": {", c->part);
    char *at = strstr(text, key);
    if (at) {
        snprintf(key, sizeof key, "\"%s\": [", c->key);
        at = strstr(at, key);
        assert_non_null(at);
        at = strchr(at, ',') + 2;
        char *out = malloc(strlen(text) + 64);
        int n = sprintf(out, "%.*s%.7g%s", (int)(at - text), text, strtod(at, NULL) / times, strchr(at, ']'));
        put(path, out, (size_t)n);
        free(out);
    }
    free(text);
}

static const check *slowed;
static void slow_down_ten(const char *path) { slow_down(path, slowed, 10); }
static void slow_down_a_little(const char *path) { slow_down(path, slowed, 1.5); }
static void keep_notice(void *arg, const char *sentence) { strcat(arg, sentence); }

static void what_does_not_agree_is_measured_anew(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    clocked_open(&s, 1, 16);
    profile_must(&s, &p);
    for (int i = 0; i < CHECKS; i++) {
        const profile_check *c = (const profile_check *)((const char *)&p + checks[i].at);
        double before = c->ns;
        assert_true(c->amount > 0);
        slowed = &checks[i];
        assert_int_equal(each_file(slow_down_ten), 2);
        profile_must(&s, &p);
        assert_false(p.cached);
        if (!(c->ns > before / 8))
            fail_msg("%s %g ns, as the file says", checks[i].what, c->ns);
    }
    setup_close(&s);
}

static bool is_used(setup *s, profile_result *p)
{
    profile_must(s, p);
    return p->cached;
}

static double last_amount(const cost_curve *c) { return c->amount[c->n - 1]; }

static void what_was_measured_within_smaller_budgets_is_measured_anew(void **state)
{
    (void)state;
    for (int transfers = 0; transfers < 2; transfers++) {
        setup s;
        profile_result small, p;
        clocked_open(&s, 0, 16);
        const tier t = transfers ? TIER_DISK : TIER_DEVICE; /* a smaller disk leaves updates as they are */
        const uint64_t whole = s.r.budget[t];
        s.r.transfers = transfers;
        s.r.budget[t] = 1 << 20;
        profile_must(&s, &small);
        assert_true(is_used(&s, &small));
        s.r.budget[t] = whole;
        profile_must(&s, &p);
        assert_false(p.cached);
        if (transfers)
            assert_true(last_amount(&p.costs.to_device) > last_amount(&small.costs.to_device));
        else
            assert_true(last_amount(&p.costs.update_device) > last_amount(&small.costs.update_device));
        assert_true(is_used(&s, &p));
        s.r.budget[t] = 1 << 20;
        assert_true(is_used(&s, &p));
        setup_close(&s);
    }
}

/* Of the layers fewer sets of weights fit into the small budget, which then lie in the cache. */
static void blocks_that_had_less_memory_are_measured_anew(void **state)
{
    (void)state;
    setup s;
    profile_result small, p;
    clocked_open(&s, 0, 64);
    const uint64_t whole = s.r.budget[TIER_DEVICE];
    s.r.transfers = s.r.host_tier = false;
    s.r.budget[TIER_DEVICE] = 700 << 10;
    profile_must(&s, &small);
    assert_true(is_used(&s, &small) && small.within_bytes == 700 << 10);
    s.r.budget[TIER_DEVICE] = whole;
    profile_must(&s, &p);
    assert_true(!p.cached && p.within_bytes == (int64_t)whole);
    assert_true(is_used(&s, &p));
    s.r.budget[TIER_DEVICE] = 700 << 10;
    assert_true(is_used(&s, &p));
    setup_close(&s);
}

/* Of many layers the head needs the most memory, for what lies between its visits: budgets in which all else is measured as with much. */
static void a_head_that_had_less_memory_is_measured_anew(void **state)
{
    (void)state;
    static const char deep[] = "{\"model_type\": \"llama\", \"vocab_size\": 12000, \"hidden_size\": 32, \"num_attention_heads\": 4, "
                               "\"num_key_value_heads\": 2, \"num_hidden_layers\": 64, \"intermediate_size\": 192, "
                               "\"max_position_embeddings\": 64, \"hidden_act\": \"silu\", \"bos_token_id\": 0, \"eos_token_id\": 0}";
    setup s;
    int head_only = 0;
    setup_open(&s, deep, PT_F32, 2, 8);
    for (uint64_t bytes = s.r.budget[TIER_DEVICE]; bytes > 1 << 20; bytes -= 1 << 18) {
        profile_request small = s.r;
        bench now = {.r = &s.r}, then = {.r = &small};
        small.budget[TIER_DEVICE] = bytes;
        if (!layer_suffices(&now, &then) || !embed_finish_suffices(&now, &then) || head_suffices(&now, &then))
            continue;
        assert_false(blocks_suffice(&now, bytes));
        head_only++;
    }
    assert_true(head_only > 0);
    setup_close(&s);
}

static void damage(const char *path)
{
    static uint64_t round;
    char *text;
    read_text(path, &text);
    size_t n = strlen(text);
    uint32_t w[4];
    rng_words(seed, RNG_TEST, 0, round++, w);
    switch (w[0] % 3) {
    case 0: put(path, text, w[1] % n); break;
    case 1: put(path, "", 0); break;
    default:
        for (int i = 0; i < 8; i++)
            text[(w[1] + (uint32_t)i * 977) % n] = (char)w[2];
        put(path, text, n);
    }
    free(text);
}

static void damaged_files_are_measured_anew(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    pt_error e = {0};
    clocked_open(&s, 1, 16);
    profile_must(&s, &p);
    for (int i = 0; i < 6; i++) {
        each_file(damage);
        profile_must(&s, &p);
        if (costs_validate(&p.costs, s.model, "cached", &e))
            fail_msg("%s", e.text);
        assert_int_equal(each_file(NULL), 2);
    }
    setup_close(&s);
}

static void without_a_home_nothing_is_kept(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    clocked_open(&s, 1, 16);
    unsetenv("HOME");
    for (int i = 0; i < 2; i++) {
        if (i)
            setenv("XDG_CACHE_HOME", "/proc/nothing", 1); /* cannot be made */
        else
            unsetenv("XDG_CACHE_HOME");
        for (int k = 0; k < 2; k++) {
            profile_must(&s, &p);
            assert_false(p.cached);
        }
    }
    assert_int_equal(each_file(NULL), 0);
    if (home)
        setenv("HOME", home, 1);
    free(home);
    setup_close(&s);
}

static void processes_do_not_disturb_each_other(void **state)
{
    (void)state;
    enum { PROCESSES = 4 };
    setup s;
    profile_result p;
    pt_error e = {0};
    pid_t children[PROCESSES];
    clocked_open(&s, 1, 16);
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i])
            continue;
        int failed = 0;
        for (int k = 0; k < 3 && !failed; k++) {
            s.r.fresh = k == 1;
            failed = profile_get(&s.r, &p, &e) || costs_validate(&p.costs, s.model, "child", &e);
        }
        if (failed)
            fprintf(stderr, "%s\n", e.text);
        _exit(failed ? 1 : 0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_true(waitpid(children[i], &status, 0) == children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(each_file(NULL), 2);
    setup_close(&s);
}

/* A disk's cache takes writes at a speed of its own. Of what is kept nothing is told, since no one named it. */
static void a_write_that_is_off_a_little_is_used_without_a_word(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    char said[8192] = "";
    clocked_open(&s, 0, 16);
    s.r.notice = keep_notice;
    s.r.arg = said;
    slowed = &checks[CHECKS - 1];
    profile_must(&s, &p);
    double was = p.write.ns;
    each_file(slow_down_a_little);
    profile_must(&s, &p);
    assert_true(p.cached && p.write.ns < was);
    assert_string_equal(said, "");
    setup_close(&s);
}

/* ---- costs that are far from their checks ---- */

/* All numbers of a list from the first on times `by`; of pairs the second. */
static void scale(json_t *list, size_t first, double by)
{
    for (size_t i = first; i < json_array_size(list); i++) {
        json_t *one = json_array_get(list, i);
        if (json_is_array(one))
            json_array_set_new(one, 1, json_real(json_number_value(json_array_get(one, 1)) * by));
        else
            json_array_set_new(list, i, json_real(json_number_value(one) * by));
    }
}

/* by < 0: an empty list instead; part "last": of the machine's curve the last point alone. */
typedef struct lie { const char *part, *key; double by; } lie;
static const lie lies[] = {
    {"blocks", "forward_ns", 1e5}, {"blocks", "backward_ns", 1e5}, {"blocks", "forward_ns", 1e-5}, {"blocks", "backward_ns", 0},
    {"blocks", "embed_finish", -1}, {"blocks", "head_ns", 0}, {"blocks", "embed_ns", 0}, {"machine", "task_ns", 0},
    {"machine", "finish", -1}, {"machine", "finish", 0}, {"machine", "update_device", 1e-5}, {"machine", "update_host", 1e5},
    {"machine", "to_device", -1}, {"machine", "from_device", 1e5}, {"machine", "read", -1}, {"machine", "read", 0},
    {"machine", "read", 1e-5}, {"machine", "write", 1e5}, {"machine", "finish", 1e5}, {"machine", "finish", 1e-5},
    {"last", "finish", 1e5}, {"last", "update_device", 1e5}, {"last", "update_host", 1e5},
    {"last", "to_device", 1e5}, {"last", "from_device", 1e5}, {"last", "read", 1e5}, {"last", "write", 1e5},
    {"machine", "slow", 1000}, {"blocks", "head_ns", 1e5}, {"blocks", "head_ns", 1e-5}, {"blocks", "head_eval_ns", 1e5},
    {"blocks", "head_eval_ns", 1e-5}, {"blocks", "embed_ns", 1e5},
};
enum { LIES = sizeof lies / sizeof *lies };

/* A file of the other part stays as it is. */
static void tell_lie(const char *path, const lie *l)
{
    pt_error e = {0};
    json_t *o, *holder;
    const bool last = !strcmp(l->part, "last");
    if (json_file_load(path, 0, &o, &e))
        fail_msg("%s", e.text);
    json_t *part = json_object_get(o, last ? "machine" : l->part), *kind = json_array_get(json_object_get(part, "kinds"), 0);
    holder = json_object_get(kind, l->key) ? kind : part;
    json_t *value = json_object_get(holder, l->key), *list;
    const char *key;
    assert_true(value || !holder);
    json_object_foreach(value, key, list)
        scale(list, 0, l->by);
    if (json_is_number(value))
        json_object_set_new(holder, l->key, json_real(json_number_value(value) * l->by));
    else if (l->by < 0)
        json_array_clear(value);
    else
        scale(value, last ? json_array_size(value) - 1 : 0, l->by);
    assert_int_equal(file_write_json(path, o, &e), 0);
    json_decref(o);
}

static const lie *told;
static void tell_it(const char *path) { tell_lie(path, told); }

/* Some of them: the same check refuses all of them in a file, below, and measuring takes long. */
static void what_is_kept_and_lies_is_measured_anew(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    clocked_open(&s, 2, 16);
    profile_must(&s, &p);
    enum { EVERY = 4 };
    for (told = lies; told < lies + LIES; told += EVERY) {
        each_file(tell_it);
        profile_must(&s, &p);
        if (p.cached)
            fail_msg("%s times %g was used", told->key, told->by);
        assert_true(is_used(&s, &p));
    }
    setup_close(&s);
}

static void a_file_that_lies_is_refused_with_the_key(void **state)
{
    (void)state;
    setup s;
    profile_result p, q;
    pt_error e = {0};
    char path[300];
    write_profile(&s, 2, true, &p, path);
    for (int i = 0; i < LIES; i++) {
        assert_int_equal(profile_write(path, &s.r, &p, &e), 0);
        tell_lie(path, &lies[i]);
        if (profile_get(&s.r, &q, &e) != PT_FAILED || !strstr(e.text, path) || !strstr(e.text, lies[i].key) ||
            !strstr(e.text, "measure again"))
            fail_msg("%s times %g: %s", lies[i].key, lies[i].by, e.text);
        e.text[0] = 0;
    }
    setup_close(&s);
}

/* Of more than a check runs, too: large models' curves go on behind it. */
static void a_point_behind_the_check_that_lies_is_refused_with_its_curve(void **state)
{
    (void)state;
    static const char *const keys[] = {"\"finish\"",      "\"update_device\"", "\"update_host\"", "\"to_device\"",
                                       "\"from_device\"", "\"read\"",          "\"write\""};
    setup s;
    profile_result p;
    pt_error e = {0};
    clocked_open(&s, 0, 16);
    profile_must(&s, &p);
    cost_curve *const curves[] = {&p.costs.finish, &p.costs.update_device, &p.costs.update_host, &p.costs.to_device,
                                  &p.costs.from_device, &p.costs.read, &p.costs.write};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) {
        cost_curve *c = curves[i];
        assert_in_range(c->n, 1, COST_POINTS - 1);
        c->amount[c->n] = 16 * c->amount[c->n - 1];
        c->ns[c->n] = 16 * c->ns[c->n - 1];
        double *last = &c->ns[c->n++];
        if (profile_agrees(PROFILE_MACHINE, "profile", &s.r, &p, &e))
            fail_msg("%s", e.text);
        *last *= 1e5;
        assert_int_equal(profile_agrees(PROFILE_MACHINE, "profile", &s.r, &p, &e), PT_FAILED);
        assert_non_null(strstr(e.text, keys[i]));
        c->n--;
    }
    setup_close(&s);
}

/* A disk that is a hundred times as fast as its check is one whose cache took what was written; other costs are not that far off. */
static void a_disk_may_be_further_from_its_check_than_others(void **state)
{
    (void)state;
    static const lie far[] = {{"machine", "read", 0.01}, {"machine", "write", 0.01}, {"machine", "update_device", 0.01}};
    setup s;
    profile_result p, q;
    pt_error e = {0};
    char path[300];
    write_profile(&s, 0, true, &p, path);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(profile_write(path, &s.r, &p, &e), 0);
        tell_lie(path, &far[i]);
        if (profile_get(&s.r, &q, &e) != (i < 2 ? 0 : PT_FAILED))
            fail_msg("%s times %g: %s", far[i].key, far[i].by, e.text);
    }
    setup_close(&s);
}

/* What was not to be measured has no cost. */
static void a_file_of_a_run_in_memory_serves_there(void **state)
{
    (void)state;
    setup s;
    profile_result p, q;
    pt_error e = {0};
    char path[300];
    write_profile(&s, 0, false, &p, path);
    if (profile_get(&s.r, &q, &e))
        fail_msg("%s", e.text);
    assert_true(q.costs.read.n == 0 && q.costs.update_host.n == 0);
    setup_close(&s);
}

/* ---- --profile FILE ---- */

static void a_file_is_used_or_refused_with_the_reason(void **state)
{
    (void)state;
    setup s;
    profile_result p, q;
    pt_error e = {0};
    char path[300];
    write_profile(&s, 0, true, &p, path);
    if (profile_get(&s.r, &q, &e))
        fail_msg("%s", e.text);
    assert_true(q.cached);
    assert_memory_equal(&p.costs, &q.costs, sizeof p.costs);
    s.r.file = "/nothing/here.json";
    assert_int_equal(profile_get(&s.r, &q, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "/nothing/here.json"));
    setup_close(&s);
}

static void a_file_with_a_check_that_is_far_off_is_refused_with_its_name(void **state)
{
    (void)state;
    setup s;
    profile_result p, q;
    pt_error e = {0};
    char path[300];
    write_profile(&s, 0, true, &p, path);
    for (int i = 0; i < CHECKS; i++) {
        assert_int_equal(profile_write(path, &s.r, &p, &e), 0);
        slow_down(path, &checks[i], 10);
        e.text[0] = 0;
        assert_int_equal(profile_get(&s.r, &q, &e), PT_FAILED);
        if (!strstr(e.text, checks[i].what) || !strstr(e.text, path))
            fail_msg("no \"%s\" in: %s", checks[i].what, e.text);
    }
    setup_close(&s);
}

static void a_file_with_a_check_that_is_off_a_little_is_used_with_a_notice(void **state)
{
    (void)state;
    setup s;
    profile_result p, q;
    pt_error e = {0};
    char path[300], said[8192] = "", took[64];
    write_profile(&s, 0, true, &p, path);
    slow_down(path, &checks[0], 1.5);
    snprintf(took, sizeof took, "took %.3g ms then", p.layer.ns / 1.5 * 1e-6);
    s.r.notice = keep_notice;
    s.r.arg = said;
    if (profile_get(&s.r, &q, &e) || !strstr(said, checks[0].what) || !strstr(said, took) || !strstr(said, path))
        fail_msg("no \"%s\" in: %s %s", took, said, e.text);
    setup_close(&s);
}

/* Both parts have the number of their way. */
static void a_file_that_was_measured_in_another_way_is_refused(void **state)
{
    (void)state;
    setup s;
    profile_result p, q;
    char path[300], *text;
    write_profile(&s, 0, true, &p, path);
    for (int part = 0; part < 2; part++) {
        pt_error e = {0};
        assert_int_equal(profile_write(path, &s.r, &p, &e), 0);
        read_text(path, &text);
        char *way = strstr(text, "\"way\": ");
        for (int i = 0; way && i < part; i++)
            way = strstr(way + 1, "\"way\": ");
        assert_non_null(way);
        way += strlen("\"way\": ");
        *way = *way == '1' ? '2' : '1';
        put(path, text, strlen(text));
        free(text);
        assert_int_equal(profile_get(&s.r, &q, &e), PT_FAILED);
        if (!strstr(e.text, path) || !strstr(e.text, "in another way"))
            fail_msg("%s", e.text);
    }
    setup_close(&s);
}

int main(void)
{
    seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_is_used_again),
        cmocka_unit_test(another_model_of_that_size_and_rows_measures_its_blocks_only),
        cmocka_unit_test(a_profile_of_another_quota_does_not_serve),
        cmocka_unit_test(what_works_beside_something_waits_for_the_quota_too),
        cmocka_unit_test(what_does_not_agree_is_measured_anew),
        cmocka_unit_test(what_was_measured_within_smaller_budgets_is_measured_anew),
        cmocka_unit_test(blocks_that_had_less_memory_are_measured_anew),
        cmocka_unit_test(a_head_that_had_less_memory_is_measured_anew),
        cmocka_unit_test(damaged_files_are_measured_anew),
        cmocka_unit_test(without_a_home_nothing_is_kept),
        cmocka_unit_test(processes_do_not_disturb_each_other),
        cmocka_unit_test(a_write_that_is_off_a_little_is_used_without_a_word),
        cmocka_unit_test(what_is_kept_and_lies_is_measured_anew),
        cmocka_unit_test(a_file_that_lies_is_refused_with_the_key),
        cmocka_unit_test(a_point_behind_the_check_that_lies_is_refused_with_its_curve),
        cmocka_unit_test(a_disk_may_be_further_from_its_check_than_others),
        cmocka_unit_test(a_file_of_a_run_in_memory_serves_there),
        cmocka_unit_test(a_file_is_used_or_refused_with_the_reason),
        cmocka_unit_test(a_file_with_a_check_that_is_far_off_is_refused_with_its_name),
        cmocka_unit_test(a_file_with_a_check_that_is_off_a_little_is_used_with_a_notice),
        cmocka_unit_test(a_file_that_was_measured_in_another_way_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
