/* fuzz_plan.c - any bytes as plan.json: refused with a sentence, or read, written and read back the same. A plan that is
 * valid for a small model is built into every kind of schedule, and the checker must accept each. */
#include "plan/plan.h"
#include "schedule/check.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"num_hidden_layers\": 2, \"intermediate_size\": 48, \"max_position_embeddings\": 64, \"hidden_act\": \"silu\", "
    "\"bos_token_id\": 0, \"eos_token_id\": 0}";

static void schedules_try(const plan *p, const model *m, const step_shape *s)
{
    packing k;
    pt_error e = {0};
    if (pack(m, s, p->chunk_bytes, &k, &e))
        return;
    int valid = !plan_validate(p, m, s, &k, false, &e);
    for (int host = 0; valid && host < 2; host++)
        for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
            const schedule_input in = {.model = m, .shape = s, .packing = &k, .plan = p, .training = true, .host_tier = host};
            schedule built;
            if (schedule_build(&in, (schedule_kind)kind, &built, &e))
                continue;
            if (schedule_check(&in, &built, NULL, &e))
                abort();
            schedule_free(&built);
        }
    packing_free(&k);
}

static void write_and_read(const plan *p, const model *m, const step_shape *s)
{
    plan back;
    pt_error e = {0};
    char *text = plan_to_json(p, m, s);
    assert(text);
    if (plan_from_json("fuzz/plan.json", text, strlen(text), &back, &e))
        abort();
    assert(back.chunk_bytes == p->chunk_bytes && back.micro_batch == p->micro_batch && back.update == p->update);
    assert(back.chunks_n == p->chunks_n && !memcmp(back.chunks, p->chunks, (size_t)p->chunks_n * sizeof *p->chunks));
    assert(back.blocks_n == p->blocks_n && !memcmp(back.blocks, p->blocks, (size_t)p->blocks_n * sizeof *p->blocks));
    plan_free(&back);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static model *m;
    static step_shape s;
    pt_error e = {0};
    if (!m) {
        if (model_from_json("fuzz/config.json", config, strlen(config), NULL, NULL, &m, &e))
            abort();
        step_shape_init(&s, m, PT_F32, 4, 8);
        s.unit_seqs = 1; /* several micro-batches */
        s.units_n = 4;
        s.unit_rows = 8;
        s.slice_rows = SUMSQ_ROWS;
    }
    plan p;
    if (plan_from_json("fuzz/plan.json", (const char *)data, n, &p, &e)) {
        assert(e.code == PT_FAILED && strstr(e.text, "fuzz/plan.json"));
        return 0;
    }
    write_and_read(&p, m, &s);
    schedules_try(&p, m, &s);
    plan_free(&p);
    return 0;
}
