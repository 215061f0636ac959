/* stops.h - the ids that end a text. */
#ifndef PT_INFER_STOPS_H
#define PT_INFER_STOPS_H

#include "model/model.h"
#include "text/tokenizer.h"

enum { STOPS_MOST = 32 };
typedef struct stop_ids {
    int32_t ids[STOPS_MOST];
    int n;
} stop_ids;

/* The tokenizer's, and those of generation_config.json and config.json, each once; if there are none, the architecture's own. */
int stops_find(stop_ids *s, const char *folder, const model *m, const tokenizer *tok, pt_error *e);
void stops_add(stop_ids *s, const model *m, int64_t id); /* once; not if the model has no such id, or -1 */
/* Those that a JSON file of a folder names, if there is one. */
int stops_add_named(stop_ids *s, const char *folder, const char *name, const model *m, pt_error *e);
bool stops_has(const stop_ids *s, int32_t id);

#endif
