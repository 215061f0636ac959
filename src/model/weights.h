/* weights.h - reads parameters from and writes them to Hugging Face tensors, piece by piece, and initializes them at random.
 *
 * Checkpoints are described in Hugging Face's terms: tensors, names, shapes. Only this code knows how parameters consist of them (model.h:
 * parts stacked by rows, some transposed). The same functions serve everything that has the shape of the weights, such as moments, which
 * are written to their own files under the same names.
 */
#ifndef PT_WEIGHTS_H
#define PT_WEIGHTS_H

#include "model/model.h"

struct safetensors;
struct safetensors_writer;

/* True if the folder has weights (model.safetensors or an index). */
bool weights_present(const char *model_dir);

/* Does the folder have two different tables for embedding and head? Compares their first values. */
bool weights_have_two_tables(const model *m, const struct safetensors *st);

/* Are all experts of a layer in one tensor, under the architecture's `fused` names? */
bool weights_fuse_experts(const model *m, const struct safetensors *st);

/* How a checkpoint spells the names of its tensors. */
typedef enum weights_naming {
    NAMES_WHOLE, /* as in param_part */
    NAMES_BARE,  /* without the architecture's prefix, "transformer." or "model." */
    NAMES_MODULES, /* with the prefix of Transformers' modules, if it is another one */
    NAMES_OUTER, /* text part of a multimodal model: "language_model." before all of them */
    NAMES_INNER, /* the same: "language_model." after the prefix */
    NAMINGS
} weights_naming;

/* The naming of a checkpoint; st NULL: that of weights of this model without a source. */
weights_naming weights_naming_of(const model *m, const struct safetensors *st);
/* That of adapters, which PEFT names by Transformers' modules. */
weights_naming weights_naming_of_adapters(const model *m);

/* Checks a checkpoint of the model without its adapters: every part exists with the right shape (a tied model may store either name, the
 * embedding's or lm_head.weight; both only if they are equal; in any naming, multimodal ones if the model is part of one), and dtypes are
 * readable. Extra tensors are an error, except empty ones, known buffers of any architecture (attn.bias masks, inputs of ropes,
 * position_ids), and the other parts of a multimodal checkpoint. An index may name a tied model's lm_head.weight although no shard has it.
 * *stored_type (may be NULL): the type of most of the weights: F32, BF16 or F16. */
int weights_check(const model *m, const struct safetensors *st, pt_dtype *stored_type, pt_error *e);

/* Of a model that scores classes: does the checkpoint have that head? Checks pass without it, and it is read as zeros. */
bool weights_have_scores(const model *m, const struct safetensors *st);

/* Gives notices about ignored tensors: those that a model of this architecture does not have, and those that predict further tokens. Each
 * once, or not at all. `notice` may be NULL. */
void weights_notice_unused(const model *m, const struct safetensors *st, void (*notice)(void *arg, const char *sentence), void *arg);

/* For files with the shape of some of the weights: the dtype of a parameter's tensors, or -1: none. */
typedef int (*weights_type)(void *arg, int index);
/* Checks that the file has exactly those tensors, with their shapes and dtypes. */
int weights_check_some(const model *m, const struct safetensors *st, weights_type type_of, void *arg, pt_error *e);
/* The same, but the file may have more; *claimed (may be NULL): how many of its tensors these are. */
int weights_check_among(const model *m, const struct safetensors *st, weights_type type_of, void *arg, size_t *claimed, pt_error *e);

/* In an adapter's file: a tensor by its part's name (model.h), in any naming, after ADAPTER_PREFIX; NULL: none. */
struct safetensors_tensor;
const struct safetensors_tensor *weights_find_adapter(const model *m, const struct safetensors *st, const char *name);
/* Checks that the adapter's tensors exist with their shapes, and are readable. */
int weights_check_adapter(const model *m, const struct safetensors *st, pt_error *e);

/* Part k of a matrix in the checkpoint's own few bits (prequantized.h): 1, or 0 if it is not quantized. */
struct prequantized;
int weights_in_few_bits(const model *m, const struct safetensors *st, int index, int k, struct prequantized *out, pt_error *e);
/* Keeps each frozen matrix of a layer in the checkpoint's format, if model/storage.h has it. */
int weights_store_like(model *m, const struct safetensors *st, pt_error *e);

/* Is everything frozen, except what is in few bits, stored as BF16? all: and everything that is trained? */
bool weights_frozen_are_bf16(const model *m, const struct safetensors *st, bool all);

/* Tensors of a multimodal checkpoint outside its text part. */
typedef struct weights_beside {
    size_t tensors;
    uint64_t bytes;
    const char *first;    /* name of one of them; NULL: none */
    const char *few_bits; /* name of one that belongs to a matrix in few bits; NULL: none */
} weights_beside;
weights_beside weights_find_beside(const model *m, const struct safetensors *st);
/* PT_FAILED if some of them are in few bits, because a checkpoint with unquantized weights cannot contain them. */
int weights_check_beside(const model *m, const struct safetensors *st, pt_error *e);

/* out[0 .. n_rows*cols) = rows row0 .. of parameter `index`, as fp32. Uses only `scratch` of scratch_bytes (>= 1 MiB) besides `out`.
 * Thread-safe with a scratch per thread. Adapters are read from the adapter's file. Rows of added tokens that the file does not have are
 * zero. Refused: a value that is not finite. A part that is stored transposed is read whole if at least half of its rows are requested,
 * else with one small read per column. */
int weights_read(const model *m, const struct safetensors *st, int index, int64_t row0, int64_t n_rows,
                 float *out, void *scratch, size_t scratch_bytes, pt_error *e);

/* The architecture's random initialization of the same rows, as in Transformers: normal with initializer_range, GPT-2's scaled residual
 * projections, zeros for biases, ones for norms; adapters as in PEFT: A uniform in +- sqrt(1 / inputs), B zero, magnitudes zero until
 * they are computed. From the counter-based generator: element (row, col) depends only on (seed, Hugging Face tensor, its index in that
 * tensor). */
void weights_init(const model *m, uint64_t seed, int index, int64_t row0, int64_t n_rows, float *out);

/* Gets rows row0 .. row0+n_rows of parameter `index` as fp32: out (n_rows, cols). */
typedef int (*weights_getter)(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e);

/* The properties of the original checkpoint that an exported one keeps. */
typedef struct weights_layout {
    weights_naming naming;
    bool adapter; /* an adapter's file: whole modules have its prefix, too, and a tied table is written twice, as PEFT's */
    const struct safetensors *source; /* its tensors outside the text part are copied, byte for byte; NULL: none */
} weights_layout;

/* Streams every Hugging Face tensor, in the order of the model with the layout's names, then the copied ones. Corrections of the choice of
 * experts are always F32. A tied head is not written twice. Memory: `scratch`, at least weights_scratch_bytes(). A transposed tensor is
 * requested once from the getter if about 4/3 of its fp32 bytes fit the scratch, else once for each slice that fits, so give
 * some tens of MiB. PT_FAILED also if a finite value is beyond F16. If several processes write the same files (safetensors_share), all call
 * this, and the getter says whose turn it is: for all rows of a transposed parameter the same one's. */
int weights_export(const model *m, struct safetensors_writer *writer, pt_dtype dtype, weights_layout layout,
                   weights_getter get, void *arg, void *scratch, size_t scratch_bytes, pt_error *e);
/* The same for the parameters that have a type. */
int weights_export_some(const model *m, struct safetensors_writer *writer, weights_type type_of, weights_layout layout,
                        weights_getter get, void *arg, void *scratch, size_t scratch_bytes, pt_error *e);
size_t weights_scratch_bytes(const model *m);

#endif
