/* Weights come while the layer before computes, also where other weights that are wanted much later lie in the slots. */
#include "random_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { LAYERS = 8 };

static const char config[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 700, \"n_positions\": 64, \"n_embd\": 64, \"n_head\": 4, "
                             "\"n_layer\": 8, "
                             "\"n_inner\": 256, \"tie_word_embeddings\": true, \"bos_token_id\": 0, \"eos_token_id\": 0}";

static bool is_layer(const task *t) { return t->kind == TASK_LAYER || t->kind == TASK_LAYER_BACKWARD; }

/* The layer that is computed before the first task that task i's copy is for; -1: none. */
static int layer_before_user(const schedule *s, int i)
{
    int before = -1;
    for (int k = 0; k < s->tasks_n; k++) {
        if (k > i && s->tasks[k].queue == QUEUE_COMPUTE && s->tasks[k].wait[QUEUE_TO_DEVICE] >= i)
            return is_layer(&s->tasks[k]) ? before : -1;
        if (is_layer(&s->tasks[k]))
            before = k;
    }
    return -1;
}

static void all_on_host(plan *p, int n_buffer)
{
    p->micro_batch = 1;
    p->visit = 1;
    p->update = UPDATE_BACKWARD;
    p->n_buffer = n_buffer;
    p->n_update = 3;
    p->n_swap = 2;
    for (int c = 0; c < p->chunks_n; c++)
        p->chunks[c] = (plan_chunk){.placement = TIER_HOST, .update = TIER_HOST};
    for (int b = 0; b < p->blocks_n; b++)
        p->blocks[b] = (plan_block){SAVE_ALL, TIER_DEVICE};
}

/* The table of the embedding is wanted again by the head; if it kept its slot until then, all layers would come through the other. */
static void layers_take_turns_in_the_slots(void **state)
{
    (void)state;
    pt_error e = {0};
    model *m;
    step_shape shape;
    packing packing;
    plan plan;
    schedule s;
    assert_int_equal(model_from_json("test", config, sizeof config - 1, NULL, NULL, &m, &e), 0);
    step_shape_init(&shape, m, PT_BF16, 1, 32);
    assert_int_equal(pack(m, &shape, 112 << 10, &packing, &e), 0);
    assert_int_equal(plan_alloc(&plan, packing.chunks_n, LAYERS, &e), 0);
    int at_once = random_chunks_at_once(m, &packing), hidden = 0, fetches = 0;
    assert_true(packing.chunks_n > LAYERS && at_once == 2);
    all_on_host(&plan, at_once);
    const schedule_input in = {.model = m, .shape = &shape, .packing = &packing, .plan = &plan, .training = true, .host_tier = true};
    if (schedule_build(&in, SCHEDULE_STEP, &s, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < s.tasks_n; i++) {
        const task *t = &s.tasks[i];
        int before = t->kind == TASK_COPY && t->queue == QUEUE_TO_DEVICE ? layer_before_user(&s, i) : -1;
        fetches += before >= 0;
        hidden += before >= 0 && t->wait[QUEUE_COMPUTE] < before;
    }
    int copies = 0;
    for (int i = 0; i < s.tasks_n; i++)
        copies += s.tasks[i].kind == TASK_COPY && s.tasks[i].queue == QUEUE_TO_DEVICE && s.tasks[i].chunk >= 0;
    assert_true(copies <= 2 * packing.chunks_n); /* forward and backward; what came once more for its slot's sake is little */
    printf("%d fetches, %d of them while the layer before computes\n", fetches, hidden);
    assert_true(fetches >= 2 * (LAYERS - 3) && hidden >= fetches - 3); /* not those at the turn */
    schedule_free(&s);
    plan_free(&plan);
    packing_free(&packing);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_take_turns_in_the_slots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
