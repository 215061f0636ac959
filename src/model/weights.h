/* weights.h - parameters from and to Hugging Face tensors, piece by piece, and random initialisation.
 *
 * A checkpoint is spoken of in Hugging Face's terms only: its tensors, their names, their shapes. How
 * our parameters are made of them (model.h: parts stacked by rows, some transposed) is known here and
 * nowhere else. The same functions serve whatever has the shape of the weights, such as moments: write
 * them to files of their own, under the same names, and read them back from there.
 */
#ifndef PT_WEIGHTS_H
#define PT_WEIGHTS_H

#include "model/model.h"

struct safetensors;
struct safetensors_writer;

/* True if the folder has weights (model.safetensors or an index). */
bool weights_present(const char *model_dir);

/* Whether a table for the embedding and another for the head are stored: they differ in their first values. */
bool weights_have_two_tables(const model *m, const struct safetensors *st);

/* How a checkpoint spells the names of its tensors. */
typedef enum weights_naming {
    NAMES_WHOLE, /* as param_part has them */
    NAMES_BARE,  /* without the architecture's prefix, "transformer." or "model." */
    NAMES_OUTER, /* text part of a multimodal model: "language_model." before all of them */
    NAMES_INNER, /* the same: "language_model." behind the prefix */
    NAMINGS
} weights_naming;

/* That of a checkpoint; st NULL: that in which weights of this model are written where none were read. */
weights_naming weights_naming_of(const model *m, const struct safetensors *st);

/* Of the model without its adapters. Checks that every part exists with the right shape (a tied model may store either name: the
 * embedding's or lm_head.weight; both only if they are equal; names come in any naming, those of multimodal
 * checkpoints where the model is part of one), that dtypes are readable; extra tensors are an
 * error, except empty ones, the known buffers of any architecture (attn.bias masks, what ropes are computed from, position_ids), and what
 * a multimodal checkpoint has beside its text part. An index may name a tied model's lm_head.weight though no shard has it.
 * *stored_type (may be NULL) is what most of the weights are stored in: F32, BF16 or F16. */
int weights_check(const model *m, const struct safetensors *st, pt_dtype *stored_type, pt_error *e);

/* Tells of the tensors that are let pass though a model of this architecture has nothing like them; once, or not at all. `notice` may be
 * NULL. */
void weights_notice_unused(const model *m, const struct safetensors *st, void (*notice)(void *arg, const char *sentence), void *arg);

/* What has the shape of some of the weights: the dtype of a parameter's tensors, or -1: it has none. */
typedef int (*weights_type)(void *arg, int index);
/* Checks that exactly the tensors of those are there, with their shapes and dtypes. */
int weights_check_some(const model *m, const struct safetensors *st, weights_type type_of, void *arg, pt_error *e);

/* In an adapter's file: a tensor by its part's name (model.h), in any naming, behind ADAPTER_PREFIX; NULL: it is not there. */
struct safetensors_tensor;
const struct safetensors_tensor *weights_find_adapter(const model *m, const struct safetensors *st, const char *name);
/* Checks that the adapter's tensors are there with their shapes, readable. */
int weights_check_adapter(const model *m, const struct safetensors *st, pt_error *e);

/* Part k of a matrix as the checkpoint has it, if it has it in few bits (prequantized.h): 1, or 0. */
struct prequantized;
int weights_in_few_bits(const model *m, const struct safetensors *st, int index, int k, struct prequantized *out, pt_error *e);
/* Keeps each frozen matrix of a layer as the checkpoint has it, where that is a format of ours. */
int weights_store_like(model *m, const struct safetensors *st, pt_error *e);

/* Whether all of what is frozen, and not kept in few bits, is stored as BF16. */
bool weights_frozen_are_bf16(const model *m, const struct safetensors *st);

/* Tensors that a multimodal checkpoint has beside the text part. */
typedef struct weights_beside {
    size_t tensors;
    uint64_t bytes;
    const char *first;    /* name of one of them; NULL: there are none */
    const char *few_bits; /* of one that belongs to a matrix in few bits; NULL: there is none */
} weights_beside;
weights_beside weights_find_beside(const model *m, const struct safetensors *st);
/* PT_FAILED: some of them are in few bits, so that a checkpoint with whole weights cannot have them as they are. */
int weights_check_beside(const model *m, const struct safetensors *st, pt_error *e);

/* out[0 .. n_rows*cols) = rows row0 .. of parameter `index`, as fp32. Bounded memory: `scratch` of
 * scratch_bytes (>= 1 MiB) is all that is used besides `out`. Thread-safe with a scratch for each
 * thread. An adapter's are read from the adapter's file. Refused: a value that is not finite. A part that is stored transposed is read
 * whole where at least half of its rows are wanted, else with one small read for each column. */
int weights_read(const model *m, const struct safetensors *st, int index, int64_t row0, int64_t n_rows,
                 float *out, void *scratch, size_t scratch_bytes, pt_error *e);

/* The architecture's own random initialisation of the same rows (Hugging Face's way: normal of
 * initializer_range, GPT-2's scaled residual projections, zeros for biases, ones for norms; of adapters PEFT's: A uniform in +- the root of
 * 1 / inputs, B zero, magnitudes zero until they are measured), from the
 * counter-based generator: element (row, col) depends on (seed, Hugging Face tensor, its logical index) only. */
void weights_init(const model *m, uint64_t seed, int index, int64_t row0, int64_t n_rows, float *out);

/* Rows row0 .. row0+n_rows of parameter `index` as fp32: out (n_rows, cols). */
typedef int (*weights_getter)(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e);

/* What else an exported checkpoint takes over from the one that the model came from. */
typedef struct weights_layout {
    weights_naming naming;
    const struct safetensors *source; /* what it has beside the text part is copied, byte for byte; NULL: nothing is */
} weights_layout;

/* Where several processes write the same files (safetensors_share), all call this, and the getter says whose turn it is, the same one for
 * all of a parameter that is stored transposed.
 *
 * Streams every Hugging Face tensor, in the order of the model and named as the layout says, then those that are copied. A tied head is not
 * written twice. Memory: `scratch`, at least weights_scratch_bytes(). A transposed tensor (GPT-2's matrices) is asked for once from the
 * getter if about 4/3 of its fp32 bytes fit into the scratch, else once for each slice that fits: give some tens of MiB. PT_FAILED also
 * where a finite value is beyond F16. */
int weights_export(const model *m, struct safetensors_writer *w, pt_dtype dtype, weights_layout layout,
                   weights_getter get, void *arg, void *scratch, size_t scratch_bytes, pt_error *e);
/* The same of those that have a type. */
int weights_export_some(const model *m, struct safetensors_writer *w, weights_type type_of, weights_layout layout,
                        weights_getter get, void *arg, void *scratch, size_t scratch_bytes, pt_error *e);
size_t weights_scratch_bytes(const model *m);

#endif
