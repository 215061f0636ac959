/* predict_record.h - what bench_predict's FILE has to compute its predictions again: a line a group, with the setting and the costs that
 * predicted, before the lines of its plans, which have the plan.
 *
 *   {"setting": [CONFIG, BATCH, SEQ_LEN, UNIT_SEQS, HOST_MEMORY], "profile": {"blocks": ..., "machine": ...}}
 *   {"case": ..., "index": 3, "predicted_s": 1.2, "measured_s": [1.21, ...], ..., "plan": {...}}
 */
#ifndef PT_BENCH_PREDICT_RECORD_H
#define PT_BENCH_PREDICT_RECORD_H

#include "plan_run.h"

#include "base/json.h"

#include <stdio.h>

/* The object of the next line of a file; NULL at its end. json_decref it. */
json_t *record_read(FILE *f);
/* v: as setting_open takes it. */
json_t *record_group(const setting *g, char *const *v);
json_t *record_plan(const setting *g, const priced_plan *c);

/* Takes the lines of a file one after the other: 1 for a plan whose group's line was there, with the seconds that this build predicts
 * for it; 0 for any other line. g: all zero before the first. */
int record_predict(setting *g, const json_t *line, double *seconds, pt_error *e);

#endif
