/* timings.h - the table of predicted and measured times at the end of a run. */
#ifndef CLI_TIMINGS_H
#define CLI_TIMINGS_H

#include "protrain.h"

/* Processor time of all threads of this process, and the time in which they were ready to run but had no processor. Zeros if unknown. */
typedef struct processor_use { int64_t work_ns, waited_ns; } processor_use;
processor_use processor_use_now(void);

/* Prints the table on stderr: a line "step        predicted    1.20 s, measured    1.22 s (+1.7%)" for the step, each phase and each queue.
 * `used`: since the first step. If other programs had the processors, a sentence says so. */
void timings_print(const pt_trainer *t, const pt_summary *m, const processor_use *used);

/* How a measured time compares with its prediction: " (+1.7%)", or " (18x)" from twice the prediction on. Empty if one of the times is too
 * short to be predicted well. */
enum { TIMING_TEXT = 32 };
const char *timing_compare(double predicted_s, double measured_s, char out[TIMING_TEXT]);

#endif
