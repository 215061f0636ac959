/* shim.cpp - blocks, fibres and barriers of the stand-in for CUDA; what it is for stands in shim.h.
 *
 *     stacks     | fibre 0 | fibre 1 | ... | fibre 1023 |     STACK_BYTES each, mapped once
 *
 * A fibre that waits gives the processor back to the scheduler, which is the caller of shim_launch(). A barrier
 * counts who has come; the last one lets all go on, itself at once.
 */
#include "shim.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

shim_index threadIdx, blockIdx, blockDim;

/* Stacks whose tops lie a power of two apart would fight for the same lines of the caches. */
enum { THREADS = 1024, WARP = 32, STACK_BYTES = (64 << 10) + 320 };

struct barrier { unsigned size, here, left; uint64_t passed; };

enum : unsigned { NOBODY = ~0u };

/* What the lanes of a warp give each other; the next exchange uses the other half, so one barrier is enough. */
struct warp_mail { uint64_t bits[2][WARP]; };

struct fibre {
    void *stack_pointer;
    void *asan_stack;
    barrier *waits; /* NULL: may run */
    uint64_t until; /* runs again when waits->passed reaches it */
    unsigned exchanges;
    bool done;
};

static struct shim {
    fibre fibres[THREADS];
    barrier warps[THREADS / WARP], block;
    warp_mail mail[THREADS / WARP];
    char *stacks;
    void *scheduler;
    void *scheduler_asan;
    const void *scheduler_bottom; /* of the stack that the scheduler runs on */
    size_t scheduler_bytes;
    const std::function<void()> *kernel;
    unsigned current, done;
    int order;
    uint64_t random;
} the;

[[noreturn]] static void stop(const char *what)
{
    fprintf(stderr, "CUDA shim: %s (block %u, thread %u)\n", what, blockIdx.x, threadIdx.x);
    abort();
}

/* ---- switching ---- */

/* Keeps the callee's registers on the stack, leaves its address in *from, and goes on where `to` was left. */
extern "C" void shim_switch(void **from, void *to);
asm(R"(
.text
.globl shim_switch
.hidden shim_switch
.type shim_switch, @function
shim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size shim_switch, . - shim_switch
)");

static char *stack_of(unsigned i) { return the.stacks + (size_t)i * STACK_BYTES; }

static void to_scheduler(fibre *f)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&f->asan_stack, the.scheduler_bottom, the.scheduler_bytes);
#endif
    shim_switch(&f->stack_pointer, the.scheduler);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(f->asan_stack, &the.scheduler_bottom, &the.scheduler_bytes);
#endif
}

static void to_fibre(unsigned i)
{
    the.current = i;
    threadIdx.x = i;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&the.scheduler_asan, stack_of(i), STACK_BYTES);
#endif
    shim_switch(&the.scheduler, the.fibres[i].stack_pointer);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(the.scheduler_asan, NULL, NULL);
#endif
}

/* A fibre never returns: it runs a thread of one block after the other. */
static void fibre_main()
{
    unsigned i = the.current;
    fibre *f = &the.fibres[i];
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, &the.scheduler_bottom, &the.scheduler_bytes);
#endif
    for (;;) {
        (*the.kernel)();
        barrier *of[] = {&the.warps[i / WARP], &the.block};
        for (barrier *b : of) {
            b->left++;
            if (b->here)
                stop("this thread ended while others wait for it at a barrier");
        }
        f->done = true;
        to_scheduler(f);
    }
}

static void fibre_begin(unsigned i)
{
    fibre *f = &the.fibres[i];
    f->waits = NULL;
    f->exchanges = 0;
    f->done = false;
    if (f->stack_pointer)
        return;
    void **top = (void **)(stack_of(i) + STACK_BYTES);
    *--top = NULL; /* where a call would have left its return address: the stack is aligned as after one */
    *--top = (void *)fibre_main;
    for (int k = 0; k < 6; k++)
        *--top = NULL;
    f->stack_pointer = top;
}

/* ---- barriers ---- */

static void barrier_wait(barrier *b)
{
    fibre *f = &the.fibres[the.current];
    if (b->left)
        stop("this thread waits at a barrier that another has ended without reaching");
    uint64_t until = b->passed + 1;
    if (++b->here == b->size) {
        b->here = 0;
        b->passed = until;
        return;
    }
    f->waits = b;
    f->until = until;
    to_scheduler(f);
}

void __syncthreads() { barrier_wait(&the.block); }

static uint64_t *mail_post(uint64_t bits)
{
    unsigned i = the.current;
    uint64_t *half = the.mail[i / WARP].bits[the.fibres[i].exchanges++ % 2];
    half[i % WARP] = bits;
    barrier_wait(&the.warps[i / WARP]);
    return half;
}

uint64_t shim_exchange(uint64_t bits, int distance)
{
    unsigned lane = the.current % WARP;
    return mail_post(bits)[lane ^ (unsigned)distance];
}

const uint64_t *shim_gather(uint64_t bits) { return mail_post(bits); }

unsigned __ballot_sync(unsigned, bool vote)
{
    const uint64_t *votes = mail_post(vote);
    unsigned word = 0;
    for (unsigned lane = 0; lane < WARP; lane++)
        word |= (unsigned)votes[lane] << lane;
    return word;
}

/* ---- launching ---- */

void shim_order_set(int order)
{
    the.order = order;
    the.random = (uint64_t)order * 0x9e3779b97f4a7c15u;
}

bool shim_has_warpgroups() { return getenv("PROTRAIN_SHIM_WARPGROUPS") != nullptr; }

static unsigned random_below(unsigned n)
{
    the.random = the.random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((the.random >> 33) % n);
}

static unsigned common_divisor(unsigned a, unsigned b) { return b ? common_divisor(b, a % b) : a; }

/* Places 0 .. n - 1 in the order that is set: `at`, then on by `stride`, modulo n. */
struct walk { unsigned n, at, stride; };
static walk walk_of(unsigned n)
{
    if (the.order <= 1)
        return {n, 0, 1};
    if (the.order == 2)
        return {n, n - 1, n - 1};
    walk w = {n, random_below(n), 1 + random_below(n)};
    while (common_divisor(w.stride, n) != 1)
        w.stride++;
    w.stride %= n;
    return w;
}
static unsigned walk_next(walk *w)
{
    unsigned at = w->at;
    w->at = at >= w->n - w->stride ? at - (w->n - w->stride) : at + w->stride;
    return at;
}

/* One turn for every fibre that may run, but for those of the warp `asleep`; how many ran. */
static unsigned block_turn(unsigned threads, unsigned asleep)
{
    walk w = walk_of(threads);
    unsigned ran = 0;
    for (unsigned k = 0; k < threads; k++) {
        unsigned i = walk_next(&w);
        fibre *f = &the.fibres[i];
        if (f->done || i / WARP == asleep || (f->waits && f->waits->passed < f->until))
            continue;
        f->waits = NULL;
        to_fibre(i);
        the.done += f->done;
        ran++;
    }
    return ran;
}

static void block_run(unsigned threads)
{
    the.block = {threads, 0, 0, 0};
    for (unsigned w = 0; w < threads / WARP; w++)
        the.warps[w] = {WARP, 0, 0, 0};
    for (unsigned i = 0; i < threads; i++)
        fibre_begin(i);
    the.done = 0;
    unsigned asleep = NOBODY;
    while (the.done < threads) {
        unsigned ran = block_turn(threads, asleep);
        if (!ran && asleep == NOBODY)
            stop("every thread waits");
        if (the.order > 2) /* one warp sleeps until no other can go on */
            asleep = !ran ? NOBODY : asleep == NOBODY ? random_below(threads / WARP) : asleep;
    }
}

/* Who puts kernels into streams: runtime.c, where it is there. */
extern "C" {
void (*shim_enqueue)(cudaStream_t s, void (*run)(void *arg), void *arg);
}

static void stacks_open()
{
    if (the.stacks)
        return;
    void *map = mmap(NULL, (size_t)THREADS * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        stop("no memory for stacks");
    the.stacks = (char *)map;
}

/* One at a time: blocks and fibres exist once. */
static void grid_run(unsigned blocks, unsigned threads, const std::function<void()> &kernel)
{
    static std::mutex one;
    std::lock_guard<std::mutex> held(one);
    stacks_open();
    the.kernel = &kernel;
    blockDim.x = threads;
    walk w = walk_of(blocks);
    for (unsigned k = 0; k < blocks; k++) {
        blockIdx.x = walk_next(&w);
        block_run(threads);
    }
}

static int put(cudaStream_t s, const std::function<void()> &work)
{
    if (!s || !shim_enqueue) {
        work();
        return cudaSuccess;
    }
    auto run = [](void *arg) {
        auto *all = (std::function<void()> *)arg;
        (*all)();
        delete all;
    };
    shim_enqueue(s, run, new std::function<void()>(work));
    return cudaSuccess;
}

int shim_launch(cudaStream_t s, unsigned blocks, unsigned threads, const std::function<void()> &kernel)
{
    if (!blocks || !threads || threads > THREADS || threads % WARP)
        return cudaErrorInvalidConfiguration;
    return put(s, [=] { grid_run(blocks, threads, kernel); });
}

int shim_memset(cudaStream_t s, void *p, int value, size_t bytes)
{
    return put(s, [=] { memset(p, value, bytes); });
}
