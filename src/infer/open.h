/* open.h - shared by evaluation and generation: opening model and adapter, and the format of the base. */
#ifndef PT_INFER_OPEN_H
#define PT_INFER_OPEN_H

#include "model/model.h"

/* Opens a Hugging Face folder that has weights. */
int infer_open_model(const char *folder, model **out, pt_error *e);
/* The same with the adapter of another folder (NULL: none), whose weights are opened, too. */
struct safetensors;
int infer_open_adapted(const char *folder, const char *adapter, void (*notice)(void *, const char *), void *arg, model **out,
                       struct safetensors **weights, pt_error *e);
/* Options of both. */
typedef struct infer_base {
    const char *folder, *adapter; /* adapter NULL: none */
    pt_base base;
    pt_precision precision;
    void (*notice)(void *arg, const char *sentence);
    void *arg;
} infer_base;
/* Sets the format of the matrices of the model's layers. */
int infer_store_base(const infer_base *b, model *m, pt_error *e);

#endif
