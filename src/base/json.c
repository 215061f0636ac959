#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *json_mend(enum json_error_code code)
{
    switch (code) {
    case json_error_stack_overflow: return "; it nests deeper than 2048 levels";
    case json_error_premature_end_of_input: return "; the file is cut off: get another copy";
    case json_error_end_of_input_expected: return "; remove what follows the end of the value";
    case json_error_duplicate_key: return "; remove one of the two";
    case json_error_invalid_utf8: return "; save the file as UTF-8";
    default: return "";
    }
}

const char *json_reason(const json_error_t *bad, char out[JSON_REASON_BYTES])
{
    const char *wanted = strstr(bad->text, " expected near "), *before = wanted ? " is" : "";
    const int n = wanted ? (int)(wanted - bad->text) : 0;
    snprintf(out, JSON_REASON_BYTES, "%.*s%s%.150s", n, bad->text, before, bad->text + n);
    return out;
}

static size_t number_length(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && text[i] && strchr("+-.0123456789eE", text[i]))
        i++;
    return i;
}

static bool is_beyond_64_bits(const char *number, size_t n)
{
    char digits[24]; /* "-9223372036854775808" has 20 */
    if (memchr(number, '.', n) || memchr(number, 'e', n) || memchr(number, 'E', n))
        return false;
    if (n >= sizeof digits)
        return true;
    memcpy(digits, number, n);
    digits[n] = 0;
    errno = 0;
    strtoll(digits, NULL, 10);
    return errno == ERANGE;
}

/* A copy of the text in which what Python writes beyond JSON is JSON: integers beyond 64 bits are reals
 * ("1000000000000000019884624838656.0"), and Infinity, as configurations have it for a limit, is a number near the largest. The caller
 * frees it. */
static char *python_as_json(const char *text, size_t n, size_t *out_n)
{
    static const char infinity[] = "Infinity", largest[] = "1.79e308";
    enum { SHORTEST = 19, INFINITY_BYTES = sizeof infinity - 1 };
    char *out = malloc(n + 2 * (n / SHORTEST + 1));
    bool in_string = false;
    size_t m = 0;
    for (size_t i = 0, step; out && i < n; i += step) {
        const size_t number = in_string ? 0 : number_length(text + i, n - i);
        const bool is_infinity = !in_string && n - i >= INFINITY_BYTES && !memcmp(text + i, infinity, INFINITY_BYTES);
        step = is_infinity ? INFINITY_BYTES : number ? number : in_string && text[i] == '\\' && i + 1 < n ? 2 : 1;
        in_string ^= text[i] == '"';
        memcpy(out + m, is_infinity ? largest : text + i, step);
        m += step;
        if (number && is_beyond_64_bits(text + i, number)) {
            memcpy(out + m, ".0", 2);
            m += 2;
        }
    }
    *out_n = m;
    return out;
}

bool text_is_lfs_pointer(const char *text, size_t n)
{
    static const char start[] = "version https://git-lfs.";
    return n >= sizeof start - 1 && !memcmp(text, start, sizeof start - 1);
}

/* About the memory of the parsed value, from above. */
static uint64_t memory_of(const char *text, size_t n)
{
    enum { STRING = 64, LIST = 128, OBJECT = 256, NEXT = 48, PAIR = 64 };
    uint64_t bytes = n;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        bytes += c == ',' ? NEXT : c == '"' ? STRING : c == ':' ? PAIR : c == '[' ? LIST : c == '{' ? OBJECT : 0;
    }
    return bytes;
}

int json_text_check(const char *name, const char *text, size_t n, pt_error *e)
{
    enum { ALWAYS = 1 << 20, TIMES = 32 };
    const uint64_t bytes = n > ALWAYS ? memory_of(text, n) : 0;
    if (bytes <= (uint64_t)TIMES * n)
        return 0;
    return pt_fail(e, PT_FAILED, "%.400s: %zu bytes of JSON would take about %llu MiB of memory, because they hold so many values: no file "
                   "of this kind does; get another copy", name, n, (unsigned long long)(bytes >> 20));
}

int json_text_load(const char *name, const char *text, size_t n, size_t flags, json_t **out, pt_error *e)
{
    *out = NULL;
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) {
        text += 3;
        n -= 3;
    }
    if (!n)
        return pt_fail(e, PT_FAILED, "%.400s is empty: get another copy", name);
    if (text_is_lfs_pointer(text, n))
        return pt_fail(e, PT_FAILED, LFS_POINTER_TEXT, name);
    json_error_t bad;
    char reason[JSON_REASON_BYTES];
    if (json_text_check(name, text, n, e))
        return PT_FAILED;
    flags |= JSON_ALLOW_NUL;
    json_t *value = json_loadb(text, n, flags, &bad);
    if (!value && (json_error_code(&bad) == json_error_numeric_overflow || json_error_code(&bad) == json_error_invalid_syntax)) {
        char *json = python_as_json(text, n, &n);
        if (!json)
            return pt_fail(e, PT_FAILED, "%.400s: out of memory", name);
        value = json_loadb(json, n, flags, &bad);
        free(json);
    }
    if (!value)
        return pt_fail(e, PT_FAILED, "%.400s:%d:%d: not valid JSON: %s%s", name, bad.line, bad.column, json_reason(&bad, reason),
                       json_mend(json_error_code(&bad)));
    *out = value;
    return 0;
}

/* Reads at most `most` bytes. The caller frees *text. */
static int json_file_read(FILE *f, const char *path, size_t most, char **text, size_t *n, pt_error *e)
{
    struct stat st;
    if (fstat(fileno(f), &st))
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be examined", path);
    if (!S_ISREG(st.st_mode))
        return pt_fail(e, PT_FAILED, "%.400s: is %s, but a JSON file is needed", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
    if ((uint64_t)st.st_size > most)
        return pt_fail(e, PT_FAILED, "%.400s: has %lld bytes, but at most %zu MiB are read: no file of this kind is so large; get another "
                       "copy", path, (long long)st.st_size, most >> 20);
    size_t capacity = (size_t)st.st_size + 1;
    *text = malloc(capacity);
    if (!*text)
        return pt_fail(e, PT_FAILED, "%.400s: no memory for its %zu bytes", path, capacity);
    *n = fread(*text, 1, capacity, f);
    if (ferror(f))
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be read", path);
    if (*n == capacity)
        return pt_fail(e, PT_FAILED, "%.400s: grew while it was read; try again", path);
    return 0;
}

int json_file_load(const char *path, size_t flags, json_t **out, pt_error *e)
{
    return json_file_load_most(path, JSON_FILE_MAX_BYTES, flags, out, e);
}

int json_file_load_most(const char *path, size_t most, size_t flags, json_t **out, pt_error *e)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a pipe's writer */
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
    if (!f) {
        int failed = pt_fail_errno(e, PT_FAILED, "%.400s: cannot be opened", path);
        if (fd >= 0)
            close(fd);
        return failed;
    }
    char *text = NULL;
    size_t n = 0;
    int status = json_file_read(f, path, most, &text, &n, e);
    fclose(f);
    if (!status)
        status = json_text_load(path, text, n, flags, out, e);
    free(text);
    return status;
}

const char *json_type_name(const json_t *value)
{
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with a fraction";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    default: return "null";
    }
}

/* Takes ownership of the value, which must be an object. */
static int source_take(json_source *src, const char *name, json_t *value, const char *what, pt_error *e)
{
    *src = (json_source){0};
    snprintf(src->where, sizeof src->where, "%.400s", name);
    if (json_is_object(value)) {
        src->object = value;
        return 0;
    }
    int status = pt_fail(e, PT_FAILED, "%s: holds %s, but %s { ... } is needed", src->where, json_type_name(value), what);
    json_decref(value);
    return status;
}

int json_source_open(json_source *src, const char *path, pt_error *e)
{
    json_t *value;
    int status = json_file_load(path, 0, &value, e);
    return status ? status : source_take(src, path, value, "an object", e);
}

int json_source_file(json_source *src, const char *path, const char *what, pt_error *e)
{
    json_t *value;
    int status = json_file_load(path, JSON_REJECT_DUPLICATES, &value, e);
    return status ? status : source_take(src, path, value, what, e);
}

int json_source_text(json_source *src, const char *name, const char *text, size_t n, const char *what, pt_error *e)
{
    json_t *value;
    int status = json_text_load(name, text, n, JSON_REJECT_DUPLICATES, &value, e);
    return status ? status : source_take(src, name, value, what, e);
}

void json_source_close(json_source *src)
{
    json_decref(src->object);
    src->object = NULL;
}

/* 1: found; 0: absent or null, and optional; negative: an error. */
static int json_find(const json_source *src, const char *key, json_need need, json_t **value, pt_error *e)
{
    *value = json_object_get(src->object, key);
    if (*value && !json_is_null(*value))
        return 1;
    if (need == JSON_OPTIONAL)
        return 0;
    return pt_fail(e, PT_FAILED, "%s: the key \"%s\" is %s, but it is needed", src->where, key,
                   *value ? "null" : "missing");
}

static int json_wrong_type(const json_source *src, const char *key, const json_t *value, const char *wanted,
                           pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: \"%s\" is %s, but %s is needed", src->where, key, json_type_name(value),
                   wanted);
}

int json_get_int(const json_source *src, const char *key, json_need need, int64_t min, int64_t max,
                 int64_t *out, pt_error *e)
{
    json_t *value;
    int found = json_find(src, key, need, &value, e);
    if (found <= 0)
        return found;
    int64_t number;
    double real = json_real_value(value);
    if (json_is_integer(value))
        number = json_integer_value(value);
    else if (json_is_real(value) && fabs(real) <= 0x1p53 && real == floor(real))
        number = (int64_t)real;
    else if (json_is_real(value) && fabs(real) > 0x1p53)
        return pt_fail(e, PT_FAILED, "%s: \"%s\" is %g, but it must be from %lld to %lld", src->where, key, real,
                       (long long)min, (long long)max);
    else
        return json_wrong_type(src, key, value, "an integer", e);
    if (number < min || number > max)
        return pt_fail(e, PT_FAILED, "%s: \"%s\" is %lld, but it must be from %lld to %lld", src->where, key,
                       (long long)number, (long long)min, (long long)max);
    *out = number;
    return 0;
}

int json_get_double(const json_source *src, const char *key, json_need need, double min, double max,
                    double *out, pt_error *e)
{
    json_t *value;
    int found = json_find(src, key, need, &value, e);
    if (found <= 0)
        return found;
    if (!json_is_number(value))
        return json_wrong_type(src, key, value, "a number", e);
    double number = json_number_value(value);
    if (!(number >= min && number <= max))
        return pt_fail(e, PT_FAILED, "%s: \"%s\" is %g, but it must be from %g to %g", src->where, key, number, min,
                       max);
    *out = number;
    return 0;
}

int json_get_bool(const json_source *src, const char *key, json_need need, bool *out, pt_error *e)
{
    json_t *value;
    int found = json_find(src, key, need, &value, e);
    if (found <= 0)
        return found;
    if (!json_is_boolean(value))
        return json_wrong_type(src, key, value, "true or false", e);
    *out = json_is_true(value);
    return 0;
}

int json_get_string(const json_source *src, const char *key, json_need need, const char **out, pt_error *e)
{
    json_t *value;
    int found = json_find(src, key, need, &value, e);
    if (found <= 0)
        return found;
    if (!json_is_string(value))
        return json_wrong_type(src, key, value, "a string", e);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return pt_fail(e, PT_FAILED, "%s: the string \"%s\" holds a NUL character; remove it", src->where, key);
    *out = json_string_value(value);
    return 0;
}

int json_get_object(const json_source *src, const char *key, json_need need, json_source *out, pt_error *e)
{
    json_t *value;
    int found = json_find(src, key, need, &value, e);
    if (found <= 0)
        return found;
    if (!json_is_object(value))
        return json_wrong_type(src, key, value, "an object", e);
    char where[sizeof out->where]; /* out may be s */
    int n = snprintf(where, sizeof where, "%s: %s", src->where, key);
    if (n >= (int)sizeof where)
        where[sizeof where - 1] = 0;
    memcpy(out->where, where, sizeof where);
    out->object = value;
    return 0;
}

int json_get_array(const json_source *src, const char *key, json_need need, json_t **out, pt_error *e)
{
    json_t *value;
    int found = json_find(src, key, need, &value, e);
    if (found <= 0)
        return found;
    if (!json_is_array(value))
        return json_wrong_type(src, key, value, "a list", e);
    *out = value;
    return 0;
}
