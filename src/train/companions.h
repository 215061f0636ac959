/* companions.h - what goes with a model's weights: config.json, and the files of its tokenizer.
 *
 * They are read once, when a run begins, and written with every checkpoint: what becomes of the model's folder meanwhile (another
 * config.json for the next run, a disk that is gone) has no part in what the run writes.
 */
#ifndef PT_COMPANIONS_H
#define PT_COMPANIONS_H

#include "base/dtype.h"
#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

enum { COMPANIONS = 13 };

typedef struct companions {
    json_t *config;                                       /* config.json */
    struct { char *data; size_t n; } files[COMPANIONS]; /* data NULL: there is none */
} companions;

int companions_read(companions *c, const char *model_dir, pt_error *e);
/* The chat template of this file is written instead of the folder's, as chat_template.jinja, which Transformers takes before others. */
int companions_take_template(companions *c, const char *path, pt_error *e);
/* config.json as it came, with the dtype that the weights are written in; and with a "model_type", without which Transformers knows
 * no model. */
int companions_write(const companions *c, const char *folder, pt_dtype saved, const char *model_type, pt_error *e);
int companions_write_files(const companions *c, const char *folder, pt_error *e); /* all but config.json */
void companions_free(companions *c);

/* What writing those of a model's folder takes, config.json not counted, with `more` bytes for each. */
uint64_t companions_bytes(const char *model_dir, uint64_t more);

#endif
