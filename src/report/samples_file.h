/* samples_file.h - samples.jsonl: texts that the model generated for some prompts, by step.
 *
 *     {"step": 0, "prompt": "Once upon", "text": " a time ..."}      one per line, in order of step */
#ifndef PT_SAMPLES_FILE_H
#define PT_SAMPLES_FILE_H

#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

#define SAMPLES_NAME "samples.jsonl"
enum { SAMPLES_MOST = 512, SAMPLES_MOST_BYTES = 4 << 20 };

typedef struct said_sample {
    int64_t step;
    char *prompt, *text; /* valid UTF-8 */
} said_sample;

typedef struct said_samples {
    said_sample *list;
    int n;
} said_samples;

/* Empty if there is no file. PT_FAILED names an invalid line. */
int said_read(const char *path, said_samples *out, pt_error *e);
/* Adds a sample; copies the texts. */
int said_add(said_samples *s, int64_t step, const char *prompt, const char *text, pt_error *e);
/* Removes the samples of `step` and later. */
void said_cut(said_samples *s, int64_t step);
int said_write(const char *path, const said_samples *s, pt_error *e);
json_t *said_json(const said_samples *s); /* a list of objects as above; new reference, NULL: no memory */
void said_free(said_samples *s);

#endif
