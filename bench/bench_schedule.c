/* bench_schedule.c - how long it takes to build, to check and to simulate one schedule.
 *
 *     bench_schedule [layers [micro-batches [chunk MiB]]]          100 8 64
 *
 * Llama-3 shapes (width 8192, vocabulary 128256), sequences of 2048. Processor time of this thread, best of five, so
 * that a shared machine is fair. A search builds some hundreds of schedules.
 */
#include "schedule/check.h"
#include "predict/simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TIMES = 5, SPARE_BUFFERS = 2 };

typedef struct layout_case { const char *name; tier first, middle, last, place; update_time update; } layout_case;

static const layout_case cases[] = {
    {"all on the device, updates in backward", TIER_DEVICE, TIER_DEVICE, TIER_DEVICE, TIER_DEVICE, UPDATE_BACKWARD},
    {"chunks on the host", TIER_HOST, TIER_HOST, TIER_HOST, TIER_DEVICE, UPDATE_NEXT_FORWARD},
    {"chunks on the disk", TIER_DISK, TIER_DISK, TIER_DISK, TIER_DEVICE, UPDATE_NEXT_FORWARD},
    {"chunks on all tiers", TIER_DEVICE, TIER_HOST, TIER_DISK, TIER_DEVICE, UPDATE_NEXT_FORWARD},
    {"the same, saved sets on the host", TIER_DEVICE, TIER_HOST, TIER_DISK, TIER_HOST, UPDATE_NEXT_FORWARD},
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int must(int failed, const pt_error *e)
{
    if (failed) {
        fprintf(stderr, "%s\n", e->text);
        exit(1);
    }
    return failed;
}

/* The most chunks that one block reads, and some to fetch ahead. */
static int buffers_for(const model *m, const packing *k)
{
    int most = 0;
    unsigned char needed[PLAN_MAX_SLOTS];
    for (int block = 0, n = 0; block < m->blocks_n && k->chunks_n <= PLAN_MAX_SLOTS; block++, n = 0) {
        block_chunks(m, k, block, needed);
        for (int i = 0; i < k->chunks_n; i++)
            n += needed[i];
        most = n > most ? n : most;
    }
    return most + SPARE_BUFFERS;
}

static void fill(plan *p, const layout_case *c, int visit)
{
    p->micro_batch = 1;
    p->visit = visit;
    p->update = c->update;
    p->n_update = 2;
    p->n_swap = 4;
    for (int i = 0; i < p->chunks_n; i++) {
        tier placement = 3 * i < p->chunks_n ? c->first : 3 * i < 2 * p->chunks_n ? c->middle : c->last;
        p->chunks[i] = (plan_chunk){.placement = placement, .update = placement == TIER_DEVICE ? TIER_DEVICE : TIER_HOST};
    }
    for (int i = 0; i < p->blocks_n; i++)
        p->blocks[i] = (plan_block){(save_level)(i % SAVE_LEVELS), c->place};
}

/* Round numbers in which everything overlaps and slows its neighbours down. */
static costs some_costs(void)
{
    costs c;
    const cost_curve ns = {2, {1e6, 2e6}, {1e5, 2e5}};
    costs_init(&c);
    for (int level = 0; level < SAVE_LEVELS; level++)
        c.layer[0].forward_ns[level] = 1e7, c.layer[0].backward_ns[level] = 3e7;
    c.embed_ns = 1e6;
    c.head_ns = 5e7;
    c.finish = c.embed_finish = c.update_device = c.update_host = c.to_device = c.from_device = c.read = c.write = ns;
    for (int a = 0; a < COST_CLASSES; a++)
        for (int b = 0; b < COST_CLASSES; b++)
            c.slow[a][b] = 1.25;
    return c;
}

static void measure(const schedule_input *in, const layout_case *c)
{
    pt_error e = {0};
    double build = 1e9, check = 1e9, simulated = 1e9;
    const costs k = some_costs();
    schedule s;
    simulation sim;
    for (int i = 0; i < TIMES; i++) {
        double start = now_ms();
        must(schedule_build(in, c->update == UPDATE_BACKWARD ? SCHEDULE_STEP : SCHEDULE_STEP_UPDATE, &s, &e), &e);
        double built = now_ms();
        must(schedule_check(in, &s, NULL, &e), &e);
        double checked = now_ms();
        must(simulate(in, &s, &k, false, &sim, &e), &e);
        double done = now_ms();
        build = built - start < build ? built - start : build;
        check = checked - built < check ? checked - built : check;
        simulated = done - checked < simulated ? done - checked : simulated;
        if (i < TIMES - 1)
            schedule_free(&s);
    }
    printf("%-40s %5d %7d %8d %7.1f %7.1f %9.2f\n", c->name, in->plan->visit, s.tasks_n, s.buffers_n, build, check, simulated);
    schedule_free(&s);
}

int main(int argc, char **argv)
{
    int layers = argc > 1 ? atoi(argv[1]) : 100, micros = argc > 2 ? atoi(argv[2]) : 8, mib = argc > 3 ? atoi(argv[3]) : 64;
    char json[512];
    snprintf(json, sizeof json,
             "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 8192, \"num_attention_heads\": 64, "
             "\"num_key_value_heads\": 8, \"num_hidden_layers\": %d, \"intermediate_size\": 28672, \"max_position_embeddings\": 8192, "
             "\"bos_token_id\": 0, \"eos_token_id\": 0}", layers);
    pt_error e = {0};
    model *m;
    step_shape shape;
    packing k;
    plan p;
    must(model_from_json("bench", json, strlen(json), NULL, NULL, &m, &e), &e);
    step_shape_init(&shape, m, PT_BF16, micros, 2048);
    must(pack(m, &shape, (int64_t)mib << 20, &k, &e), &e);
    must(plan_alloc(&p, k.chunks_n, layers, &e), &e);
    p.chunk_bytes = k.chunk_bytes;
    p.n_buffer = buffers_for(m, &k);
    printf("%d layers, %d micro-batches, %d chunks\n%-40s visit   tasks  buffers  build    check  simulate (ms)\n", layers, micros,
           k.chunks_n, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int all = 0; all < 2; all++) {
            fill(&p, &cases[i], all ? micros : 1);
            measure(&(schedule_input){m, &shape, &k, &p, true, true, NULL}, &cases[i]);
        }
    plan_free(&p);
    packing_free(&k);
    model_close(m);
    return 0;
}
