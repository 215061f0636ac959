/* open.h - what evaluation and generation have in common before they begin. */
#ifndef PT_INFER_OPEN_H
#define PT_INFER_OPEN_H

#include "model/model.h"

/* PT_USAGE names the option that makes no sense. */
int infer_check_options(pt_precision precision, int threads, const char *device, pt_error *e);
/* A Hugging Face folder that has weights. */
int infer_open_model(const char *folder, model **out, pt_error *e);
/* The same with the adapter of another folder (NULL: none), whose weights are opened too. */
struct safetensors;
int infer_open_adapted(const char *folder, const char *adapter, void (*notice)(void *, const char *), void *arg, model **out,
                       struct safetensors **weights, pt_error *e);

#endif
