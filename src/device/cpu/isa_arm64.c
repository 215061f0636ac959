/* isa_arm64.c - detects the instruction sets of an ARM64 processor, once. Every one has NEON. */
#include "device/cpu/isa.h"

#include <asm/hwcap.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

enum { NEON = 1, NEON_BF16 };

int cpu_isa_choose(void)
{
    const char *wanted = getenv("PROTRAIN_ISA");
    const bool bf16 = getauxval(AT_HWCAP2) & HWCAP2_BF16;
    return bf16 && !(wanted && !strcmp(wanted, "neon")) ? NEON_BF16 : NEON;
}

int cpu_isa_check(pt_error *e)
{
    const char *wanted = getenv("PROTRAIN_ISA");
    if (wanted && *wanted && strcmp(wanted, "neon") != 0 && strcmp(wanted, "neonbf16") != 0)
        return pt_fail(e, PT_FAILED, "PROTRAIN_ISA is \"%.40s\", but on ARM64 it must be neon or neonbf16", wanted);
    return 0;
}

const char *cpu_isa_name(void) { return "arm64 neon"; }
bool cpu_has_bf16(void) { return cpu_isa() == NEON_BF16; }

/* The system emulates the instruction for programs. */
static unsigned implementer(void)
{
    unsigned long midr = 0;
    if (getauxval(AT_HWCAP) & HWCAP_CPUID)
        __asm__("mrs %0, midr_el1" : "=r"(midr));
    return (unsigned)(midr >> 24 & 0xff);
}

bool cpu_gains_by_bf16(void)
{
    enum { APPLE = 0x61 };
    static atomic_int known; /* 0: not yet, 1: no, 2: yes */
    int gains = atomic_load_explicit(&known, memory_order_relaxed);
    if (!gains) {
        gains = cpu_has_bf16() && implementer() != APPLE ? 2 : 1;
        atomic_store_explicit(&known, gains, memory_order_relaxed);
    }
    return gains == 2;
}

bool cpu_has_amx(void) { return false; }
bool cpu_exceeds_cache(int64_t bytes) { return false; }
