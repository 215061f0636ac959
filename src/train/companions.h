/* companions.h - the files that accompany a model's weights: config.json, and those of its tokenizer.
 *
 * They are read once, when a run begins, and written with every checkpoint. So later changes of the model's folder (another config.json for
 * the next run, a disk that is gone) do not affect what the run writes.
 */
#ifndef PT_COMPANIONS_H
#define PT_COMPANIONS_H

#include "base/dtype.h"
#include "base/error.h"
#include "io/files.h"
#include "model/model.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { COMPANIONS = 13 };

typedef struct companions {
    json_t *config;                                       /* config.json */
    struct { char *data; size_t n; } files[COMPANIONS]; /* data NULL: none */
    char generation[FILE_PATH_BYTES];                     /* the path of generation_config.json, for errors */
} companions;

/* `m`: the model of the folder; config.json says where its positions or its vocabulary were extended. */
int companions_read(companions *companions, const char *model_dir, const model *m, pt_error *e);
/* This file's chat template is written instead of the folder's, as chat_template.jinja, which Transformers prefers. */
int companions_take_template(companions *companions, const char *path, pt_error *e);
/* config.json is that of a model that scores classes of these names, and pads with this id. names NULL: they have none. */
void companions_take_labels(companions *companions, const model *m, const char *const *names, int64_t padding);
/* LABELS_FILE beside an adapter, which has no config.json: the names of its labels. */
#define LABELS_FILE "labels.json"
int companions_write_labels(const companions *companions, const char *folder, pt_error *e);
/* This tokenizer.json is written instead of the folder's; `json` now belongs to the companions. */
void companions_take_tokenizer(companions *companions, char *json, size_t n);
/* That of another folder, if it has one. */
int companions_take_tokenizer_of(companions *companions, const char *folder, pt_error *e);
/* tokenizer.json as it is written; NULL: none. */
const char *companions_tokenizer(const companions *companions, size_t *n);
/* Adds an id to "eos_token_id" of generation_config.json, the ends of a text for other programs. Without this file config.json names them,
 * or its architecture (`usual`; -1: none). *added: it was not among them. */
int companions_add_end(companions *companions, int64_t id, int64_t usual, bool *added, pt_error *e);
/* Adds those of another folder's generation_config.json, if it has one. *added: one was not among them. */
int companions_add_ends_of(companions *companions, const char *folder, int64_t usual, bool *added, pt_error *e);
/* config.json as it was read, with the dtype of the written weights, and with a "model_type", which Transformers needs. */
int companions_write(const companions *companions, const char *folder, pt_dtype saved, const char *model_type, pt_error *e);
int companions_write_files(const companions *companions, const char *folder, pt_error *e); /* all except config.json */
void companions_free(companions *companions);

/* The bytes that writing those of a model's folder takes, without config.json, plus `more` per file. */
uint64_t companions_bytes(const char *model_dir, uint64_t more);

#endif
