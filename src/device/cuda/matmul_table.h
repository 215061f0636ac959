/* matmul_table.h - tables of matmul algorithms, measured for a kind of GPU with one version of cuBLASLt.
 *
 * The library's first proposal is not always its fastest. Timing at run time would choose differently in another run, which then has other
 * bits. So algorithms are timed once (tools/gpu-check tune), and the faster ones are committed as text in src/device/cuda/tables/, which
 * is built into the module. $PROTRAIN_MATMUL_TABLE names a file that is used instead of them.
 *
 *     # a comment
 *     gpu sm_90, 132 multiprocessors, cuBLASLt 130100           the lines below are for this kind
 *     NT bf16 f32 none many 0 2304 768 16 16 16 00a1 ... 0      # layout, type, out_type, none|bias|sums, many|few rows; m (0 but for
 *                                                               # TN), n, k; alignment of a, b, c; 8 words of the algorithm, hexadecimal
 *
 * The words are those of cublasLtMatmulAlgo_t, which may be kept for the same version of the library. A matmul that no line has gets the
 * first proposal. device_info.arithmetic has a checksum of the lines for the GPU, so a checkpoint records which table it was computed with.
 */
#ifndef PT_CUDA_MATMUL_TABLE_H
#define PT_CUDA_MATMUL_TABLE_H

#include "device/device.h"

enum { MATMUL_WORDS = 8, MATMUL_ALIGN_MOST = 16, MATMUL_GPU_BYTES = 80 };

/* What the choice of an algorithm depends on. All fields have 64 bits, so that keys can be compared as bytes. */
typedef struct matmul_key { int64_t layout, type, out_type, bias, accumulate, few, m, n, k, align_a, align_b, align_c; } matmul_key;

typedef struct matmul_line { matmul_key key; uint64_t words[MATMUL_WORDS]; const char *file; int line; } matmul_line;
typedef struct matmul_table { matmul_line *lines; int n; } matmul_table;

/* The tables that are built in, by file name; the last one has no name. */
typedef struct matmul_text { const char *name, *text; } matmul_text;
extern const matmul_text MATMUL_TEXTS[];

/* Adds the lines for this GPU; `file` must outlive the table. Lines for other GPUs are checked, too. */
int matmul_table_add(matmul_table *t, const char *text, size_t bytes, const char *file, const char *gpu, pt_error *e);
/* The same from a file. */
int matmul_table_read(matmul_table *t, const char *file, const char *gpu, pt_error *e);
const matmul_line *matmul_table_find(const matmul_table *t, const matmul_key *key);
/* Of keys and words, whatever the order of the lines; 0 if there are none. */
uint32_t matmul_table_checksum(const matmul_table *t);
void matmul_table_close(matmul_table *t);

enum { MATMUL_LINE_BYTES = 320 };
/* A line of a table, without its newline. */
void matmul_line_write(const matmul_key *key, const uint64_t words[MATMUL_WORDS], char out[MATMUL_LINE_BYTES]);

#endif
