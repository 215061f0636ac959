/* A file of a profile is used if it is for this and agrees with its own checks and the machine, else refused with the reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "profile/lies.h"
#include "profile/profile_parts.h"

#include <math.h>

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

/* As of ranks that measured at once on too few cores. */
static void a_profile_that_is_unsure_may_be_farther_from_its_checks(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    pt_error e = {0};
    clocked_open(&s, 0, 16);
    profile_must(&s, &p);
    p.costs.curves_spread = p.costs.spread = 0.1;
    for (int i = 0; i < p.costs.update_device.n; i++)
        p.costs.update_device.ns[i] *= 1e5;
    for (int level = 0; level < SAVE_LEVELS; level++)
        p.costs.layer[0].backward_ns[level] *= 1e5;
    for (int part = 0; part < PROFILE_PARTS; part++)
        assert_int_equal(profile_agrees((profile_part)part, "profile", &s.r, &p, &e), PT_FAILED);
    p.costs.curves_spread = p.costs.spread = 1e5;
    for (int part = 0; part < PROFILE_PARTS; part++)
        if (profile_agrees((profile_part)part, "profile", &s.r, &p, &e))
            fail_msg("%s", e.text);
    p.costs.layer[0].forward_ns[0] = 0; /* whatever it says */
    assert_int_equal(profile_agrees(PROFILE_BLOCKS, "profile", &s.r, &p, &e), PT_FAILED);
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

static void a_host_that_works_more_than_is_measured_is_refused(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    pt_error e = {0};
    clocked_open(&s, 0, 16);
    profile_must(&s, &p);
    p.costs.quota = (cost_quota){1e8, 2, {[COST_WRITE] = 100}};
    if (profile_agrees(PROFILE_MACHINE, "profile", &s.r, &p, &e))
        fail_msg("%s", e.text);
    p.costs.quota.busy[COST_WRITE] = 101;
    assert_int_equal(profile_agrees(PROFILE_MACHINE, "profile", &s.r, &p, &e), PT_FAILED);
    if (!strstr(e.text, "\"quota\": write keeps 101 processors busy, and at most 100"))
        fail_msg("%s", e.text);
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

static const device_table *whole_table;
static int memory_opened;

static int lost_memory_open(device *d, memory_kind kind, size_t bytes, void **out, pt_error *e)
{
    if (memory_opened++)
        return pt_fail(e, PT_FAILED, "the device is lost");
    return whole_table->memory_open(d, kind, bytes, out, e);
}

/* What keeps a check from being run is not the file's fault. */
static void a_check_that_cannot_be_run_is_not_told_with_the_file_s_name(void **state)
{
    (void)state;
    setup s;
    profile_result p, q;
    pt_error e = {0};
    char path[300];
    write_profile(&s, 0, true, &p, path);
    whole_table = s.r.device->table;
    device_table lost = *whole_table;
    lost.memory_open = lost_memory_open;
    s.r.device->table = &lost;
    assert_int_equal(profile_get(&s.r, &q, &e), PT_FAILED);
    s.r.device->table = whole_table;
    assert_string_equal(e.text, "the device is lost");
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
    snprintf(took, sizeof took, "took %.3g ms when it was measured", p.layer.ns / 1.5 * 1e-6);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_lies_is_refused_with_the_key),
        cmocka_unit_test(a_profile_that_is_unsure_may_be_farther_from_its_checks),
        cmocka_unit_test(a_point_behind_the_check_that_lies_is_refused_with_its_curve),
        cmocka_unit_test(a_host_that_works_more_than_is_measured_is_refused),
        cmocka_unit_test(a_disk_may_be_further_from_its_check_than_others),
        cmocka_unit_test(a_file_of_a_run_in_memory_serves_there),
        cmocka_unit_test(a_file_is_used_or_refused_with_the_reason),
        cmocka_unit_test(a_file_with_a_check_that_is_far_off_is_refused_with_its_name),
        cmocka_unit_test(a_check_that_cannot_be_run_is_not_told_with_the_file_s_name),
        cmocka_unit_test(a_file_with_a_check_that_is_off_a_little_is_used_with_a_notice),
        cmocka_unit_test(a_file_that_was_measured_in_another_way_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
