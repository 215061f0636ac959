/* From files to windows: which ids, in which order, from which cache; and the errors. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/target.h"
#include "data/dataset.h"
#include "io/files.h"

#include "scratch.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { N = 1000, T = 16, VOCAB = 5000 };

static uint16_t ids[N];

static const char *npy_of(const char *name, const uint16_t *values, int n)
{
    char dict[128];
    snprintf(dict, sizeof dict, "{'descr': '<u2', 'fortran_order': False, 'shape': (%d,), }\n", n);
    return scratch_npy(name, 1, dict, values, 2 * (size_t)n);
}

static const char *npy(const char *name, int n) { return npy_of(name, ids, n); }

static dataset *open_with(dataset_options o, const char *path)
{
    const char *paths[] = {path};
    dataset *d;
    pt_error e = {0};
    o.paths = paths;
    o.paths_n = 1;
    if (dataset_open(&o, &d, &e) < 0)
        fail_msg("%s", e.text);
    return d;
}

static dataset *open_path(const char *path, const char *cache, bool shuffle)
{
    return open_with((dataset_options){.cache_dir = cache, .seq_len = T, .vocab = VOCAB, .seed = 5, .shuffle = shuffle}, path);
}

static void refused(dataset_options o, const char *path, const char *because)
{
    const char *paths[] = {path};
    dataset *d;
    pt_error e = {0};
    o.paths = paths;
    o.paths_n = 1;
    assert_true(dataset_open(&o, &d, &e) < 0);
    if (!strstr(e.text, because))
        fail_msg("the message should say \"%s\": %s", because, e.text);
}

static void windows_in_file_order_are_consecutive(void **state)
{
    dataset *d = open_path(npy("a.npy", N), NULL, false);
    int32_t in[T], out[T];
    assert_int_equal(dataset_tokens(d), N);
    assert_int_equal(dataset_windows(d), (N - 1) / T);
    for (uint64_t w = 0; w < dataset_windows(d); w++) {
        assert_int_equal(dataset_sample(d, w, dataset_windows(d), &(dataset_row){in, out, NULL, NULL}, NULL, NULL), 0);
        for (int t = 0; t < T; t++) {
            assert_int_equal(in[t], ids[w * T + t]);
            assert_int_equal(out[t], ids[w * T + t + 1]);
        }
    }
    dataset_close(d);
}

static void a_shuffled_epoch_visits_every_window_once(void **state)
{
    dataset *d = open_path(npy("a.npy", N), NULL, true);
    uint64_t n = dataset_windows(d), moved = 0;
    int32_t in[T], out[T];
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        char seen[N / T] = {0};
        for (uint64_t s = 0; s < n; s++) {
            assert_int_equal(dataset_sample(d, epoch * n + s, n, &(dataset_row){in, out, NULL, NULL}, NULL, NULL), 0);
            uint64_t w = 0;
            while (w < n && ids[w * T] != in[0])
                w++;
            assert_true(w < n && !seen[w]);
            seen[w] = 1;
            moved += w != s;
        }
    }
    assert_true(moved > n);
    dataset_close(d);
}

static void evaluation_counts_every_token(void **state)
{
    for (int n = 2; n < 4 * T; n++) {
        dataset_options o = {.seq_len = T, .vocab = VOCAB, .evaluation = true};
        dataset *d = open_with(o, npy("e.npy", n));
        int32_t in[T], out[T];
        int counted = 0;
        for (uint64_t w = 0; w < dataset_eval_windows(d); w++) {
            assert_int_equal(dataset_eval_window(d, w, &(dataset_row){in, out, NULL, NULL}, NULL, NULL), 0);
            for (int t = 0; t < T; t++) {
                if (out[t] < 0) {
                    assert_int_equal(in[t], 0);
                    continue;
                }
                assert_int_equal(in[t], ids[counted]);
                assert_int_equal(out[t], ids[++counted]);
            }
        }
        assert_int_equal(counted, n - 1);
        assert_true(dataset_eval_window(d, dataset_eval_windows(d), &(dataset_row){in, out, NULL, NULL}, NULL, NULL) < 0);
        dataset_close(d);
    }
}

static int count_progress;
static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    count_progress++;
}

static dataset *open_counting(const char *path, int *built)
{
    dataset_options o = {.cache_dir = scratch_path("cache"), .seq_len = T, .vocab = VOCAB, .progress = on_progress};
    count_progress = 0;
    dataset *d = open_with(o, path);
    *built = count_progress > 0;
    return d;
}

/* The only file in the cache folder. */
static const char *cache_file(void)
{
    static char path[600];
    DIR *dir = opendir(scratch_path("cache"));
    int n = 0;
    for (struct dirent *x; (x = readdir(dir));)
        if (x->d_name[0] != '.') {
            snprintf(path, sizeof path, "%.200s/%s", scratch_path("cache"), x->d_name);
            n++;
        }
    closedir(dir);
    assert_int_equal(n, 1);
    return path;
}

static void check_first_window(dataset *d, int delta)
{
    int32_t in[T], out[T];
    assert_int_equal(dataset_sample(d, 0, dataset_windows(d), &(dataset_row){in, out, NULL, NULL}, NULL, NULL), 0);
    for (int t = 0; t < T; t++)
        assert_int_equal(in[t], ids[t] + delta);
    dataset_close(d);
}

/* A folder, so that its ids are copied into the cache. */
static void a_cache_is_used_until_it_is_stale_or_damaged(void **state)
{
    int built;
    char fingerprint[33];
    scratch_folder("two");
    npy("two/1.npy", N / 2);
    npy("two/2.npy", N / 2);
    const char *folder = strdup(scratch_path("two"));
    dataset *d = open_counting(folder, &built);
    assert_true(built);
    assert_int_equal(dataset_tokens(d), N);
    strcpy(fingerprint, dataset_fingerprint(d));
    check_first_window(d, 0);

    d = open_counting(folder, &built);
    assert_false(built);
    assert_string_equal(fingerprint, dataset_fingerprint(d));
    check_first_window(d, 0);

    size_t size;
    char *whole = read_all(cache_file(), &size);
    for (size_t cut = 0; cut < size; cut += 1 + size / 7) { /* cut anywhere: built again */
        assert_int_equal(truncate(cache_file(), (off_t)cut), 0);
        d = open_counting(folder, &built);
        assert_true(built);
        check_first_window(d, 0);
    }
    size_t again;
    char *rebuilt = read_all(cache_file(), &again);
    assert_int_equal(size, again);
    assert_memory_equal(whole, rebuilt, size);

    for (int i = 0; i < N; i++)
        ids[i]++;
    npy("two/1.npy", N / 2);
    for (int i = 0; i < N; i++)
        ids[i]--;
    d = open_counting(folder, &built); /* same size, other time of change */
    assert_true(built);
    assert_string_not_equal(fingerprint, dataset_fingerprint(d));
    check_first_window(d, 1);
    free(whole);
    free(rebuilt);
    free((void *)folder);
}

static void a_damaged_header_never_opens(void **state)
{
    int built;
    size_t size;
    const char *folder = strdup(scratch_path("two"));
    dataset_close(open_counting(folder, &built));
    char *whole = read_all(cache_file(), &size);
    for (int i = 0; i < 104; i++) {
        FILE *f = fopen(cache_file(), "r+b");
        fseek(f, i, SEEK_SET);
        fputc(whole[i] ^ 0x10, f);
        fclose(f);
        dataset_close(open_counting(folder, &built));
        assert_true(built);
    }
    free(whole);
    free((void *)folder);
}

static void flip(const char *path, size_t at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, (long)at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, (long)at, SEEK_SET);
    fputc(c ^ 0x20, f);
    fclose(f);
}

enum { LONG = 150000 };

/* Long enough for several sums. */
static dataset *open_long(int *built)
{
    static uint16_t many[LONG];
    for (int i = 0; i < LONG; i++)
        many[i] = (uint16_t)(i * 7 % VOCAB);
    if (!path_exists(scratch_path("long"))) {
        scratch_folder("long");
        npy_of("long/1.npy", many, LONG);
        npy_of("long/2.npy", many, 5);
    }
    return open_counting(scratch_path("long"), built);
}

static void a_flipped_bit_in_a_cache_is_found_and_the_cache_made_anew(void **state)
{
    int built;
    size_t size;
    tree_remove(scratch_path("cache"), NULL);
    dataset_close(open_long(&built));
    char *good = read_all(cache_file(), &size);
    assert_true(size > 4096 + 2 * LONG + 16 + 5 * 8);
    size_t tail = size - 2 * 8 - 6 * 8; /* where the documents start, and the sums */
    for (size_t at = 4096; at < size; at = at >= tail ? at + 7 : at + 20011 < tail ? at + 20011 : tail) {
        flip(cache_file(), at);
        dataset *d = open_long(&built);
        if (!built)
            fail_msg("a flipped bit of byte %zu is not noticed", at);
        assert_non_null(strstr(dataset_notice(d), "damaged"));
        dataset_close(d);
        dataset_close(open_long(&built));
        assert_false(built);
    }
    size_t again;
    char *rebuilt = read_all(cache_file(), &again);
    assert_int_equal(size, again);
    assert_memory_equal(good, rebuilt, size);
    free(good);
    free(rebuilt);
}

/* As in a cache that is too large to be checked when it is opened. */
static void what_was_not_checked_before_is_when_it_is_read(void **state)
{
    int built;
    int32_t in[T], out[T];
    pt_error e = {0};
    tree_remove(scratch_path("cache"), NULL);
    dataset *d = open_long(&built);
    assert_true(built);
    flip(cache_file(), 4096 + 65536 + 1000); /* in the second sum's ids */
    uint64_t windows = dataset_windows(d), bad = 0;
    for (uint64_t w = 0; w < windows; w++) {
        bool touches = (w * T + T + 1) * 2 > 65536 && w * T * 2 < 131072;
        int rc = dataset_sample(d, w, windows, &(dataset_row){in, out, NULL, NULL}, NULL, &e);
        assert_int_equal(rc < 0, touches);
        if (touches && (!strstr(e.text, cache_file()) || !strstr(e.text, "damaged") || !strstr(e.text, "remove it")))
            fail_msg("%s", e.text);
        bad += rc < 0;
    }
    assert_true(bad > 0 && bad < windows);
    dataset_close(d);
}

static void a_single_file_of_ids_is_not_copied(void **state)
{
    int built;
    struct stat st;
    const char *path = strdup(npy("single.npy", N));
    scratch_folder("cache1");
    dataset_options o = {.cache_dir = scratch_path("cache1"), .seq_len = T, .vocab = VOCAB, .progress = on_progress};
    for (int round = 0; round < 2; round++) {
        count_progress = 0;
        check_first_window(open_with(o, path), 0);
        built = count_progress > 0;
        assert_int_equal(built, round == 0);
    }
    DIR *dir = opendir(o.cache_dir);
    for (struct dirent *x; (x = readdir(dir));)
        if (x->d_name[0] != '.') {
            assert_int_equal(fstatat(dirfd(dir), x->d_name, &st, 0), 0);
            assert_int_equal(st.st_size, 4096 + 8 + 8); /* where its document starts, and the sum of that */
        }
    closedir(dir);
    free((void *)path);
}

static void the_fingerprint_is_of_the_ids_not_of_the_file_type(void **state)
{
    static uint32_t wide[N];
    for (int i = 0; i < N; i++)
        wide[i] = ids[i];
    const char *b2 = scratch_bin("f.bin", 20240520, 1, N, ids, sizeof ids);
    dataset *a = open_path(npy("f.npy", N), NULL, false), *b = open_path(b2, NULL, false);
    dataset *c = open_path(scratch_bin("g.bin", 20240801, 7, N, wide, sizeof wide), NULL, false);
    assert_string_equal(dataset_fingerprint(a), dataset_fingerprint(b));
    assert_string_equal(dataset_fingerprint(a), dataset_fingerprint(c));
    dataset_close(a);
    dataset_close(b);
    dataset_close(c);
}

enum { DOCUMENTS_END = 7, ROOM = 512 };

/* Files of these lengths, and ids that end a document inside of some, one of them in a window's last place. Returns the number of tokens;
 * start_of[i]: where the document of token i starts, also of the one behind the last. */
static int make_documents(const char *folder, uint16_t *all, int *start_of)
{
    static const int lengths[] = {5, 40, 1, 1, 1, 16, 3, 200, 7}, ends[] = {10, 11, 47, 70, 71, 111, 270};
    int total = 0;
    char name[64];
    scratch_folder(folder);
    for (int i = 0; i < ROOM; i++)
        all[i] = (uint16_t)(DOCUMENTS_END + 1 + i);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        all[ends[i]] = DOCUMENTS_END;
    for (int k = 0; k < 9; k++) {
        snprintf(name, sizeof name, "%s/%d.npy", folder, k);
        npy_of(name, all + total, lengths[k]);
        for (int i = 0; i <= lengths[k]; i++)
            start_of[total + i] = i && all[total + i - 1] != DOCUMENTS_END ? start_of[total + i - 1] : total + i;
        total += lengths[k];
        start_of[total] = total;
    }
    return total;
}

/* A window that has n inputs from token `start` on. */
static void check_documents(const uint16_t *all, const int *start_of, int start, int n, const int32_t *in, const int32_t *out,
                            const int32_t *first)
{
    for (int t = 0; t < n; t++) {
        int begun = start_of[start + t] - start;
        assert_int_equal(in[t], all[start + t]);
        assert_int_equal(first[t], begun < 0 ? 0 : begun);
        assert_int_equal(out[t], start_of[start + t + 1] == start + t + 1 ? -100 : all[start + t + 1]);
    }
}

static void documents_are_apart_by_files_and_by_the_id_that_ends_one(void **state)
{
    uint16_t all[ROOM];
    int start_of[ROOM + 1], total = make_documents("docs", all, start_of);
    int32_t in[T], out[T], first[T];
    const dataset_options o = {.seq_len = T, .vocab = VOCAB, .documents = true, .eos = DOCUMENTS_END};
    dataset *d = open_with(o, scratch_path("docs"));
    assert_int_equal(dataset_tokens(d), total);
    for (int w = 0; w < (int)dataset_windows(d); w++) {
        assert_int_equal(dataset_sample(d, (uint64_t)w, dataset_windows(d), &(dataset_row){in, out, first, NULL}, NULL, NULL), 0);
        check_documents(all, start_of, w * T, T, in, out, first);
    }
    for (int w = 0; w < (int)dataset_eval_windows(d); w++) {
        int left = total - 1 - w * T, n = left < T ? left : T;
        assert_int_equal(dataset_eval_window(d, (uint64_t)w, &(dataset_row){in, out, first, NULL}, NULL, NULL), 0);
        check_documents(all, start_of, w * T, n, in, out, first);
        for (int t = n; t < T; t++)
            assert_true(in[t] == 0 && out[t] == TARGET_PADDING && first[t] == n);
    }
    dataset_close(d);
}

static void a_cache_serves_with_documents_apart_and_without(void **state)
{
    uint16_t all[ROOM];
    int start_of[ROOM + 1], built;
    char fingerprint[33];
    int32_t in[T], out[T], first[T] = {-1};
    make_documents("both", all, start_of);
    tree_remove(scratch_path("cache"), NULL);
    const char *folder = strdup(scratch_path("both"));
    dataset *d = open_counting(folder, &built);
    assert_true(built);
    strcpy(fingerprint, dataset_fingerprint(d));
    assert_int_equal(dataset_sample(d, 0, dataset_windows(d), &(dataset_row){in, out, first, NULL}, NULL, NULL), 0);
    assert_true(first[0] == 0 && out[4] == all[5]); /* not asked for */
    dataset_close(d);
    const dataset_options o = {.cache_dir = scratch_path("cache"), .seq_len = T, .vocab = VOCAB, .progress = on_progress,
                               .documents = true, .eos = DOCUMENTS_END};
    count_progress = 0;
    d = open_with(o, folder);
    assert_int_equal(count_progress, 0);
    assert_string_equal(fingerprint, dataset_fingerprint(d));
    dataset_close(d);
    free((void *)folder);
}

static void files_of_ids_whose_documents_have_no_end_are_told(void **state)
{
    dataset_options o = {.seq_len = T, .vocab = VOCAB, .eos = -1};
    dataset *d = open_with(o, npy("endless.npy", N));
    assert_null(dataset_notice(d));
    dataset_close(d);
    o.documents = true;
    d = open_with(o, npy("endless.npy", N));
    assert_non_null(dataset_notice(d));
    assert_non_null(strstr(dataset_notice(d), "each file of token ids is one document"));
    dataset_close(d);
}

static void files_that_are_no_data_are_named(void **state)
{
    scratch_folder("mixed");
    npy("mixed/b.npy", N);
    scratch_text("mixed/README.md", "x");
    scratch_text("mixed/.hidden", "x");
    dataset *d = open_path(scratch_path("mixed"), NULL, false);
    assert_int_equal(dataset_tokens(d), N);
    assert_non_null(strstr(dataset_notice(d), "README.md"));
    dataset_close(d);
}

/* The file names of a dataset, without their folders. */
static void has_files(dataset_options o, const char *folder, const char *want, const char *left)
{
    char got[256] = "";
    dataset *d = open_with(o, scratch_path(folder));
    for (const char *at = dataset_files(d), *end; *at; at = end + (*end ? 2 : 0)) {
        end = strstr(at, ", ") ? strstr(at, ", ") : at + strlen(at);
        const char *name = at;
        for (const char *c = at; c < end; c++)
            name = *c == '/' ? c + 1 : name;
        snprintf(got + strlen(got), sizeof got - strlen(got), "%.*s ", (int)(end - name), name);
    }
    assert_string_equal(got, want);
    const char *notice = dataset_notice(d);
    if (left ? !notice || !strstr(notice, left) : notice != NULL)
        fail_msg("\"%s\" should name \"%s\"", notice, left);
    dataset_close(d);
}

static void the_names_in_a_folder_tell_splits_apart(void **state)
{
    static const char *const names[] = {"a-Train-1.npy", "dev.npy", "my_validation_set.npy", "test.npy", "train.npy", "trainer.npy"};
    const dataset_options trains = {.seq_len = T, .vocab = VOCAB};
    dataset_options evaluates = trains, beside = trains;
    char path[64];
    evaluates.use = DATA_EVALUATES;
    beside.use = DATA_BESIDE;
    scratch_folder("splits");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "splits/%s", names[i]);
        npy(path, N);
    }
    has_files(trains, "splits", "a-Train-1.npy train.npy ", "dev.npy, my_validation_set.npy, test.npy, trainer.npy");
    has_files(evaluates, "splits", "dev.npy my_validation_set.npy ", "a-Train-1.npy, test.npy, train.npy, trainer.npy");
    has_files(beside, "splits", "dev.npy my_validation_set.npy ", NULL);
    const char *paths[] = {scratch_path("splits")};
    assert_true(data_files_beside(paths, 1));
    remove(scratch_path("splits/dev.npy"));
    remove(scratch_path("splits/my_validation_set.npy"));
    assert_false(data_files_beside(paths, 1));
    has_files(trains, "splits", "a-Train-1.npy train.npy ", "test.npy");
    refused(evaluates, scratch_path("splits"), "none that is named for validation");
}

/* Without a file to train on beside others, and for files that are named one by one. */
static void other_folders_have_no_splits(void **state)
{
    const dataset_options trains = {.seq_len = T, .vocab = VOCAB};
    scratch_folder("whole");
    npy("whole/test.npy", N);
    npy("whole/valid.npy", N);
    npy("whole/x.npy", N);
    has_files(trains, "whole", "test.npy valid.npy x.npy ", NULL);
    has_files(trains, "whole/test.npy", "test.npy ", NULL);
    const char *paths[] = {scratch_path("whole"), scratch_path("splits/train.npy")};
    assert_false(data_files_beside(paths, 2));
}

static void documents_without_an_end_are_told(void **state)
{
    static const char json[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}";
    tokenizer *t;
    pt_error e = {0};
    if (tokenizer_open_memory("no end", json, sizeof json - 1, &t, &e))
        fail_msg("%s", e.text);
    const dataset_options o = {.tokenizer = t, .seq_len = 2, .vocab = 2};
    dataset *d = open_with(o, scratch_text("two.jsonl", "{\"text\": \"aba\"}\n{\"text\": \"bab\"}\n"));
    assert_non_null(dataset_notice(d));
    assert_non_null(strstr(dataset_notice(d), "eos_token_id"));
    dataset_close(d);
    d = open_with(o, scratch_text("one.txt", "abab"));
    assert_null(dataset_notice(d));
    dataset_close(d);
    tokenizer_close(t);
}

static void data_that_cannot_be_trained_on_is_refused(void **state)
{
    dataset_options o = {.seq_len = T, .vocab = VOCAB};
    scratch_folder("none");
    scratch_text("none/README.md", "x");
    refused(o, scratch_path("none"), "no data in this folder");
    refused(o, scratch_text("x.parquet", "x"), "does not begin with PAR1");
    refused(o, scratch_text("x.arrow", "x"), "ends too early");
    refused(o, scratch_text("x.npy.gz", "x"), "gunzip -k");
    refused(o, scratch_text("x.jsonl.xz", "x"), "unxz -k");
    refused(o, scratch_text("x.md", "x"), "unknown type of data");
    refused(o, "someone/somedata", "hf download someone/somedata --repo-type dataset");
    refused(o, "someone/somedata.jsonl", "No such file");
    refused(o, scratch_path("absent.npy"), "No such file");
    refused(o, scratch_text("x.txt", "text"), "needs a tokenizer");
    refused(o, npy("short.npy", T),
            "the data have 16 tokens, but a window of sequence length 16 needs 17: give a sequence length of at most 15");
    refused(o, npy("one.npy", 1), "1 tokens");
    refused(o, npy("zero.npy", 0), "0 tokens");
    o.vocab = 100;
    refused(o, npy("beyond.npy", N), "outside the model's vocabulary of 100");
    o.vocab = VOCAB;
    o.cache_dir = scratch_path("no/such/folder");
    refused(o, npy("ok.npy", N), "cannot make the folder of the token cache");
    o.cache_dir = NULL;
    o.seq_len = 0;
    refused(o, npy("ok.npy", N), "must be from 1");
}

static void folders_of_other_forms_are_refused_with_a_command(void **state)
{
    const dataset_options o = {.seq_len = T, .vocab = VOCAB};
    scratch_folder("packed");
    scratch_text("packed/a.txt", "x");
    scratch_text("packed/b.json.bz2", "x");
    refused(o, scratch_path("packed"), "b.json.bz2 is compressed: unpack it: bunzip2");
}

/* A folder of saved sets stands for n files, b before a, and leaves sets out. */
static void lists(data_use use, const char *folder, size_t n, const char *left_out)
{
    const char *path = scratch_path(folder);
    data_files files;
    pt_error e = {0};
    if (data_files_list(&path, 1, use, &files, &e))
        fail_msg("%s", e.text);
    assert_int_equal(files.n, n);
    assert_string_equal(strrchr(files.files[0].path, '/'), "/b.arrow");
    assert_string_equal(files.other_splits, left_out);
    data_files_free(&files);
}

static void share_is(data_use use, const char *name, double share)
{
    const char *path = scratch_path(name);
    data_files files;
    pt_error e = {0};
    if (data_files_list(&path, 1, use, &files, &e))
        fail_msg("%s", e.text);
    assert_true(files.n > 0 && files.files[0].share == share);
    data_files_free(&files);
}

/* As save_to_disk writes them: the files of a set by its state, the sets of a dictionary by their splits. */
static void saved_folders_have_their_sets(void **state)
{
    static const char set[] = "{\"_data_files\": [{\"filename\": \"b.arrow\"}, {\"filename\": \"a.arrow\"}], \"_split\": null}";
    static const char *const sets[] = {"saved", "saved/train", "saved/validation", "saved/test", "lone"};
    const dataset_options o = {.seq_len = T, .vocab = VOCAB};
    char name[64];
    for (int i = 0; i < 5; i++)
        scratch_folder(sets[i]);
    for (int i = 1; i < 5; i++) {
        snprintf(name, sizeof name, "%s/a.arrow", sets[i]);
        scratch_text(name, "x");
        snprintf(name, sizeof name, "%s/b.arrow", sets[i]);
        scratch_text(name, "x");
        snprintf(name, sizeof name, "%s/dataset_info.json", sets[i]);
        scratch_text(name, "{}");
        snprintf(name, sizeof name, "%s/state.json", sets[i]);
        scratch_text(name, set);
    }
    scratch_text("saved/dataset_dict.json", "{\"splits\": [\"train\", \"validation\", \"test\"]}");
    lists(DATA_TRAINS, "lone", 2, "");
    lists(DATA_TRAINS, "saved", 2, "validation, test");
    lists(DATA_EVALUATES, "saved", 2, "train, test");
    const char *path = scratch_path("saved");
    assert_true(data_files_beside(&path, 1));
    share_is(DATA_TRAINS, "saved:0.5", 0.5);
    share_is(DATA_BESIDE, "saved:0.5", 1);
    path = scratch_path("lone");
    assert_false(data_files_beside(&path, 1));
    scratch_text("saved/dataset_dict.json", "{\"splits\": [\"one\", \"two\"]}");
    refused(o, scratch_path("saved"), "none of the saved sets is named for training");
    scratch_text("saved/dataset_dict.json", "{\"splits\": [\"../lone\"]}");
    refused(o, scratch_path("saved"), "not as save_to_disk writes it");
    scratch_text("lone/state.json", "{\"_data_files\": [{\"filename\": \"c.arrow\"}]}");
    refused(o, scratch_path("lone"), "c.arrow: this file of the saved data cannot be opened");
}

/* Each epoch has each window once, in another order, and then padding. */
static void an_epoch_of_more_samples_than_windows_ends_with_padding(void **state)
{
    dataset *d = open_path(npy("a.npy", N), NULL, true);
    int32_t in[T], out[T], first[T];
    float weights[T];
    const uint64_t windows = dataset_windows(d), samples = windows + 3;
    char *seen = calloc(windows, 2);
    for (uint64_t i = 0; i < 2 * samples; i++) {
        const uint64_t w = dataset_window_of(d, i, samples);
        dataset_counts counts = {0};
        assert_int_equal(w == NO_WINDOW, i % samples >= windows);
        assert_int_equal(dataset_sample(d, i, samples, &(dataset_row){in, out, first, weights}, &counts, NULL), 0);
        assert_int_equal(counts.learned, w == NO_WINDOW ? 0 : T);
        for (int t = 0; t < T && w == NO_WINDOW; t++)
            assert_true(in[t] == 0 && out[t] == TARGET_PADDING && first[t] == 0 && weights[t] == 0);
        if (w != NO_WINDOW)
            assert_int_equal(seen[2 * w + i / samples]++, 0);
    }
    free(seen);
    assert_true(dataset_sample(d, 0, 0, &(dataset_row){in, out, NULL, NULL}, NULL, NULL) < 0);
    dataset_close(d);
}

static void a_failed_build_leaves_nothing_behind(void **state)
{
    scratch_folder("left");
    scratch_folder("halves");
    npy("halves/1.npy", N);
    scratch_text("halves/2.npy", "not an array");
    dataset_options o = {.cache_dir = scratch_path("left"), .seq_len = T, .vocab = VOCAB};
    refused(o, scratch_path("halves"), "2.npy: not an .npy file");
    assert_int_equal(rmdir(scratch_path("left")), 0);
}

static void *open_same(void *arg)
{
    dataset_options o = {.cache_dir = scratch_dir, .seq_len = T, .vocab = VOCAB};
    const char *paths[] = {arg};
    dataset *d;
    o.paths = paths;
    o.paths_n = 1;
    for (int i = 0; i < 20; i++) {
        if (dataset_open(&o, &d, NULL) < 0 || dataset_tokens(d) != N)
            return "failed";
        dataset_close(d);
    }
    return NULL;
}

static void many_may_want_the_same_cache_at_once(void **state)
{
    static char folder[256];
    pthread_t threads[4];
    snprintf(folder, sizeof folder, "%s", scratch_path("two"));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_same, folder), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
}

int main(void)
{
    for (int i = 0; i < N; i++)
        ids[i] = (uint16_t)(i * 3 + 1);
    scratch_make();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_in_file_order_are_consecutive),
        cmocka_unit_test(a_shuffled_epoch_visits_every_window_once),
        cmocka_unit_test(evaluation_counts_every_token),
        cmocka_unit_test(a_cache_is_used_until_it_is_stale_or_damaged),
        cmocka_unit_test(a_damaged_header_never_opens),
        cmocka_unit_test(a_flipped_bit_in_a_cache_is_found_and_the_cache_made_anew),
        cmocka_unit_test(what_was_not_checked_before_is_when_it_is_read),
        cmocka_unit_test(a_single_file_of_ids_is_not_copied),
        cmocka_unit_test(the_fingerprint_is_of_the_ids_not_of_the_file_type),
        cmocka_unit_test(documents_are_apart_by_files_and_by_the_id_that_ends_one),
        cmocka_unit_test(a_cache_serves_with_documents_apart_and_without),
        cmocka_unit_test(files_of_ids_whose_documents_have_no_end_are_told),
        cmocka_unit_test(files_that_are_no_data_are_named),
        cmocka_unit_test(the_names_in_a_folder_tell_splits_apart), cmocka_unit_test(other_folders_have_no_splits),
        cmocka_unit_test(documents_without_an_end_are_told),
        cmocka_unit_test(data_that_cannot_be_trained_on_is_refused),
        cmocka_unit_test(folders_of_other_forms_are_refused_with_a_command),
        cmocka_unit_test(saved_folders_have_their_sets),
        cmocka_unit_test(an_epoch_of_more_samples_than_windows_ends_with_padding),
        cmocka_unit_test(a_failed_build_leaves_nothing_behind),
        cmocka_unit_test(many_may_want_the_same_cache_at_once),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
