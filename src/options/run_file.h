/* run_file.h - a run as a file: options by the names of their flags, in YAML or JSON.
 *
 *     model: /models/qwen
 *     data: [a.jsonl, b.jsonl]
 *     lr: 1e-4
 *     no-shuffle: true
 */
#ifndef PT_RUN_FILE_H
#define PT_RUN_FILE_H

#include "options/table.h"

#define RUN_FILE "run.yaml" /* in a run's folder */

/* pt_options_read of `n` bytes that errors call `name`. */
int run_file_read(pt_options *o, const char *name, const char *text, size_t n, pt_error *e);
/* Writes the options that are not at their defaults, with absolute paths, and without those of one folder or moment: --out and --resume.
 * Above them are the command of this process and the time. */
int run_file_write(const option_table *t, const void *from, const char *path, pt_error *e);

#endif
