/* patterns.h - the shell patterns that name a set of parameters, as `train_only` takes them: a few, with ranges of layers. */
#ifndef PT_PATTERNS_H
#define PT_PATTERNS_H

#include "model/model.h"

typedef struct name_patterns { char **pattern; int n; } name_patterns;

/* Patterns that match the tensors of the parameters in `set`, and no other of the model. Close it also after an error. */
int patterns_of(const model *m, const bool *set, name_patterns *out, pt_error *e);
void patterns_close(name_patterns *p);

/* Where the number of a parameter's layer stands in a name: *length digits; NULL: nowhere. */
const char *layer_number(const param *p, const char *name, size_t *length);
/* The name of a parameter's part, with * for the number of an expert; false: an earlier part has the same. */
bool name_of_experts(const param *p, int part, char out[MODEL_NAME]);
/* The layers of a set (in the order of bits) in words: "0-3, 7". */
char *layer_ranges(const bool *layers, int n, char *out, size_t bytes);

#endif
