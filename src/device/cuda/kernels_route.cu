/* kernels_route.cu - the choice of experts, a warp per token, and the sort of tokens by expert, a block per expert. */
#include "base/target.h"
#include "device/cuda/mma.h"

enum { DISPATCH_THREADS = 256, DISPATCH_WARPS = DISPATCH_THREADS / WARP };

/* A token's values in shared memory. A candidate is a key in the order of numbers, above the expert's number from the last: the largest is
 * the one to be chosen next. 0: none. */
typedef struct token { uint64_t *candidate, *group; float *p, sum; } token;

DEVICE token token_of(unsigned char *shared, int64_t experts)
{
    token t;
    t.candidate = (uint64_t *)shared;
    t.group = t.candidate + experts;
    t.p = (float *)(t.group + experts);
    t.sum = 1;
    return t;
}
static int token_bytes(int64_t experts) { return (int)(experts * (2 * sizeof(uint64_t) + sizeof(float)) + 15) / 16 * 16; }

enum { KEY_NAN = 1 /* smaller than all numbers; 0: not eligible */ };

/* Above 0. */
DEVICE uint64_t candidate_of(float x, int i)
{
    const uint32_t bits = __float_as_uint(x + 0.0f); /* -0 equals 0 */
    const uint32_t key = x != x ? (uint32_t)KEY_NAN : bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)key << 32 | (0xffffffffu - (uint32_t)i);
}
DEVICE int number_of(uint64_t candidate) { return (int)(0xffffffffu - (uint32_t)candidate); }

/* The largest of n; it is replaced by 0. */
DEVICE int take_largest(uint64_t *candidates, int n)
{
    uint64_t best = 0;
    for (int i = threadIdx.x; i < n; i += WARP)
        best = candidates[i] > best ? candidates[i] : best;
    for (int distance = WARP / 2; distance; distance /= 2) {
        const uint64_t other = __shfl_xor_sync(FULL_WARP, best, distance);
        best = other > best ? other : best;
    }
    const int found = best ? number_of(best) : 0;
    if (best && found % WARP == (int)threadIdx.x)
        candidates[found] = 0;
    return found;
}

/* p as in the CPU's kernels/route.c. */
DEVICE void values_of(route_kind kind, int64_t experts, const float *logits, token *t)
{
    float most = -INFINITY, sum = 0;
    for (int64_t e = threadIdx.x; e < experts && kind == ROUTE_SOFTMAX; e += WARP)
        most = fmaxf(most, logits[e]);
    most = warp_max(most);
    for (int64_t e = threadIdx.x; e < experts; e += WARP) {
        t->p[e] = kind == ROUTE_SOFTMAX ? expf(logits[e] - most) : 1.0f / (1.0f + expf(-logits[e]));
        sum += t->p[e];
    }
    t->sum = kind == ROUTE_SOFTMAX ? warp_sum(sum) : 1.0f;
    __syncthreads();
}

DEVICE void find_values(const op_route &o, const float *logits, token *t) { values_of(o.kind, o.experts, logits, t); }

DEVICE float choice_of(const op_route &o, const float *logits, const token &t, int64_t e)
{
    const float p = o.kind == ROUTE_SOFTMAX && !o.bias ? logits[e] : t.p[e] / t.sum;
    return o.bias ? p + o.bias[e] : p;
}

DEVICE void drop_groups(const op_route &o, const float *logits, const token &t)
{
    const int size = (int)(o.experts / o.groups), groups = (int)o.groups;
    for (int g = threadIdx.x; g < groups; g += WARP) {
        uint64_t best = 0, next = 0;
        for (int e = g * size; e < (g + 1) * size; e++) {
            const uint64_t x = t.candidate[e];
            next = x > best ? best : x > next ? x : next;
            best = x > best ? x : best;
        }
        t.group[g] = candidate_of(choice_of(o, logits, t, number_of(best)) + (next ? choice_of(o, logits, t, number_of(next)) : 0.0f), g);
    }
    __syncthreads();
    for (int i = 0; i < o.groups_used; i++)
        take_largest(t.group, groups); /* 0: eligible */
    __syncthreads();
    for (int64_t e = threadIdx.x; e < o.experts; e += WARP)
        if (t.group[e / size])
            t.candidate[e] &= 0xffffffffu;
}

/* Lane j's is the j-th largest choice; INT32_MAX: it has none. */
DEVICE int find_id(const op_route &o, const float *logits, const token &t)
{
    for (int64_t e = threadIdx.x; e < o.experts; e += WARP)
        t.candidate[e] = candidate_of(choice_of(o, logits, t, e), (int)e);
    __syncthreads();
    if (o.groups > 1)
        drop_groups(o, logits, t);
    __syncthreads();
    int mine = INT32_MAX;
    for (int j = 0; j < o.k; j++) {
        const int found = take_largest(t.candidate, (int)o.experts);
        mine = j == (int)threadIdx.x ? found : mine;
        __syncthreads();
    }
    return mine;
}

/* Writes the token's ids in ascending order. */
DEVICE void find_ids(const op_route &o, const float *logits, const token &t, int32_t *ids)
{
    const int mine = find_id(o, logits, t);
    int before = 0;
    for (int j = 0; j < o.k; j++)
        before += __shfl_sync(FULL_WARP, mine, j) < mine;
    if (threadIdx.x < (unsigned)o.k)
        ids[before] = mine;
    __syncthreads();
}

/* A lane's slot: its expert, its share p / D; and what all have in common. */
typedef struct slot_share { int id; float share, divisor; bool there, relative; } slot_share;

DEVICE slot_share share_of(const op_route &o, const token &t, const int32_t *ids)
{
    const bool by_sum = o.kind == ROUTE_SOFTMAX && o.norm && o.least == 0 && o.eps == 0;
    slot_share s;
    s.there = threadIdx.x < (unsigned)o.k;
    s.id = s.there ? ids[threadIdx.x] : 0;
    s.share = s.there ? t.p[s.id] / (by_sum ? 1.0f : t.sum) : 0.0f;
    const float sum = warp_sum(s.share);
    s.relative = o.norm && sum > o.least;
    s.divisor = o.norm ? (sum < o.least ? o.least : sum) + o.eps : 1.0f;
    s.share /= s.divisor;
    return s;
}

DEVICE float factor_of(const op_route &o, int id) { return (o.scale != 0 ? o.scale : 1.0f) * (o.expert_scale ? o.expert_scale[id] : 1.0f); }

DEVICE bool is_padding(const op_route &o, int64_t row) { return o.targets && o.targets[row] == TARGET_PADDING; }

DEVICE void put_use(const op_route &o, int64_t row, token *t)
{
    const float *logits = o.logits + row * o.experts;
    const float one = is_padding(o, row) ? 0.0f : 1.0f;
    float *use = o.use + row * 2 * o.experts;
    op_route by_logits = o;
    by_logits.kind = ROUTE_SOFTMAX, by_logits.bias = NULL, by_logits.groups = 0;
    __syncthreads();
    values_of(ROUTE_SOFTMAX, o.experts, logits, t);
    const int mine = find_id(by_logits, logits, *t);
    for (int64_t e = threadIdx.x; e < o.experts; e += WARP) {
        use[e] = 0;
        use[o.experts + e] = one * (t->p[e] / t->sum);
    }
    __syncthreads();
    if (threadIdx.x < (unsigned)o.k)
        use[mine] = one;
}

__global__ void __launch_bounds__(WARP) route_kernel(op_route o)
{
    SHARED_BYTES(shared);
    const int64_t row = blockIdx.x;
    token t = token_of(shared, o.experts);
    find_values(o, o.logits + row * o.experts, &t);
    if (!o.given)
        find_ids(o, o.logits + row * o.experts, t, o.ids + row * o.k);
    const slot_share s = share_of(o, t, o.ids + row * o.k);
    if (s.there)
        o.weights[row * o.k + threadIdx.x] = s.share * factor_of(o, s.id);
    if (o.use)
        put_use(o, row, &t);
}

/* Adds the gradient of the balance to a token's dlogits. Lanes read and write the values of their own experts only. */
DEVICE void add_balance(const op_route_backward &b, const float *logits, token *t, float *dlogits)
{
    const int64_t experts = b.forward.experts;
    float mean = 0, slots = 0;
    __syncthreads();
    values_of(ROUTE_SOFTMAX, experts, logits, t);
    for (int64_t e = threadIdx.x; e < experts; e += WARP) {
        mean += t->p[e] / t->sum * b.used[e];
        slots += b.used[e];
    }
    mean = warp_sum(mean);
    const float n = warp_sum(slots) / (float)b.forward.k, factor = n > 0 ? b.balance / n / n : 0;
    for (int64_t e = threadIdx.x; e < experts; e += WARP)
        dlogits[e] += t->p[e] / t->sum * (b.used[e] - mean) * factor;
}

template <pt_dtype T> __global__ void __launch_bounds__(WARP) route_backward_kernel(op_route_backward b)
{
    SHARED_BYTES(shared);
    const op_route &o = b.forward;
    const int64_t row = blockIdx.x, slot = row * o.k + threadIdx.x;
    token t = token_of(shared, o.experts);
    float *dlogits = (float *)t.candidate;
    find_values(o, o.logits + row * o.experts, &t);
    const slot_share s = share_of(o, t, o.ids + row * o.k);
    const float dweight = s.there ? b.dweights[slot] : 0.0f, dshare = s.there ? dweight * factor_of(o, s.id) : 0.0f;
    if (b.dexpert_scale && s.there)
        b.dexpert_scale[slot] = dweight * (s.share * (o.scale != 0 ? o.scale : 1.0f));
    const float mean = warp_sum(dshare * s.share), difference = s.relative ? dshare - mean : dshare;
    const bool times_p = o.kind == ROUTE_SOFTMAX && s.relative && o.eps == 0;
    const float p = s.there ? t.p[s.id] / t.sum : 0.0f, dp = difference / s.divisor;
    const float d = times_p ? s.share * difference : o.kind == ROUTE_SIGMOID ? dp * p * (1.0f - p) : dp;
    const float common = o.kind == ROUTE_SOFTMAX && !times_p ? warp_sum(s.there ? p * dp : 0.0f) : 0.0f;
    for (int64_t e = threadIdx.x; e < o.experts; e += WARP)
        dlogits[e] = 0;
    __syncthreads();
    if (s.there)
        dlogits[s.id] = d;
    __syncthreads();
    for (int64_t e = threadIdx.x; e < o.experts && o.kind == ROUTE_SOFTMAX && !times_p; e += WARP)
        dlogits[e] = t.p[e] / t.sum * (dlogits[e] - common);
    if (b.used && !is_padding(o, row))
        add_balance(b, o.logits + row * o.experts, &t, dlogits);
    for (int64_t e = threadIdx.x; e < o.experts; e += WARP)
        element_store<T>(b.dlogits, row * o.experts + e, dlogits[e]);
}

int cuda_route(const op_route *o, cudaStream_t s) { return launch_shared(route_kernel, o->rows, WARP, token_bytes(o->experts), s, *o); }

int cuda_route_backward(const op_route_backward *o, cudaStream_t s)
{
    const int bytes = token_bytes(o->forward.experts);
    return o->type == PT_BF16 ? launch_shared(route_backward_kernel<PT_BF16>, o->forward.rows, WARP, bytes, s, *o)
                              : launch_shared(route_backward_kernel<PT_F32>, o->forward.rows, WARP, bytes, s, *o);
}

/* ---- the sort ---- */

/* The sum over the threads of the block; *before: over those before this one. */
DEVICE int block_count(bool counts, int *before)
{
    __shared__ int of_warp[DISPATCH_WARPS];
    const unsigned votes = __ballot_sync(FULL_WARP, counts);
    const int warp = threadIdx.x / WARP;
    __syncthreads(); /* the previous call's numbers have been read */
    of_warp[warp] = __popc(votes);
    __syncthreads();
    int all = 0;
    *before = __popc(votes & ((1u << threadIdx.x % WARP) - 1));
    for (int w = 0; w < DISPATCH_WARPS; w++) {
        *before += w < warp ? of_warp[w] : 0;
        all += of_warp[w];
    }
    return all;
}

DEVICE int block_total(int x)
{
    __shared__ int of_warp[DISPATCH_WARPS];
    x = warp_sum(x);
    __syncthreads();
    of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    int all = 0;
    for (int w = 0; w < DISPATCH_WARPS; w++)
        all += of_warp[w];
    return all;
}

__global__ void __launch_bounds__(DISPATCH_THREADS) dispatch_kernel(op_dispatch o)
{
    const int expert = blockIdx.x;
    int less = 0, own = 0, before;
    for (int64_t i = threadIdx.x; i < o.slots; i += DISPATCH_THREADS) {
        less += o.ids[i] < expert;
        own += o.ids[i] == expert;
    }
    int row = block_total(less);
    own = block_total(own);
    if (threadIdx.x == 0)
        o.ends[expert] = row + own;
    for (int64_t i0 = 0; i0 < o.slots; i0 += DISPATCH_THREADS) {
        const int64_t i = i0 + threadIdx.x;
        const bool mine = i < o.slots && o.ids[i] == expert;
        const int all = block_count(mine, &before);
        if (mine) {
            o.order[row + before] = (int32_t)i;
            o.place[i] = row + before;
        }
        row += all;
    }
}

int cuda_dispatch(const op_dispatch *o, cudaStream_t s) { return launch(dispatch_kernel, o->experts, DISPATCH_THREADS, s, *o); }
