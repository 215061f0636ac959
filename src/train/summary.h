/* summary.h - what a run was predicted to take and what it took, in files of its output folder. */
#ifndef PT_SUMMARY_H
#define PT_SUMMARY_H

#include "train/trainer.h"

int summary_write(const trainer *t, pt_error *e); /* summary.json: predicted, corrected and measured */
/* trace.json of the last step, beside what was predicted of it (trace.c). Nothing where none was taken under the plan. */
int trace_write(const trainer *t, pt_error *e);

#endif
