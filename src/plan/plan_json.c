/* plan_json.c - a plan as text. Lists are run-length coded: 100 identical layers are one entry. */
#include "base/json.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const update_names[] = {"backward", "next_forward", "end"};
/* An old name of "all", from when norms and activations could be saved as well. */
static const char *const level_names[SAVE_LEVELS + 1] = {"input", "attention", "all", "matmuls"};
static const struct { const char *name; pt_dtype type; } types[] = {{"fp32", PT_F32}, {"bf16", PT_BF16}, {"fp64", PT_F64}};

enum { UPDATES = 3, TYPES = 3 };

/* ---- reading ---- */

static int get_name(const json_source *src, const char *key, const char *const *names, int n, int *out, pt_error *e)
{
    const char *text;
    int failed = json_get_string(src, key, JSON_REQUIRED, &text, e);
    if (failed)
        return failed;
    char list[128] = "";
    for (int i = 0; i < n; i++) {
        if (!strcmp(text, names[i])) {
            *out = i;
            return 0;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
    }
    return pt_fail(e, PT_FAILED, "%s: \"%s\" is \"%.40s\"; it must be one of %s", src->where, key, text, list);
}

static int get_int(const json_source *src, const char *key, int min, int max, int *out, pt_error *e)
{
    int64_t n;
    int failed = json_get_int(src, key, JSON_REQUIRED, min, max, &n, e);
    if (!failed)
        *out = (int)n;
    return failed;
}

static int refuse_unknown(const json_source *src, const char *const *known, int n, pt_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach(src->object, key, value) {
        int i = 0;
        while (i < n && strcmp(key, known[i]))
            i++;
        if (i == n)
            return pt_fail(e, PT_FAILED, "%s: the key \"%.60s\" is unknown; remove it or correct its spelling", src->where, key);
    }
    return 0;
}

/* Older files lack them. */
static int read_dimensions(const json_source *in, plan_target *t, pt_error *e)
{
    const struct { const char *key; int64_t *to; } all[] = {{"hidden", &t->hidden}, {"heads", &t->heads}, {"kv_heads", &t->kv_heads},
                                                            {"ffn", &t->ffn}, {"vocab", &t->vocab}};
    int failed = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all && !failed; i++)
        failed = json_get_int(in, all[i].key, JSON_OPTIONAL, 1, INT64_MAX, all[i].to, e);
    return failed;
}

/* These keys are there only if parameters are frozen. */
static int read_trained(const json_source *in, plan_target *t, pt_error *e)
{
    const char *text = "0";
    char *end;
    t->trained = t->parameters;
    int failed = json_get_int(in, "trained", JSON_OPTIONAL, 1, t->parameters, &t->trained, e);
    int64_t passing = 0;
    if (!failed)
        failed = json_get_int(in, "passing", JSON_OPTIONAL, 0, t->layers, &passing, e);
    t->passing = (int)passing;
    const char *trains = "";
    if (!failed)
        failed = json_get_string(in, "trains", JSON_OPTIONAL, &trains, e);
    if (!failed)
        failed = json_get_string(in, "frozen", JSON_OPTIONAL, &text, e);
    if (failed)
        return failed;
    snprintf(t->trains, sizeof t->trains, "%s", trains);
    t->frozen = strtoull(text, &end, 16);
    if (!*text || *end || (t->frozen == 0) != (t->trained == t->parameters))
        return pt_fail(e, PT_FAILED, "%s: \"trained\" and \"frozen\" do not belong together; plan again", in->where);
    return 0;
}

static int read_optimizer(const json_source *in, plan_target *t, pt_error *e)
{
    const char *names[OPTIMIZERS_MOST];
    int n = 0, at = 0;
    if (!json_object_get(in->object, "optimizer"))
        return 0;
    for (; optimizers[n]; n++)
        names[n] = optimizers[n]->name;
    int failed = get_name(in, "optimizer", names, n, &at, e);
    t->optimizer = failed ? NULL : optimizers[at];
    return failed;
}

static int read_target(const json_source *src, plan_target *t, pt_error *e)
{
    static const char *const keys[] = {"model_type", "parameters", "layers", "hidden", "heads", "kv_heads", "ffn",    "vocab",
                                       "seq_len",    "batch",      "dtype",  "optimizer", "gpu", "trained", "frozen", "passing", "trains",
                                       "parts"};
    json_source in = {0};
    int failed = json_get_object(src, "made_for", JSON_OPTIONAL, &in, e), type = 0;
    if (failed || !in.object)
        return failed;
    const char *name, *const type_names[TYPES] = {types[0].name, types[1].name, types[2].name};
    failed = refuse_unknown(&in, keys, sizeof keys / sizeof *keys, e);
    if (!failed)
        failed = json_get_string(&in, "model_type", JSON_REQUIRED, &name, e);
    if (!failed && (!*name || strlen(name) >= sizeof t->model_type))
        failed = pt_fail(e, PT_FAILED, "%s: \"model_type\" is \"%.40s\"; it must be the name in config.json", in.where, name);
    if (!failed)
        failed = json_get_int(&in, "parameters", JSON_REQUIRED, 1, INT64_MAX, &t->parameters, e);
    if (!failed)
        failed = json_get_int(&in, "layers", JSON_REQUIRED, 1, MODEL_MAX_LAYERS, &t->layers, e);
    if (!failed)
        failed = read_dimensions(&in, t, e);
    if (!failed)
        failed = json_get_int(&in, "seq_len", JSON_REQUIRED, 1, INT32_MAX, &t->seq_len, e);
    if (!failed)
        failed = json_get_int(&in, "batch", JSON_REQUIRED, 1, INT32_MAX, &t->batch, e);
    t->parts = 1;
    if (!failed)
        failed = json_get_int(&in, "parts", JSON_OPTIONAL, 1, INT32_MAX, &t->parts, e);
    if (!failed)
        failed = get_name(&in, "dtype", type_names, TYPES, &type, e);
    if (!failed)
        failed = read_trained(&in, t, e);
    if (!failed)
        failed = read_optimizer(&in, t, e);
    bool gpu = false;
    if (!failed)
        failed = json_get_bool(&in, "gpu", JSON_OPTIONAL, &gpu, e);
    if (failed)
        return failed;
    strcpy(t->model_type, name);
    t->type = types[type].type;
    t->gpu = json_is_boolean(json_object_get(in.object, "gpu")) ? gpu : -1;
    return 0;
}

/* Calls `read` for each entry of a run-length coded list; without `p` only counts the entries. */
typedef int (*read_entry)(const json_source *s, plan *p, int at, int count, pt_error *e);

static int read_list(const json_source *src, const char *key, int max, read_entry read, plan *plan, int *n, pt_error *e)
{
    json_t *list, *value;
    size_t i;
    *n = 0;
    int failed = json_get_array(src, key, JSON_REQUIRED, &list, e);
    if (failed)
        return failed;
    json_array_foreach(list, i, value) {
        json_source entry = {.object = value};
        int count;
        snprintf(entry.where, sizeof entry.where, "%.440s: %s[%zu]", src->where, key, i);
        if (!json_is_object(value))
            return pt_fail(e, PT_FAILED, "%s is %s, but an object { ... } is needed", entry.where, json_type_name(value));
        failed = get_int(&entry, "count", 1, max, &count, e);
        if (!failed && count > max - *n)
            failed = pt_fail(e, PT_FAILED, "%s: the counts add up to more than %d; correct them", entry.where, max);
        if (!failed && plan)
            failed = read(&entry, plan, *n, count, e);
        if (failed)
            return failed;
        *n += count;
    }
    if (!*n)
        return pt_fail(e, PT_FAILED, "%s: \"%s\" is empty; plan again", src->where, key);
    return 0;
}

static int read_chunks(const json_source *src, plan *plan, int at, int count, pt_error *e)
{
    static const char *const keys[] = {"count", "home", "update", "sharded"};
    bool sharded = false;
    int placement = 0, update = 0, failed = refuse_unknown(src, keys, 4, e);
    if (!failed)
        failed = get_name(src, "home", tier_names, TIERS, &placement, e);
    if (!failed)
        failed = get_name(src, "update", tier_names, TIER_DISK, &update, e);
    if (!failed)
        failed = json_get_bool(src, "sharded", JSON_OPTIONAL, &sharded, e);
    for (int i = at; !failed && i < at + count; i++)
        plan->chunks[i] = (plan_chunk){(tier)placement, (tier)update, sharded};
    return failed;
}

static int read_blocks(const json_source *src, plan *plan, int at, int count, pt_error *e)
{
    static const char *const keys[] = {"count", "save", "place"};
    int level = 0, place = 0, failed = refuse_unknown(src, keys, 3, e);
    if (!failed)
        failed = get_name(src, "save", level_names, SAVE_LEVELS + 1, &level, e);
    if (!failed)
        failed = get_name(src, "place", tier_names, TIERS, &place, e);
    for (int i = at; !failed && i < at + count; i++)
        plan->blocks[i] = (plan_block){level < SAVE_ALL ? (save_level)level : SAVE_ALL, (tier)place};
    return failed;
}

static int read_numbers(const json_source *src, plan *plan, pt_error *e)
{
    int update = 0,
        failed = json_get_int(src, "chunk_bytes", JSON_REQUIRED, PLAN_MIN_CHUNK_BYTES, PLAN_MAX_CHUNK_BYTES, &plan->chunk_bytes, e);
    if (!failed)
        failed = get_int(src, "n_buffer", 0, PLAN_MAX_SLOTS, &plan->n_buffer, e);
    if (!failed)
        failed = get_int(src, "n_update", 0, PLAN_MAX_SLOTS, &plan->n_update, e);
    if (!failed)
        failed = get_int(src, "n_swap", 0, PLAN_MAX_SLOTS, &plan->n_swap, e);
    if (!failed)
        failed = json_get_int(src, "micro_batch", JSON_REQUIRED, 1, INT32_MAX, &plan->micro_batch, e);
    if (!failed)
        failed = get_int(src, "visit", 1, INT32_MAX, &plan->visit, e);
    if (!failed)
        failed = get_name(src, "update", update_names, UPDATES, &update, e);
    if (!failed)
        failed = json_get_bool(src, "ranges", JSON_OPTIONAL, &plan->ranges, e);
    if (!failed)
        plan->update = (update_time)update;
    return failed;
}

static int read_object(const json_source *src, plan *out, pt_error *e)
{
    static const char *const keys[] = {"made_for", "chunk_bytes", "n_buffer", "n_update", "n_swap", "micro_batch",
                                       "visit",    "update",      "ranges",   "chunks",   "blocks"};
    int chunks, blocks, failed = refuse_unknown(src, keys, (int)(sizeof keys / sizeof *keys), e);
    if (!failed)
        failed = read_list(src, "chunks", PLAN_MAX_CHUNKS, read_chunks, NULL, &chunks, e);
    if (!failed)
        failed = read_list(src, "blocks", MODEL_MAX_LAYERS, read_blocks, NULL, &blocks, e);
    if (failed)
        return failed;
    plan plan;
    failed = plan_alloc(&plan, chunks, blocks, e);
    if (failed)
        return failed;
    failed = read_target(src, &plan.made_for, e);
    if (!failed)
        failed = read_numbers(src, &plan, e);
    if (!failed)
        failed = read_list(src, "chunks", PLAN_MAX_CHUNKS, read_chunks, &plan, &chunks, e);
    if (!failed)
        failed = read_list(src, "blocks", MODEL_MAX_LAYERS, read_blocks, &plan, &blocks, e);
    if (failed)
        plan_free(&plan);
    else
        *out = plan;
    return failed;
}

/* A plan, or the output of `protrain plan --json`, which has one under "plan". */
static int read_any(const json_source *src, plan *out, pt_error *e)
{
    json_source inner;
    if (json_is_false(json_object_get(src->object, "fits")))
        return pt_fail(e, PT_FAILED, "%s: \"fits\" is false, so the file has no plan: plan again with the change that it names",
                       src->where);
    if (!json_object_get(src->object, "fits"))
        return read_object(src, out, e);
    int failed = json_get_object(src, "plan", JSON_REQUIRED, &inner, e);
    return failed ? failed : read_object(&inner, out, e);
}

enum { STREAM_MOST = 16 << 20 };

/* A pipe has no size: read to its end. */
static bool is_stream(const char *path)
{
    return !strcmp(path, "-") || !strcmp(path, "/dev/stdin") || !strncmp(path, "/dev/fd/", 8);
}

static int read_stream(const char *path, plan *out, pt_error *e)
{
    const char *name = path[0] == '-' ? "standard input" : path;
    FILE *f = path[0] == '-' ? stdin : fopen(path, "rbe");
    if (!f)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be opened", path);
    char *text = malloc(STREAM_MOST);
    const size_t n = text ? fread(text, 1, STREAM_MOST, f) : 0;
    int failed = !text            ? pt_fail(e, PT_FAILED, "out of memory for a plan")
                 : ferror(f)      ? pt_fail_errno(e, PT_FAILED, "%.400s: cannot be read", name)
                 : n == STREAM_MOST ? pt_fail(e, PT_FAILED, "%.400s: the file has more than %d MiB, too much for a plan", name,
                                              STREAM_MOST >> 20) : plan_from_json(name, text, n, out, e);
    if (f != stdin)
        fclose(f);
    free(text);
    return failed;
}

static int read_and_close(json_source *src, plan *out, pt_error *e)
{
    const int failed = read_any(src, out, e);
    json_source_close(src);
    return failed;
}

int plan_read(const char *path, plan *out, pt_error *e)
{
    if (is_stream(path))
        return read_stream(path, out, e);
    json_source src;
    const int failed = json_source_file(&src, path, "a plan", e);
    return failed ? failed : read_and_close(&src, out, e);
}

int plan_from_json(const char *name, const char *json, size_t n, plan *out, pt_error *e)
{
    json_source src;
    const int failed = json_source_text(&src, name, json, n, "a plan", e);
    return failed ? failed : read_and_close(&src, out, e);
}

/* ---- writing ---- */

static void write_chunks(FILE *f, const plan *plan)
{
    for (int i = 0, n; i < plan->chunks_n; i += n) {
        const plan_chunk *c = &plan->chunks[i];
        for (n = 1; i + n < plan->chunks_n && plan_chunk_same(c, c + n);)
            n++;
        fprintf(f, "%s\n    {\"count\": %d, \"home\": \"%s\", \"update\": \"%s\"%s}", i ? "," : "", n, tier_names[c->placement],
                tier_names[c->update], c->sharded ? ", \"sharded\": true" : "");
    }
}

static void write_blocks(FILE *f, const plan *plan)
{
    for (int i = 0, n; i < plan->blocks_n; i += n) {
        const plan_block *b = &plan->blocks[i];
        for (n = 1; i + n < plan->blocks_n && b[n].level == b->level && b[n].place == b->place;)
            n++;
        fprintf(f, "%s\n    {\"count\": %d, \"save\": \"%s\", \"place\": \"%s\"}", i ? "," : "", n, level_names[b->level],
                tier_names[b->place]);
    }
}

char *plan_write_json(const plan *plan, const char *made_for)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    fprintf(f, "{\n  \"made_for\": {%s},\n", made_for);
    fprintf(f,
            "  \"chunk_bytes\": %lld,\n  \"n_buffer\": %d,\n  \"n_update\": %d,\n  \"n_swap\": %d,\n  \"micro_batch\": %lld,\n"
            "  \"visit\": %d,\n  \"update\": \"%s\",%s\n  \"chunks\": [",
            (long long)plan->chunk_bytes, plan->n_buffer, plan->n_update, plan->n_swap, (long long)plan->micro_batch, plan->visit,
            update_names[plan->update], plan->ranges ? "\n  \"ranges\": true," : "");
    write_chunks(f, plan);
    fprintf(f, "\n  ],\n  \"blocks\": [");
    write_blocks(f, plan);
    fprintf(f, "\n  ]\n}\n");
    bool failed = ferror(f);
    if (fclose(f) || failed) {
        free(text);
        return NULL;
    }
    return text;
}

char *plan_to_json(const plan *plan, const model *m, const step_shape *shape)
{
    const model_config *config = &m->config;
    char trained[128] = "", parts[32] = "", trains[MODEL_TRAINED_TEXT], made_for[1024 + MODEL_TRAINED_TEXT];
    model_describe_trained(m, shape_optimizer(shape)->name, trains);
    if (!model_trains_all(m))
        snprintf(trained, sizeof trained, ", \"trained\": %lld, \"passing\": %d, \"frozen\": \"%016llx\"",
                 (long long)model_trained_parameters(m), model_passing_layers(m), (unsigned long long)model_frozen_hash(m));
    if (shape_parts(shape) > 1)
        snprintf(parts, sizeof parts, ", \"parts\": %lld", (long long)shape_parts(shape));
    snprintf(made_for, sizeof made_for,
             "\"model_type\": \"%s\", \"parameters\": %lld, \"layers\": %lld, \"hidden\": %lld, \"heads\": %lld, \"kv_heads\": %lld, "
             "\"ffn\": %lld, \"vocab\": %lld, \"seq_len\": %lld, \"batch\": %lld%s, \"dtype\": \"%s\", \"optimizer\": \"%s\", "
             "\"gpu\": %s%s, \"trains\": \"%s\"",
             config->model_type, (long long)m->parameters, (long long)config->layers, (long long)config->hidden, (long long)config->heads,
             (long long)config->kv_heads, (long long)config->ffn, (long long)config->vocab, (long long)shape->seq_len,
             (long long)shape->batch, parts, types[shape->type == types[1].type].name, shape_optimizer(shape)->name,
             shape->gpu ? "true" : "false", trained, trains);
    return plan_write_json(plan, made_for);
}
