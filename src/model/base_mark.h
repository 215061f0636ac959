/* base_mark.h - on which weights an adapter was trained: a hash of some rows of them, beside the adapter as adapter_base.json, which PEFT
 * does not read. Values are rounded to bf16 first, so that a copy of the model in another dtype has the same mark. Weights in few bits
 * have none. An adapter that says nothing of the kind (PEFT's) is asked for the name of its base. */
#ifndef PT_BASE_MARK_H
#define PT_BASE_MARK_H

#include "model/model.h"

enum { BASE_MARK = 24 };
#define BASE_MARK_FILE "adapter_base.json"

/* Of the weights in a model's folder; "": none can be told. */
void base_mark_find(const model *m, const char *folder, char out[BASE_MARK]);
/* Tells `notice` (may be NULL) where the adapter in `adapter` was trained on other weights than those in `folder`, if that is known. */
void base_mark_compare(const model *m, const char *folder, const char *adapter, void (*notice)(void *arg, const char *sentence),
                       void *arg);
/* Writes the mark into an adapter's folder; "": nothing. */
int base_mark_write(const char mark[BASE_MARK], const char *adapter, pt_error *e);

#endif
