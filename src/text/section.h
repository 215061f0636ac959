/* section.h - what the readers of tokenizer.json's sections share. */
#ifndef PT_TEXT_SECTION_H
#define PT_TEXT_SECTION_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

/* A flag; `absent` where there is none or null. `where` names the section. */
int section_flag(const json_t *section, const char *where, const char *key, bool absent, bool *out, pt_error *e);

#endif
