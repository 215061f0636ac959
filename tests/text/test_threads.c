/* One tokenizer, an encoder for each of several threads. */
#include "text/support.h"
#include "seed.h"

#include <pthread.h>

enum { THREADS = 4, TEXTS = 300, CAPACITY = 2048 };
static uint64_t seed;

typedef struct worker {
    const tokenizer *t;
    id_list ids;
    bool failed;
} worker;

static void *encode_all(void *argument)
{
    worker *w = argument;
    uint64_t counter = 0;
    encoder *c;
    pt_error e = {0};
    w->failed = encoder_open(w->t, &c, &e) != 0;
    for (int i = 0; i < TEXTS && !w->failed; i++) {
        char text[CAPACITY];
        size_t n = random_text(seed, &counter, text, CAPACITY, true);
        w->failed = encoder_run(c, text, n, 0, &w->ids, &e) != 0;
    }
    encoder_close(c);
    return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    static const char *const names[] = {"llama3", "qwen2", "llama2"};
    for (int k = 0; k < 3; k++) {
        json_t *root = fixture_open(names[k]);
        worker workers[THREADS] = {0};
        pthread_t threads[THREADS];
        pair p;
        pair_open_json(&p, json_object_get(root, "tokenizer"));
        for (int i = 0; i < THREADS; i++) {
            workers[i].t = p.t;
            assert_int_equal(pthread_create(&threads[i], NULL, encode_all, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_false(workers[i].failed);
            assert_true(workers[i].ids.n > TEXTS);
            assert_same_ids(&workers[i].ids, &workers[0].ids, names[k], strlen(names[k]));
        }
        for (int i = 0; i < THREADS; i++)
            id_list_free(&workers[i].ids);
        pair_close(&p);
        json_decref(root);
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_a_tokenizer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
