/* base_mark.h - identifies the base that an adapter was trained on. adapter_base.json, beside the adapter, holds (PEFT ignores it):
 *
 *   "weights"   a hash of some rows, rounded to bf16 first, so that copies of the model in other dtypes have the same hash. Few-bit weights
 *               have none
 *   "base"      the few-bit format of its matrices, if they had one
 *   "rope_scaling"  how its positions were extended (model_open_changed), if they were
 *
 * An adapter without the file (such as PEFT's) records only the name of its base. A damaged file is refused, because otherwise the adapter
 * could be applied to another base unnoticed. */
#ifndef PT_BASE_MARK_H
#define PT_BASE_MARK_H

#include "model/model.h"

enum { BASE_MARK = 24 };
#define BASE_MARK_FILE "adapter_base.json"

/* PT_FAILED: the file in the adapter's folder is damaged. It may be absent. The other functions treat a damaged file as absent. */
int base_mark_check(const char *adapter, pt_error *e);
/* Computes the hash of the weights in a model's folder; "" if there is none. */
void base_mark_find(const model *m, const char *folder, char out[BASE_MARK]);
/* Gives a notice if the adapter was trained on other weights than those in `folder`, as far as that is known. `notice` may be NULL. */
void base_mark_compare(const model *m, const char *folder, const char *adapter, void (*notice)(void *arg, const char *sentence),
                       void *arg);
/* The few-bit format of the base that the adapter was trained on; PLAIN: none, or unknown. */
param_storage base_mark_storage(const char *adapter);
/* The scaling of the base's positions; "": none. adapter NULL: no adapter. */
enum { ROPE_MARK = 32 };
const char *base_mark_rope(const char *adapter, char out[ROPE_MARK]);
/* Writes the file into an adapter's folder, unless it would be empty. mark "": no hash. */
int base_mark_write(const char mark[BASE_MARK], const model *m, const char *adapter, pt_error *e);

#endif
