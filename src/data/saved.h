/* saved.h - folders that `save_to_disk` of Hugging Face's datasets wrote: of one set (state.json names its .arrow files), or of several,
 * each in a folder of its own (dataset_dict.json). */
#ifndef PT_DATA_SAVED_H
#define PT_DATA_SAVED_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

typedef enum saved_kind { SAVED_NOT, SAVED_SET, SAVED_SETS } saved_kind;
saved_kind saved_kind_of(const char *folder);

/* *out = the names of the files of a set, or of its sets: a list of strings, of which none leads out of the folder. */
int saved_names(const char *folder, saved_kind kind, json_t **out, pt_error *e);

#endif
