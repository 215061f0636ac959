/* fixture.h - the fixtures of tests/fixtures: a small model, what PyTorch computes from it, and comparing with that.
 *
 * Parameters are compared tensor by tensor as Hugging Face has them, because that is how the reference is stored.
 * Formats: tests/fixtures/README.md. Include after cmocka.h. */
#ifndef PT_TEST_FIXTURE_H
#define PT_TEST_FIXTURE_H

#include "base/json.h"
#include "base/units.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "model/weights.h"

#include "io/scratch.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* PT_TEST_FIXTURES=DIR reads others than the stored ones, such as make_models.py makes from another seed. */
static inline const char *fixtures_root(void)
{
    const char *given = getenv("PT_TEST_FIXTURES");
    return given ? given : PT_FIXTURES;
}

/* The size that a refusal advises for an option; `else_bytes` where it does not name it. */
static inline uint64_t advised(const pt_error *e, const char *option, uint64_t else_bytes)
{
    char size[32];
    uint64_t bytes = else_bytes;
    const char *at = strstr(e->text, option);
    pt_error own = {0};
    if (at && (sscanf(at + strlen(option), " %31[0-9A-Za-z.]", size) != 1 || size_parse(size, &bytes, &own)))
        fail_msg("%s: %s", e->text, own.text);
    return bytes;
}

typedef struct fixture {
    char name[256], folder[512], tokens[600];
    json_t *json;
    safetensors *weights, *reference; /* reference: NULL where the folder has none */
    model *model;
} fixture;

static inline void must(int failed, const pt_error *e)
{
    if (failed)
        fail_msg("%s", e->text);
}

/* ---- reading ---- */

static inline void fixture_open(fixture *f, const char *kind, const char *name)
{
    pt_error e = {0};
    char path[600];
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->folder, sizeof f->folder, "%s/%s/%s", fixtures_root(), kind, name);
    snprintf(f->tokens, sizeof f->tokens, "%s/tokens.npy", f->folder);
    snprintf(path, sizeof path, "%s/reference.json", f->folder);
    must(json_file_load(path, 0, &f->json, &e), &e);
    must(model_open(f->folder, NULL, NULL, &f->model, &e), &e);
    must(safetensors_open(f->folder, &f->weights, &e), &e);
    snprintf(path, sizeof path, "%s/reference.safetensors", f->folder);
    if (path_exists(path))
        must(safetensors_open(path, &f->reference, &e), &e);
}

static inline void fixture_close(fixture *f)
{
    json_decref(f->json);
    safetensors_close(f->weights);
    safetensors_close(f->reference);
    model_close(f->model);
}

static inline double fixture_setting(const fixture *f, const char *key)
{
    const json_t *value = json_object_get(json_object_get(f->json, "settings"), key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* The factor of the loss that balances routers. */
static inline double fixture_router_aux(const fixture *f)
{
    return json_number_value(json_object_get(json_object_get(f->json, "settings"), "router_aux_loss"));
}

/* Number `step` (from 0) of a list such as "loss_fp64". */
static inline double fixture_of_step(const fixture *f, const char *key, int step)
{
    const json_t *value = json_array_get(json_object_get(f->json, key), (size_t)step);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* Whole runs are a CPU's, whatever is there, unless the tests were asked for on a GPU. */
static inline const char *run_device(void)
{
    const char *name = getenv("PROTRAIN_TEST_DEVICE");
    return name && strncmp(name, "cuda", 4) == 0 ? name : "cpu";
}

static inline bool on_gpu(void) { return strcmp(run_device(), "cpu") != 0; }

/* The options of the run that the reference made; `out` must live as long. */
static inline void fixture_options(const fixture *f, const char *const *tokens, const char *out, pt_train_options *o)
{
    const char *schedule = json_string_value(json_object_get(json_object_get(f->json, "settings"), "lr_schedule"));
    pt_train_defaults(o);
    o->device = run_device();
    o->model = f->folder;
    o->data = tokens;
    o->data_n = 1;
    o->out = out;
    o->shuffle = false;
    o->steps = (int64_t)fixture_setting(f, "steps");
    o->batch_size = (int64_t)fixture_setting(f, "batch_size");
    o->seq_len = (int64_t)fixture_setting(f, "seq_len");
    o->rope_scaling = "none"; /* some have longer sequences than positions */
    o->lr = fixture_setting(f, "lr");
    o->lr_schedule = strcmp(schedule, "cosine") == 0 ? PT_LR_COSINE : PT_LR_CONSTANT;
    o->warmup_steps = (int64_t)fixture_setting(f, "warmup_steps");
    o->weight_decay = fixture_setting(f, "weight_decay");
    o->beta1 = fixture_setting(f, "beta1");
    o->beta2 = fixture_setting(f, "beta2");
    o->eps = fixture_setting(f, "eps");
    o->max_grad_norm = fixture_setting(f, "max_grad_norm");
    o->router_aux_loss = fixture_router_aux(f);
    o->precision = PT_PRECISION_FP32;
    o->save_type = PT_SAVE_F32;
    o->keep = 0;
    o->threads = 2;
    o->device_memory = 256u << 20;
    o->disk_memory = 64u << 20; /* asked for: scratch may lie in RAM */
}

/* Options for steps that are compared with those of a framework: examples in order, one a window, in fp32, at a constant rate. */
static inline pt_train_options compared_options(const char *out)
{
    pt_train_options o;
    pt_train_defaults(&o);
    o.out = out;
    o.data_n = 1;
    o.batch_size = 4;
    o.no_packing = true;
    o.shuffle = false;
    o.precision = PT_PRECISION_FP32;
    o.lr = 2e-3;
    o.lr_schedule = PT_LR_CONSTANT;
    o.device = "cpu";
    o.threads = 2;
    o.device_memory = 64u << 20;
    o.disk_memory = 0;
    return o;
}

/* Opens (or resumes) a run and takes it to step `steps`, or to its end; there is a checkpoint then, or the model. */
static inline int train_to(const pt_train_options *o, int64_t steps, pt_error *e)
{
    pt_trainer *t;
    pt_step s = {0};
    int failed = pt_trainer_open(o, &t, e), more = 1;
    if (failed)
        return failed;
    while (s.step < steps && more > 0)
        more = pt_trainer_step(t, &s, e);
    failed = more < 0 ? more : s.step < o->steps ? pt_trainer_save(t, e) : pt_trainer_finish(t, e);
    pt_trainer_close(t);
    return failed;
}

/* Of a model, or of one with an adapter (else NULL), in windows of 16 tokens, fp32. */
static inline double evaluated_loss(const char *model, const char *adapter, const char *tokens)
{
    pt_evaluate_options o;
    pt_evaluation v;
    pt_error e = {0};
    pt_evaluate_defaults(&o);
    o.model = model;
    o.adapter = adapter;
    o.data = (const char *const[]){tokens};
    o.data_n = 1;
    o.seq_len = 16;
    o.precision = PT_PRECISION_FP32;
    o.device = "cpu";
    o.device_memory = 64u << 20;
    o.disk_memory = 0;
    must(pt_evaluate(&o, &v, &e), &e);
    return v.loss;
}

/* The fixture's folder once more, as the folder `to`; with `key`, one value of its config.json is another. */
static inline void fixture_copy(const fixture *f, const char *to, const char *key, json_t *value)
{
    char a[800], b[800];
    struct dirent **entries;
    json_t *config;
    pt_error e = {0};
    must(dir_make(to, &e), &e);
    int n = scandir(f->folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(a, sizeof a, "%s/%s", f->folder, entries[i]->d_name);
        snprintf(b, sizeof b, "%s/%s", to, entries[i]->d_name);
        if (!path_is_folder(a))
            must(file_copy_atomic(a, b, &e), &e);
        free(entries[i]);
    }
    free(entries);
    if (!key)
        return;
    snprintf(b, sizeof b, "%s/config.json", to);
    must(json_file_load(b, 0, &config, &e), &e);
    json_object_set_new(config, key, value);
    must(file_write_json(b, config, &e), &e);
    json_decref(config);
}

/* Token ids as a data file. */
static inline void write_npy(const char *path, const uint16_t *ids, size_t n)
{
    char header[129], dict[118];
    snprintf(dict, sizeof dict, "{'descr': '<u2', 'fortran_order': False, 'shape': (%zu,), }", n);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    snprintf(header + 10, sizeof header - 10, "%-117s\n", dict);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(header, 1, 128, f) + fwrite(ids, sizeof *ids, n, f), 128 + n);
    assert_int_equal(fclose(f), 0);
}

/* Calls fn with the name of each folder in models/; returns their number. */
static inline int each_model_fixture(void (*fn)(const char *name))
{
    char path[512];
    struct dirent **entries;
    snprintf(path, sizeof path, "%s/models", fixtures_root());
    int n = scandir(path, &entries, NULL, alphasort), done = 0;
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            fn(entries[i]->d_name);
            done++;
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return done;
}

/* ---- comparing ---- */

/* Parameter `index` from a file of weights, (rows, cols). */
static inline float *read_parameter(const model *m, const safetensors *st, int index)
{
    pt_error e = {0};
    const param *p = &m->params[index];
    size_t room = 4 << 20;
    float *values = malloc((size_t)(p->rows * p->cols) * sizeof *values), *spare = malloc(room);
    assert_true(values && spare);
    must(weights_read(m, st, index, 0, p->rows, values, spare, room, &e), &e);
    free(spare);
    return values;
}

/* Element `i` of part k, in the order of its Hugging Face tensor, within the parameter's (rows, cols). */
static inline int64_t element_of_part(const param *p, int k, int64_t i)
{
    const param_part *part = &p->part[k];
    const int64_t cols = part->vector ? 1 : p->cols;
    if (part->heads) { /* head by head, each with all its segments */
        int64_t row = i / cols, one = part->rows / part->heads, in = row % one, before = 0;
        int which = 0;
        for (; in >= part->segment[which]; in -= part->segment[which++])
            before += part->heads * part->segment[which];
        return (part->row0 + before + row / one * part->segment[which] + in) * cols + i % cols;
    }
    if (part->vector)
        return part->row0 + i;
    if (!part->transposed)
        return part->row0 * p->cols + i;
    const int64_t whole = part_whole_rows(p, k), within = i % (whole * p->cols); /* of an expert */
    return (part->row0 + i / (whole * p->cols) * whole + within % whole) * p->cols + within / whole;
}

static inline int64_t elements_of_part(const param *p, int k) { return p->part[k].rows * (p->part[k].vector ? 1 : p->cols); }

/* The reference's tensor KIND.NAME ("grad", "after"). */
static inline float *read_reference(const fixture *f, const char *kind, const char *name, int64_t n)
{
    char key[160];
    pt_error e = {0};
    snprintf(key, sizeof key, "%s.%s", kind, name);
    const safetensors_tensor *t = safetensors_find(f->reference, key);
    if (!t && !strcmp(name, "embed_out.weight")) { /* as GPT-NeoX's head is called in files alone */
        snprintf(key, sizeof key, "%s.lm_head.weight", kind);
        t = safetensors_find(f->reference, key);
    }
    if (!t || t->elements != (uint64_t)n)
        fail_msg("%s: no tensor %s of %lld elements", f->name, key, (long long)n);
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    must(safetensors_read_f32(f->reference, t, 0, (uint64_t)n, values, &e), &e);
    return values;
}

/* Whether entry `i` of a tensor has a gradient that is zero but for rounding. `ranges`: its "zero_gradient", [first, end) pairs in a row,
 * or NULL. */
static inline bool fixture_zero_gradient(const json_t *ranges, int64_t i)
{
    for (size_t k = 0; k + 1 < json_array_size(ranges); k += 2)
        if (i >= json_integer_value(json_array_get(ranges, k)) && i < json_integer_value(json_array_get(ranges, k + 1)))
            return true;
    return false;
}

/* ||ours - reference|| and ||reference - before|| of part k of a parameter (before NULL: zeros), without its zero_gradient
 * entries where `leave_out`. */
typedef struct distance { double error, size; } distance;
static inline distance part_distance(const fixture *f, const char *kind, int index, int k, const float *ours, const float *before,
                                     bool leave_out)
{
    const param *p = &f->model->params[index];
    int64_t n = elements_of_part(p, k);
    float *reference = read_reference(f, kind, p->part[k].name, n);
    const json_t *zeros = leave_out ? json_object_get(json_object_get(f->json, "zero_gradient"), p->part[k].name) : NULL;
    distance d = {0};
    for (int64_t i = 0; i < n; i++) {
        if (fixture_zero_gradient(zeros, i))
            continue;
        int64_t at = element_of_part(p, k, i);
        double error = (double)ours[at] - (double)reference[i], moved = (double)reference[i] - (before ? (double)before[at] : 0);
        d.error += error * error;
        d.size += moved * moved;
    }
    free(reference);
    return (distance){sqrt(d.error), sqrt(d.size)};
}

/* The largest error of an update, relative to the update, over all tensors; twice PyTorch's own in fp32 is allowed where that is
 * more than `limit` (not in the stored fixtures). `ours` gives parameter i, to be freed. */
static inline double worst_update(const fixture *f, float *(*ours)(void *arg, int index), void *arg, double limit)
{
    double worst = 0;
    for (int i = 0; i < f->model->params_n; i++) {
        float *before = read_parameter(f->model, f->weights, i), *after = ours(arg, i);
        for (int k = 0; k < f->model->params[i].parts; k++) {
            const char *name = f->model->params[i].part[k].name;
            distance d = part_distance(f, "after", i, k, after, before, true);
            double relative = d.size > 0 ? d.error / d.size : d.error > 0 ? INFINITY : 0;
            double noise = json_number_value(json_object_get(json_object_get(f->json, "update_noise_fp32"), name));
            if (!(relative <= fmax(limit, 2 * noise)))
                fail_msg("%s: update of %s is off by %.2e of itself", f->name, name, relative);
            worst = relative > worst ? relative : worst;
        }
        free(before);
        free(after);
    }
    return worst;
}

#endif
