/* How much of each tier a run may use: of a machine that is made up, of this disk, and of the machine of a file. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/resource.h>

#include <cmocka.h>

#include "base/units.h"
#include "run/budgets.h"

#include "io/scratch.h"
#include "profile/root.h"

static const char ram_disk[] = "/dev/shm/pt-budgets/not/made";

/* What was asked for, and what came of it. */
typedef struct choice {
    budget_request r;
    uint64_t budget[TIERS];
    bool host_tier;
    char why[BUDGETS_WHY_BYTES], noted[1024];
    uint64_t missing;
    char change[BUDGETS_CHANGE_BYTES];
    machine m;
    device gpu;
    pt_error e;
} choice;

static void note(void *arg, const char *sentence) { snprintf(arg, 1024, "%s", sentence); }

/* On the machine that lies in scratch. */
static int choose(choice *c, uint64_t device, uint64_t host, uint64_t disk)
{
    c->m = probe();
    c->r = (budget_request){{device, host, disk}, c->r.disk_path, c->r.device, &c->m, note, c->noted, &c->missing, c->change,
                            c->r.disk_reserve, c->r.memory_reserve, c->r.disk_own};
    c->e = (pt_error){0};
    c->noted[0] = 0;
    budgets_notice_disk(&c->r);
    return budgets_choose(&c->r, c->budget, &c->host_tier, c->why, &c->e);
}

static void chosen(choice *c, uint64_t device, uint64_t host, uint64_t disk)
{
    if (choose(c, device, host, disk))
        fail_msg("%s", c->e.text);
}

static void refused(choice *c, uint64_t device, uint64_t host, uint64_t disk, const char *said)
{
    int failed = choose(c, device, host, disk);
    if (failed != PT_DOES_NOT_FIT || !strstr(c->e.text, said))
        fail_msg("%d, and \"%s\" is not in: %s", failed, said, c->e.text);
}

static void add_gpu(choice *c, uint64_t bytes, uint64_t free_bytes)
{
    c->gpu.info = (device_info){.name = "Some GPU", .memory_bytes = bytes, .memory_free_bytes = free_bytes};
    c->r.device = &c->gpu;
}

/* ---- memory ---- */

static void by_default_it_is_what_is_free_less_a_margin(void **state)
{
    (void)state;
    choice c = {0};
    put_machine(16000, 9000);
    chosen(&c, PT_AUTO, PT_AUTO, 0);
    assert_true(c.budget[TIER_DEVICE] == mib(9000 - 800) && !c.budget[TIER_HOST] && !c.budget[TIER_DISK] && !c.host_tier);
    assert_string_equal(c.why, "8.79 GiB free (RAM) less 800.00 MiB for other programs: 8.01 GiB");
    c.r.memory_reserve = mib(1000); /* what is saved lies in RAM too */
    chosen(&c, PT_AUTO, PT_AUTO, 0);
    assert_true(c.budget[TIER_DEVICE] == mib(9000 - 800 - 1000));
    assert_string_equal(c.why, "8.79 GiB free (RAM) less 1.76 GiB for checkpoints, the model and other programs: 7.03 GiB");
    refused(&c, mib(8500), PT_AUTO, 0, "1000.00 MiB of RAM, where `out` is");
    c.r.memory_reserve = 0;
    put_machine(4000, 3000);
    chosen(&c, PT_AUTO, PT_AUTO, 0);
    assert_true(c.budget[TIER_DEVICE] == mib(3000 - 512));
    put_machine(4000, 300);
    chosen(&c, PT_AUTO, PT_AUTO, 0);
    assert_true(c.budget[TIER_DEVICE] == 0);
    assert_string_equal(c.why, "300.00 MiB free (RAM) less 300.00 MiB for other programs: 0 B");
}

static void a_groups_limit_is_what_the_margin_is_taken_from(void **state)
{
    (void)state;
    choice c = {0};
    put_machine(160000, 90000);
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "%llu\n", (unsigned long long)mib(20000));
    put("/sys/fs/cgroup/a/memory.current", "%llu\n", (unsigned long long)mib(1000));
    chosen(&c, PT_AUTO, PT_AUTO, 0);
    assert_true(c.budget[TIER_DEVICE] == mib(20000 - 1000 - 1000));
    assert_non_null(strstr(c.why, "/a/memory.max) less 1000.00 MiB"));
}

static void what_is_asked_for_is_given_as_long_as_it_is_free(void **state)
{
    (void)state;
    choice c = {0};
    put_machine(16000, 9000 + 96); /* the program itself takes 96 */
    chosen(&c, mib(9000), PT_AUTO, 0);
    assert_true(c.budget[TIER_DEVICE] == mib(9000) && !c.host_tier);
    assert_string_equal(c.why, "");
    assert_int_equal(c.missing, 0);
    refused(&c, mib(9000) + 1, PT_AUTO, 0,
            "`device_memory` is 8.79 GiB, but only 8.79 GiB are free beside what the program itself takes, 1B too little: give "
            "`device_memory` 8GiB, or end");
    assert_string_equal(c.change, "`device_memory` 8GiB"); /* less the margin */
    assert_int_equal(c.missing, 1);
    chosen(&c, mib(4000), mib(5000), 0);
    assert_true(c.budget[TIER_DEVICE] == mib(4000) && c.budget[TIER_HOST] == mib(5000) && c.host_tier);
    refused(&c, mib(4000), mib(5000) + 1, 0,
            "`device_memory` is 3.91 GiB, `host_memory` 4.88 GiB, but only 8.79 GiB "
            "are free beside what the program itself takes, 1B too little: give "
            "`host_memory` 4.1875GiB, or end");
    assert_int_equal(c.missing, 1);
    assert_string_equal(c.change, "`host_memory` 4.1875GiB");
    chosen(&c, mib(4000), mib(4200), 0);
    assert_string_equal(c.change, "");
    refused(&c, UINT64_MAX - 5, UINT64_MAX - 5, 0, "`host_memory`");
    assert_true(c.missing > mib(9000) && c.missing < INT64_MAX);
    assert_string_equal(c.change, "`device_memory` 4GiB `host_memory` 4GiB");
    refused(&c, PT_AUTO, mib(9000) + 1, 0, "give `host_memory` 4GiB, or end"); /* the device has to be left something */
    chosen(&c, PT_AUTO, mib(5000), 0);
    assert_true(c.budget[TIER_DEVICE] == mib(9096 - 800 - 5000) && c.budget[TIER_HOST] == mib(5000));
    chosen(&c, PT_AUTO, 0, 0);
    assert_true(c.budget[TIER_DEVICE] == mib(9096 - 800) && !c.host_tier);
}

static void a_gpu_has_memory_and_a_margin_of_its_own(void **state)
{
    (void)state;
    choice c = {0};
    put_machine(16000, 9000 + 96); /* the program itself takes 96 */
    add_gpu(&c, mib(81920), mib(80000));
    chosen(&c, PT_AUTO, PT_AUTO, 0);
    assert_true(c.budget[TIER_DEVICE] == mib(80000 - 1280) && c.budget[TIER_HOST] == mib(9096 - 800) && c.host_tier);
    assert_string_equal(c.why, "78.12 GiB free (GPU) less 1.25 GiB for other programs: 76.88 GiB; "
                               "8.88 GiB free (RAM) less 800.00 MiB for other programs: 8.10 GiB");
    add_gpu(&c, mib(8192), mib(8000));
    chosen(&c, PT_AUTO, mib(9000), 0);
    assert_true(c.budget[TIER_DEVICE] == mib(8000 - 512) && c.budget[TIER_HOST] == mib(9000));
    chosen(&c, mib(8000), PT_AUTO, 0); /* not out of RAM */
    refused(&c, mib(8000) + 1, PT_AUTO, 0, "the memory of Some GPU are free, 1B too little: give `device_memory` 7.3125GiB");
    assert_int_equal(c.missing, 1);
    assert_string_equal(c.change, "`device_memory` 7.3125GiB");
    refused(&c, PT_AUTO, mib(9000) + 1, 0,
            "`host_memory` is 8.79 GiB, but only 8.79 GiB are free beside what the program itself takes, 1B "
            "too little: give `host_memory` 8GiB");
    add_gpu(&c, mib(8192), mib(100));
    refused(&c, mib(101), PT_AUTO, 0, "are free, 1MiB too little: lower it");
    assert_string_equal(c.change, "");
    assert_int_equal(choose(&c, PT_AUTO, 0, 0), PT_USAGE);
    assert_non_null(strstr(c.e.text, "`host_memory` is 0"));
}

/* Device and host are one pool of RAM: what CUDA calls free does not count, and nothing is promised twice. */
static void a_gpu_without_memory_of_its_own_shares_ram(void **state)
{
    (void)state;
    choice c = {0};
    put_machine(16000, 9096);
    add_gpu(&c, mib(15000), mib(100));
    c.gpu.info.shares_ram = true;
    chosen(&c, PT_AUTO, PT_AUTO, 0);
    assert_true(c.host_tier && c.budget[TIER_HOST] == mib(9096 - 800) / 16);
    assert_true(c.budget[TIER_DEVICE] + c.budget[TIER_HOST] == mib(9096 - 800));
    assert_string_equal(c.why, "8.88 GiB free (RAM) less 800.00 MiB for other programs: 8.10 GiB");
    chosen(&c, mib(6000), PT_AUTO, 0);
    assert_true(c.budget[TIER_DEVICE] == mib(6000) && c.budget[TIER_HOST] == mib(9096 - 800 - 6000));
    chosen(&c, PT_AUTO, mib(6000), 0);
    assert_true(c.budget[TIER_HOST] == mib(6000) && c.budget[TIER_DEVICE] == mib(9096 - 800 - 6000));
    chosen(&c, mib(5000), mib(4000), 0);
    refused(&c, mib(5000), mib(4000) + 1, 0,
            "`device_memory` is 4.88 GiB, `host_memory` 3.91 GiB, but only 8.79 GiB are free beside what the program itself takes, 1B too "
            "little: give `device_memory`");
    assert_int_equal(choose(&c, PT_AUTO, 0, 0), PT_USAGE);
}

/* What "--device-memory N --disk-memory M" asks for replaces what was asked for. */
static void follow(const char *change, uint64_t asked[TIERS])
{
    for (int t = 0; t < TIERS; t++) {
        char option[32];
        snprintf(option, sizeof option, "`%s_memory` ", tier_names[t]);
        const char *at = strstr(change, option);
        char size[32] = "";
        pt_error e = {0};
        if (at && (sscanf(at + strlen(option), "%31s", size) != 1 || size_parse(size, &asked[t], &e)))
            fail_msg("%s: %s", change, e.text);
    }
}

/* 0: nothing of the disk is asked for, or more than that. */
static uint64_t disk_advised(const char *change)
{
    uint64_t asked[TIERS] = {0};
    follow(change, asked);
    return asked[TIER_DEVICE] || asked[TIER_HOST] ? 0 : asked[TIER_DISK];
}

static void advice_leads_to_no_other_refusal(void **state)
{
    (void)state;
    static const uint64_t amounts[] = {PT_AUTO, 1 << 20, (uint64_t)6 << 30, (uint64_t)1 << 50};
    choice c = {.r = {.disk_path = scratch}};
    int refusals = 0;
    put_machine(16000, 9000);
    for (int i = 0; i < 3 * 4 * 4 * 4; i++) {
        uint64_t asked[TIERS] = {amounts[i % 4], amounts[i / 4 % 4], amounts[i / 16 % 4]};
        if (i == 64)
            add_gpu(&c, mib(8192), mib(8000));
        c.gpu.info.shares_ram = i >= 128;
        if (!choose(&c, asked[0], asked[1], asked[2]))
            continue;
        const uint64_t missing = c.missing;
        refusals++;
        follow(c.change, asked);
        if (!missing || choose(&c, asked[0], asked[1], asked[2]))
            fail_msg("case %d, %llu bytes missing: %s", i, (unsigned long long)missing, c.e.text);
    }
    assert_true(refusals > 40);
}

static void what_many_threads_need_is_no_part_of_the_devices_budget(void **state)
{
    (void)state;
    device cpu = {.info = {.threads = 64, .host_addressable = true, .threads_bytes = mib(240)}};
    choice c = {.r.device = &cpu};
    put_machine(16000, 9096);
    chosen(&c, PT_AUTO, mib(5000), 0);
    assert_true(c.budget[TIER_DEVICE] == mib(9096 - 800 - 5000 - 240) && c.budget[TIER_HOST] == mib(5000));
    assert_non_null(strstr(c.why, "; less 240.00 MiB of device memory for 64 threads"));
    chosen(&c, mib(9000), PT_AUTO, 0);
    assert_true(c.budget[TIER_DEVICE] == mib(9000 - 240));
    assert_string_equal(c.why, "less 240.00 MiB of device memory for 64 threads");
    assert_int_equal(c.missing, 0);
    chosen(&c, mib(100), PT_AUTO, 0);
    assert_true(c.budget[TIER_DEVICE] == 0 && c.missing == mib(140));
}

/* ---- the disk ---- */

/* Others may write meanwhile. */
static void of_a_disk_one_gibibyte_is_left(void **state)
{
    (void)state;
    const uint64_t change = mib(256), margin = mib(1024);
    unsigned long long advised = 0;
    uint64_t has;
    choice c = {.r.disk_path = scratch};
    put_machine(16000, 9000);
    assert_int_equal(disk_free_bytes(scratch, &has, NULL), 0);
    if (disk_is_memory(scratch) || has < 2 * margin)
        skip();
    chosen(&c, PT_AUTO, PT_AUTO, PT_AUTO);
    assert_in_range(c.budget[TIER_DISK], has - margin - change, has - margin + change);
    assert_non_null(strstr(c.why, "(RAM) less 800.00 MiB for other programs: "));
    assert_non_null(strstr(c.why, "free (disk) less 1.00 GiB for other programs: "));
    assert_true(c.budget[TIER_DEVICE] == mib(9000 - 800));
    chosen(&c, PT_AUTO, PT_AUTO, has - margin);
    assert_true(c.budget[TIER_DISK] == has - margin && c.budget[TIER_DEVICE] == mib(9000 - 800));
    assert_string_equal(c.noted, "");
    refused(&c, PT_AUTO, PT_AUTO, has + margin, "`disk_memory` is ");
    assert_in_range(c.missing, margin - change, margin + change);
    assert_true(strstr(c.e.text, scratch) && strstr(c.e.text, "are free") && (advised = disk_advised(c.change)) > 0);
    assert_in_range(advised, (has - margin - change) / 64 * 63, has - margin + change);
    assert_non_null(strstr(c.e.text, c.change));
    assert_non_null(strstr(c.e.text, "`disk_path`"));

    struct rlimit before, little;
    getrlimit(RLIMIT_FSIZE, &before);
    little = (struct rlimit){has / 2, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &little);
    refused(&c, PT_AUTO, PT_AUTO, has - margin, "(ulimit -f)");
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(c.missing, has - margin - has / 2);
    assert_true(disk_advised(c.change) == size_round_down(has / 2));
    little = (struct rlimit){mib(64), before.rlim_max}; /* less than is left to other files of a disk */
    setrlimit(RLIMIT_FSIZE, &little);
    refused(&c, PT_AUTO, PT_AUTO, has - margin, "(ulimit -f)");
    setrlimit(RLIMIT_FSIZE, &before);
    assert_true(disk_advised(c.change) == mib(64) && !strstr(c.e.text, "give ,"));
}

/* It is left to what comes later, such as checkpoints, and what is asked for is given all the same. */
static void what_is_kept_of_a_disk_is_taken_from_what_is_free_and_from_nothing_that_is_asked_for(void **state)
{
    (void)state;
    const uint64_t change = mib(256), margin = mib(1024), kept = mib(2048);
    uint64_t has;
    choice c = {.r.disk_path = scratch, .r.disk_reserve = kept};
    put_machine(16000, 9096);
    assert_int_equal(disk_free_bytes(scratch, &has, NULL), 0);
    if (disk_is_memory(scratch) || has < kept + 2 * margin)
        skip();
    chosen(&c, PT_AUTO, PT_AUTO, PT_AUTO);
    assert_in_range(c.budget[TIER_DISK], has - kept - margin - change, has - kept - margin + change);
    assert_non_null(strstr(c.why, "free (disk) less 3.00 GiB for checkpoints, the model and other programs: "));
    assert_true(c.budget[TIER_DEVICE] == mib(9096 - 800));
    chosen(&c, mib(4000), mib(5000), has - margin);
    assert_true(c.budget[TIER_DISK] == has - margin && c.budget[TIER_DEVICE] == mib(4000) && c.budget[TIER_HOST] == mib(5000));
    refused(&c, PT_AUTO, PT_AUTO, has + margin, "`disk_memory` is ");
    assert_in_range(c.missing, margin - change, margin + change);
    chosen(&c, PT_AUTO, PT_AUTO, 0);
    assert_int_equal(c.budget[TIER_DISK], 0);
    c.r.disk_reserve = has;
    chosen(&c, PT_AUTO, PT_AUTO, PT_AUTO);
    assert_int_equal(c.budget[TIER_DISK], 0);
    chosen(&c, PT_AUTO, PT_AUTO, has - margin);
    assert_true(c.budget[TIER_DISK] == has - margin);
}

static void a_disk_that_is_not_to_be_used_is_not_looked_at(void **state)
{
    (void)state;
    choice c = {0};
    put_machine(16000, 9000);
    chosen(&c, PT_AUTO, PT_AUTO, 0);
    assert_int_equal(c.budget[TIER_DISK], 0);
}

static void a_disk_in_ram_is_used_only_where_it_is_asked_for_and_counts_as_ram(void **state)
{
    (void)state;
    const uint64_t disk = mib(8);
    uint64_t has = 0;
    choice c = {.r.disk_path = ram_disk};
    put_machine(16000, 9096);
    if (!disk_is_memory(ram_disk) || disk_free_bytes(ram_disk, &has, NULL) || has < disk)
        skip();
    chosen(&c, PT_AUTO, PT_AUTO, PT_AUTO);
    assert_true(c.budget[TIER_DISK] == 0 && c.budget[TIER_DEVICE] == mib(9096 - 800));
    assert_true(strstr(c.noted, ram_disk) && strstr(c.noted, "`disk_path`"));
    assert_null(strstr(c.why, "disk"));
    chosen(&c, PT_AUTO, PT_AUTO, disk);
    assert_true(c.budget[TIER_DISK] == disk && c.budget[TIER_DEVICE] == mib(9096 - 800) - disk);
    assert_string_equal(c.noted, "");
    chosen(&c, mib(4000), mib(5000) - disk, disk);
    refused(&c, mib(4000), mib(5000) - disk + 1, disk, "`host_memory` 4.88 GiB, `disk_memory` 8.00 MiB, but only 8.79 GiB");
    assert_non_null(strstr(c.e.text, "pt-budgets/not/made is in RAM: give a `disk_path`"));
    assert_string_equal(c.change, "`host_memory` 4.1875GiB");
    refused(&c, PT_AUTO, PT_AUTO, UINT64_MAX - 5, "`disk_memory`");
    assert_true(disk_advised(c.change) > 0 && disk_advised(c.change) <= mib(9096 - 800));
    chosen(&c, PT_AUTO, PT_AUTO, disk_advised(c.change));
    add_gpu(&c, mib(81920), mib(80000));
    chosen(&c, PT_AUTO, PT_AUTO, disk);
    assert_true(c.budget[TIER_DEVICE] == mib(80000 - 1280) && c.budget[TIER_HOST] == mib(9096 - 800) - disk);
    chosen(&c, PT_AUTO, mib(9000) - disk, disk);
    refused(&c, PT_AUTO, mib(9000) - disk + 1, disk, "`host_memory` is 8.78 GiB, `disk_memory` 8.00 MiB, but only 8.79 GiB");
}

/* ---- the machine of a file ---- */

static void the_machine_of_a_file_leaves_the_same_margins(void **state)
{
    (void)state;
    const machine_spec x = {.cuda = true, .memory_bytes = {mib(81920), mib(256000), 1000000000000}};
    budget_request r = {{PT_AUTO, PT_AUTO, PT_AUTO}, .disk_path = "/proc/nothing/here"};
    choice c = {0};
    put_machine(256000, 256000);
    add_gpu(&c, mib(81920), mib(81920));
    chosen(&c, PT_AUTO, PT_AUTO, 0);
    uint64_t budget[TIERS];
    bool host_tier;
    char why[BUDGETS_WHY_BYTES];
    budgets_of_machine(&x, &r, budget, &host_tier, why);
    assert_true(host_tier && budget[TIER_DEVICE] == c.budget[TIER_DEVICE] && budget[TIER_HOST] == c.budget[TIER_HOST]);
    assert_true(budget[TIER_DEVICE] == mib(81920 - 1280) && budget[TIER_HOST] == mib(256000 - 12800));
    assert_true(budget[TIER_DISK] == 1000000000000 - mib(1024));
    assert_string_equal(why, "80.00 GiB in the machine file (device) less 1.25 GiB for other programs: 78.75 GiB; "
                             "250.00 GiB in the machine file (host) less 12.50 GiB for other programs: 237.50 GiB; "
                             "931.32 GiB in the machine file (disk) less 1.00 GiB for other programs: 930.32 GiB");
    r = (budget_request){{mib(1) << 40, mib(1), mib(1) << 40}, .disk_path = "/proc/nothing/here"};
    budgets_of_machine(&x, &r, budget, &host_tier, why);
    assert_true(budget[TIER_DEVICE] == mib(1) << 40 && budget[TIER_HOST] == mib(1) && budget[TIER_DISK] == mib(1) << 40);
    assert_string_equal(why, "");
}

static void a_cpu_of_a_file_has_one_memory(void **state)
{
    (void)state;
    const machine_spec x = {.memory_bytes = {mib(16000), 0, 0}};
    budget_request r = {.asked = {PT_AUTO, PT_AUTO, PT_AUTO}};
    uint64_t budget[TIERS];
    bool host_tier;
    char why[BUDGETS_WHY_BYTES];
    budgets_of_machine(&x, &r, budget, &host_tier, why);
    assert_true(!host_tier && budget[TIER_DEVICE] == mib(16000 - 800) && !budget[TIER_HOST] && !budget[TIER_DISK]);
    assert_string_equal(why, "15.62 GiB in the machine file (RAM) less 800.00 MiB for other programs: 14.84 GiB");
    r.asked[TIER_HOST] = mib(6000);
    budgets_of_machine(&x, &r, budget, &host_tier, why);
    assert_true(host_tier && budget[TIER_DEVICE] == mib(16000 - 800 - 6000) && budget[TIER_HOST] == mib(6000));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        TEST(by_default_it_is_what_is_free_less_a_margin),
        TEST(a_groups_limit_is_what_the_margin_is_taken_from),
        TEST(what_is_asked_for_is_given_as_long_as_it_is_free),
        TEST(a_gpu_has_memory_and_a_margin_of_its_own),
        TEST(a_gpu_without_memory_of_its_own_shares_ram),
        TEST(advice_leads_to_no_other_refusal),
        TEST(what_many_threads_need_is_no_part_of_the_devices_budget),
        TEST(of_a_disk_one_gibibyte_is_left),
        TEST(what_is_kept_of_a_disk_is_taken_from_what_is_free_and_from_nothing_that_is_asked_for),
        TEST(a_disk_that_is_not_to_be_used_is_not_looked_at),
        TEST(a_disk_in_ram_is_used_only_where_it_is_asked_for_and_counts_as_ram),
        TEST(the_machine_of_a_file_leaves_the_same_margins),
        TEST(a_cpu_of_a_file_has_one_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
