/* open.h - shared by evaluation and generation: opening model and adapter. */
#ifndef PT_INFER_OPEN_H
#define PT_INFER_OPEN_H

#include "model/model.h"

/* PT_USAGE names the invalid option. */
int infer_check_options(pt_precision precision, int threads, const char *device, pt_error *e);
/* Opens a Hugging Face folder that has weights. */
int infer_open_model(const char *folder, model **out, pt_error *e);
/* The same with the adapter of another folder (NULL: none), whose weights are opened, too. */
struct safetensors;
int infer_open_adapted(const char *folder, const char *adapter, void (*notice)(void *, const char *), void *arg, model **out,
                       struct safetensors **weights, pt_error *e);

#endif
