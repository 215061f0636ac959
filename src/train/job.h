/* job.h - what a run computes: model, data, and the shape of a step. Opened once, unchanged until the run ends. */
#ifndef PT_JOB_H
#define PT_JOB_H

#include "data/dataset.h"
#include "io/files.h"
#include "model/base_mark.h"
#include "model/model.h"
#include "model/shape.h"
#include "model/weights.h"
#include "protrain.h"
#include "text/new_tokens.h"
#include "train/base.h"
#include "train/companions.h"

typedef struct job {
    pt_train_options o;            /* with lr and seq_len set */
    char model_dir[FILE_PATH_BYTES];
    model *model;
    companions companions;
    new_tokens added;              /* of `add_tokens`; n 0: none */
    label_names labels;            /* of `task` classify; n 0: none */
    int64_t padding;               /* id behind texts that are scored; -1: none */
    bool random_init;
    base base;
    weights_layout layout;         /* of the weights that are written; owns its source */
    pt_dtype save_type;            /* of adapters fp32 */
    uint64_t base_sum;             /* of the weights that adapters stand beside, as they were loaded */
    char base_mark[BASE_MARK];     /* of the same, which goes with the adapters */
    step_shape shape;
    dataset *data, *eval;
    char *preview;                 /* preview.h; NULL: none */
    int64_t steps, epoch_samples;  /* epoch_samples: a multiple of the batch: without windows that do not fill one, or with padding */
} job;

/* from: the checkpoint that the run continues, or "". */
int job_open_model(job *j, const char *from, pt_error *e);
/* Sequence length, batch and type; as for a CPU until the plan is made. */
int job_choose_shape(job *j, bool resumed, pt_error *e);
/* cache: folder of the token cache. */
int job_open_data(job *j, const char *cache, pt_error *e);
int job_count_steps(job *j, pt_error *e);
void job_close(job *j);

#endif
