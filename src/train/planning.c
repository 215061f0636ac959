#include "train/planning.h"

#include "base/units.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "model/lanes.h"
#include "model/weights.h"
#include "machine/machine.h"
#include "train/misfit.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static void say(const pt_train_options *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const pt_train_options *o, const char *fmt, ...)
{
    char sentence[512];
    va_list ap;
    va_start(ap, fmt);
    text_format(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    if (o->notice)
        o->notice(o->arg, sentence);
}

int planning_freeze(const pt_train_options *o, model *m, pt_error *e)
{
    const model_freezing f = {o->freeze, o->train_only, o->freeze_n, o->train_only_n};
    safetensors *st;
    int failed = model_freeze(m, &f, e);
    if (failed || model_trains_all(m) || o->init_random)
        return failed;
    m->stored_bf16 = m->config.stored_type == PT_BF16;
    if (!path_is_folder(o->model) || !weights_present(o->model))
        return 0;
    failed = safetensors_open(o->model, &st, e);
    if (failed)
        return failed;
    m->stored_bf16 = weights_frozen_are_bf16(m, st);
    safetensors_close(st);
    return 0;
}

int planning_shape(pt_train_options *o, const model *m, step_shape *s, pt_error *e)
{
    const model_config *c = &m->config;
    if (!o->seq_len)
        o->seq_len = c->max_positions < 1024 ? c->max_positions : 1024;
    if (c->position == POSITION_LEARNED && o->seq_len > c->max_positions)
        return pt_fail(e, PT_FAILED, "--seq-len %lld is more than the %lld positions that the model has learned", (long long)o->seq_len,
                       (long long)c->max_positions);
    if (o->seq_len > c->max_positions)
        say(o, "--seq-len %lld is more than the model's max_position_embeddings, %lld", (long long)o->seq_len, (long long)c->max_positions);
    int failed = options_check_tokens(o, e);
    if (failed)
        return failed;
    step_shape_init(s, m, o->precision == PT_PRECISION_BF16 ? PT_BF16 : PT_F32, o->batch_size, o->seq_len);
    s->documents = o->document_mask;
    s->optimizer = optimizers[o->optimizer];
    failed = lanes_check(o->lanes, s->batch, e);
    if (!failed && o->lanes)
        step_shape_in_lanes(s, m, o->lanes);
    return failed;
}

const char *planning_disk_folder(const pt_train_options *o)
{
    return o->disk_path ? o->disk_path : !access(".", W_OK) ? "." : dir_temporary();
}

int planning_open_device(planning *p, const pt_train_options *o, pt_error *e)
{
    const device_options d = {.threads = machine_threads(o->threads), .quota = machine_quota(), .notice = o->notice, .arg = o->arg};
    return device_open(o->device, &d, &p->device, &p->host, e);
}

/* ---- budgets ---- */

/* What a file says nothing of would cost nothing. The disk that is assumed then is a common one: Samsung's 980 with 1 TB reads
 * 3500 MB/s (its data sheet) and writes some 600 once its cache is full, as in machines/laptop16.json. */
static int complete_machine(planning *p, pt_error *e)
{
    machine_spec *x = &p->machine;
    const uint64_t host = p->o->host_memory;
    if (p->o->profile_file)
        return 0;
    if (x->cuda && !host)
        return pt_fail(e, PT_USAGE, "--host-memory 0: on a GPU what is loaded, saved and kept on the disk passes through host memory; "
                       "leave the option out");
    if (x->cuda && !x->memory_bytes[TIER_HOST] && ((host != PT_AUTO && host) || (p->o->disk_memory != PT_AUTO && p->o->disk_memory)))
        return pt_fail(e, PT_USAGE, "--%s-memory, and %s says nothing of a host: add \"host\" and \"link\" to it, or leave the option out",
                       host != PT_AUTO && host ? "host" : "disk", p->machine_path);
    if (x->cuda && !x->memory_bytes[TIER_HOST] && p->runs)
        return pt_fail(e, PT_USAGE, "%s says nothing of a host, through whose memory a run loads and saves: add \"host\" and \"link\" "
                       "to it, or leave --machine out", p->machine_path);
    if (x->cuda && !x->memory_bytes[TIER_HOST])
        p->budget[TIER_DISK] = 0; /* nothing could pass */
    if (!p->budget[TIER_DISK] || x->read_bandwidth > 0)
        return 0;
    x->memory_bytes[TIER_DISK] = p->budget[TIER_DISK];
    x->read_bandwidth = 3.5e9, x->write_bandwidth = 0.6e9;
    x->disk_latency_s = 100e-6, x->disk_both_ways = 0.5;
    say(p->o, "%s says nothing of a disk: one that reads 3.5 GB/s and writes 0.6 GB/s is assumed", p->machine_path);
    return 0;
}

/* A run takes no more than this machine has, whatever the file says. */
int planning_budgets(planning *p, pt_error *e)
{
    const pt_train_options *o = p->o;
    const budget_request r = {.asked = {o->device_memory, o->host_memory, o->disk_memory}, .disk_path = p->disk_path, .device = p->device,
                              .missing_bytes = &p->missing_bytes, .change = p->change, .disk_reserve = p->disk_reserve,
                              .memory_reserve = p->memory_reserve};
    bool host_tier;
    uint64_t here[TIERS];
    char room[BUDGETS_WHY_BYTES] = "";
    if (p->from_file)
        budgets_of_machine(&p->machine, &r, p->budget, &p->host_tier, p->room);
    int failed = p->from_file ? complete_machine(p, e) : 0;
    if (failed || (p->from_file && !p->runs))
        return failed;
    if (p->from_file && p->machine.ranks > 1)
        return pt_fail(e, PT_USAGE, "%s describes %d devices, and a run uses one: set \"ranks\" to 1, or leave --machine out",
                       p->machine_path, p->machine.ranks);
    if (p->from_file && p->machine.cuda != (p->device != p->host))
        return pt_fail(e, PT_FAILED, "%s describes a machine with%s a GPU, and this run computes on one with%s: leave --machine out, or "
                       "choose another --device", p->machine_path, p->machine.cuda ? "" : "out", p->machine.cuda ? "out" : "");
    failed = budgets_choose(&r, here, &host_tier, room, e);
    if (!p->from_file || here[TIER_DEVICE] < p->budget[TIER_DEVICE]) /* what limits */
        snprintf(p->room, sizeof p->room, "%s", room);
    for (int t = 0; t < TIERS; t++)
        if (!p->from_file || here[t] < p->budget[t])
            p->budget[t] = here[t];
    p->host_tier = p->from_file ? p->host_tier && host_tier : host_tier;
    return failed;
}

static int find_machine(planning *p, pt_error *e)
{
    machine m;
    if (!p->from_file) {
        int failed = machine_probe(&m, e);
        const device_info *d = &p->device->info;
        char quota[40] = "";
        if (d->quota > 0)
            snprintf(quota, sizeof quota, " with a quota of %.3g processors", d->quota);
        if (d->host_addressable)
            snprintf(p->name, sizeof p->name, "%s, %d threads%s", m.processor, d->threads, quota);
        else
            snprintf(p->name, sizeof p->name, "%.56s, %.80s, %d threads", d->name, m.processor, d->threads);
        return failed;
    }
    int failed = machine_file_find(p->o->machine_file, p->machine_path, e);
    if (!failed)
        failed = machine_file_read(p->machine_path, &p->machine, e);
    snprintf(p->name, sizeof p->name, "%s", p->machine.name);
    return failed;
}

int planning_write_machine(const planning *p, const costs *c, const char *path, pt_error *e)
{
    char name[300], source[80];
    machine_spec x;
    machine m;
    int failed = machine_probe(&m, e);
    const bool cuda = device_is_gpu(p->device);
    const device_info *d = &p->device->info;
    const uint64_t memory[TIERS] = {cuda ? d->memory_bytes : m.memory_bytes, cuda ? m.memory_bytes : 0, p->budget[TIER_DISK]};
    if (cuda)
        snprintf(name, sizeof name, "%s; %s, %d cores", d->name, m.processor, m.cores);
    else
        snprintf(name, sizeof name, "%s, %d cores, %s", m.processor, m.cores, d->arithmetic);
    if (!failed)
        failed = machine_measured(name, cuda, memory, c, p->model, p->shape, &x, e);
    if (failed)
        return failed;
    snprintf(source, sizeof source, "measured with %s in %s", p->model->config.model_type, p->shape->type == PT_BF16 ? "bf16" : "fp32");
    json_t *all = machine_to_json(&x, source);
    failed = all ? file_write_json(path, all, e) : pt_fail(e, PT_FAILED, "out of memory");
    json_decref(all);
    return failed;
}

/* ---- costs ---- */

static bool uses_disk(const plan *p)
{
    bool uses = false;
    for (int i = 0; i < p->chunks_n; i++)
        uses = uses || p->chunks[i].home == TIER_DISK;
    for (int i = 0; i < p->blocks_n; i++)
        uses = uses || p->blocks[i].place == TIER_DISK;
    return uses;
}

static bool moves_anything(const plan *p)
{
    for (int i = 0; i < p->chunks_n; i++)
        if (p->chunks[i].home != TIER_DEVICE || p->chunks[i].update != TIER_DEVICE)
            return true;
    for (int i = 0; i < p->blocks_n; i++)
        if (p->blocks[i].place != TIER_DEVICE)
            return true;
    return false;
}

/* Whether something may have to move, and whether to the disk: transfers are measured only then. A plan from a file says so itself. Else
 * the disk is used only where the most economical plan needs it. Where there is a host, something always may move: what costs nothing
 * for want of a measurement would be used. */
static void needs_transfers(const planning *p, bool *needs, bool *disk)
{
    *disk = p->o->plan_file ? uses_disk(&p->result.best.plan) : p->result.least[TIER_DISK] > 0;
    *needs = p->o->plan_file ? moves_anything(&p->result.best.plan) : *disk || p->host_tier;
}

static int measure(planning *p, bool transfers, bool disk, pt_error *e)
{
    const pt_train_options *o = p->o;
    char time[32];
    p->request = (profile_request){.device = p->device, .host = p->host, .threads = o->threads, .model = p->model, .shape = p->shape,
                                   .host_tier = p->host_tier, .transfers = transfers, .disk_path = p->disk_path,
                                   .file = o->profile_file, .progress = o->progress, .notice = o->notice, .arg = o->arg};
    memcpy(p->request.budget, p->budget, sizeof p->request.budget);
    p->request.budget[TIER_DISK] = disk ? p->budget[TIER_DISK] : 0;
    int failed = profile_get(&p->request, &p->profile, e);
    for (int t = 0; t < TIERS && failed == PT_DOES_NOT_FIT; t++) /* measuring may need more than the most economical plan */
        if (p->profile.needs[t] > p->result.least[t])
            p->result.least[t] = p->profile.needs[t];
    if (failed == PT_DOES_NOT_FIT)
        search_write_options(&p->search, p->result.least, p->change, sizeof p->change);
    if (failed)
        return failed;
    p->profiled = true;
    if (o->profile_file)
        snprintf(p->source, sizeof p->source, "costs from %s", o->profile_file);
    else
        snprintf(p->source, sizeof p->source, p->profile.cached ? "measured before, checked in %s" : "measured in %s",
                 seconds_format(time, p->profile.seconds));
    return 0;
}

/* What the most economical plan takes: p->result.least. */
static int find_least(planning *p, pt_error *e)
{
    search_result r = {0};
    search_input in = p->search;
    in.seconds = 1e-3;
    int failed = search_plan(&in, &r, e);
    memcpy(p->result.least, r.least, sizeof r.least);
    search_result_free(&r);
    return failed;
}

int planning_measure_disk(planning *p, pt_error *e)
{
    costs *c = &p->profile.costs;
    profile_request r = p->request;
    profile_result fresh;
    if (!p->profiled || c->read.n || !p->budget[TIER_DISK])
        return 0;
    p->search.budget[TIER_DISK] = p->budget[TIER_DISK];
    int failed = find_least(p, e);
    if (!failed && !p->result.least[TIER_DISK])
        p->search.budget[TIER_DISK] = 0;
    if (failed || !p->result.least[TIER_DISK])
        return failed;
    r.transfers = true;
    r.file = NULL; /* it says nothing of a disk */
    memcpy(r.budget, p->budget, sizeof r.budget);
    failed = profile_get(&r, &fresh, e);
    if (failed)
        return failed;
    c->read = fresh.costs.read;
    c->write = fresh.costs.write;
    c->waking = fresh.costs.waking;
    memcpy(c->slow, fresh.costs.slow, sizeof c->slow);
    memcpy(c->slow_more, fresh.costs.slow_more, sizeof c->slow_more);
    memcpy(c->slow_ns, fresh.costs.slow_ns, sizeof c->slow_ns);
    c->quota = fresh.costs.quota;
    return 0;
}

static int find_costs(planning *p, pt_error *e)
{
    bool transfers, disk;
    needs_transfers(p, &transfers, &disk);
    if (p->from_file && !p->o->profile_file) {
        snprintf(p->source, sizeof p->source, "computed from its figures, not measured");
        return costs_analytic(&p->machine, p->model, p->shape, &p->profile.costs, e);
    }
    int failed = measure(p, transfers, disk, e);
    if (!failed && !p->profile.costs.read.n) /* what was not measured would cost nothing */
        p->search.budget[TIER_DISK] = 0;
    return failed;
}

/* ---- the plan ---- */

static int read_plan(planning *p, pt_error *e)
{
    const char *path = p->o->plan_file;
    candidate *c = &p->result.best;
    int failed = plan_read(path, &c->plan, e);
    if (!failed)
        failed = pack(p->model, p->shape, c->plan.chunk_bytes, &c->packing, e);
    if (!failed && (failed = plan_validate(&c->plan, p->model, p->shape, &c->packing, p->o->max_grad_norm > 0, e)))
        pt_error_prefix(e, "%s", path);
    if (!failed && p->search.micro_batch && p->search.micro_batch != c->plan.micro_batch)
        failed = pt_fail(e, PT_USAGE, "--micro-batch %lld and the \"micro_batch\" %lld of %s contradict each other: leave the option out",
                         (long long)p->o->micro_batch, (long long)c->plan.micro_batch, path);
    snprintf(c->name, sizeof c->name, "given");
    return failed;
}

/* A plan from a file has to fit as it is: nothing need be measured to know. */
static int check_plan(planning *p, pt_error *e)
{
    const candidate *c = &p->result.best;
    const schedule_input in = search_schedules(&p->search, &c->packing, &c->plan);
    bool fits = true;
    int failed = schedule_plan_bytes(&in, search_kinds(&p->search, c->plan.update), p->result.least, e);
    if (failed) { /* with any memory: too few buffers */
        pt_error_prefix(e, "%s", p->o->plan_file);
        return failed;
    }
    for (int t = 0; t < TIERS; t++)
        fits = fits && p->result.least[t] <= p->search.budget[t];
    return fits ? 0 : misfit_of_plan(p, p->result.least, e);
}

static int price_plan(planning *p, pt_error *e)
{
    int fits = search_price(&p->search, &p->result.best, e);
    if (fits < 0)
        pt_error_prefix(e, "%s", p->o->plan_file);
    if (fits)
        return fits > 0 ? 0 : fits;
    int failed = check_plan(p, e);
    return failed ? failed : pt_fail(e, PT_DOES_NOT_FIT, "%s does not fit", p->o->plan_file);
}

/* Before anything is measured: whether some plan fits at all. */
static int check_fit(planning *p, pt_error *e)
{
    int failed = find_least(p, e);
    return failed == PT_DOES_NOT_FIT && e ? misfit_explain(p, e) : failed;
}

int planning_search(const planning *p, search_result *out, pt_error *e) { return search_plan(&p->search, out, e); }

/* What --micro-batch asks for; where that is less than is computed together, or no multiple of it, the next larger one that is. */
static int choose_micro_batch(const pt_train_options *o, const step_shape *s, int64_t *out, pt_error *e)
{
    *out = o->micro_batch;
    if (o->micro_batch && o->batch_size % o->micro_batch)
        return pt_fail(e, PT_USAGE, "--micro-batch %lld: it must divide the batch of %lld", (long long)o->micro_batch,
                       (long long)o->batch_size);
    while (*out < o->batch_size && !search_can_cut(s, *out))
        (*out)++;
    if (*out != o->micro_batch)
        say(o, "--micro-batch %lld: %lld sequences are computed together at least, so it is %lld", (long long)o->micro_batch,
            (long long)s->unit_seqs, (long long)*out);
    return 0;
}

/* A checkpoint or an evaluation after every step runs the updates that wait. */
static bool drains_each_step(const planning *p)
{
    return p->o->save_every == 1 || (p->evaluates && p->o->eval_every == 1);
}

int planning_make(planning *p, pt_error *e)
{
    const pt_train_options *o = p->o;
    p->from_file = o->machine_file != NULL;
    int failed = find_machine(p, e);
    if (!failed)
        failed = planning_budgets(p, e);
    if (!failed && (p->from_file ? p->machine.cuda : device_is_gpu(p->device)))
        step_shape_for_gpu(p->shape, p->model);
    int64_t micro_batch = 0;
    if (!failed)
        failed = choose_micro_batch(o, p->shape, &micro_batch, e);
    p->search = (search_input){.model = p->model, .shape = p->shape, .costs = &p->profile.costs, .training = true,
                               .clipping = o->max_grad_norm > 0, .host_tier = p->host_tier, .evaluates = p->evaluates,
                               .drains = drains_each_step(p), .micro_batch = micro_batch, .threads = machine_threads(o->threads),
                               .threads_bytes = p->device ? p->device->info.threads_bytes : 0};
    memcpy(p->search.budget, p->budget, sizeof p->search.budget);
    costs_init(&p->profile.costs); /* nothing is known yet */
    p->profile.costs.kinds_n = 1;
    p->profile.costs.ranks = p->from_file && !o->profile_file ? p->machine.ranks : 1; /* of which there are as many buffers on the host */
    if (!failed)
        failed = o->plan_file ? read_plan(p, e) : check_fit(p, e);
    if (!failed && o->plan_file)
        failed = check_plan(p, e);
    if (!failed)
        failed = find_costs(p, e);
    if (failed)
        return failed;
    return o->plan_file ? price_plan(p, e) : planning_search(p, &p->result, e);
}

void planning_close(planning *p)
{
    search_result_free(&p->result);
    device_close(p->device, p->host);
}

explain_input planning_explain(const planning *p, int64_t steps, bool helps)
{
    return (explain_input){.search = &p->search, .budget = p->budget, .best = &p->result.best, .others = p->result.others,
                           .others_n = p->result.others_n, .tried = p->result.tried, .search_s = p->result.seconds,
                           .machine = p->name, .source = p->source, .room = p->room, .steps = steps, .helps = helps};
}
