/* base_mark.h - the base that an adapter was trained on, as adapter_base.json beside it, which PEFT does not read:
 *
 *   "weights"   a hash of some rows, rounded to bf16 first, so that a copy of the model in another dtype has the same. Weights in few bits
 *               have none
 *   "base"      the format of its matrices, if they were in few bits
 *
 * An adapter without the file (PEFT's) has only the name of its base. A file that is damaged is refused: without it, the base would
 * silently be another one. */
#ifndef PT_BASE_MARK_H
#define PT_BASE_MARK_H

#include "model/model.h"

enum { BASE_MARK = 24 };
#define BASE_MARK_FILE "adapter_base.json"

/* Refuses a damaged file beside the adapter in `adapter`; there may be none. The other functions take such a file for none. */
int base_mark_check(const char *adapter, pt_error *e);
/* Of the weights in a model's folder; "": none can be told. */
void base_mark_find(const model *m, const char *folder, char out[BASE_MARK]);
/* Tells `notice` (may be NULL) where the adapter in `adapter` was trained on other weights than those in `folder`, if that is known. */
void base_mark_compare(const model *m, const char *folder, const char *adapter, void (*notice)(void *arg, const char *sentence),
                       void *arg);
/* The format in few bits of the base that the adapter was trained on; PLAIN: none, or unknown. */
param_storage base_mark_storage(const char *adapter);
/* Writes the file into an adapter's folder, unless there is nothing to say. mark "": none. */
int base_mark_write(const char mark[BASE_MARK], param_storage stored, const char *adapter, pt_error *e);

#endif
