/* Weights of sharded chunks: gathered while the layer before computes, not while they are still in a buffer, and a rank keeps its part
 * of them alone. The head's sums of a tied table: sent while the layers compute. */
#include "random_plan.h"
#include "schedule/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { LAYERS = 8, RANKS = 4 };

#define CONFIG(vocab, tied) "{\"model_type\": \"gpt2\", \"vocab_size\": " vocab ", \"n_positions\": 64, \"n_embd\": 64, \"n_head\": 4, " \
                     "\"n_layer\": 8, \"n_inner\": 256, \"tie_word_embeddings\": " tied ", \"bos_token_id\": 0, \"eos_token_id\": 0}"
static const char apart[] = CONFIG("700", "false"), tied[] = CONFIG("7000", "true");

typedef struct fixture {
    model *model;
    step_shape shape;
    packing packing;
    plan plan;
    schedule_input in;
    schedule s;
} fixture;

/* Everything on the device, updates during backward. */
static void open_plan_of(fixture *f, const char *config, bool sharded, int more_buffers)
{
    pt_error e = {0};
    assert_int_equal(model_from_json("test", config, strlen(config), NULL, NULL, &f->model, &e), 0);
    step_shape_init(&f->shape, f->model, PT_BF16, 1, 32);
    f->shape.ranks = RANKS;
    f->shape.slice_rows = 768; /* the chunks of a table may be as small */
    assert_int_equal(pack(f->model, &f->shape, 112 << 10, &f->packing, &e), 0);
    assert_int_equal(plan_alloc(&f->plan, f->packing.chunks_n, LAYERS, &e), 0);
    f->plan.chunk_bytes = f->packing.chunk_bytes;
    f->plan.micro_batch = f->plan.visit = f->plan.n_update = f->plan.n_swap = 1;
    f->plan.n_buffer = random_chunks_at_once(f->model, &f->packing) + more_buffers;
    f->plan.update = UPDATE_BACKWARD;
    for (int c = 0; c < f->plan.chunks_n; c++)
        f->plan.chunks[c] = (plan_chunk){TIER_DEVICE, TIER_DEVICE, sharded};
    for (int b = 0; b < LAYERS; b++)
        f->plan.blocks[b] = (plan_block){SAVE_ALL, TIER_DEVICE};
    f->in = (schedule_input){.model = f->model, .shape = &f->shape, .packing = &f->packing, .plan = &f->plan, .training = true};
    if (schedule_build(&f->in, SCHEDULE_STEP, &f->s, &e) || schedule_check(&f->in, &f->s, NULL, &e))
        fail_msg("%s", e.text);
}

static void open_plan(fixture *f, bool sharded, int more_buffers) { open_plan_of(f, apart, sharded, more_buffers); }

static void close_plan(fixture *f)
{
    schedule_free(&f->s);
    plan_free(&f->plan);
    packing_free(&f->packing);
    model_close(f->model);
}

static int gathers_of(const schedule *s)
{
    int n = 0;
    for (int i = 0; i < s->tasks_n; i++)
        n += s->tasks[i].kind == TASK_GATHER;
    return n;
}

static bool is_layer(const task *t) { return t->kind == TASK_LAYER || t->kind == TASK_LAYER_BACKWARD; }

/* Whether task i's gather is over before the layer's task that waits for it, with another layer's task that may run beside it. */
static bool is_hidden(const schedule *s, int i)
{
    int before = -1;
    for (int k = 0; k < s->tasks_n; k++) {
        if (k > i && s->tasks[k].queue == QUEUE_COMPUTE && s->tasks[k].wait[QUEUE_RANKS] >= i)
            return before >= 0 && s->tasks[i].wait[QUEUE_COMPUTE] < before;
        if (is_layer(&s->tasks[k]))
            before = k;
    }
    return false;
}

static void gathers_run_beside_the_layer_before(void **state)
{
    (void)state;
    fixture f;
    open_plan(&f, true, 1);
    int hidden = 0, gathers = gathers_of(&f.s);
    for (int i = 0; i < f.s.tasks_n; i++)
        hidden += f.s.tasks[i].kind == TASK_GATHER && is_hidden(&f.s, i);
    printf("%d gathers of %d chunks, %d of them while the layer before computes\n", gathers, f.packing.chunks_n, hidden);
    assert_true(f.packing.chunks_n > LAYERS && gathers > f.packing.chunks_n);
    assert_true(gathers <= 2 * f.packing.chunks_n && hidden >= 2 * (LAYERS - 3));
    close_plan(&f);
}

static void what_is_still_in_a_buffer_is_not_gathered_again(void **state)
{
    (void)state;
    fixture f;
    open_plan(&f, true, 2 * LAYERS);
    assert_true(f.plan.n_buffer >= f.packing.chunks_n);
    assert_int_equal(gathers_of(&f.s), f.packing.chunks_n);
    close_plan(&f);
}

static uint64_t kept_bytes(const schedule *s, object_kind kind)
{
    uint64_t bytes = 0;
    for (int i = 0; i < s->placements_n; i++)
        bytes += s->buffers[i].kind == kind ? s->buffers[i].bytes : 0;
    return bytes;
}

static void a_rank_keeps_its_part_of_the_weights(void **state)
{
    (void)state;
    fixture whole, shards;
    open_plan(&whole, false, 0);
    open_plan(&shards, true, 0);
    const uint64_t all = kept_bytes(&whole.s, OBJECT_WEIGHTS), part = kept_bytes(&shards.s, OBJECT_SHARD);
    printf("%llu bytes of weights whole, %llu in shards of %d ranks\n", (unsigned long long)all, (unsigned long long)part, RANKS);
    assert_true(kept_bytes(&shards.s, OBJECT_WEIGHTS) == 0 && kept_bytes(&whole.s, OBJECT_SHARD) == 0);
    assert_true(part < all * 4 / (3 * RANKS)); /* cut in whole rows */
    assert_true(shards.s.bytes[TIER_DEVICE] < whole.s.bytes[TIER_DEVICE]);
    close_plan(&whole);
    close_plan(&shards);
}

static void sums_of_a_tied_table_are_sent_beside_the_layers(void **state)
{
    (void)state;
    fixture f;
    open_plan_of(&f, tied, false, 0);
    int sent = 0, in_a_row = 0, most = 0, chunks = 0, layers_after = 0;
    for (int c = 0; c < f.packing.chunks_n; c++)
        chunks += chunk_has_tied_rows(&f.packing, f.model, c);
    for (int i = 0; i < f.s.tasks_n; i++) {
        const task *t = &f.s.tasks[i];
        sent += t->kind == TASK_SCATTER_TIED;
        in_a_row = t->kind == TASK_LAYER_BACKWARD ? 0 : in_a_row + (t->kind == TASK_SCATTER_TIED);
        most = in_a_row > most ? in_a_row : most;
        layers_after += t->kind == TASK_LAYER_BACKWARD && sent < chunks;
    }
    printf("%d chunks of a tied table, at most %d of them after a layer\n", chunks, most);
    assert_true(chunks > LAYERS / 2);
    assert_int_equal(sent, chunks);
    assert_int_equal(most, (chunks + LAYERS - 1) / LAYERS);
    assert_true(layers_after > LAYERS / 2 && layers_after < LAYERS);
    close_plan(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers_run_beside_the_layer_before),
        cmocka_unit_test(what_is_still_in_a_buffer_is_not_gathered_again),
        cmocka_unit_test(a_rank_keeps_its_part_of_the_weights),
        cmocka_unit_test(sums_of_a_tied_table_are_sent_beside_the_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
