/* matmul_parts.h - shared by the files of matmul.c. */
#ifndef PT_CUDA_MATMUL_PARTS_H
#define PT_CUDA_MATMUL_PARTS_H

#include "device/cuda/cuda.h"
#include "device/cuda/matmul_table.h"

#include <cublasLt.h>
#include <pthread.h>

enum { WORKSPACE_BYTES = 32 << 20, CHOICES = 512, CANDIDATES = 16 };
enum { REFERENCE_ROWS = 8192, FEW_ROWS = 16 };

typedef struct choice { matmul_key key; bool found; cublasLtMatmulAlgo_t algo; } choice;

struct cuda_matmul {
    device_options options;
    char missing[240];    /* the first matmul that the library has no algorithm for or refused; reported at close */
    cublasLtHandle_t handle;
    void *workspace;
    float *sums;
    pthread_mutex_t lock;
    cudaStream_t user;    /* the last user of the workspace */
    cudaEvent_t done;
    char gpu[MATMUL_GPU_BYTES]; /* for the table */
    matmul_table table;
    int choices_n;
    choice choices[CHOICES];
};

/* A matmul for cuBLASLt, whose a is our b. */
typedef struct problem {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c;
} problem;

/* ---- matmul_choose.c ---- */

cublasStatus_t problem_make(const op_matmul *o, int64_t m, problem *problem);
matmul_key matmul_key_of(const op_matmul *o, bool few);
/* The op that represents all ops of a key, so that a query does not depend on which comes first; without addresses. */
op_matmul matmul_of_key(const matmul_key *key);
/* The library's proposals that are allowed, the best one first. */
cublasStatus_t matmul_proposals(cuda_matmul *x, const matmul_key *key, cublasLtMatmulAlgo_t out[CANDIDATES], int *n);
/* Chooses the table's algorithm, or the first proposal; if there is neither, the plain kernel. */
cublasStatus_t matmul_choose(cuda_matmul *x, choice *out);
/* Reads the tables for this GPU, and checks that the library has their algorithms. */
int matmul_table_open(cuda_matmul *x, pt_error *e);

/* ---- matmul_tune.c ---- */

/* Times the proposals for all matmuls that were computed, and appends the faster ones to a table. Nothing else may run on the GPU. */
int matmul_tune(cuda_matmul *x, const char *file, pt_error *e);

#endif
