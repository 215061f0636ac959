#include "machine/machine_file.h"

#include "base/json.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- figures ---- */

/* A number of the file and where it is stored. A negative default: the key is required. */
typedef struct figure { const char *section, *key; double min, max, absent; size_t at; } figure;

#define FIGURE(section, key, range, absent, field) {section, key, range, absent, offsetof(machine_spec, field)}
#define BANDWIDTH 1e6, 1e16
#define FLOPS 1e6, 1e19
#define SECONDS 0, 1
#define WATTS 0.1, 1e6
#define SHARE 0.01, 1
#define CORES 1, 1e6

static const figure figures[] = {
    FIGURE("device", "memory_bandwidth", BANDWIDTH, -1, memory_bandwidth[TIER_DEVICE]),
    FIGURE("device", "memory_efficiency", SHARE, 1, memory_efficiency[TIER_DEVICE]),
    FIGURE("device", "bf16_flops", FLOPS, -1, bf16_flops),
    FIGURE("device", "fp32_flops", FLOPS, -1, fp32_flops),
    FIGURE("device", "matmul_efficiency", SHARE, 1, matmul_efficiency),
    FIGURE("device", "attention_efficiency", SHARE, 0, attention_efficiency),
    FIGURE("device", "sustained", SHARE, 1, sustained),
    FIGURE("device", "kernel_s", SECONDS, 0, kernel_s),
    FIGURE("device", "watts", WATTS, 0, watts),
    FIGURE("host", "memory_bandwidth", BANDWIDTH, -1, memory_bandwidth[TIER_HOST]),
    FIGURE("host", "memory_efficiency", SHARE, 1, memory_efficiency[TIER_HOST]),
    FIGURE("host", "cores", CORES, 0, host_cores),
    FIGURE("host", "core_bandwidth", BANDWIDTH, 9.8e9, core_bandwidth),
    FIGURE("link", "to_device_bandwidth", BANDWIDTH, -1, to_device_bandwidth),
    FIGURE("link", "from_device_bandwidth", BANDWIDTH, -1, from_device_bandwidth),
    FIGURE("link", "latency_s", SECONDS, 0, link_latency_s),
    FIGURE("link", "both_ways", SHARE, 1, link_both_ways),
    FIGURE("disk", "read_bandwidth", BANDWIDTH, -1, read_bandwidth),
    FIGURE("disk", "write_bandwidth", BANDWIDTH, -1, write_bandwidth),
    FIGURE("disk", "latency_s", SECONDS, 0, disk_latency_s),
    FIGURE("disk", "both_ways", SHARE, 0.5, disk_both_ways),
};
enum { FIGURES = sizeof figures / sizeof *figures };

#define MEMORY_MIN (INT64_C(1) << 20)
#define MEMORY_MAX (INT64_C(1) << 50)

static const char *const sections[] = {"device", "host", "link", "disk"};
static const struct { const char *section, *key; tier tier; } sizes[] = {
    {"device", "memory_bytes", TIER_DEVICE}, {"host", "memory_bytes", TIER_HOST}, {"disk", "bytes", TIER_DISK}};
enum { SECTIONS = sizeof sections / sizeof *sections, SIZES = sizeof sizes / sizeof *sizes };

static bool is_key_of(const char *section, const char *key)
{
    for (int i = 0; i < FIGURES; i++)
        if (!strcmp(figures[i].section, section) && !strcmp(figures[i].key, key))
            return true;
    for (int i = 0; i < SIZES; i++)
        if (!strcmp(sizes[i].section, section) && !strcmp(sizes[i].key, key))
            return true;
    return false;
}

static int refuse_unknown_in(const json_source *src, const char *section, pt_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach(src->object, key, value)
        if (!is_key_of(section, key))
            return pt_fail(e, PT_FAILED, "%s: the key \"%.60s\" is unknown; remove it or correct its spelling", src->where, key);
    return 0;
}

static int read_figures(const json_source *src, const char *section, machine_spec *out, pt_error *e)
{
    int failed = refuse_unknown_in(src, section, e);
    for (int i = 0; i < SIZES && !failed; i++) {
        int64_t bytes = 0;
        if (strcmp(sizes[i].section, section))
            continue;
        failed = json_get_int(src, sizes[i].key, JSON_REQUIRED, MEMORY_MIN, MEMORY_MAX, &bytes, e);
        out->memory_bytes[sizes[i].tier] = (uint64_t)bytes;
    }
    for (int i = 0; i < FIGURES && !failed; i++) {
        const figure *f = &figures[i];
        double value = f->absent;
        if (strcmp(f->section, section))
            continue;
        failed = json_get_double(src, f->key, f->absent < 0 ? JSON_REQUIRED : JSON_OPTIONAL, f->min, f->max, &value, e);
        memcpy((char *)out + f->at, &value, sizeof value);
    }
    return failed;
}

/* ---- the file ---- */

static int read_kind(const json_source *src, machine_spec *out, pt_error *e)
{
    const char *kind, *name = "";
    int failed = json_get_string(src, "kind", JSON_REQUIRED, &kind, e);
    if (!failed && strcmp(kind, "cuda") && strcmp(kind, "cpu"))
        failed = pt_fail(e, PT_FAILED, "%s: \"kind\" is \"%.40s\"; it must be cuda or cpu", src->where, kind);
    if (!failed)
        failed = json_get_string(src, "name", JSON_REQUIRED, &name, e);
    if (!failed && (!*name || strlen(name) >= sizeof out->name))
        failed = pt_fail(e, PT_FAILED, "%s: \"name\" has %zu bytes; it must have 1 to %zu", src->where, strlen(name), sizeof out->name - 1);
    for (const char *c = name; !failed && *c; c++)
        if (control_character(c))
            failed = pt_fail(e, PT_FAILED, "%s: \"name\" has a control character at byte %d: remove it", src->where, (int)(c - name));
    if (failed)
        return failed;
    out->cuda = !strcmp(kind, "cuda");
    strcpy(out->name, name);
    return 0;
}

static int read_ranks(const json_source *src, machine_spec *out, pt_error *e)
{
    int64_t ranks = 1, devices = 0;
    int failed = json_get_int(src, "ranks", JSON_OPTIONAL, 1, MACHINE_MAX_RANKS, &ranks, e);
    if (!failed)
        failed = json_get_int(src, "devices", JSON_OPTIONAL, 1, MACHINE_MAX_RANKS, &devices, e);
    out->ranks = (int)ranks;
    out->devices = (int)devices;
    const bool several = devices && devices < ranks;
    const struct { const char *key; json_need need; double least, most, *to; } all[] = {
        {"collective_bandwidth", ranks > 1 ? JSON_REQUIRED : JSON_OPTIONAL, BANDWIDTH, &out->collective_bandwidth},
        {"collective_latency_s", JSON_OPTIONAL, SECONDS, &out->collective_latency_s},
        {"network_bandwidth", several ? JSON_REQUIRED : JSON_OPTIONAL, BANDWIDTH, &out->network_bandwidth},
        {"price_per_hour", JSON_OPTIONAL, 1e-6, 1e9, &out->price_per_hour}};
    for (size_t i = 0; i < sizeof all / sizeof *all && !failed; i++)
        failed = json_get_double(src, all[i].key, all[i].need, all[i].least, all[i].most, all[i].to, e);
    return failed;
}

machine_spec machine_share(const machine_spec *x, int ranks)
{
    machine_spec y = *x;
    const int here = machine_ranks_here(x, ranks);
    double *const rates[] = {&y.memory_bandwidth[TIER_HOST], &y.host_cores, &y.read_bandwidth, &y.write_bandwidth};
    double *const of_processor[] = {&y.memory_bandwidth[TIER_DEVICE], &y.bf16_flops, &y.fp32_flops};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        *rates[i] /= here;
    for (size_t i = 0; i < sizeof of_processor / sizeof *of_processor; i++)
        *of_processor[i] /= x->cuda ? 1 : here;
    for (int t = 0; t < TIERS; t++)
        y.memory_bytes[t] /= x->cuda && t == TIER_DEVICE ? 1 : (uint64_t)here;
    return y;
}

/* Every key of "sources" must name a figure of the file. */
static int check_sources(const json_source *src, pt_error *e)
{
    json_source in = {0};
    const char *key;
    json_t *value;
    int failed = json_get_object(src, "sources", JSON_OPTIONAL, &in, e);
    if (failed || !in.object)
        return failed;
    json_object_foreach(in.object, key, value) {
        const char *dot = strchr(key, '.');
        char section[32] = "";
        snprintf(section, sizeof section, "%.*s", dot ? (int)(dot - key) : 0, key);
        const json_t *holder = dot ? json_object_get(src->object, section) : src->object;
        if (!json_object_get(holder, dot ? dot + 1 : key))
            return pt_fail(e, PT_FAILED, "%s: \"%.60s\" in \"sources\" belongs to no figure of the file: remove it, or correct its "
                                         "spelling (section.key)", in.where, key);
        if (!json_is_string(value))
            return pt_fail(e, PT_FAILED, "%s: \"%.60s\" is %s, but a sentence is needed", in.where, key, json_type_name(value));
    }
    return 0;
}

static int refuse_unknown(const json_source *src, pt_error *e)
{
    static const char *const known[] = {"name", "kind", "device", "host", "link", "disk", "ranks", "devices",
                                        "collective_bandwidth", "collective_latency_s", "network_bandwidth", "price_per_hour", "sources"};
    const char *key;
    json_t *value;
    json_object_foreach(src->object, key, value) {
        size_t i = 0, n = sizeof known / sizeof *known;
        while (i < n && strcmp(key, known[i]))
            i++;
        if (i == n)
            return pt_fail(e, PT_FAILED, "%s: the key \"%.60s\" is unknown; remove it or correct its spelling", src->where, key);
    }
    return 0;
}

static int read_machine(const json_source *src, machine_spec *out, pt_error *e)
{
    int failed = refuse_unknown(src, e);
    bool there[SECTIONS] = {false};
    memset(out, 0, sizeof *out);
    if (!failed)
        failed = read_kind(src, out, e);
    for (int i = 0; i < SECTIONS && !failed; i++) {
        json_source in = {0};
        failed = json_get_object(src, sections[i], i == 0 ? JSON_REQUIRED : JSON_OPTIONAL, &in, e);
        there[i] = !failed && in.object;
        if (there[i])
            failed = read_figures(&in, sections[i], out, e);
    }
    if (!failed && there[1] != there[2])
        failed = pt_fail(e, PT_FAILED, "%s: it has \"%s\" but no \"%s\": a host needs a link, and a link a host", src->where,
                         there[1] ? "host" : "link", there[1] ? "link" : "host");
    if (!failed)
        failed = read_ranks(src, out, e);
    if (!failed)
        failed = check_sources(src, e);
    return failed;
}

static int read_and_close(json_source *src, machine_spec *out, pt_error *e)
{
    const int failed = read_machine(src, out, e);
    json_source_close(src);
    return failed;
}

int machine_file_read(const char *path, machine_spec *out, pt_error *e)
{
    json_source src;
    const int failed = json_source_file(&src, path, "a machine", e);
    return failed ? failed : read_and_close(&src, out, e);
}

int machine_from_json(const char *name, const char *json, size_t n, machine_spec *out, pt_error *e)
{
    json_source src;
    const int failed = json_source_text(&src, name, json, n, "a machine", e);
    return failed ? failed : read_and_close(&src, out, e);
}
