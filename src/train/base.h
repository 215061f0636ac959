/* base.h - --base: how a frozen base is kept, and where a run that keeps it in few bits reads it from.
 *
 * Codes are never saved. Such a base is quantized from the model's folder (or from the seed) whenever it is loaded: at the start, after a
 * resume, and when another plan takes over. A checkpoint has a sum of the values that were read, so that a run goes on from the same ones.
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
    uint64_t sum;        /* of what was read; 0: nothing yet */
} base;

/* The model's frozen matrices as the options want them. PT_USAGE: there are none, or computing takes another type. */
int base_apply(const pt_train_options *o, model *m, pt_error *e);
const char *base_name(pt_base b); /* as --base has it; NULL: not given */

/* `folder` NULL: from the seed. Nothing is opened of a model that keeps nothing in few bits. */
int base_open(base *b, const model *m, const char *folder, uint64_t seed, pt_error *e);
void base_close(base *b);

void base_lend(const base *b, state *s);   /* to a state that is to be loaded or saved */
void base_take_sum(base *b, const state *s); /* of one that was loaded */
/* In trainer.json; nothing where nothing is in few bits. */
void base_write(const base *b, json_t *counters);
int base_compare(const base *b, const state *loaded, const char *checkpoint, pt_error *e);

#endif
