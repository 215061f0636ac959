/* adapter.h - low-rank adapters beside the frozen matrices of layers, as PEFT has them (Hu et al., "LoRA", 2021).
 *
 * A module is a linear layer of Hugging Face's model: q_proj, c_attn, gate_proj ... Its adapter of rank r is A (r, inputs) and B (outputs,
 * r), which are all that is trained:
 *
 *     y = x W^T + s (x A^T) B^T + bias           s = alpha / r, or with rsLoRA alpha / sqrt(r)
 *
 * With DoRA (Liu et al., 2024) a module has a magnitude m of each output too, which starts as the norm of the row of W:
 *
 *     y = g (x W^T + s (x A^T) B^T) + bias       g = m / |row of W + s B A|, the norm taken as a constant in backward
 *
 * Several modules may be one matrix here (q, k and v; gate and up). Their A are one parameter, stacked by rows, so that x A^T is one
 * matmul; B is a parameter each, since ranks may differ:
 *
 *     t = x [A_q; A_k; A_v]^T                 y[:, rows of q] += t[:, r of q] B_q^T ...
 *
 * Not every layer need have the same: what a layer's tensors are wide is the most of any layer (model_config.adapter_width).
 *
 * Files are PEFT's: adapter_config.json, and adapter_model.safetensors with "base_model.model.", the module's name and "lora_A.weight",
 * "lora_B.weight" or "lora_magnitude_vector". What modules have an adapter, and of which rank, the tensors say.
 */
#ifndef PT_ADAPTER_H
#define PT_ADAPTER_H

#include "model/model.h"

#include <jansson.h>

#define ADAPTER_PREFIX "base_model.model."
#define ADAPTER_WEIGHTS "adapter_model.safetensors"
#define ADAPTER_CONFIG "adapter_config.json"

enum { ADAPTER_MAX_RANK = 4096 };

typedef struct adapter_module { int rank; float scale; } adapter_module; /* rank 0: it has none */

typedef struct adapters {
    bool dora;
    adapter_module (*of)[MODEL_MATRICES][MODEL_MAX_PARTS]; /* of each layer's matrices and their parts */
    json_t *config;                                        /* adapter_config.json, but for the base model's name */
} adapters;

/* Which of a layer's matrices: 0 .. MODEL_MATRICES - 1, and back. */
int adapter_matrix(param_role role);
param_role adapter_base(int matrix);
param_role adapter_a(int matrix);
param_role adapter_b(int matrix, int part);
param_role adapter_magnitude(int matrix);
bool param_is_adapter(const param *p);
static inline const adapter_module *adapter_at(const model *m, int block, int matrix, int part)
{
    return &m->adapters->of[m->blocks[block].layer][matrix][part];
}
/* The column of x A^T where a part's begin. */
int64_t adapter_column(const model *m, int block, int matrix, int part);

/* A new adapter. */
typedef struct adapter_options {
    int64_t rank;
    double alpha;        /* 0: 2 x rank */
    const char *targets; /* "all-linear", "attention", "mlp", or names of modules with commas between them; NULL: all-linear */
    bool rslora, dora;
} adapter_options;

/* Gives the model's layers adapters, and freezes all else. PT_USAGE: a target that this model does not have. */
int model_adapt(model *m, const adapter_options *o, pt_error *e);
/* The same as an adapter's folder has them; `notice` (may be NULL) is told what is not applied. Its weights are checked when they are read,
 * but for names and shapes. */
int model_adapt_like(model *m, const char *folder, void (*notice)(void *, const char *), void *arg, pt_error *e);
int model_adapt_from_json(model *m, const char *name, const char *json, size_t n, pt_error *e); /* of a config alone: for fuzzers */
void adapters_free(adapters *a);

/* FOLDER/adapter_config.json; `base`: the name or path of the base model. */
int adapter_write_config(const model *m, const char *folder, const char *base, pt_error *e);

/* The shortest end of a module's name that no other kind of module of a layer has: "q_proj"; of GPT-2 "mlp.c_proj". */
void adapter_short_name(const model *m, int matrix, int part, char out[MODEL_NAME]);

/* Inside model/: */
int adapters_new(const model *m, adapters **out, pt_error *e);
int adapters_attach(model *m, adapters *a, pt_error *e); /* takes it over, also where it fails */
/* The module's name, without ".weight". */
void adapter_module_name(const param *base, int part, char out[MODEL_NAME]);
/* Whether PEFT's target_modules entry `target` names the module: it, or its end behind a dot. */
bool adapter_name_ends(const char *module, const char *target);

#endif
