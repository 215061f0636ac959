/* section.h - helpers shared by the readers of tokenizer.json's sections. */
#ifndef PT_TEXT_SECTION_H
#define PT_TEXT_SECTION_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Reads a flag; `absent` is its value if missing or null. `where` names the section. */
int section_flag(const json_t *section, const char *where, const char *key, bool absent, bool *out, pt_error *e);

/* The character that Metaspace writes for a space: mark[0 .. *n). */
int section_mark(const json_t *section, const char *where, char mark[4], size_t *n, pt_error *e);

/* The limit for steps in a section's Sequence; known tokenizers have less than a tenth of that. */
enum { SECTION_STEPS_MOST = 64 };
int section_too_long(const char *where, pt_error *e);

#endif
