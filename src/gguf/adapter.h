/* adapter.h - an adapter as a file of its own, which llama.cpp adds to its model (--lora). Each matrix has two tensors,
 *
 *     blk.0.attn_q.weight.lora_a (rank, inputs)        blk.0.attn_q.weight.lora_b (outputs, rank)
 *
 * with rows and columns in the order of the model's own tensor, and llama.cpp multiplies their product by alpha / rank, with one alpha for
 * all. Where that is not the scale of a module, its lora_b is multiplied by the rest. */
#ifndef PT_GGUF_ADAPTER_H
#define PT_GGUF_ADAPTER_H

#include "gguf/tensors.h"

typedef struct gguf_adapter {
    const model *m;                     /* with the adapter */
    const struct safetensors *weights;  /* of the adapter */
    float alpha;
    char *read;                         /* scratch of weights_read */
} gguf_adapter;

/* Refuses what such a file cannot hold. `folder`: for messages. The first two fields are set. */
int gguf_adapter_open(gguf_adapter *x, const char *folder, pt_error *e);
void gguf_adapter_close(gguf_adapter *x);
/* The adapter's tensors, from those of the model. */
int gguf_adapter_list(const gguf_adapter *x, const gguf_tensors *of_model, gguf_type type, gguf_tensors *out, pt_error *e);
/* A weights_getter (model/weights.h) of a gguf_adapter. */
int gguf_adapter_rows(void *x, int index, int64_t row0, int64_t n, float *out, pt_error *e);

#endif
