#include "papers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void must(int failed, const pt_error *e)
{
    if (!failed)
        return;
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

machine_spec machine_named(const char *name, int ranks)
{
    char path[MACHINE_PATH_BYTES];
    machine_spec x;
    pt_error e = {0};
    must(machine_file_find(name, path, &e), &e);
    must(machine_file_read(path, &x, &e), &e);
    return machine_share(&x, ranks);
}

model *gpt_model(int layers, int hidden)
{
    char json[512];
    model *m;
    pt_error e = {0};
    snprintf(json, sizeof json, "{\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"n_positions\": 2048, \"n_embd\": %d, \"n_head\": %d, "
             "\"n_layer\": %d, \"bos_token_id\": 0, \"eos_token_id\": 0}", hidden, hidden / 128, layers);
    must(model_from_json("gpt", json, strlen(json), NULL, NULL, &m, &e), &e);
    return m;
}

static int chunks_at_once(const model *m, const packing *k)
{
    int most = 0;
    unsigned char *needed = calloc((size_t)k->chunks_n + 1, 1);
    for (int block = 0, n = 0; needed && block < m->blocks_n; block++, n = 0) {
        block_chunks(m, k, block, needed);
        for (int i = 0; i < k->chunks_n; i++)
            n += needed[i];
        most = n > most ? n : most;
    }
    free(needed);
    return most;
}

void streamed_open(streamed *s, int layers, int hidden, int64_t batch, int64_t seq_len, int ranks)
{
    pt_error e = {0};
    memset(s, 0, sizeof *s);
    s->model = gpt_model(layers, hidden);
    step_shape_init(&s->shape, s->model, PT_BF16, batch, seq_len);
    step_shape_for_gpu(&s->shape, s->model);
    s->shape.ranks = ranks;
    must(pack(s->model, &s->shape, INT64_C(2) * 13 * hidden * hidden, &s->packing, &e), &e); /* a layer has 12 h^2 weights */
    must(plan_alloc(&s->plan, s->packing.chunks_n, layers, &e), &e);
    s->plan.chunk_bytes = s->packing.chunk_bytes;
    s->plan.n_buffer = chunks_at_once(s->model, &s->packing) + 1;
    s->plan.n_update = 2;
    s->plan.n_swap = 2;
    s->plan.micro_batch = s->shape.unit_seqs;
    s->plan.visit = (int)(batch / s->plan.micro_batch);
    s->plan.update = UPDATE_END;
    for (int i = 0; i < s->plan.chunks_n; i++)
        s->plan.chunks[i] = (plan_chunk){TIER_HOST, TIER_HOST, ranks > 1};
    s->in = (schedule_input){.model = s->model, .shape = &s->shape, .packing = &s->packing, .plan = &s->plan, .training = true,
                             .host_tier = true};
}

void streamed_close(streamed *s)
{
    plan_free(&s->plan);
    packing_free(&s->packing);
    model_close(s->model);
}

double percent(double predicted, double published) { return 100 * (predicted / published - 1); }

search_input search_for(const machine_spec *x, const streamed *s, const costs *c)
{
    search_input in = {.model = s->model, .shape = &s->shape, .costs = c, .training = true, .host_tier = true};
    in.budget[TIER_DEVICE] = x->memory_bytes[TIER_DEVICE] / 20 * 19;
    in.budget[TIER_HOST] = x->memory_bytes[TIER_HOST] / 20 * 19;
    return in;
}

double search_s(const search_input *in)
{
    search_result r;
    pt_error e = {0};
    if (search_plan(in, &r, &e))
        return 0;
    double seconds = r.best.step_ns * 1e-9;
    search_result_free(&r);
    return seconds;
}
