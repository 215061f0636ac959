/* profile_for.c - what a profile was made for: everything that its times depend on, and nothing else. */
#include "model/adapter.h"
#include "profile/profile_parts.h"

#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

const char *const profile_part_names[PROFILE_PARTS] = {"blocks", "machine"};

/* ---- sizes ---- */

int64_t rates_elements(const model *m)
{
    int64_t n = RATES_LEAST;
    while (n < m->parameters && n < RATES_MOST)
        n *= 4;
    return n;
}

uint64_t links_bytes(const model *m)
{
    uint64_t n = LINKS_LEAST, all = (uint64_t)m->parameters * 14;
    while (n < all && n < LINKS_MOST)
        n *= 4;
    return n;
}

uint64_t links_file_bytes(const model *m)
{
    const uint64_t all = (uint64_t)m->parameters * 14, large = (uint64_t)2 << 30;
    return all / 2 < large ? 8 * links_bytes(m) : large;
}

int64_t timed_matmul_rows(const profile_request *req) { return req->shape->unit_rows < 256 ? req->shape->unit_rows : 256; }

bool links_have_disk(const profile_request *req) { return req->transfers && req->disk_path && req->budget[TIER_DISK] >= 2 * LINKS_LEAST; }

int existing_folder(const char *path, char out[FILE_PATH_BYTES], pt_error *e)
{
    int failed = path_join(out, path, "", e);
    while (!failed && !path_exists(out)) {
        char copy[FILE_PATH_BYTES];
        memcpy(copy, out, sizeof copy);
        const char *parent = dirname(copy);
        memmove(out, parent, strlen(parent) + 1);
    }
    return failed;
}

/* ---- made for ---- */

/* A number that changes when the same fields get another meaning; earlier measurements are then not used. */
enum { BLOCKS_WAY = 14, MACHINE_WAY = 21 };

static int threads_of(const profile_request *req) { return req->threads ? req->threads : req->device->info.threads; }

static const char *type_of(const profile_request *req) { return req->shape->type == PT_BF16 ? "bf16" : "fp32"; }

/* [keys of a layer, how many such layers follow each other, ...] */
static json_t *windows_of(const model_config *config)
{
    json_t *list = json_array();
    for (int64_t i = 0, n; i < config->layers; i += n) {
        for (n = 1; i + n < config->layers && config->window[i + n] == config->window[i];)
            n++;
        json_array_append_new(list, json_integer((json_int_t)config->window[i]));
        json_array_append_new(list, json_integer((json_int_t)n));
    }
    return list;
}

/* The times of blocks serve every optimizer, except that one which updates parameters whole has times of its own among them. */
static bool has_whole(const optimizer *o)
{
    bool any = false;
    for (int i = 0; i < OPTIMIZER_RULES && o->rules[i]; i++)
        any = any || o->rules[i]->flops;
    return any;
}

static json_t *blocks_made_for(const profile_request *req)
{
    const model_config *config = &req->model->config;
    const step_shape *shape = req->shape;
    char frozen[32] = "none";
    if (!model_trains_all(req->model))
        snprintf(frozen, sizeof frozen, "%016" PRIx64, model_frozen_hash(req->model));
    json_t *all = json_pack("{s:i, s:s, s:s, s:i, s:f, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
                            "s:b, s:i, s:b, s:b, s:b, s:b, s:i, s:o, s:I, s:b, s:b, s:b, s:f, s:f, s:s}",
                            "way", BLOCKS_WAY, "processor", req->device->info.name, "arithmetic", req->device->info.arithmetic, "threads",
                            threads_of(req), "quota", req->host->info.quota, "dtype", type_of(req), "model_type", config->model_type,
                            "parameters", (json_int_t)req->model->parameters, "layers", (json_int_t)config->layers, "vocab",
                            (json_int_t)config->vocab, "hidden", (json_int_t)config->hidden, "heads", (json_int_t)config->heads, "kv_heads",
                            (json_int_t)config->kv_heads, "head_dim", (json_int_t)config->head_dim, "ffn", (json_int_t)config->ffn,
                            "max_positions", (json_int_t)(config->position == POSITION_LEARNED ? config->max_positions : 0), "seq_len",
                            (json_int_t)shape->seq_len, "batch", (json_int_t)shape->batch, "unit_rows", (json_int_t)shape->unit_rows,
                            "gated", config->gated, "qk_norm", config->qk_norm, "tied", config->tied, "qkv_bias", config->qkv_bias,
                            "out_bias", config->out_bias, "mlp_bias", config->mlp_bias, "activation", (int)config->activation, "windows",
                            windows_of(config), "rope_bytes", (json_int_t)model_rope_offset(config, config->ropes_n, shape_length(shape)),
                            "pre_norm", config->pre_norm, "post_norm", config->post_norm, "parallel", config->parallel, "attention_softcap",
                            (double)config->attention_softcap, "logit_softcap", (double)config->logit_softcap, "frozen", frozen);
    if (all && shape->saved != SAVED_EXACT)
        json_object_set_new(all, "activations", json_integer(shape->saved));
    if (all && shape_parts(shape) > 1)
        json_object_set_new(all, "parts", json_integer((json_int_t)shape_parts(shape)));
    if (all && config->input_width)
        json_object_set_new(all, "input_width", json_integer((json_int_t)config->input_width));
    if (all && config->kv_latent)
        json_object_set_new(all, "latents", json_pack("[IIII]", (json_int_t)config->q_latent, (json_int_t)config->kv_latent,
                                                      (json_int_t)config->shared_dim, (json_int_t)config->value_dim));
    if (all && config->expert_latent)
        json_object_set_new(all, "expert_latent", json_integer((json_int_t)config->expert_latent));
    if (all && config->kv_shared)
        json_object_set_new(all, "kv_shared", json_integer((json_int_t)config->kv_shared));
    if (all && req->model->adapters && req->model->adapters->dropout > 0)
        json_object_set_new(all, "dropout", json_true());
    if (all && has_whole(shape_optimizer(shape))) {
        json_object_set_new(all, "optimizer", json_string(shape_optimizer(shape)->name));
        json_object_set_new(all, "host_tier", json_boolean(req->host_tier));
    }
    return all;
}

static json_t *machine_made_for(const profile_request *req)
{
    struct stat st;
    char disk[48] = "none", folder[FILE_PATH_BYTES];
    if (links_have_disk(req) && !existing_folder(req->disk_path, folder, NULL) && !stat(folder, &st))
        snprintf(disk, sizeof disk, "device %u:%u", major(st.st_dev), minor(st.st_dev));
    return json_pack("{s:i, s:s, s:s, s:i, s:f, s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:s}", "way", MACHINE_WAY, "processor",
                     req->device->info.name, "arithmetic", req->device->info.arithmetic, "threads", threads_of(req), "quota",
                     req->host->info.quota, "dtype", type_of(req), "optimizer", shape_optimizer(req->shape)->name, "elements",
                     (json_int_t)rates_elements(req->model), "rows",
                     (json_int_t)timed_matmul_rows(req), "host_tier", req->host_tier, "transfer_bytes",
                     (json_int_t)(req->transfers ? links_bytes(req->model) : 0), "file_bytes",
                     (json_int_t)(links_have_disk(req) ? links_file_bytes(req->model) : 0), "disk", disk);
}

json_t *profile_made_for(profile_part p, const profile_request *req)
{
    json_t *all = p == PROFILE_BLOCKS ? blocks_made_for(req) : machine_made_for(req);
    if (all && req->ranks > 1)
        json_object_set_new(all, "ranks", json_integer(req->ranks));
    return all;
}

/* A profile may contain more than is needed. */
static bool covers(const char *key, const json_t *have, const json_t *want)
{
    if (json_equal(have, want))
        return true;
    if (!strcmp(key, "transfer_bytes") || !strcmp(key, "file_bytes"))
        return json_is_integer(have) && json_integer_value(want) == 0;
    if (!strcmp(key, "host_tier"))
        return json_is_false(want);
    return !strcmp(key, "disk") && json_is_string(have) && !strcmp(json_string_value(want), "none");
}

int profile_is_for(const char *where, const json_t *have, const json_t *want, pt_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)want, key, value) {
        const json_t *other = json_object_get(have, key);
        if (!other && !strcmp(key, "optimizer") && !strcmp(json_string_value(value), optimizer_adamw.name))
            continue; /* an old file, from when there was no other optimizer */
        if (other && covers(key, other, value))
            continue;
        if (!strcmp(key, "way"))
            return pt_fail(e, PT_FAILED, "%.400s: another version of the program measured it in another way: measure again",
                           where);
        char *a = other ? json_dumps(other, JSON_ENCODE_ANY | JSON_COMPACT) : NULL, *b = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        pt_fail(e, PT_FAILED, "%.400s: the profile was measured for another case: \"%s\" is %.100s there and %.100s here; measure again",
                where, key, a ? a : "missing", b ? b : "?");
        free(a);
        free(b);
        return PT_FAILED;
    }
    return 0;
}

/* FNV-1a of its text. */
void profile_fingerprint(const json_t *made_for, char out[32])
{
    char *text = json_dumps(made_for, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *p = text ? text : ""; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
    free(text);
    snprintf(out, 32, "%016" PRIx64, hash);
}
