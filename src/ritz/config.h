/* config.h - the JSON beside tensors: a trained network's config.json, and a checkpoint's state.json. */
#ifndef PT_RITZ_CONFIG_H
#define PT_RITZ_CONFIG_H

#include "base/json.h"
#include "ritz/network.h"
#include "ritz/problem.h"

enum { RITZ_ARITHMETIC_BYTES = 128 };

/* What describes the network. The caller owns it. */
json_t *ritz_network_json(const ritz_network *n);
int ritz_config_write(const char *folder, const ritz_network *n, const problem *p, pt_error *e);
/* The network's options, and the problem as far as a trained network needs it (problem_open_box); the caller closes that, on error too. */
int ritz_config_read(const char *folder, pt_ritz_options *o, problem *p, pt_error *e);
int ritz_config_parse(const json_source *s, pt_ritz_options *o, problem *p, pt_error *e);

/* task: what the run has to have been (json of the same keys). */
int ritz_state_parse(const json_source *s, json_t *task, int64_t *step, char arithmetic[RITZ_ARITHMETIC_BYTES], pt_error *e);

#endif
