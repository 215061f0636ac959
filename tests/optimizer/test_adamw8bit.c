/* AdamW with moments in 8 bits over whole runs: which parameters keep fp32 moments, and how far rare rows move beside AdamW's. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "optimizer/optimizer.h"
#include "train/fixture.h"

enum { VOCABULARY = 1000, SEQ_LEN = 32, BATCH = 8, STEPS = 250, IDS = STEPS * BATCH * SEQ_LEN + 1, HIDDEN = 64 };

static void write_config(const char *folder, bool gpt2)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    json_t *all = gpt2 ? json_pack("{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", "gpt2", "vocab_size", VOCABULARY, "n_embd", HIDDEN,
                                   "n_layer", 1, "n_head", 4, "n_positions", 128)
                       : json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:b}", "model_type", "llama", "vocab_size", VOCABULARY,
                                   "hidden_size", HIDDEN, "intermediate_size", 128, "num_hidden_layers", 1, "num_attention_heads", 4,
                                   "num_key_value_heads", 4, "max_position_embeddings", 64, "rms_norm_eps", 1e-6, "tie_word_embeddings", 0);
    assert_non_null(all);
    must(dir_make(folder, &e), &e);
    must(path_join(path, folder, "config.json", &e), &e);
    must(file_write_json(path, all, &e), &e);
    json_decref(all);
}

/* ---- which parameters ---- */

static void what_has_a_row_for_each_token_or_position_keeps_fp32_moments(void **state)
{
    char folder[300];
    int tables = 0, in_codes = 0;
    for (int gpt2 = 0; gpt2 < 2; gpt2++) {
        model *m;
        pt_error e = {0};
        snprintf(folder, sizeof folder, "%s/kinds-%d", scratch, gpt2);
        write_config(folder, gpt2);
        must(model_open(folder, NULL, NULL, &m, &e), &e);
        for (int i = 0; i < m->params_n; i++) {
            const param *p = &m->params[i];
            const update_rule *r = optimizer_rule(&optimizer_adamw8bit, p);
            const bool table = p->kind->use == USE_VOCABULARY || p->kind->use == USE_POSITIONS;
            assert_true(p->rows * p->cols >= 4096 || r == &adamw_rule);
            assert_true(!table || r == &adamw_rule);
            assert_true(p->kind->use != USE_MATRIX || (r != &adamw_rule && r->slabs[0].type == PT_U8));
            tables += table;
            in_codes += r != &adamw_rule;
        }
        model_close(m);
    }
    assert_int_equal(tables, 4); /* embedding and head; tied embedding and positions */
    assert_int_equal(in_codes, 4 + 4);
}

/* ---- rare tokens ---- */

static uint64_t next_random(uint64_t *x) { return (*x = *x * 6364136223846793005u + 1442695040888963407u) >> 33; }

/* Token k + 1 is drawn with a probability proportional to 1 / (k + 1); each second one follows from the one before. */
static void write_zipf(const char *path)
{
    static uint16_t ids[IDS];
    double share[VOCABULARY], all = 0;
    uint64_t random = 1;
    for (int k = 0; k < VOCABULARY; k++)
        share[k] = all += 1.0 / (k + 1);
    for (int i = 0; i < IDS; i++) {
        const double at = (double)next_random(&random) / (double)(1u << 31) * all;
        int k = 0;
        while (k + 1 < VOCABULARY && share[k] < at)
            k++;
        ids[i] = i % 2 ? (uint16_t)((ids[i - 1] * 7 + 3) % VOCABULARY) : (uint16_t)k;
    }
    write_npy(path, ids, IDS);
}

typedef struct end { double loss, largest; } end; /* the mean loss of the last steps; the largest magnitude in the embedding */

static end train(const char *folder, const char *data, pt_optimizer optimizer)
{
    enum { LAST = 25 };
    char out[300];
    pt_train_options o;
    pt_trainer *t;
    pt_step s = {0};
    pt_error e = {0};
    end found = {0};
    snprintf(out, sizeof out, "%s/out-%d", scratch, (int)optimizer);
    pt_train_defaults(&o);
    o.model = folder, o.data = &data, o.data_n = 1, o.out = out, o.device = "cpu", o.threads = 2;
    o.seq_len = SEQ_LEN, o.batch_size = BATCH, o.steps = STEPS, o.lr = 1e-3, o.optimizer = optimizer, o.precision = PT_PRECISION_FP32;
    o.device_memory = 256u << 20, o.disk_memory = 0;
    must(pt_trainer_open(&o, &t, &e), &e);
    for (int more = 1; more > 0 && s.step < STEPS;) {
        more = pt_trainer_step(t, &s, &e);
        must(more < 0 ? more : 0, &e);
        found.loss += s.step > STEPS - LAST ? s.loss / LAST : 0;
    }
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
    safetensors *st;
    must(safetensors_open(out, &st, &e), &e);
    const safetensors_tensor *w = safetensors_find(st, "model.embed_tokens.weight");
    float *values = malloc(w->elements * sizeof *values);
    must(safetensors_read_f32(st, w, 0, w->elements, values, &e), &e);
    for (uint64_t i = 0; i < w->elements; i++)
        found.largest = fmax(found.largest, fabs((double)values[i]));
    free(values);
    safetensors_close(st);
    return found;
}

static void rare_tokens_move_as_with_adamw(void **state)
{
    char folder[300], data[300];
    snprintf(folder, sizeof folder, "%s/zipf", scratch);
    snprintf(data, sizeof data, "%s/zipf.npy", scratch);
    write_config(folder, false);
    write_zipf(data);
    const end fp32 = train(folder, data, PT_OPTIMIZER_ADAMW), codes = train(folder, data, PT_OPTIMIZER_ADAMW8BIT);
    print_message("loss %.4f and in 8 bits %.4f; largest entry %.4f and %.4f\n", fp32.loss, codes.loss, fp32.largest, codes.largest);
    assert_true(codes.largest < 1.25 * fp32.largest);
    assert_true(fabs(codes.loss - fp32.loss) < 0.01 * fp32.loss);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_has_a_row_for_each_token_or_position_keeps_fp32_moments),
                                       cmocka_unit_test(rare_tokens_move_as_with_adamw)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
