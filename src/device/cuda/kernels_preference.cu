/* kernels_preference.cu - the loss of pairs and the weights of their rows: a block per sequence. All threads load rows; one adds them in
 * order, so that a score, a sum over an example of any length, does not depend on the number of threads. */
#include "device/cuda/primitives.h"
#include "device/preference.h"

enum { THREADS = 256 };

typedef struct fetched_row { float loss, given; bool begins, target; } fetched_row;

__global__ void preference_kernel(op_preference o)
{
    __shared__ fetched_row rows[THREADS];
    const int64_t at = blockIdx.x * o.seq_len;
    float *weights = o.weights + at;
    preference_pairs p = preference_begin(o.rule, weights);
    for (int64_t from = 0; from < o.seq_len; from += THREADS) {
        const int64_t mine = from + threadIdx.x, n = o.seq_len - from < THREADS ? o.seq_len - from : (int64_t)THREADS;
        if (mine < o.seq_len)
            rows[threadIdx.x] = {o.loss[at + mine], o.given ? o.given[at + mine] : 0, o.first[at + mine] == mine,
                                 o.targets[at + mine] >= 0};
        __syncthreads();
        for (int64_t i = 0; threadIdx.x == 0 && i < n; i++) {
            const fetched_row row = rows[i];
            if (preference_is_whole(&p, row.begins))
                preference_close(&p);
            preference_row(&p, from + i, row.begins, row.target, row.loss, row.given);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        preference_close(&p);
    __syncthreads();
    for (int64_t r = threadIdx.x; r < o.seq_len; r += THREADS) {
        const int64_t first = o.first[at + r];
        if (first != r)
            weights[r] = weights[first];
    }
    __syncthreads();
    for (int64_t r = threadIdx.x; r < o.seq_len && o.given; r += THREADS)
        weights[r] = preference_row_weight(o.rule, weights[r], o.given[at + r]);
}

int cuda_preference(const op_preference *o, cudaStream_t s) { return launch(preference_kernel, o->sequences, THREADS, s, *o); }
