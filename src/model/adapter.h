/* adapter.h - low-rank adapters beside the frozen matrices of layers, as in PEFT (Hu et al., "LoRA", 2021).
 *
 * A module is a linear layer of Hugging Face's model: q_proj, c_attn, gate_proj ... Its adapter of rank r is A (r, inputs) and B (outputs,
 * r), and only these are trained:
 *
 *     y = x W^T + s (x A^T) B^T + bias           s = alpha / r, or with rsLoRA alpha / sqrt(r)
 *
 * With DoRA (Liu et al., 2024) a module also has a magnitude m per output, initially the norm of the row of W:
 *
 *     y = g (x W^T + s (x A^T) B^T) + bias       g = m / |row of W + s B A|, with the norm a constant in backward
 *
 * Several modules may be one matrix here (q, k and v; gate and up). Their A are one parameter, stacked by rows, so that x A^T is one
 * matmul; each B is a parameter, because ranks may differ:
 *
 *     t = x [A_q; A_k; A_v]^T                 y[:, rows of q] += t[:, r of q] B_q^T ...
 *
 * Layers may differ. In training, dropout may apply to the x of x A^T, for each module on its own.
 *
 * The experts of a layer may have adapters, too: PEFT makes them for a parameter, which is that of all experts in Transformers' model
 * (`target_parameters`), whatever tensors the files have. Each expert has its own A and B. There is neither DoRA nor dropout.
 *
 * Modules outside the layers may be trained in full beside them (PEFT's modules_to_save; param.whole): the embedding, the head, the last
 * norm. A tied table is one module, as with PEFT's ensure_weight_tying.
 *
 * Files are PEFT's: adapter_config.json, and adapter_model.safetensors with "base_model.model.", the module's name and "lora_A.weight",
 * "lora_B.weight" or "lora_magnitude_vector". The tensors decide which modules have an adapter, and of which rank.
 */
#ifndef PT_ADAPTER_H
#define PT_ADAPTER_H

#include "model/model.h"

#include <jansson.h>

#define ADAPTER_PREFIX "base_model.model."
#define ADAPTER_WEIGHTS "adapter_model.safetensors"
#define ADAPTER_CONFIG "adapter_config.json"

enum { ADAPTER_MAX_RANK = 4096 };
#define ADAPTER_LEAST_ALPHA 1e-6
#define ADAPTER_MOST_ALPHA 1e6
#define ADAPTER_MOST_DROPOUT 0.9999999 /* what is kept is scaled by 1 / (1 - dropout) */

typedef struct adapter_module { int rank; float scale; } adapter_module; /* rank 0: no adapter */

typedef struct adapters {
    bool dora;
    double dropout;                                        /* of the modules' inputs, in training; not with dora */
    adapter_module (*of)[MODEL_MATRICES][MODEL_MAX_PARTS]; /* for each layer's matrices and their parts */
    param_part *parts;                                     /* of the adapters' parameters */
    int parts_n;
    json_t *config;                                        /* adapter_config.json, without the base model's name */
} adapters;

/* Sets of matrices: bits by their index. */
enum {
    ADAPTER_ATTENTION = 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 9 | 1 << 10,
    ADAPTER_INPUTS = 1 << 6 | 1 << 7 | 1 << 8,
    ADAPTER_MLP = 1 << 2 | 1 << 3 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 14,
    ADAPTER_EXPERTS = 1 << 15 | 1 << 16,
    ADAPTER_LINEAR = ADAPTER_ATTENTION | ADAPTER_MLP | ADAPTER_INPUTS
};
/* The index of a layer's matrix, 0 .. MODEL_MATRICES - 1, and the reverse. */
int adapter_matrix(param_role role);
param_role adapter_base(int matrix);
param_role adapter_a(int matrix);
param_role adapter_b(int matrix, int part);
param_role adapter_magnitude(int matrix);
bool param_is_adapter(const param *p);
static inline bool model_has_magnitudes(const model *m) { return m->adapters && m->adapters->dora; }
/* Is a module trained in full beside the adapters? */
bool model_has_whole(const model *m);
static inline const adapter_module *adapter_at(const model *m, int block, int matrix, int part)
{
    return &m->adapters->of[m->blocks[block].layer][matrix][part];
}
/* Is the matrix that of all experts? It is one module. */
static inline bool adapter_is_of_experts(int matrix) { return matrix >= MODEL_MATRICES - 2; }
/* The modules of a layer's matrix, 0 if the layer has no such matrix; and the most that any layer has. */
int adapter_parts(const model *m, int block, int matrix);
int adapter_most_parts(const model *m, int matrix);
/* Outputs of a module (of each expert), and the first of them. */
int64_t adapter_outputs(const model *m, const param *base, int part);
int64_t adapter_first_output(const param *base, int part);
/* The column of x A^T where a part's columns begin. */
int64_t adapter_column(const model *m, int block, int matrix, int part);

/* Options of a new adapter. */
typedef struct adapter_options {
    int64_t rank;
    double alpha;        /* 0: 2 x rank */
    const char *targets; /* "all-linear", "attention", "mlp", "experts" or names of modules, separated by commas; NULL: all-linear */
    bool rslora, dora;
    const char *whole;   /* modules outside the layers that are trained in full, separated by commas; NULL: none */
} adapter_options;

/* Adds adapters to the model's layers and freezes everything else. PT_USAGE: the model has no such target. */
int model_adapt(model *m, const adapter_options *o, pt_error *e);
/* The same from an adapter's folder; `notice` (may be NULL) gets what is not applied. Checks names and shapes; values are checked when they
 * are read. */
int model_adapt_like(model *m, const char *folder, void (*notice)(void *, const char *), void *arg, pt_error *e);
/* model_open_changed for the base of an adapter (NULL: none): with a row of the vocabulary for each that the adapter has. */
int model_open_beside(const char *path, const model_changes *c, const char *adapter, void (*notice)(void *, const char *), void *arg,
                      model **out, pt_error *e);
int model_adapt_from_json(model *m, const char *name, const char *json, size_t n, pt_error *e); /* from a config alone: for fuzzers */
void adapters_free(adapters *a);

/* Marks the parameters of modules outside the layers, separated by commas, as trained in every turn (param.always). PT_USAGE: it is no such
 * module. */
int model_mark_always(model *m, const char *names, pt_error *e);

/* Sets the dropout and the config's entry of it. */
void adapter_set_dropout(model *m, double dropout);

/* Writes FOLDER/adapter_config.json; `base`: the name or path of the base model. */
int adapter_write_config(const model *m, const char *folder, const char *base, pt_error *e);

/* The shortest end of a module's name that is unique among the modules of a layer: "q_proj"; in GPT-2 "mlp.c_proj". */
void adapter_short_name(const model *m, int matrix, int part, char out[MODEL_NAME]);

/* Internal to model/: */
int adapters_new(const model *m, adapters **out, pt_error *e);
int adapters_attach(model *m, adapters *a, pt_error *e); /* takes ownership, also on failure */
/* Marks the parameters of a module outside the layers, `name` or its end after a dot, as whole: before the adapters are attached. Returns
 * their number. */
int adapter_mark_whole(model *m, const char *name);
/* The module's name, without ".weight"; of experts the parameter's. */
void adapter_module_name(const model *m, const param *base, int part, char out[MODEL_NAME]);
/* The name before ".lora_A.weight" in files. PEFT wraps the module of the experts once for each of its parameters. */
void adapter_owner_name(const model *m, const adapters *a, const param *base, int part, char out[MODEL_NAME]);
/* The experts' parameter in Transformers' model, after the layer's number: "mlp.experts.down_proj". */
void adapter_parameter_name(const model *m, param_role base, char out[MODEL_NAME]);
/* Does the entry `target` of PEFT's target_modules name the module: by its whole name, or its end after a dot? */
bool adapter_name_ends(const char *module, const char *target);

#endif
