/* modelfile.h - a Modelfile, with which `ollama create NAME -f FILE` takes a GGUF file. The chat template is in the GGUF file. */
#ifndef PT_GGUF_MODELFILE_H
#define PT_GGUF_MODELFILE_H

#include "infer/stops.h"

typedef struct modelfile {
    const char *path, *gguf, *folder; /* of the Modelfile, the GGUF file, the model */
    const tokenizer *tokenizer;
    const stop_ids *stops;
} modelfile;

/* Refuses to replace a file that modelfile_write did not write. */
int modelfile_check(const char *path, pt_error *e);
int modelfile_write(const modelfile *x, pt_error *e);

#endif
