/* isa_x86.c - detects the instruction sets of an x86-64 processor, once. */
#include "device/cpu/isa.h"

#include "base/processor.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* __builtin_cpu_supports also checks that the system saves the registers. */
static int isa_supported(void)
{
    __builtin_cpu_init();
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
              __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt") &&
              __builtin_cpu_supports("movbe");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    return v4 ? 4 : v3 ? 3 : 2;
}

/* 2, 3 or 4; 0: an unknown name. */
static int level_of(const char *name)
{
    return name[0] == 'v' && name[1] >= '2' && name[1] <= '4' && !name[2] ? name[1] - '0' : 0;
}

int cpu_isa_choose(void)
{
    int best = isa_supported();
    const char *wanted = getenv("PROTRAIN_ISA");
    int level = wanted ? level_of(wanted) : 0;
    return level && level < best ? level : best;
}

int cpu_isa_check(pt_error *e)
{
    const char *wanted = getenv("PROTRAIN_ISA");
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt"))
        return pt_fail(e, PT_FAILED,
                       "this processor lacks SSE4.2 or POPCNT (x86-64-v2), which protrain needs; on a virtual machine, set the CPU model "
                       "to that of the host");
    if (wanted && *wanted && !level_of(wanted))
        return pt_fail(e, PT_FAILED, "PROTRAIN_ISA is \"%.40s\", but it must be v2, v3 or v4", wanted);
    return 0;
}

const char *cpu_isa_name(void)
{
    static const char *const names[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
    return names[cpu_isa() - 2];
}

bool cpu_has_bf16(void)
{
    return cpu_isa() == 4 && __builtin_cpu_supports("avx512bf16");
}

bool cpu_gains_by_bf16(void)
{
    return cpu_has_bf16() && !__builtin_cpu_is("intel");
}

static int64_t cache_bytes(void)
{
    const uint64_t most = 64 << 20, bytes = processor_cache_bytes("");
    return (int64_t)(bytes && bytes < most ? bytes : most);
}

bool cpu_exceeds_cache(int64_t bytes)
{
    static atomic_llong known; /* 0: not yet; detection is slow in a virtual machine */
    long long cache = atomic_load_explicit(&known, memory_order_relaxed);
    if (!cache) {
        cache = cache_bytes();
        atomic_store_explicit(&known, cache, memory_order_relaxed);
    }
    return bytes > cache;
}

/* Linux lets a process use tiles only after this request. */
static bool tiles_permitted(void)
{
    enum { REQUEST_PERMISSION = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 /* XFEATURE_XTILE_DATA */ };
    return !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
}

bool cpu_has_amx(void)
{
    static atomic_int known; /* 0: not yet, 1: no, 2: yes; racing threads find the same */
    int found = atomic_load_explicit(&known, memory_order_relaxed);
    if (!found) {
        bool there = cpu_has_bf16() && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16");
        found = there && tiles_permitted() ? 2 : 1;
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return found == 2;
}
