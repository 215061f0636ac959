/* json.h - reads untrusted JSON: checks sizes, depth, types and ranges. Every refusal names the file and the key.
 *
 *     json_source config;
 *     int64_t layers, heads = 12;
 *     json_source_open(&config, "model/config.json", e);
 *     json_get_int(&config, "n_layer", JSON_REQUIRED, 1, 4096, &layers, e);
 *     json_get_int(&config, "n_head", JSON_OPTIONAL, 1, 4096, &heads, e);    // 12 if absent
 *     json_source_close(&config);
 */
#ifndef PT_JSON_H
#define PT_JSON_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Files of a model or a run are far smaller: the largest index of shards has some 10 MB, the largest tokenizer.json some 35 MB. */
enum { JSON_FILE_MAX_BYTES = 64 << 20, JSON_TOKENIZER_MAX_BYTES = 256 << 20 };

/* PT_FAILED: parsed, the n bytes would take far more memory than JSON of that length does ("[],[],[]": 45 bytes for each). What is let
 * through takes at most about 25 bytes of memory for each, or 100 MB. */
int json_text_check(const char *name, const char *text, size_t n, pt_error *e);

/* Parses a whole file, or `n` bytes of text that errors call `name`. Refused, with file, line and column: invalid JSON, bytes after the
 * value, nesting deeper than 2048, files beyond JSON_FILE_MAX_BYTES, and what json_text_check refuses. `flags` are jansson's
 * (JSON_REJECT_DUPLICATES; 0: the last of equal keys). A UTF-8 byte order mark is skipped; strings may contain NUL. Integers beyond 64 bits
 * are read as doubles (Hugging Face writes model_max_length as 10^30); json_get_int accepts those that are whole and below 2^53. Infinity,
 * which Python writes too, is read as 1.79e308. The caller owns *out (json_decref). */
int json_file_load(const char *path, size_t flags, json_t **out, pt_error *e);
/* The same with another limit. */
int json_file_load_most(const char *path, size_t most, size_t flags, json_t **out, pt_error *e);
int json_text_load(const char *name, const char *text, size_t n, size_t flags, json_t **out, pt_error *e);

/* jansson's error as part of a sentence: "'}' is expected near 'x'". Returns out. */
enum { JSON_REASON_BYTES = 192 };
const char *json_reason(const json_error_t *bad, char out[JSON_REASON_BYTES]);

/* Git stores a pointer in place of a large file until Git LFS downloads it. LFS_POINTER_TEXT is a format; its argument is the path. */
bool text_is_lfs_pointer(const char *text, size_t n);
#define LFS_POINTER_TEXT "%.400s: is a Git LFS pointer in place of the file: get the file by git lfs pull, or download it again"

/* An object and its place, for messages: "model/config.json" or "model/config.json: rope_scaling". */
typedef struct json_source {
    json_t *object;
    char where[512];
} json_source;

/* Loads a file whose outermost value must be an object. Close frees it; children from json_get_object are borrowed and need no close. */
int json_source_open(json_source *src, const char *path, pt_error *e);
void json_source_close(json_source *src);
/* For files that this program writes: duplicate keys are refused, and an error says that `what` ("a plan") is needed. */
int json_source_file(json_source *src, const char *path, const char *what, pt_error *e);
int json_source_text(json_source *src, const char *name, const char *text, size_t n, const char *what, pt_error *e);

/* If a key is absent or null, JSON_REQUIRED fails and JSON_OPTIONAL leaves *out unchanged (so set the default before). A value of the wrong
 * type or outside [min, max] is always PT_FAILED. */
typedef enum json_need { JSON_OPTIONAL, JSON_REQUIRED } json_need;

int json_get_int(const json_source *src, const char *key, json_need need, int64_t min, int64_t max,
                 int64_t *out, pt_error *e); /* 3 and 3.0 are integers, 3.5 and "3" are not */
int json_get_double(const json_source *src, const char *key, json_need need, double min, double max,
                    double *out, pt_error *e);
int json_get_bool(const json_source *src, const char *key, json_need need, bool *out, pt_error *e);
int json_get_string(const json_source *src, const char *key, json_need need, const char **out,
                    pt_error *e); /* valid as long as the object; a NUL inside is refused */
int json_get_object(const json_source *src, const char *key, json_need need, json_source *out,
                    pt_error *e); /* set out->object to NULL before the call to recognize absence */
int json_get_array(const json_source *src, const char *key, json_need need, json_t **out, pt_error *e);

const char *json_type_name(const json_t *value); /* "an object", "a string", ... */

#endif
