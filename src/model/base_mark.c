#include "model/base_mark.h"

#include "base/dtype.h"
#include "base/json.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/prequantized.h"
#include "model/storage.h"
#include "model/weights.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the mark ---- */

enum { ROWS = 8, SCRATCH = 1 << 20, FEW_ROWS = 1000 /* a vocabulary may be padded behind them */ };

typedef struct marker { const model *m; const safetensors *st; uint64_t hash; void *scratch; } marker;

/* Values in FP8 are those of a copy in bf16. */
static bool is_in_few_bits(const marker *x, int index)
{
    prequantized q = {0};
    pt_error ignored;
    bool is = false;
    for (int k = 0; k < x->m->params[index].parts; k++) {
        const int few = weights_in_few_bits(x->m, x->st, index, k, &q, &ignored);
        is = is || few < 0 || (few && !q.fp8);
    }
    return is;
}

static bool add_row(marker *x, int index, int64_t row)
{
    const int64_t n = x->m->params[index].cols;
    pt_error ignored;
    float *values = malloc((size_t)n * sizeof *values);
    const bool read = values && !weights_read(x->m, x->st, index, row, 1, values, x->scratch, SCRATCH, &ignored);
    for (int64_t i = 0; i < n && read; i++)
        x->hash = (x->hash ^ bf16_from_f32(values[i])) * 0x100000001b3u;
    free(values);
    return read;
}

/* Hashes ROWS rows of different parameters of the base, spread evenly from the first to the last. */
static bool add_rows(marker *x)
{
    int of[ROWS], n = 0, base = 0, at = 0;
    for (int i = 0; i < x->m->params_n; i++)
        base += !param_is_adapter(&x->m->params[i]);
    for (int i = 0; i < x->m->params_n && n < ROWS; i++)
        if (!param_is_adapter(&x->m->params[i]) && at++ >= n * (base - 1) / (ROWS - 1))
            of[n++] = i;
    bool good = n > 0;
    for (int i = 0; i < n && good; i++) {
        const int64_t rows = x->m->params[of[i]].rows;
        good = !is_in_few_bits(x, of[i]) && add_row(x, of[i], (rows < FEW_ROWS ? rows : FEW_ROWS) * i / ROWS);
    }
    return good;
}

void base_mark_find(const model *m, const char *folder, char out[BASE_MARK])
{
    safetensors *st = NULL;
    pt_error ignored;
    marker x = {.m = m, .hash = 0xcbf29ce484222325u, .scratch = malloc(SCRATCH)};
    out[0] = 0;
    if (x.scratch && weights_present(folder) && !safetensors_open(folder, &st, &ignored)) {
        x.st = st;
        if (add_rows(&x))
            snprintf(out, BASE_MARK, "%016llx", (unsigned long long)x.hash);
    }
    safetensors_close(st);
    free(x.scratch);
}

/* ---- the file ---- */

int base_mark_write(const char mark[BASE_MARK], const model *m, const char *adapter, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    const param_storage stored = model_storage(m);
    const char *weights = mark[0] ? mark : NULL, *base = stored == STORAGE_PLAIN ? NULL : storage_format_of(stored)->name;
    const char *rope = m->config.rope_scaling[0] ? m->config.rope_scaling : NULL;
    int failed = weights || base || rope ? path_join(path, adapter, BASE_MARK_FILE, e) : 0;
    if (failed || !(weights || base || rope))
        return failed;
    json_t *o = json_pack("{s:s*, s:s*, s:s*}", "weights", weights, "base", base, "rope_scaling", rope);
    failed = o ? file_write_json(path, o, e) : pt_fail(e, PT_FAILED, "out of memory");
    json_decref(o);
    return failed;
}

static bool is_hash(const char *text)
{
    unsigned long long value;
    char again[BASE_MARK];
    return sscanf(text, "%16llx", &value) == 1 && snprintf(again, sizeof again, "%016llx", value) && !strcmp(again, text);
}

static int check_values(const json_source *src, pt_error *e)
{
    const char *weights = NULL, *base = NULL, *rope = NULL;
    const char *mend = "copy the file again from the run that wrote it, or remove it and give `base`";
    int failed = json_get_string(src, "weights", JSON_OPTIONAL, &weights, e);
    if (!failed)
        failed = json_get_string(src, "base", JSON_OPTIONAL, &base, e);
    if (!failed)
        failed = json_get_string(src, "rope_scaling", JSON_OPTIONAL, &rope, e);
    if (failed)
        return failed;
    if (weights && !is_hash(weights))
        return pt_fail(e, PT_FAILED, "%s: weights is \"%.40s\", but must be 16 hexadecimal digits: %s", src->where, weights, mend);
    if (base && storage_named(base) == STORAGE_PLAIN)
        return pt_fail(e, PT_FAILED, "%s: base is \"%.40s\", but must be nf4, int8 or mxfp4: %s", src->where, base, mend);
    return weights || base || rope ? 0 : pt_fail(e, PT_FAILED, "%s: has neither weights nor base: %s", src->where, mend);
}

int base_mark_check(const char *adapter, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_source src;
    int failed = path_join(path, adapter, BASE_MARK_FILE, e);
    if (failed || !path_exists(path))
        return failed;
    failed = json_source_open(&src, path, e);
    if (failed)
        return failed;
    failed = check_values(&src, e);
    json_source_close(&src);
    return failed;
}

/* A string of a JSON file in a folder; "": there is none. */
static void read_string(const char *folder, const char *file, const char *key, char *out, size_t n)
{
    char path[FILE_PATH_BYTES];
    json_source src;
    pt_error ignored;
    const char *text = NULL;
    out[0] = 0;
    if (path_join(path, folder, file, &ignored) || !path_exists(path) || json_source_open(&src, path, &ignored))
        return;
    if (!json_get_string(&src, key, JSON_OPTIONAL, &text, &ignored) && text)
        snprintf(out, n, "%s", text);
    json_source_close(&src);
}

param_storage base_mark_storage(const char *adapter)
{
    char name[32];
    read_string(adapter, BASE_MARK_FILE, "base", name, sizeof name);
    return storage_named(name);
}

const char *base_mark_rope(const char *adapter, char out[ROPE_MARK])
{
    out[0] = 0;
    if (adapter)
        read_string(adapter, BASE_MARK_FILE, "rope_scaling", out, ROPE_MARK);
    return out;
}

/* ---- names ---- */

static const char *last_part(char *name)
{
    for (size_t n = strlen(name); n > 1 && name[n - 1] == '/'; n--)
        name[n - 1] = 0;
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static bool has_word(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (; strlen(text) >= n; text++)
        if (!strncasecmp(text, word, n))
            return true;
    return false;
}

/* The folder may be called anything: its path, or the name in its config.json, has the base's name somewhere. */
static bool may_be_called(const char *folder, char *base)
{
    char path[PATH_MAX], name[512];
    const char *word = last_part(base);
    read_string(folder, "config.json", "_name_or_path", name, sizeof name);
    return !word[0] || has_word(realpath(folder, path) ? path : folder, word) || has_word(name, word);
}

void base_mark_compare(const model *m, const char *folder, const char *adapter, void (*notice)(void *arg, const char *sentence),
                       void *arg)
{
    char wanted[BASE_MARK], is[BASE_MARK] = "", base[512], sentence[1400];
    read_string(adapter, BASE_MARK_FILE, "weights", wanted, sizeof wanted);
    read_string(adapter, ADAPTER_CONFIG, "base_model_name_or_path", base, sizeof base);
    if (!notice)
        return;
    if (wanted[0])
        base_mark_find(m, folder, is);
    if (wanted[0] && is[0] && strcmp(wanted, is))
        snprintf(sentence, sizeof sentence,
                 "%.400s: this adapter was trained on other weights (%.300s) than those of `model` %.400s: give the model that it was "
                 "trained on, or expect other results",
                 adapter, base[0] ? base : "unknown", folder);
    else if (!(wanted[0] && is[0]) && !may_be_called(folder, base))
        snprintf(sentence, sizeof sentence,
                 "%.400s: this adapter says that it was trained on %.300s, and `model` is %.400s: make sure that they are the same",
                 adapter, base, folder);
    else
        return;
    notice(arg, sentence);
}
