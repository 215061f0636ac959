/* What is found of a machine, from made-up files of /proc and /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sanitized.h"
#include "base/pages.h"
#include "base/processor.h"
#include "base/rng.h"

#include "io/scratch.h"
#include "profile/root.h"
#include "seed.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static uint64_t seed;

static void without_groups_memory_is_the_machines(void **state)
{
    (void)state;
    put_machine(16000, 9000);
    machine m = probe();
    assert_string_equal(m.processor, "Some Processor 9000");
    assert_string_equal(m.memory_limit, "RAM");
    assert_true(m.cores >= 1 && m.memory_bytes == mib(16000) && m.memory_free_bytes == mib(9000) && m.memory_used_bytes == mib(7000));
}

static void cores_of_arm64_have_names(void **state)
{
    static const struct { const char *cpuinfo, *name; } cases[] = {
        {"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\nCPU revision\t: 1\n", "Neoverse-N1"},
        {"CPU implementer : 0x41\nCPU part : 0xd87\n\nCPU part : 0xd85\n\nCPU part : 0xd87\n", "Cortex-A725 + Cortex-X925"},
        {"CPU implementer : 0x61\nCPU part : 0x32\n", "Apple part 0x32"},
        {"CPU implementer : 0x99\nCPU part : 0xabc\n", "ARM64 processor part 0xabc"},
        {"CPU part :\n", "ARM64 processor part 0"},
        {"", "unknown processor"}};
    (void)state;
    put_machine(16000, 9000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("/proc/cpuinfo", "%s", cases[i].cpuinfo);
        assert_string_equal(probe().processor, cases[i].name);
    }
}

static void the_largest_listed_cache_counts(void **state)
{
    (void)state;
    assert_int_equal(processor_cache_bytes(scratch), 0);
    put("/sys/devices/system/cpu/cpu0/cache/index0/size", "64K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index1/size", "1024K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index2/size", "32M\n");
    put("/sys/devices/system/cpu/cpu0/cache/index4/size", "64M\n"); /* behind a gap */
    assert_int_equal(processor_cache_bytes(scratch), 32 << 20);
}

static void huge_pages_are_of_use_up_to_64_mib(void **state)
{
    (void)state;
    assert_int_equal(huge_page_bytes(4096), 2 << 20);
    assert_int_equal(huge_page_bytes(16384), 32 << 20);
    assert_int_equal(huge_page_bytes(65536), 65536);
}

static void the_tightest_group_of_version_2_limits(void **state)
{
    (void)state;
    put_machine(16000, 9000);
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "%llu\n", (unsigned long long)mib(4000));
    put("/sys/fs/cgroup/a/memory.current", "%llu\n", (unsigned long long)mib(3000));
    put("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file %llu\n", (unsigned long long)mib(2500));
    put("/sys/fs/cgroup/a/b/memory.max", "%llu\n", (unsigned long long)mib(5000));
    put("/sys/fs/cgroup/a/b/memory.current", "%llu\n", (unsigned long long)mib(100));
    machine m = probe();
    assert_true(m.memory_bytes == mib(4000) && m.memory_used_bytes == mib(500) && m.memory_free_bytes == mib(3500));
    assert_non_null(strstr(m.memory_limit, "memory.max"));
}

/* Others of the group above have taken most of it. */
static void a_wider_group_that_is_nearly_full_limits_too(void **state)
{
    (void)state;
    put_machine(16000, 9000);
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/memory.max", "%llu\n", (unsigned long long)mib(5000));
    put("/sys/fs/cgroup/a/memory.current", "%llu\n", (unsigned long long)mib(4900));
    put("/sys/fs/cgroup/a/b/memory.max", "%llu\n", (unsigned long long)mib(4000));
    put("/sys/fs/cgroup/a/b/memory.current", "%llu\n", (unsigned long long)mib(200));
    machine m = probe();
    assert_true(m.memory_bytes == mib(4000) && m.memory_free_bytes == mib(100));
    assert_non_null(strstr(m.memory_limit, "/a/memory.max"));
}

static void a_group_of_version_1_limits(void **state)
{
    (void)state;
    put_machine(16000, 9000);
    put("/proc/self/cgroup", "7:cpu:/x\n4:memory:/c\n0::/\n");
    put("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "%llu\n", (unsigned long long)mib(2000));
    put("/sys/fs/cgroup/memory/c/memory.usage_in_bytes", "%llu\n", (unsigned long long)mib(1500));
    put("/sys/fs/cgroup/memory/c/memory.stat", "inactive_file 1\ntotal_inactive_file %llu\n", (unsigned long long)mib(300));
    machine m = probe();
    assert_true(m.memory_bytes == mib(2000) && m.memory_free_bytes == mib(800));
}

/* What files were read twice is kept longer, and is given back all the same; the rest is not. */
static void all_pages_of_files_count_as_free(void **state)
{
    (void)state;
    put_machine(16000, 15000);
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "%llu\n", (unsigned long long)mib(4000));
    put("/sys/fs/cgroup/a/memory.current", "%llu\n", (unsigned long long)mib(3000));
    put("/sys/fs/cgroup/a/memory.stat", "anon 7\nactive_anon 11\ninactive_file %llu\nactive_file %llu\nunevictable 5\n",
        (unsigned long long)mib(900), (unsigned long long)mib(1500));
    machine m = probe();
    assert_true(m.memory_used_bytes == mib(600) && m.memory_free_bytes == mib(3400));
    put("/sys/fs/cgroup/a/memory.stat", "active_file %llu\ninactive_file %llu\n", (unsigned long long)mib(2500),
        (unsigned long long)mib(2500));
    m = probe();
    assert_true(m.memory_used_bytes == 0 && m.memory_free_bytes == mib(4000));
    put("/proc/self/cgroup", "4:memory:/c\n0::/\n");
    put("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "%llu\n", (unsigned long long)mib(2000));
    put("/sys/fs/cgroup/memory/c/memory.usage_in_bytes", "%llu\n", (unsigned long long)mib(1500));
    put("/sys/fs/cgroup/memory/c/memory.stat", "inactive_file 1\nactive_file 1\ntotal_inactive_file %llu\ntotal_active_file %llu\n",
        (unsigned long long)mib(300), (unsigned long long)mib(700));
    m = probe();
    assert_true(m.memory_bytes == mib(2000) && m.memory_used_bytes == mib(500) && m.memory_free_bytes == mib(1500));
}

static void a_group_with_more_than_the_machine_does_not_limit(void **state)
{
    (void)state;
    put_machine(16000, 9000);
    put("/proc/self/cgroup", "0::/big\n");
    put("/sys/fs/cgroup/big/memory.max", "9223372036854771712\n");
    put("/sys/fs/cgroup/big/memory.current", "1\n");
    machine m = probe();
    assert_true(m.memory_bytes == mib(16000) && m.memory_free_bytes == mib(9000));
    assert_string_equal(m.memory_limit, "RAM");
}

static void the_lower_of_high_and_max_limits(void **state)
{
    (void)state;
    put_machine(16000, 9000);
    put("/proc/self/cgroup", "0::/h\n");
    put("/sys/fs/cgroup/h/memory.max", "%llu\n", (unsigned long long)mib(4000));
    put("/sys/fs/cgroup/h/memory.high", "%llu\n", (unsigned long long)mib(3000));
    put("/sys/fs/cgroup/h/memory.current", "%llu\n", (unsigned long long)mib(500));
    machine m = probe();
    assert_true(m.memory_bytes == mib(3000) && m.memory_used_bytes == mib(500) && m.memory_free_bytes == mib(2500));
    assert_non_null(strstr(m.memory_limit, "/h/memory.high"));
    put("/sys/fs/cgroup/h/memory.high", "max\n");
    m = probe();
    assert_true(m.memory_bytes == mib(4000) && m.memory_free_bytes == mib(3500));
    assert_non_null(strstr(m.memory_limit, "/h/memory.max"));
}

static void assert_processors(int cores, double quota)
{
    machine m = probe();
    assert_int_equal(m.cores, cores);
    assert_true(fabs(m.quota - quota) <= 1e-9);
}

static void threads_are_a_quota_of_processors_rounded_up(void **state)
{
    (void)state;
    put_machine(16000, 9000);
    const int all = probe().cores, fewer = all > 1 ? all - 1 : 1;
    put("/proc/self/cgroup", "0::/q/r\n");
    put("/sys/fs/cgroup/q/r/cpu.max", "max 100000\n");
    assert_processors(all, 0);
    put("/sys/fs/cgroup/q/cpu.max", "%d 100000\n", all * 100000);
    assert_processors(all, 0); /* as many as there are is no limit */
    put("/sys/fs/cgroup/q/cpu.max", "1000 100000\n");
    assert_processors(1, 0.01);
    put("/sys/fs/cgroup/q/cpu.max", "%d 100000\n", all * 100000 - 50000);
    assert_processors(all, all - 0.5);
    put("/sys/fs/cgroup/q/r/cpu.max", "%d 100000\n", all * 100000 - 25000); /* the group above has less */
    assert_processors(all, all - 0.5);
    put("/sys/fs/cgroup/q/cpu.max", "%d 100000\n", fewer * 100000);
    put("/sys/fs/cgroup/q/r/cpu.max", "max 100000\n");
    assert_processors(fewer, fewer < all ? fewer : 0);
    put("/proc/self/cgroup", "3:cpuset:/t\n2:cpu,cpuacct:/s\n");
    put("/sys/fs/cgroup/cpu/s/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/s/cpu.cfs_period_us", "100000\n");
    assert_processors(all, 0);
    put("/sys/fs/cgroup/cpu/s/cpu.cfs_quota_us", "50000\n");
    assert_processors(1, 0.5);
}

/* What a child finds that has such a limit. */
static machine probe_limited(int resource, uint64_t bytes)
{
    int ends[2], status;
    machine m;
    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct rlimit r = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
        if (setrlimit(resource, &r) || machine_probe_at(scratch, &m, NULL))
            _exit(2);
        _exit(write(ends[1], &m, sizeof m) != (ssize_t)sizeof m);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &m, sizeof m), sizeof m);
    close(ends[0]);
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    return m;
}

static void the_process_own_limit_counts(void **state)
{
    (void)state;
    NOT_SANITIZED(); /* a sanitizer's own mappings do not fit into the limit */
    put_machine(16000, 9000);
    machine m = probe_limited(RLIMIT_DATA, mib(300));
    assert_true(m.memory_free_bytes == mib(300) - 512 * 1024);
    assert_string_equal(m.memory_limit, "ulimit -d");
    assert_true(m.own_limit && machine_memory_margin(&m) == mib(128)); /* no other program takes of it */
}

/* In a small container a fixed margin would leave nothing. */
static void the_margin_of_little_memory_is_a_share_of_it(void **state)
{
    (void)state;
    static const struct { double total; bool own; double margin; } cases[] = {
        {150, false, 96}, {384, false, 96}, {420, false, 105}, {1000, false, 250}, {2048, false, 512}, {8192, false, 512},
        {16000, false, 800}, {150, true, 128}, {2048, true, 128}, {16000, true, 800}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const machine m = {.memory_bytes = mib(cases[i].total), .own_limit = cases[i].own};
        assert_int_equal(machine_memory_margin(&m), mib(cases[i].margin));
    }
}

/* Also where other programs leave less free than the limit allows. */
static void the_margin_is_a_share_of_the_process_own_limit(void **state)
{
    (void)state;
    NOT_SANITIZED(); /* a sanitizer's own mappings do not fit into the limit */
    put_machine(160000, 90000);
    machine m = probe_limited(RLIMIT_AS, mib(40000));
    assert_true(m.memory_bytes == mib(40000) && m.memory_used_bytes == mib(1) && m.memory_free_bytes == mib(39999));
    assert_string_equal(m.memory_limit, "ulimit -v");
    assert_int_equal(machine_memory_margin(&m), mib(2000));
    put_machine(160000, 9000);
    m = probe_limited(RLIMIT_AS, mib(40000));
    assert_true(m.memory_bytes == mib(40000) && m.memory_free_bytes == mib(9000));
    assert_string_equal(m.memory_limit, "RAM");
    assert_int_equal(machine_memory_margin(&m), mib(2000));
    m = probe_limited(RLIMIT_AS, mib(200000));
    assert_true(m.memory_bytes == mib(160000) && m.memory_free_bytes == mib(9000));
    assert_int_equal(machine_memory_margin(&m), mib(8000));
}

static void put_nodes(uint64_t free0, uint64_t free1)
{
    put("/sys/devices/system/node/has_memory", "0-1\n");
    for (int i = 0; i < 2; i++) {
        char path[80];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", i);
        put(path, "Node %d MemTotal:  %llu kB\nNode %d MemFree:   %llu kB\nNode %d Active(file): 1024 kB\nNode %d Inactive(file): 2048 "
                  "kB\n",
            i, (unsigned long long)8000 * 1024, i, (unsigned long long)(i ? free1 : free0) * 1024, i, i);
    }
}

static void put_allowed(const char *nodes)
{
    put("/proc/self/status", "VmSize:\t1024 kB\nMems_allowed:\t3\nMems_allowed_list:\t%s\nVmData:\t512 kB\n", nodes);
}

static void memory_nodes_that_a_cpuset_leaves_out_do_not_count(void **state)
{
    (void)state;
    put_machine(16000, 15000);
    put_nodes(3000, 7000);
    put_allowed("0-1");
    machine m = probe();
    assert_true(m.memory_bytes == mib(16000) && m.memory_free_bytes == mib(15000));
    assert_string_equal(m.memory_limit, "RAM");
    put_allowed("0");
    m = probe();
    assert_true(m.memory_bytes == mib(8000) && m.memory_used_bytes == mib(4997) && m.memory_free_bytes == mib(3003));
    assert_string_equal(m.memory_limit, "memory nodes 0");
    put_allowed("1-7");
    m = probe();
    assert_true(m.memory_bytes == mib(8000) && m.memory_free_bytes == mib(7003));
    assert_string_equal(m.memory_limit, "memory nodes 1");
}

/* numactl -m 0. A policy binds this process, so a child of it is bound. */
/* GH200: the GPU's memory is a node, and /proc/meminfo counts it. */
static void memory_nodes_without_processors_do_not_count(void **state)
{
    (void)state;
    put_machine(16000, 15000);
    put_nodes(3000, 7000);
    put_allowed("0-1");
    put("/sys/devices/system/node/has_cpu", "0\n");
    machine m = probe();
    assert_true(m.memory_bytes == mib(8000) && m.memory_free_bytes == mib(3003));
    assert_string_equal(m.memory_limit, "memory nodes 0");
    put("/sys/devices/system/node/has_cpu", "0-1\n");
    m = probe();
    assert_true(m.memory_bytes == mib(16000) && m.memory_free_bytes == mib(15000));
}

static void memory_nodes_to_which_a_policy_does_not_bind_do_not_count(void **state)
{
    (void)state;
    enum { BIND = 2 };
    unsigned long long node0 = 1;
    int status;
    put_machine(16000, 15000);
    put_nodes(3000, 7000);
    put_allowed("0-1");
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        machine m;
        if (syscall(SYS_set_mempolicy, BIND, &node0, 64ul))
            _exit(3); /* a kernel without memory policies, or a sandbox */
        _exit(machine_probe_at(scratch, &m, NULL) || m.memory_free_bytes != mib(3003));
    }
    assert_true(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        skip();
    assert_int_equal(status, 0);
}

static void where_nothing_is_overcommitted_what_may_be_mapped_counts(void **state)
{
    (void)state;
    put_machine(16000, 9000);
    put("/proc/meminfo", "MemTotal: %llu kB\nMemAvailable: %llu kB\nCommitLimit: %llu kB\nCommitted_AS: %llu kB\n", 16000ull * 1024,
        9000ull * 1024, 8000ull * 1024, 3000ull * 1024);
    put("/proc/sys/vm/overcommit_memory", "0\n");
    machine m = probe();
    assert_true(m.memory_bytes == mib(16000) && m.memory_free_bytes == mib(9000));
    put("/proc/sys/vm/overcommit_memory", "2\n");
    m = probe();
    assert_true(m.memory_bytes == mib(8000) && m.memory_used_bytes == mib(3000) && m.memory_free_bytes == mib(5000));
    assert_string_equal(m.memory_limit, "vm.overcommit_memory=2");
}

static void without_meminfo_the_option_is_named(void **state)
{
    (void)state;
    machine m;
    pt_error e = {0};
    assert_int_equal(machine_probe_at("/nothing/here", &m, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "`device_memory`"));
}

static void odd_files_do_no_harm(void **state)
{
    (void)state;
    static const char *const words[] = {"", "max", "-1", "99999999999999999999999", "x", "0", ":::", "0::", "0::/../../..", "\n\n"};
    enum { WORDS = sizeof words / sizeof *words };
    for (uint64_t round = 0; round < 200; round++) {
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 1, round, w);
        put_machine(1 + w[0] % 5000, w[1] % 5000);
        put("/proc/self/cgroup", "%s\n0::/g\n%s", words[w[2] % WORDS], words[w[3] % WORDS]);
        rng_words(seed, RNG_TEST, 2, round, w);
        put("/sys/fs/cgroup/g/memory.max", "%s", words[w[0] % WORDS]);
        put("/sys/fs/cgroup/g/memory.current", "%s", words[w[1] % WORDS]);
        put("/sys/fs/cgroup/g/memory.stat", "inactive_file %s\n", words[w[2] % WORDS]);
        put("/sys/devices/system/node/has_memory", "%s", words[w[3] % WORDS]);
        put_allowed(words[w[3] / WORDS % WORDS]);
        machine m = probe();
        assert_true(m.memory_bytes <= mib(5000) && m.memory_free_bytes <= mib(5000));
    }
}

static void this_machine_is_found(void **state)
{
    (void)state;
    machine m;
    pt_error e = {0};
    assert_int_equal(machine_probe(&m, &e), 0);
    assert_true(m.cores >= 1 && m.memory_bytes > 0 && m.memory_free_bytes <= m.memory_bytes && m.processor[0] && m.memory_limit[0]);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cores_of_arm64_have_names, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(the_largest_listed_cache_counts, scratch_make, scratch_remove),
        cmocka_unit_test(huge_pages_are_of_use_up_to_64_mib),
        cmocka_unit_test_setup_teardown(without_groups_memory_is_the_machines, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(the_tightest_group_of_version_2_limits, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_wider_group_that_is_nearly_full_limits_too, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_group_of_version_1_limits, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(all_pages_of_files_count_as_free, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_group_with_more_than_the_machine_does_not_limit, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(the_lower_of_high_and_max_limits, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(threads_are_a_quota_of_processors_rounded_up, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(the_process_own_limit_counts, scratch_make, scratch_remove),
        cmocka_unit_test(the_margin_of_little_memory_is_a_share_of_it),
        cmocka_unit_test_setup_teardown(the_margin_is_a_share_of_the_process_own_limit, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(memory_nodes_that_a_cpuset_leaves_out_do_not_count, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(memory_nodes_without_processors_do_not_count, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(memory_nodes_to_which_a_policy_does_not_bind_do_not_count, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(where_nothing_is_overcommitted_what_may_be_mapped_counts, scratch_make, scratch_remove),
        cmocka_unit_test(without_meminfo_the_option_is_named),
        cmocka_unit_test_setup_teardown(odd_files_do_no_harm, scratch_make, scratch_remove),
        cmocka_unit_test(this_machine_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
