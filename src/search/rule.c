#include "search/rule.h"

#include "base/units.h"

#include <string.h>

/* One rung of the ladder. */
typedef struct rung {
    int64_t chunk_bytes;
    int persist, on_host; /* chunks: the first on the device, the next on the host, the rest on the disk */
    save_level level;
    tier place;
    bool visit_all, spare_buffers;
} rung;

static const int64_t chunk_candidates[] = {64 << 20, 32 << 20, 16 << 20, 8 << 20, 4 << 20, 1 << 20};

/* The most chunks that one block reads. */
static int chunks_at_once(const model *m, const packing *k)
{
    int most = 0;
    for (int block = 0; block < m->blocks_n; block++) {
        int n = 0;
        for (int i = 0; i < k->chunks_n; i++) {
            bool reads = false;
            for (int p = k->chunks[i].piece0; p < k->chunks[i].piece0 + k->chunks[i].pieces_n && !reads; p++)
                for (int r = 0; r < PARAM_ROLES && !reads; r++)
                    reads = m->blocks[block].param_of_role[r] == k->pieces[p].param;
            n += reads;
        }
        most = n > most ? n : most;
    }
    return most;
}

static int make(const rule_input *in, const rung *r, packing *k, plan *p, pt_error *e)
{
    memset(k, 0, sizeof *k);
    memset(p, 0, sizeof *p);
    int failed = pack(in->model, in->shape, r->chunk_bytes, k, e);
    if (!failed)
        failed = plan_alloc(p, k->chunks_n, (int)in->model->config.layers, e);
    if (failed)
        return failed;
    p->chunk_bytes = r->chunk_bytes;
    p->micro_batch = in->micro_batch ? in->micro_batch : in->shape->unit_seqs;
    p->visit = r->visit_all ? (int)(in->shape->batch / p->micro_batch) : 1;
    p->update = in->clipping ? UPDATE_NEXT_FORWARD : UPDATE_BACKWARD;
    p->n_buffer = chunks_at_once(in->model, k) + r->spare_buffers;
    p->n_update = 2;
    p->n_swap = 3 + r->spare_buffers;
    for (int i = 0; i < k->chunks_n; i++) {
        tier home = i < r->persist ? TIER_DEVICE : i < r->persist + r->on_host ? TIER_HOST : TIER_DISK;
        p->chunks[i] = (plan_chunk){home, home != TIER_DEVICE && in->host_tier ? TIER_HOST : TIER_DEVICE};
    }
    for (int i = 0; i < p->blocks_n; i++)
        p->blocks[i] = (plan_block){r->level, r->place};
    return 0;
}

/* Makes the rung's plan, and says what it needs of each tier. The caller frees both in any case. */
static int measure(const rule_input *in, const rung *r, packing *k, plan *p, uint64_t bytes[TIERS], pt_error *e)
{
    int failed = make(in, r, k, p, e);
    const schedule_input s = {in->model, in->shape, k, p, in->training, in->host_tier};
    return failed ? failed : schedule_plan_bytes(&s, in->kinds, bytes, e);
}

static int rung_bytes(const rule_input *in, const rung *r, uint64_t bytes[TIERS], pt_error *e)
{
    packing k;
    plan p;
    int failed = measure(in, r, &k, &p, bytes, e);
    packing_free(&k);
    plan_free(&p);
    return failed;
}

/* 1: fits, and the plan is made; 0: does not; negative: an error. */
static int try_rung(const rule_input *in, const rung *r, packing *k, plan *p, pt_error *e)
{
    uint64_t bytes[TIERS];
    int failed = measure(in, r, k, p, bytes, e);
    bool fits = !failed;
    for (int t = 0; t < TIERS; t++)
        fits = fits && bytes[t] <= in->budget[t];
    if (!fits) {
        packing_free(k);
        plan_free(p);
    }
    return failed ? failed : fits;
}

/* Everything on the device, saving less and less; without a backward there is nothing to save. */
static int resident(const rule_input *in, packing *k, plan *p, pt_error *e)
{
    for (int level = in->training ? SAVE_ALL : SAVE_INPUT; level >= SAVE_INPUT; level--)
        for (int all = 1; all >= 0; all--) {
            rung r = {.chunk_bytes = chunk_candidates[0], .persist = INT32_MAX, .level = level, .place = TIER_DEVICE, .visit_all = all};
            int fits = try_rung(in, &r, k, p, e);
            if (fits)
                return fits;
        }
    return 0;
}

/* Whether a tier has room for the rung with so many chunks there: 1, 0, or negative after an error. */
typedef int (*holds_fn)(const rule_input *in, rung *r, int here, int chunks, pt_error *e);

/* The most chunks, at most `high`, that a tier has room for; 0 where not even for none. */
static int most_chunks(const rule_input *in, rung *r, int high, int chunks, holds_fn fn, pt_error *e)
{
    int low = 0;
    while (low < high) {
        int middle = low + (high - low + 1) / 2, holds = fn(in, r, middle, chunks, e);
        if (holds < 0)
            return holds;
        if (holds)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static int host_holds(const rule_input *in, rung *r, int here, int chunks, pt_error *e)
{
    uint64_t bytes[TIERS];
    r->on_host = here;
    int failed = rung_bytes(in, r, bytes, e);
    return failed ? failed : bytes[TIER_HOST] <= in->budget[TIER_HOST];
}

/* Puts as many of the chunks behind the persistent ones on the host as it has room for. All of them may fit where all
 * but one do not: then nothing passes through the host on its way to the disk. */
static int fill_host(const rule_input *in, rung *r, int chunks, pt_error *e)
{
    int left = in->host_tier && in->budget[TIER_HOST] ? chunks - r->persist : 0;
    int holds = host_holds(in, r, left, chunks, e);
    if (holds || !left)
        return holds < 0 ? holds : 0;
    int most = most_chunks(in, r, left - 1, chunks, host_holds, e);
    r->on_host = most;
    return most < 0 ? most : 0;
}

/* With the host filled. */
static int device_holds(const rule_input *in, rung *r, int here, int chunks, pt_error *e)
{
    uint64_t bytes[TIERS];
    r->persist = here;
    int failed = fill_host(in, r, chunks, e);
    if (!failed)
        failed = rung_bytes(in, r, bytes, e);
    return failed ? failed : bytes[TIER_DEVICE] <= in->budget[TIER_DEVICE];
}

/* Fills the device, then the host; the disk gets the rest, whether or not it has room. */
static int distribute(const rule_input *in, rung *r, pt_error *e)
{
    packing k;
    int failed = pack(in->model, in->shape, r->chunk_bytes, &k, e);
    if (failed)
        return failed;
    int chunks = k.chunks_n, holds = device_holds(in, r, 0, chunks, e);
    packing_free(&k);
    if (holds <= 0)
        return holds;
    int most = most_chunks(in, r, chunks, chunks, device_holds, e);
    if (most < 0)
        return most;
    r->persist = most;
    return fill_host(in, r, chunks, e);
}

static int does_not_fit(const rule_input *in, const rung *r, uint64_t least[TIERS], pt_error *e)
{
    uint64_t bytes[TIERS];
    int failed = rung_bytes(in, r, bytes, e);
    if (failed)
        return failed;
    if (least)
        memcpy(least, bytes, sizeof bytes);
    for (int t = 0; t < TIERS; t++)
        if (bytes[t] > in->budget[t]) {
            char need[32], have[32], missing[32];
            return pt_fail(e, PT_DOES_NOT_FIT,
                           "it does not fit: the most economical plan needs %s of %s memory and the budget is %s, %s less; "
                           "give --%s-memory %llu, or lower %s--seq-len",
                           size_format(need, bytes[t]), tier_names[t], size_format(have, in->budget[t]),
                           size_format(missing, bytes[t] - in->budget[t]), tier_names[t], (unsigned long long)bytes[t],
                           in->training ? "--batch-size or " : "");
        }
    return pt_fail(e, PT_DOES_NOT_FIT, "it does not fit: the tiers together are too small; raise --device-memory or --disk-memory");
}

/* Of the chunk sizes the one that leaves least on the disk: 1 with *r complete, 0 if none fits, negative after an error. */
static int best_chunks(const rule_input *in, rung *r, pt_error *e)
{
    rung best = {0};
    uint64_t bytes[TIERS], least = UINT64_MAX;
    for (size_t c = 0; c < sizeof chunk_candidates / sizeof *chunk_candidates; c++) {
        r->chunk_bytes = chunk_candidates[c];
        r->persist = r->on_host = 0;
        int failed = distribute(in, r, e);
        if (failed >= 0)
            failed = rung_bytes(in, r, bytes, e);
        if (failed < 0)
            return failed;
        bool fits = true;
        for (int t = 0; t < TIERS; t++)
            fits = fits && bytes[t] <= in->budget[t];
        if (fits && bytes[TIER_DISK] < least) {
            least = bytes[TIER_DISK];
            best = *r;
        }
    }
    if (least == UINT64_MAX)
        return 0;
    *r = best;
    return 1;
}

int rule_plan(const rule_input *in, packing *k, plan *p, uint64_t least[TIERS], pt_error *e)
{
    int fits = resident(in, k, p, e);
    tier away = in->host_tier && in->budget[TIER_HOST] ? TIER_HOST : TIER_DISK;
    rung r = {.level = SAVE_INPUT, .visit_all = true};
    for (int place = 0; place < 2 && !fits; place++)
        for (int spare = 1; spare >= 0 && !fits; spare--) {
            r.place = place ? away : TIER_DEVICE;
            r.spare_buffers = spare;
            fits = best_chunks(in, &r, e);
            if (fits > 0)
                fits = try_rung(in, &r, k, p, e);
        }
    if (fits)
        return fits < 0 ? fits : 0;
    return does_not_fit(in, &r, least, e);
}
