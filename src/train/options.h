/* options.h - validates the options of a run, a plan or a profile, and passes notices and progress to the caller. */
#ifndef PT_OPTIONS_H
#define PT_OPTIONS_H

#include "base/error.h"
#include "optimizer/optimizer.h"
#include "options/table.h"

int options_check(const pt_train_options *o, pt_error *e);
int options_check_plan(const pt_train_options *o, pt_error *e); /* the options that planning uses, and all ranges */
int options_check_tokens(const pt_train_options *o, pt_error *e); /* of a step, once seq_len is known */
bool options_evaluate(const pt_train_options *o); /* does the run evaluate? Looks for validation files in the folders of `data` */
/* The name in metrics.jsonl of what the best evaluation is best in. */
const char *best_metric(const pt_train_options *o);
int64_t lr_warmup_steps(const pt_train_options *o, int64_t steps); /* of a run of so many steps */
optimizer_args options_args(const pt_train_options *o);
double lr_of_step(const pt_train_options *o, int64_t step, int64_t steps);

/* What options need of a run with such data: chats, and windows made of examples. */
option_needs options_needs(const pt_train_options *o, bool chats, bool examples);

/* A sentence, or how far something has come, for whoever listens. */
void options_notice(const pt_train_options *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void options_pass_notice(void *options, const char *sentence); /* the same, as a callback */
void options_progress(const pt_train_options *o, const char *stage, uint64_t done, uint64_t total);

#endif
