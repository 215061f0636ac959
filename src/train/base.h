/* base.h - --base: the format of a frozen base, in training, evaluation and generation, and where a run reads it from.
 *
 * Codes are never saved. The base is quantized from the model's folder (or from the seed) whenever it is loaded: at the start, after a
 * resume, and for another plan. A checkpoint has a checksum of the values that were read, so that a resumed run uses the same ones.
 */
#ifndef PT_TRAIN_BASE_H
#define PT_TRAIN_BASE_H

#include "io/files.h"
#include "io/safetensors.h"
#include "protrain.h"
#include "run/state.h"

#include <jansson.h>

typedef struct base {
    bool in_few_bits;
    char folder[FILE_PATH_BYTES];
    state_origin origin; /* owns its files */
    uint64_t sum;        /* checksum of what was read; 0: nothing yet */
} base;

/* Sets the format of the model's frozen matrices from the options. PT_USAGE: there are none, or computation uses another type. */
int base_apply(const pt_train_options *o, model *m, pt_error *e);
const char *base_name(pt_base b); /* as for --base; NULL: not given */
/* The same for a model that is not trained: all matrices of its layers. */
int base_apply_whole(pt_base b, pt_precision precision, model *m, pt_error *e);
bool base_is_whole(const model *m); /* all matrices of layers have one format */
/* `b`; if it leaves the format open, that of the base that `adapter` (NULL: none) was trained on, unless `folder`, the model's, is in few
 * bits itself. `notice` (may be NULL) is told of it, and of a format that differs. */
pt_base base_of_adapter(pt_base b, const char *folder, const char *adapter, void (*notice)(void *arg, const char *sentence), void *arg);

/* `folder` NULL: from the seed. Opens nothing if the model keeps nothing in few bits. */
int base_open(base *b, const model *m, const char *folder, uint64_t seed, pt_error *e);
void base_close(base *b);

void base_lend(const base *b, state *state);   /* for a state that will be loaded or saved */
void base_take_sum(base *b, const state *state); /* from a state that was loaded */
/* Its part of trainer.json; nothing if nothing is in few bits. */
void base_write(const base *b, json_t *counters);
int base_compare(const base *b, const state *loaded, const char *checkpoint, pt_error *e);

#endif
