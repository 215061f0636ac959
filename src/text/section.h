/* section.h - what the readers of tokenizer.json's sections share. */
#ifndef PT_TEXT_SECTION_H
#define PT_TEXT_SECTION_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A flag; `absent` where there is none or null. `where` names the section. */
int section_flag(const json_t *section, const char *where, const char *key, bool absent, bool *out, pt_error *e);

/* The character that Metaspace writes for a space: mark[0 .. *n). */
int section_mark(const json_t *section, const char *where, char mark[4], size_t *n, pt_error *e);

/* Steps of a section's Sequence; no tokenizer that is in use has a tenth of that. */
enum { SECTION_STEPS_MOST = 64 };
int section_too_long(const char *where, pt_error *e);

#endif
