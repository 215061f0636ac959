/* Published vectors of the real tokenizers, where the folder of shared data is. */
#include "text/support.h"

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s cannot be opened", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    assert_int_equal(fread(text, 1, *n, f), *n);
    text[*n] = '\0';
    fclose(f);
    return text;
}

/* Inputs stand between marker lines, ids on one line each. */
static void check_llama_cpp(const char *folder, const char *name)
{
    static const char marker[] = "\n__ggml_vocab_test__\n";
    char path[4096];
    size_t n_inputs, n_outputs;
    int n_checked = 0;
    pair p;
    pair_open_shared(&p, folder);
    snprintf(path, sizeof path, PT_SHARED_DATA "/vectors/llama.cpp/ggml-vocab-%s.gguf.inp", name);
    char *inputs = read_file(path, &n_inputs), *input = inputs;
    snprintf(path, sizeof path, PT_SHARED_DATA "/vectors/llama.cpp/ggml-vocab-%s.gguf.out", name);
    char *outputs = read_file(path, &n_outputs), *output = outputs;
    for (;;) {
        char *end = memmem(input, n_inputs - (size_t)(input - inputs), marker, sizeof marker - 1);
        if (!end)
            break; /* what follows the last marker is no case */
        uint32_t wanted[1024];
        size_t n = 0;
        char *line_end = strchr(output, '\n'), *after = output;
        assert_non_null(line_end);
        for (;;) {
            while (*after == ' ')
                after++;
            if (after >= line_end)
                break;
            assert_true(n < 1024);
            wanted[n++] = (uint32_t)strtoul(after, &after, 10);
        }
        id_list got = encode(&p, input, (size_t)(end - input), 0);
        assert_ids(&got, wanted, n, input, (size_t)(end - input));
        id_list_free(&got);
        n_checked++;
        input = end + sizeof marker - 1;
        output = line_end + 1;
    }
    assert_true(n_checked >= 40);
    print_message("%s: %d of %d\n", name, n_checked, n_checked);
    free(inputs);
    free(outputs);
    pair_close(&p);
}

static void llama_cpp_gpt2(void **state) { check_llama_cpp("tokenizers/gpt2", "gpt-2"); }
static void llama_cpp_llama2(void **state) { check_llama_cpp("tokenizers/llama2", "llama-spm"); }
static void llama_cpp_llama3(void **state) { check_llama_cpp("tokenizers/llama3-8b-instruct", "llama-bpe"); }
static void llama_cpp_qwen2(void **state) { check_llama_cpp("tokenizers/qwen2", "qwen2"); }

static void the_ids_of_the_tinystories_text(void **state)
{
    pair p;
    pt_error e = {0};
    json_t *vector;
    size_t n;
    pair_open_shared(&p, "checkpoints/TinyStories-656K");
    if (json_file_load(PT_SHARED_DATA "/vectors/tinystories656k_nll.json", 0, &vector, &e))
        fail_msg("%s", e.text);
    const json_t *ids = json_object_get(vector, "ids");
    char *text = read_file(PT_SHARED_DATA "/text/tinystories_197k.txt", &n);
    id_list got = encode(&p, text, 520, ENCODE_TEMPLATE);
    assert_true(json_array_size(ids) > 100 && got.n >= json_array_size(ids));
    for (size_t i = 0; i < json_array_size(ids); i++)
        assert_int_equal(got.ids[i], json_integer_value(json_array_get(ids, i)));
    id_list_free(&got);
    free(text);
    json_decref(vector);
    pair_close(&p);
}

/* The longest stretches of a chat transcript that hold no special token decode and encode to themselves. */
static void a_tokenized_conversation_comes_back(void **state)
{
    pair p;
    pt_error e = {0};
    json_t *root;
    text_buffer text = {0};
    pair_open_shared(&p, "tokenizers/llama2");
    if (json_file_load(PT_SHARED_DATA "/vectors/axolotl/conversation.tokenized_llama2chat.json", 0, &root, &e))
        fail_msg("%s", e.text);
    const json_t *ids = json_object_get(root, "input_ids");
    size_t n_turns = 0;
    assert_true(json_array_size(ids) > 100);
    for (size_t i = 0; i < json_array_size(ids);) {
        id_list turn = {0};
        uint32_t wanted[8192];
        while (i < json_array_size(ids) && json_integer_value(json_array_get(ids, i)) > 2)
            wanted[turn.n++] = (uint32_t)json_integer_value(json_array_get(ids, i++));
        i++; /* <s> or </s> */
        if (turn.n == 0)
            continue;
        n_turns++;
        text.n = 0;
        if (tokenizer_decode(p.t, wanted, turn.n, false, &text, &e))
            fail_msg("%s", e.text);
        id_list got = encode(&p, text.bytes, text.n, 0);
        assert_ids(&got, wanted, turn.n, text.bytes, text.n);
        id_list_free(&got);
    }
    assert_true(n_turns > 1);
    text_buffer_free(&text);
    json_decref(root);
    pair_close(&p);
}

static void real_folders_know_their_bos_and_eos(void **state)
{
    static const struct { const char *folder; int64_t bos, eos, vocab; } cases[] = {
        {"tokenizers/gpt2", -1, 50256, 50257},
        {"tokenizers/llama2", 1, 2, 32000},
        {"tokenizers/llama3-8b-instruct", -1, 128001, 128256},
        {"tokenizers/qwen2", -1, 151643, 151646},
        {"checkpoints/TinyStories-656K", 1, 2, 2048},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair p;
        pair_open_shared(&p, cases[i].folder);
        assert_int_equal(tokenizer_bos(p.t), cases[i].bos);
        assert_int_equal(tokenizer_eos(p.t), cases[i].eos);
        assert_int_equal(tokenizer_vocab_size(p.t), cases[i].vocab);
        assert_int_equal(tokenizer_template_adds_bos(p.t), cases[i].bos >= 0);
        pair_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_cpp_gpt2),
        cmocka_unit_test(llama_cpp_llama2),
        cmocka_unit_test(llama_cpp_llama3),
        cmocka_unit_test(llama_cpp_qwen2),
        cmocka_unit_test(the_ids_of_the_tinystories_text),
        cmocka_unit_test(a_tokenized_conversation_comes_back),
        cmocka_unit_test(real_folders_know_their_bos_and_eos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
