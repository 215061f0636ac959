#include "device/cpu/isa.h"

#include <stdatomic.h>

int cpu_isa(void)
{
    static atomic_int chosen; /* 0: not yet; racing threads find the same */
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!isa) {
        isa = cpu_isa_choose();
        atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    }
    return isa;
}
