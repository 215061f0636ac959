#include "infer/fit.h"

#include "base/units.h"

/* How much longer than from host memory a byte takes from the disk, roughly. */
enum { DISK_COST = 8 };

const char *generator_disk_folder(const pt_generator *g) { return g->o.disk_path ? g->o.disk_path : dir_temporary(); }

static uint64_t device_bytes(const pt_generator *g, int streamed, int64_t context, cache_plan cache)
{
    return inference_bytes(g->model, g->type, g->device, streamed, context, cache);
}

static uint64_t cache_bytes(const pt_generator *g, int64_t context, cache_plan cache)
{
    uint64_t fetched;
    return inference_cache_bytes(g->model, g->type, g->device, context, cache, &fetched);
}

/* What is always in host memory. */
static uint64_t table_bytes(const pt_generator *g)
{
    return inference_host_bytes(g->model, g->type, g->device, (int)g->model->config.layers);
}

/* What the weights take there. */
static uint64_t weights_bytes(const pt_generator *g, const generator_fit *fit)
{
    return fit->place.on_disk ? stream_bounce_bytes(g->model, g->type, fit->streamed, g->device, true)
                              : stream_store_bytes(g->model, g->type, fit->streamed);
}

/* What is left of the host's budget beside `taken` bytes. */
static uint64_t host_left(const pt_generator *g, uint64_t taken)
{
    const uint64_t all = table_bytes(g) + taken;
    return g->budget[TIER_HOST] > all ? g->budget[TIER_HOST] - all : 0;
}

/* ---- the cache ---- */

static bool may_leave(const pt_generator *g)
{
    return device_is_gpu(g->device) && !g->device->info.shares_ram && inference_cache_layers(g->model) > 0;
}

static bool has_room(const pt_generator *g, const generator_fit *fit, int64_t context, cache_plan cache)
{
    return device_bytes(g, fit->streamed, context, cache) <= g->budget[TIER_DEVICE] &&
           (!cache.away || cache_bytes(g, context, cache) <= host_left(g, weights_bytes(g, fit)));
}

/* The fewest layers whose caches leave the device so that it has room, with so many blocks; 0: not even with all. */
static int fewest_away(const pt_generator *g, int streamed, int64_t context, int blocks)
{
    int fits = inference_cache_layers(g->model), no = 0;
    if (device_bytes(g, streamed, context, (cache_plan){fits, blocks}) > g->budget[TIER_DEVICE])
        return 0;
    while (fits - no > 1) {
        const int half = (fits + no) / 2;
        *(device_bytes(g, streamed, context, (cache_plan){half, blocks}) <= g->budget[TIER_DEVICE] ? &fits : &no) = half;
    }
    return fits;
}

/* With as few blocks as fit: attention of few heads keeps less of a GPU busy. */
bool fit_cache(const pt_generator *g, const generator_fit *fit, int64_t context, cache_plan *out)
{
    const int most = inference_cache_blocks(g->model);
    *out = (cache_plan){0};
    if (has_room(g, fit, context, *out))
        return true;
    for (int blocks = 1; may_leave(g) && blocks < 2 * most; blocks *= 2) {
        *out = (cache_plan){fewest_away(g, fit->streamed, context, blocks), blocks};
        if (out->away && has_room(g, fit, context, *out))
            return true;
    }
    return false;
}

/* ---- the weights ---- */

/* Where the weights of n layers go beside `taken` bytes of host memory. false: there is no room. */
static bool find_place(const pt_generator *g, int n, uint64_t taken, generator_fit *out)
{
    const uint64_t bytes = stream_store_bytes(g->model, g->type, n), room = host_left(g, taken);
    *out = (generator_fit){n, {g->host, !device_is_gpu(g->device) || bytes > room, generator_disk_folder(g)}};
    return !out->place.on_disk || (bytes <= g->budget[TIER_DISK] && (!device_is_gpu(g->device) || weights_bytes(g, out) <= room));
}

/* With as few layers as possible whose weights are fetched. false: it does not fit. */
static bool fewest_streamed(const pt_generator *g, int64_t context, cache_plan cache, generator_fit *out)
{
    int fits = (int)g->model->config.layers, no = 0;
    const uint64_t taken = cache_bytes(g, context, cache);
    *out = (generator_fit){0};
    if (cache.away && !host_left(g, 0))
        return false;
    if (has_room(g, out, context, cache))
        return true;
    if (device_bytes(g, fits, context, cache) > g->budget[TIER_DEVICE])
        return false;
    while (fits - no > 1) {
        const int half = (fits + no) / 2;
        *(device_bytes(g, half, context, cache) <= g->budget[TIER_DEVICE] ? &fits : &no) = half;
    }
    return find_place(g, fits, taken, out) && has_room(g, out, context, cache);
}

/* ---- both ---- */

static cache_plan all_away(const pt_generator *g)
{
    return may_leave(g) ? (cache_plan){inference_cache_layers(g->model), inference_cache_blocks(g->model)} : (cache_plan){0};
}

static uint64_t cost_of(const pt_generator *g, const generator_fit *fit, int64_t context, cache_plan cache)
{
    uint64_t fetched;
    inference_cache_bytes(g->model, g->type, g->device, context, cache, &fetched);
    return fetched + (fit->place.on_disk ? DISK_COST : 1) * stream_store_bytes(g->model, g->type, fit->streamed);
}

bool fit_find(const pt_generator *g, int64_t context, generator_fit *out)
{
    const cache_plan caches[] = {{0}, all_away(g)};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 3; i++) { /* the weights stay; caches stay; all caches leave */
        generator_fit fit = {0};
        cache_plan cache;
        if (!(i ? fewest_streamed(g, context, caches[i - 1], &fit) : true) || !fit_cache(g, &fit, context, &cache))
            continue;
        const uint64_t cost = cost_of(g, &fit, context, cache);
        if (cost < least) {
            least = cost;
            *out = fit;
        }
    }
    return least < UINT64_MAX;
}

/* ---- refusals ---- */

/* Host memory with which the context fits into the device's budget; 0: with none. */
static uint64_t host_wanted(pt_generator g, int64_t context)
{
    generator_fit fit;
    cache_plan cache;
    g.budget[TIER_HOST] = UINT64_MAX / 2;
    if (!may_leave(&g) || !fit_find(&g, context, &fit) || !fit_cache(&g, &fit, context, &cache))
        return 0;
    return table_bytes(&g) + weights_bytes(&g, &fit) + cache_bytes(&g, context, cache);
}

/* The least memory of the device that suffices. */
static uint64_t device_wanted(const pt_generator *g, int64_t context)
{
    const int layers = (int)g->model->config.layers;
    const cache_plan caches[] = {{0}, all_away(g)};
    uint64_t least = device_bytes(g, 0, context, caches[0]);
    for (int i = 0; i < 4; i++) {
        const int streamed = i % 2 ? layers : 0;
        const uint64_t taken = cache_bytes(g, context, caches[i / 2]), bytes = device_bytes(g, streamed, context, caches[i / 2]);
        generator_fit fit;
        if (bytes < least && find_place(g, streamed, taken, &fit) && (!taken || taken <= host_left(g, weights_bytes(g, &fit))))
            least = bytes;
    }
    return least;
}

int fit_refuse(const pt_generator *g, int64_t context, pt_error *e)
{
    char need[32], have[32], weights[32], give[32], host[32], also[80] = "";
    generator_fit fit;
    const bool shorter = fit_find(g, (int64_t)g->prompt.n + 1, &fit);
    const uint64_t bytes = device_wanted(g, context), wanted = host_wanted(*g, context);
    if (wanted)
        snprintf(also, sizeof also, "give `host_memory` %s, or ", size_option(host, wanted));
    return pt_fail(e, PT_DOES_NOT_FIT,
                   "it does not fit: %s of weights and a context of %lld tokens need at least %s of memory, but the budget is %s%s: "
                   "%s%s%sgive `device_memory` %s",
                   size_format(weights, inference_params_bytes(g->model, g->type)), (long long)context,
                   size_format(need, bytes), size_format(have, g->budget[TIER_DEVICE]),
                   g->budget[TIER_DISK] ? "" : ", and the disk may not be used", g->type == PT_F32 ? "use `precision` bf16, or " : "",
                   shorter ? "lower `max_new_tokens`, or " : "", also, size_option(give, bytes + g->device->info.threads_bytes));
}

int fit_check_host(const pt_generator *g, pt_error *e)
{
    char need[32], have[32], give[32];
    const uint64_t bytes = table_bytes(g);
    if (bytes <= g->budget[TIER_HOST])
        return 0;
    return pt_fail(e, PT_DOES_NOT_FIT,
                   "the table of layers' inputs (`embed_tokens_per_layer`) takes %s of host memory, but the budget is %s: end other "
                   "programs, or give `host_memory` %s",
                   size_format(need, bytes), size_format(have, g->budget[TIER_HOST]), size_option(give, bytes));
}
