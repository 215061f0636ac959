/* adapter_targets.h - which modules an adapter_config.json adapts, as PEFT decides it: by `target_modules`, `exclude_modules`,
 * `layers_to_transform` and `layers_pattern`; and their ranks and alphas, by `rank_pattern` and `alpha_pattern`. Inside model/ only. */
#ifndef PT_ADAPTER_TARGETS_H
#define PT_ADAPTER_TARGETS_H

#include "base/json.h"

#include <stdbool.h>

/* Checks these keys by themselves. Refused: values of another type, and combinations that PEFT refuses. */
int adapter_targets_check(const json_source *config, pt_error *e);

/* Does the config adapt the module of layer `layer`? `module` is its name in PEFT's model. *key: the key that decides so. Without
 * target_modules, the adapter's tensors decide: *known is false. */
typedef struct adapter_target { bool adapted, known; const char *key; } adapter_target;
int adapter_targets_find(const json_source *config, const char *module, int layer, adapter_target *out, pt_error *e);

/* Do the module's name, or its end after a dot, match a key of rank_pattern or alpha_pattern? */
int adapter_pattern_matches(const char *where, const char *key, const char *module, bool *out, pt_error *e);

enum { ADAPTER_PATTERNS = 2 };
extern const char *const adapter_patterns[ADAPTER_PATTERNS]; /* their keys */
/* Checks all patterns, also those that no module matches. */
int adapter_patterns_check(const json_source *config, pt_error *e);
/* Sets *out to the number that a pattern gives the module, if one does. */
int adapter_pattern_read(const json_source *config, const char *which, const char *module, double *out, pt_error *e);

#endif
