/* pause.h - one turn of a loop that looks again and again at what another thread writes. */
#ifndef PT_PAUSE_H
#define PT_PAUSE_H

/* 5 to 40 ns on x86-64. On ARM64 `yield` does nothing on most processors; `isb` empties the pipeline, which takes some 10 ns. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
