/* summary.h - the prediction and the measurements of a run, in files of its output folder. */
#ifndef PT_SUMMARY_H
#define PT_SUMMARY_H

#include "train/trainer.h"

/* summary.json before the first step: the settings, the command, the time. */
int summary_begin(const trainer *trainer, pt_error *e);
int summary_write(const trainer *trainer, pt_error *e); /* summary.json: predicted, corrected and measured */
/* trace.json of the last step, with its prediction (trace.c). Writes nothing if no step was timed under the current plan. */
int trace_write(const trainer *trainer, pt_error *e);

#endif
