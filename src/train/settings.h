/* settings.h - the settings on which the result of a run depends, as checkpoints record them. */
#ifndef PT_SETTINGS_H
#define PT_SETTINGS_H

#include "base/json.h"
#include "train/job.h"

json_t *model_json(const model_config *config); /* new references */
json_t *settings_json(const job *j);
/* All options that the result depends on, with the values that the run uses: data and model by their paths. */
json_t *settings_all_json(const job *j);
/* The same in words, without files: "steps 12, lr 5e-05, ...". */
void settings_describe(const job *j, char *out, size_t n);
/* file: trainer.json of the checkpoint `path`. */
int settings_compare(const job *j, const char *path, const json_source *file, pt_error *e);

/* Everything that the ranks of a run must have in common; free() it. NULL: out of memory. */
char *settings_text(const job *j);
/* Names the first difference between a rank and rank 0. */
int settings_agree(const char *own, const char *of_zero, pt_error *e);

#endif
