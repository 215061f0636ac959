/* Texts in pieces on many threads give the ids of each document encoded whole. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "sanitized.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "data/tokenize.h"
#include "text/buffer.h"

#include "scratch.h"
#include "seed.h"

#include <unistd.h>

static uint64_t seed, drawn;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(rng_uniform(seed, RNG_TEST, 3, drawn++) * below);
}

/* ---- a small tokenizer: byte-level BPE with the merges of a few words, <bos> and <eos> ---- */

/* The character that stands for a byte in byte-level vocabularies, as UTF-8. */
static void put_byte(text_buffer *b, unsigned char c)
{
    int plain = (c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || c >= 0xAE, shift = 0;
    for (int k = 0; k < c && !plain; k++)
        shift += !((k >= '!' && k <= '~') || (k >= 0xA1 && k <= 0xAC) || k >= 0xAE);
    int point = plain ? c : 256 + shift;
    char utf8[2] = {(char)(0xC0 | point >> 6), (char)(0x80 | (point & 63))};
    if (point == '"' || point == '\\')
        text_buffer_append(b, "\\", 1, NULL);
    if (point < 128)
        utf8[0] = (char)point;
    text_buffer_append(b, utf8, point < 128 ? 1 : 2, NULL);
}

static void put(text_buffer *b, const char *text)
{
    text_buffer_append(b, text, strlen(text), NULL);
}

/* Writes tokenizer.json with a vocabulary of 256 bytes, `merges_n` merges, <bos> and <eos>. */
static void write_tokenizer(const char *folder, const char *pre_tokenizer, const char *const (*merges)[2], int merges_n)
{
    text_buffer b = {0};
    char number[64], name[128];
    put(&b, "{\"version\":\"1.0\",\"normalizer\":null,\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":");
    put(&b, pre_tokenizer);
    put(&b, ",\"added_tokens\":[");
    for (int k = 0; k < 2; k++) {
        snprintf(number, sizeof number, "%s{\"id\":%d,\"content\":\"%s\",", k ? "," : "", 256 + merges_n + k, k ? "<eos>" : "<bos>");
        put(&b, number);
        put(&b, "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}");
    }
    snprintf(number, sizeof number, "%d", 256 + merges_n);
    put(&b, "],\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<bos>\",\"type_id\":0}},"
            "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
            "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<bos>\":{\"id\":\"<bos>\",\"ids\":[");
    put(&b, number);
    put(&b, "],\"tokens\":[\"<bos>\"]}}},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int c = 0; c < 256; c++) {
        put(&b, c ? ",\"" : "\"");
        put_byte(&b, (unsigned char)c);
        snprintf(number, sizeof number, "\":%d", c);
        put(&b, number);
    }
    for (int k = 0; k < merges_n; k++) {
        snprintf(number, sizeof number, ",\"%s%s\":%d", merges[k][0], merges[k][1], 256 + k);
        put(&b, number);
    }
    put(&b, "},\"merges\":[");
    for (int k = 0; k < merges_n; k++) {
        snprintf(number, sizeof number, "%s\"%s %s\"", k ? "," : "", merges[k][0], merges[k][1]);
        put(&b, number);
    }
    put(&b, "]}}");
    scratch_folder(folder);
    snprintf(name, sizeof name, "%s/tokenizer.json", folder);
    scratch_write(name, b.bytes, b.n);
    snprintf(name, sizeof name, "%s/tokenizer_config.json", folder);
    scratch_text(name, "{\"bos_token\":\"<bos>\",\"eos_token\":\"<eos>\"}");
    text_buffer_free(&b);
}

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define NO_PRE_TOKENIZER "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"

static const char *const word_merges[][2] = {
    {"t", "h"}, {"th", "e"}, {"Ġ", "the"}, {"a", "a"}, {"aa", "aa"}, {"Ġ", "a"}, {"Ċ", "Ċ"}, {"Ġ", "Ġ"}, {".", "Ċ"},
};

static tokenizer *open_tokenizer(const char *path)
{
    tokenizer *t;
    pt_error e = {0};
    if (tokenizer_open(path, &t, &e) < 0)
        fail_msg("%s: %s", path, e.text);
    return t;
}

static tokenizer *small_tokenizer(const char *folder, const char *pre_tokenizer)
{
    write_tokenizer(folder, pre_tokenizer, word_merges, sizeof word_merges / sizeof *word_merges);
    return open_tokenizer(scratch_path(folder));
}

/* ---- both ways ---- */

typedef struct stream {
    uint32_t *ids;
    uint64_t n, documents, *starts;
} stream;

static void stream_free(stream *s)
{
    free(s->ids);
    free(s->starts);
}

static int pieces; /* of the last tokenize() */

static void count_piece(void *arg, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    pieces++;
}

static int tokenize(const tokenizer *t, const char *const *paths, int n, size_t piece, int threads, stream *out, pt_error *e)
{
    data_files files;
    token_writer *w;
    token_file f;
    uint64_t text_ids;
    tokenize_options o = {.tokenizer = t, .threads = threads, .piece_bytes = piece, .vocab = tokenizer_vocab_size(t),
                          .progress = count_piece};
    pieces = 0;
    assert_int_equal(data_files_list(paths, n, DATA_TRAINS, &files, NULL), 0);
    o.total_bytes = files.bytes;
    assert_int_equal(token_writer_open(NULL, 4, false, &w, NULL), 0);
    int rc = tokenize_files(files.files, files.n, &o, w, &text_ids, NULL, e);
    data_files_free(&files);
    if (rc < 0) {
        token_writer_close(w);
        return rc;
    }
    assert_int_equal(token_writer_finish(w, (data_hash){1, 2}, NULL, &f, NULL), 0);
    token_writer_close(w);
    *out = (stream){malloc(4 * f.ids.n + 4), f.ids.n, f.documents, malloc(8 * f.documents + 8)};
    assert_int_equal(id_file_read(&f.ids, 0, (size_t)f.ids.n, INT32_MAX, out->ids, NULL), 0);
    assert_int_equal(token_file_starts(&f, 0, (size_t)f.documents, out->starts, NULL), 0);
    token_file_close(&f);
    return 0;
}

/* A text as one document, encoded whole. */
static void encode_whole(const tokenizer *t, const char *text, size_t n, id_list *list)
{
    encoder *c;
    pt_error e = {0};
    assert_int_equal(encoder_open(t, &c, NULL), 0);
    if (encoder_run(c, text, n, tokenizer_template_adds_bos(t) ? ENCODE_TEMPLATE : 0, list, &e) < 0)
        fail_msg("%s", e.text);
    encoder_close(c);
}

static void same_as_whole(const tokenizer *t, const char *path, size_t piece, int threads)
{
    size_t n;
    char *text = read_all(path, &n);
    id_list want = {0};
    stream got;
    pt_error e = {0};
    encode_whole(t, text, n, &want);
    if (tokenize(t, &path, 1, piece, threads, &got, &e) < 0)
        fail_msg("%s", e.text);
    size_t eos = tokenizer_eos(t) >= 0;
    if (eos)
        assert_int_equal(got.ids[got.n - 1], tokenizer_eos(t));
    for (size_t i = 0; i < want.n && i < got.n; i++)
        if (got.ids[i] != want.ids[i])
            fail_msg("%s in pieces of %zu: id %zu is %u, in the whole %u", path, piece, i, got.ids[i], want.ids[i]);
    assert_int_equal(got.n, want.n + eos);
    assert_int_equal(got.documents, 1);
    assert_int_equal(got.starts[0], 0);
    stream_free(&got);
    id_list_free(&want);
    free(text);
}

/* ---- tests ---- */

static const char *random_text(const char *name, size_t n, const char *const *atoms, uint32_t atoms_n)
{
    text_buffer b = {0};
    while (b.n < n)
        put(&b, atoms[draw(atoms_n)]);
    const char *path = scratch_write(name, b.bytes, b.n);
    text_buffer_free(&b);
    return path;
}

static void pieces_of_random_text_give_the_ids_of_the_whole(void **state)
{
    static const char *atoms[] = {"the", " the", "a", "aaaa", " ", "  ", "\n", "\n\n", ".\n", "\r\n", "x", "12", "é", "日本",
                                  "'s", "\t", "<eos>", "<bos>", "\xC2\xA0", "　"};
    tokenizer *with = small_tokenizer("with", BYTE_LEVEL), *without = small_tokenizer("without", NO_PRE_TOKENIZER);
    for (int round = 0; round < 6; round++) {
        const char *path = random_text("random.txt", 60000, atoms, 20);
        same_as_whole(with, path, 1024 + draw(3000), 1 + (int)draw(4));
        assert_true(pieces > 5);
        same_as_whole(without, path, 1024 + draw(3000), 1 + (int)draw(4));
    }
    tokenizer_close(with);
    tokenizer_close(without);
}

/* Runs in which every place looks alike, so that only their beginning says how they merge. */
static void long_runs_are_not_cut_where_it_would_show(void **state)
{
    static const char *runs[] = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                 "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", "the", "                               "};
    tokenizer *t = small_tokenizer("runs", NO_PRE_TOKENIZER);
    const char *path = random_text("runs.txt", 40000, runs, 4);
    same_as_whole(t, path, 1024, 2);
    text_buffer b = {0};
    for (int i = 0; i < 50001; i++)
        put(&b, "a");
    same_as_whole(t, scratch_write("run.txt", b.bytes, b.n), 1024, 2); /* nowhere to cut: the piece grows */
    text_buffer_free(&b);
    tokenizer_close(t);
}

static void put_many(text_buffer *b, const char *text, int times)
{
    for (int i = 0; i < times; i++)
        put(b, text);
}

/* A line that is nowhere cut makes its piece grow by what follows it: that is cut as anything else. */
static void behind_a_long_line_pieces_are_as_small_as_before_it(void **state)
{
    enum { WORDS = 40000, LONG = 30000, PIECE = 1024, AT_MOST = 2 * PIECE };
    tokenizer *t = small_tokenizer("long", BYTE_LEVEL);
    for (int place = 0; place < 3; place++) { /* at the start, behind a word, in the middle */
        text_buffer b = {0};
        put_many(&b, "x12 the", place * place * WORDS / 8);
        put_many(&b, "aGVsbG8/", LONG / 8);
        put_many(&b, " the x12", WORDS);
        const char *path = scratch_write("long.txt", b.bytes, b.n);
        same_as_whole(t, path, PIECE, 2);
        if ((size_t)pieces < (b.n - LONG) / AT_MOST)
            fail_msg("%d pieces of %zu bytes", pieces, b.n);
        text_buffer_free(&b);
    }
    tokenizer_close(t);
}

enum { TEXTS = THREADS_SANITIZED ? 3 : 4 /* the fourth is long */ };

static void shared_texts_in_pieces_give_the_ids_of_the_whole(void **state)
{
    static const char *tokenizers[] = {"tokenizers/gpt2", "tokenizers/llama2", "tokenizers/llama3-8b-instruct", "tokenizers/qwen2",
                                       "checkpoints/TinyStories-656K"};
    static const char *texts[] = {"text/tinyshakespeare.txt", "text/ja_wagahaiwa_nekodearu.txt", "text/tinystories_197k.txt",
                                  "text/war-and-peace.txt"};
    if (access(PT_SHARED_DATA "/tokenizers", R_OK) < 0) {
        print_message("skipped: " PT_SHARED_DATA " is not there\n");
        skip();
    }
    for (int i = THREADS_SANITIZED ? 3 : 0; i < 5; i++) {
        char path[512], folder[512];
        snprintf(folder, sizeof folder, "%s/%s", PT_SHARED_DATA, tokenizers[i]);
        tokenizer *t = open_tokenizer(folder);
        for (int k = 0; k < TEXTS; k++) {
            snprintf(path, sizeof path, "%s/%s", PT_SHARED_DATA, texts[k]);
            same_as_whole(t, path, k == 2 ? 2000 : 40000, 2);
            assert_true(pieces > 2);
        }
        tokenizer_close(t);
    }
}

static void documents_keep_their_bounds_and_order(void **state)
{
    enum { DOCUMENTS = 9000 };
    static const char *atoms[] = {"the", " the", "a", "\\n", " ", "\\u00e9"};
    tokenizer *t = small_tokenizer("bounds", BYTE_LEVEL);
    text_buffer b = {0};
    for (int k = 0; k < DOCUMENTS; k++) {
        put(&b, "{\"text\": \"");
        for (uint32_t i = k % 1000 == 7 ? 4000 : draw(12); i > 0; i--)
            put(&b, atoms[draw(6)]);
        put(&b, "\"}\n");
    }
    const char *paths[] = {scratch_write("bounds.jsonl", b.bytes, b.n)};
    text_buffer_free(&b);
    stream one, many;
    assert_int_equal(tokenize(t, paths, 1, 0, 1, &one, NULL), 0);
    assert_int_equal(tokenize(t, paths, 1, 2000, 4, &many, NULL), 0);
    assert_int_equal(one.documents, DOCUMENTS);
    assert_int_equal(many.documents, DOCUMENTS);
    assert_int_equal(one.n, many.n);
    assert_memory_equal(one.ids, many.ids, 4 * one.n);
    assert_memory_equal(one.starts, many.starts, 8 * one.documents);
    for (int k = 0; k < DOCUMENTS; k++) {
        uint64_t end = k + 1 < DOCUMENTS ? one.starts[k + 1] : one.n;
        assert_int_equal(one.ids[one.starts[k]], tokenizer_bos(t));
        assert_int_equal(one.ids[end - 1], tokenizer_eos(t));
    }
    stream_free(&one);
    stream_free(&many);
    tokenizer_close(t);
}

static void the_first_error_in_the_text_is_the_one_returned(void **state)
{
    tokenizer *t = small_tokenizer("errors", BYTE_LEVEL);
    text_buffer b = {0};
    char line[64];
    for (int k = 1; k <= 5000; k++) {
        snprintf(line, sizeof line, k == 3001 || k == 4002 ? "{\"txt\": 1}\n" : "{\"text\": \"line %d\"}\n", k);
        put(&b, line);
    }
    const char *paths[] = {scratch_write("errors.jsonl", b.bytes, b.n)};
    text_buffer_free(&b);
    for (int threads = 1; threads <= 4; threads++) {
        stream s;
        pt_error e = {0};
        assert_int_equal(tokenize(t, paths, 1, 1024, threads, &s, &e), PT_FAILED);
        assert_non_null(strstr(e.text, "errors.jsonl: line 3001: the object has no \"text\" (its keys: txt)"));
    }
    tokenizer_close(t);
}

static void text_becomes_windows_with_bos_and_eos(void **state)
{
    tokenizer *t = small_tokenizer("windows", BYTE_LEVEL);
    const char *paths[] = {scratch_text("w.jsonl", "{\"text\": \"the the\"}\n{\"text\": \"x\"}\n{\"text\": \"the<eos>x\"}\n")};
    dataset_options o = {.paths = paths, .paths_n = 1, .tokenizer = t, .tokenizer_fingerprint = "1", .cache_dir = scratch_dir,
                         .seq_len = 11, .vocab = tokenizer_vocab_size(t), .documents = true};
    int32_t bos = (int32_t)tokenizer_bos(t), eos = (int32_t)tokenizer_eos(t), in[11], out[11], first[11];
    const int32_t want[] = {bos, 257, 258, eos, bos, 'x', eos, bos, 257, eos, 'x', eos};
    const int32_t targets[] = {257, 258, eos, -100, 'x', eos, -100, 257, eos, -100, eos};
    const int32_t starts[] = {0, 0, 0, 0, 4, 4, 4, 7, 7, 7, 10};
    for (int round = 0; round < 2; round++) { /* built, then from the cache */
        dataset *d;
        pt_error e = {0};
        if (dataset_open(&o, &d, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(dataset_tokens(d), 12);
        assert_int_equal(dataset_sample(d, 0, 1, &(dataset_row){in, out, first, NULL}, NULL, NULL), 0);
        assert_memory_equal(in, want, sizeof in);
        assert_memory_equal(out, targets, sizeof out);
        assert_memory_equal(first, starts, sizeof first);
        dataset_close(d);
    }
    tokenizer_close(t);
}

static void text_that_gives_nothing_to_train_on_is_refused(void **state)
{
    tokenizer *t = small_tokenizer("empty", BYTE_LEVEL);
    dataset_options o = {.paths_n = 1, .tokenizer = t, .seq_len = 1, .vocab = tokenizer_vocab_size(t)};
    const char *empty[] = {scratch_text("empty.txt", "")}, *some[] = {scratch_text("some.txt", "the text")};
    dataset *d;
    pt_error e = {0};
    o.paths = empty;
    assert_true(dataset_open(&o, &d, &e) < 0);
    assert_non_null(strstr(e.text, "empty.txt: the file has no text"));
    o.paths = some;
    o.vocab = 100;
    assert_true(dataset_open(&o, &d, &e) < 0);
    assert_non_null(strstr(e.text, "some.txt: the text from byte 0 on: the tokenizer gives id"));
    assert_non_null(strstr(e.text, "do not belong together"));
    tokenizer_close(t);
}

static void bytes_that_are_not_utf8_are_named_or_trained_on(void **state)
{
    tokenizer *t = small_tokenizer("raw", BYTE_LEVEL);
    text_buffer b = {0};
    for (int i = 0; i < 3000; i++)
        put(&b, i % 50 ? "the " : "the\n");
    b.bytes[7777] = (char)0xff;
    const char *path = scratch_write("raw.txt", b.bytes, b.n);
    same_as_whole(t, path, 1024, 2);
    tokenizer_close(t);
    if (access(PT_SHARED_DATA "/checkpoints/TinyStories-656K", R_OK) == 0) {
        stream s;
        pt_error e = {0};
        t = open_tokenizer(PT_SHARED_DATA "/checkpoints/TinyStories-656K");
        assert_int_equal(tokenize(t, &path, 1, 1024, 2, &s, &e), PT_FAILED);
        if (!strstr(e.text, "raw.txt: byte 7777 is not UTF-8"))
            fail_msg("the message should name byte 7777: %s", e.text);
        tokenizer_close(t);
    }
    text_buffer_free(&b);
}

int main(void)
{
    seed = test_seed();
    scratch_make();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_random_text_give_the_ids_of_the_whole),
        cmocka_unit_test(long_runs_are_not_cut_where_it_would_show),
        cmocka_unit_test(behind_a_long_line_pieces_are_as_small_as_before_it),
        cmocka_unit_test(shared_texts_in_pieces_give_the_ids_of_the_whole),
        cmocka_unit_test(documents_keep_their_bounds_and_order),
        cmocka_unit_test(the_first_error_in_the_text_is_the_one_returned),
        cmocka_unit_test(text_becomes_windows_with_bos_and_eos),
        cmocka_unit_test(text_that_gives_nothing_to_train_on_is_refused),
        cmocka_unit_test(bytes_that_are_not_utf8_are_named_or_trained_on),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
