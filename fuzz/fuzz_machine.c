/* fuzz_machine.c - any bytes as a machine file: a machine whose figures all make sense, or a refusal with a sentence. */
#include "machine/machine_file.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_share(double x) { assert(x >= 0.01 && x <= 1); }
static void check_rate(double x) { assert(isfinite(x) && x >= 1e6); }

static void machine_check(const machine_spec *x)
{
    bool host = x->memory_bytes[TIER_HOST] > 0, disk = x->memory_bytes[TIER_DISK] > 0;
    assert(x->name[0] && memchr(x->name, 0, sizeof x->name));
    assert(x->memory_bytes[TIER_DEVICE] > 0 && x->ranks >= 1 && x->ranks <= MACHINE_MAX_RANKS);
    check_rate(x->bf16_flops);
    check_rate(x->fp32_flops);
    check_share(x->matmul_efficiency);
    for (int t = TIER_DEVICE; t <= (host ? TIER_HOST : TIER_DEVICE); t++) {
        check_rate(x->memory_bandwidth[t]);
        check_share(x->memory_efficiency[t]);
    }
    if (host) {
        check_rate(x->to_device_bandwidth);
        check_rate(x->from_device_bandwidth);
        check_share(x->link_both_ways);
    }
    if (disk) {
        check_rate(x->read_bandwidth);
        check_rate(x->write_bandwidth);
        check_share(x->disk_both_ways);
    }
    if (x->ranks > 1)
        check_rate(x->collective_bandwidth);
    assert(x->kernel_s >= 0 && x->link_latency_s >= 0 && x->disk_latency_s >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    pt_error e = {0};
    machine_spec x;
    if (machine_from_json("fuzz/machine.json", (const char *)data, n, &x, &e)) {
        assert(e.code == PT_FAILED && !strncmp(e.text, "fuzz/machine.json", 17) && strlen(e.text) > 24);
        return 0;
    }
    machine_check(&x);
    return 0;
}
