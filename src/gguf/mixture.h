/* mixture.h - the types that llama.cpp gives the matrices of a file in blocks: more bits for those that need them. */
#ifndef PT_GGUF_MIXTURE_H
#define PT_GGUF_MIXTURE_H

#include "gguf/tensors.h"
#include "protrain.h"

gguf_type gguf_base_type(pt_export_type kind);
uint32_t gguf_file_type(pt_export_type kind); /* llama.cpp's number */
/* Sets the types of all matrices but those that are F32 in every file, and t->unblocked: how many are of another type than they would be,
 * because their rows are not whole blocks. */
void gguf_mix_types(gguf_tensors *t, const model_config *config, const gguf_family *f, pt_export_type kind);

#endif
