/* config.h - the JSON files of a network: config.json of a trained one, and state.json of a checkpoint. */
#ifndef PT_RITZ_CONFIG_H
#define PT_RITZ_CONFIG_H

#include "base/json.h"
#include "ritz/network.h"
#include "ritz/problem.h"

/* The network's description. The caller owns it. */
json_t *ritz_network_json(const ritz_network *n);
int ritz_config_write(const char *folder, const ritz_network *n, const problem *problem, pt_error *e);
/* Reads the network's options, and the problem by problem_open_box, which the caller closes, also on error. */
int ritz_config_read(const char *folder, pt_ritz_options *o, problem *problem, pt_error *e);
int ritz_config_parse(const json_source *src, pt_ritz_options *o, problem *problem, pt_error *e);

/* A checkpoint's state.json. steps: those that the run was to have; files of older versions do not tell, and have 0. */
typedef struct ritz_state { int64_t step, steps, polished; char arithmetic[128]; } ritz_state;
/* task: the options that must be the same, as JSON; PT_FAILED names the first that differs. */
int ritz_state_parse(const json_source *src, json_t *task, ritz_state *out, pt_error *e);

#endif
