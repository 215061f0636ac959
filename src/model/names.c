/* names.c - how checkpoints spell the names of their tensors.
 *
 *   NAMES_WHOLE    model.layers.0...                   lm_head.weight
 *   NAMES_BARE     layers.0...                         lm_head.weight
 *   NAMES_MODULES  as WHOLE, with the prefix that Transformers has in memory, where files have another
 *   NAMES_OUTER    language_model.model.layers.0...    language_model.lm_head.weight
 *   NAMES_INNER    model.language_model.layers.0...    lm_head.weight
 *
 * The last two are of models of text and images: the first of them is published and what Transformers writes, the second is how it names
 * them in memory, and some of its versions in files. Whatever such a checkpoint has beside these is of the other parts.
 */
#include "model/names.h"

#include <stdio.h>
#include <string.h>

static const char outer[] = "language_model.", inner[] = "model.language_model.";

static bool begins(const char *name, const char *with) { return !strncmp(name, with, strlen(with)); }

const char *names_spell(const architecture *arch, weights_naming naming, const char *name, char out[SPELLED_NAME])
{
    const bool prefixed = begins(name, arch->prefix);
    const char *bare = prefixed ? name + strlen(arch->prefix) : name, *before = "", *rest = name;
    if (naming == NAMES_BARE)
        rest = bare;
    else if (naming == NAMES_MODULES && prefixed && arch->module_prefix) {
        before = arch->module_prefix;
        rest = bare;
    }
    else if (naming == NAMES_OUTER)
        before = outer;
    else if (naming == NAMES_INNER && prefixed) {
        before = inner;
        rest = bare;
    }
    snprintf(out, SPELLED_NAME, "%s%s", before, rest);
    return out;
}

const char *names_of_text(const char *name)
{
    return name + (begins(name, outer) ? sizeof outer - 1 : begins(name, inner) ? sizeof inner - 1 : 0);
}

bool names_beside(weights_naming naming, const char *name)
{
    return (naming == NAMES_OUTER || naming == NAMES_INNER) && names_of_text(name) == name && strcmp(name, head_name) != 0;
}
