/* protrain.h - train language models on the hardware that is there, from C.
 *
 *     pt_train_options o;
 *     pt_train_defaults(&o);
 *     o.model = "my-model";                      a Hugging Face folder
 *     o.data = (const char *[]){"text.txt"};
 *     o.data_n = 1;
 *     pt_error e;
 *     pt_trainer *t;
 *     if (pt_trainer_open(&o, &t, &e) < 0) ...   plan made, memory taken, weights loaded
 *     pt_step s;
 *     while ((more = pt_trainer_step(t, &s, &e)) > 0)
 *         printf("%lld %.4f\n", s.step, s.loss);
 *     pt_trainer_finish(t, &e);                  the trained model is in o.out
 *     pt_trainer_close(t);
 *
 * Functions that can fail return 0 (or what they say) or a negative code, and leave one sentence in
 * the pt_error passed in: what went wrong, where, and what to do. Messages and plans name options by
 * their fields, in backquotes: `seq_len`. The library never prints and never exits. A NULL where a
 * function needs a pointer is PT_USAGE; a function without an error to return then does nothing. Use an
 * object from one thread at a time; different objects are independent.
 */
#ifndef PROTRAIN_H
#define PROTRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PT_API __attribute__((visibility("default")))

/* ---- errors ---- */

enum {
    PT_OK = 0,
    PT_FAILED = -1,      /* input or environment */
    PT_USAGE = -2,       /* the caller asked for something that does not exist */
    PT_DOES_NOT_FIT = -3 /* no plan fits the budgets */
};

typedef struct pt_error {
    int code;        /* 0 while nothing has failed */
    char text[1016]; /* one sentence, no newline at the end */
} pt_error;

/* For programs that use the library: each fills `e` (which may be NULL) and returns its code. */
PT_API int pt_fail(pt_error *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As pt_fail, and appends ": " and the text of errno as it stood when called. */
PT_API int pt_fail_errno(pt_error *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "WHERE: " before the text that is already there; PT_FAILED if `e` has no code. */
PT_API int pt_error_prefix(pt_error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- defaults of options ----
 *
 * Each struct of options begins with its size, which pt_train_defaults, pt_evaluate_defaults ... set. Functions refuse a struct of another
 * size: that program was built with the header of another version.
 */

/* Fills the struct of a command's options ("train", "eval" ...), which the program takes to have `size` bytes, with the defaults. */
PT_API void pt_defaults(const char *command, void *options, size_t size);

/* ---- training ---- */

#define PT_AUTO UINT64_MAX /* a budget: what is free, less a margin */

typedef enum pt_lr_schedule { PT_LR_CONSTANT, PT_LR_LINEAR, PT_LR_COSINE, PT_LR_COSINE_RESTARTS, PT_LR_WSD } pt_lr_schedule;
typedef enum pt_lr_decay { PT_LR_DECAY_COSINE, PT_LR_DECAY_LINEAR, PT_LR_DECAY_ROOT } pt_lr_decay;
typedef enum pt_precision { PT_PRECISION_BF16, PT_PRECISION_FP32 } pt_precision;
/* Format of the layers' frozen matrices: the compute type (or the folder's own format if it is already in few bits), or about 4 or 8 bits
 * per value. */
typedef enum pt_base { PT_BASE_AS_COMPUTED, PT_BASE_BF16, PT_BASE_FP32, PT_BASE_NF4, PT_BASE_INT8, PT_BASE_MXFP4 } pt_base;
/* What backward reads of the tensors that it needs of forward: all of it, or codes of 8 bits in groups of 64 with a common scale. */
typedef enum pt_activations { PT_ACTIVATIONS_EXACT, PT_ACTIVATIONS_INT8, PT_ACTIVATIONS_FP8 } pt_activations;
typedef enum pt_optimizer { PT_OPTIMIZER_ADAMW, PT_OPTIMIZER_ADAMW8BIT, PT_OPTIMIZER_MUON, PT_OPTIMIZER_ADAFACTOR, PT_OPTIMIZER_APOLLO,
                            PT_OPTIMIZER_APOLLO_MINI, PT_OPTIMIZER_ADAM_MINI, PT_OPTIMIZER_GALORE,
                            PT_OPTIMIZER_APOLLO8BIT, PT_OPTIMIZER_GALORE8BIT } pt_optimizer;
/* Learning rate of Muon's matrices (rows, cols): lr sqrt(max(1, rows / cols)); lr 0.2 sqrt(max(rows, cols)), which makes steps as large as
 * AdamW's; lr sqrt(rows / cols). AUTO: RMS with the default `lr`; ORIGINAL with a given one, as in torch.optim.Muon. */
typedef enum pt_lr_adjust { PT_LR_ADJUST_AUTO, PT_LR_ADJUST_ORIGINAL, PT_LR_ADJUST_RMS, PT_LR_ADJUST_SPECTRAL } pt_lr_adjust;
/* Format of the records of .jsonl, .json, .csv and .parquet files; AUTO: recognized by their keys. TOKENS: files of ids. */
typedef enum pt_data_format {
    PT_DATA_AUTO, PT_DATA_TEXT, PT_DATA_MESSAGES, PT_DATA_SHAREGPT, PT_DATA_PROMPT, PT_DATA_ALPACA, PT_DATA_TOKENS,
    PT_DATA_PREFERENCE /* pairs, for PT_TASK_DPO, ORPO and SIMPO */
} pt_data_format;
/* Tokens to train on; AUTO: the assistant's replies of chats, completions of prompts, all of plain text. LAST: the last reply. */
typedef enum pt_train_on { PT_TRAIN_ON_AUTO, PT_TRAIN_ON_ASSISTANT, PT_TRAIN_ON_COMPLETION, PT_TRAIN_ON_LAST, PT_TRAIN_ON_ALL } pt_train_on;
typedef enum pt_long { PT_LONG_CUT, PT_LONG_DROP, PT_LONG_ERROR } pt_long; /* what to do with examples longer than a window */
/* SFT: the loss of each target. DPO, ORPO, SimPO: pairs of a chosen and a rejected reply. KTO: replies that are labelled as desirable or
 * undesirable. DPO and KTO compare with the losses before training. */
typedef enum pt_task { PT_TASK_SFT, PT_TASK_DPO, PT_TASK_ORPO, PT_TASK_SIMPO, PT_TASK_KTO, PT_TASK_REWARD,
                       PT_TASK_CLASSIFY } pt_task;
typedef enum pt_dpo_loss { PT_DPO_SIGMOID, PT_DPO_IPO, PT_DPO_SIGMOID_NORM } pt_dpo_loss;
typedef enum pt_loss_per { PT_LOSS_PER_TOKEN, PT_LOSS_PER_EXAMPLE } pt_loss_per;
typedef enum pt_save_type { PT_SAVE_AS_STORED, PT_SAVE_F32, PT_SAVE_BF16, PT_SAVE_F16 } pt_save_type;

typedef enum pt_keep_best {
    PT_KEEP_BEST_NO, PT_KEEP_BEST_EVAL_LOSS, PT_KEEP_BEST_REWARD_ACCURACY, PT_KEEP_BEST_REWARD_MARGIN, PT_KEEP_BEST_ACCURACY
} pt_keep_best;
typedef struct pt_train_options {
    size_t size;                       /* of this struct; pt_train_defaults sets it */
    const char *model;                 /* Hugging Face folder */
    bool init_random;                  /* random weights even if the folder has weights */
    /* Files, and folders of them. A folder with files named for training (train) and others for validation (validation, valid, val, */
    /* eval, dev) or test has splits: the former are trained on, and tests are left alone. */
    const char *const *data; int data_n;
    const char *columns;               /* other names of the keys of records: "prompt=query,completion=response"; NULL: none */
    pt_data_format data_format;
    pt_train_on train_on;
    const char *chat_template;         /* a file; NULL: the model's own */
    bool plain_contents;               /* special tokens in messages, prompts and replies are plain text */
    bool no_packing;                   /* one example per window; also makes each text an example */
    pt_long long_examples;
    pt_task task;
    double beta; pt_dpo_loss dpo_loss; /* pairs: the factor of log-ratios (DPO, KTO: how strongly to stay near the first model), of the */
                                       /* odds ratio (ORPO), of mean log-probabilities (SimPO); default 0.1. DPO: default sigmoid */
    double gamma;                      /* SimPO: the margin of rewards to reach; default 0.5 */
    double label_smoothing;            /* SFT: the share of the loss that goes to all tokens alike; DPO (but IPO), SimPO: the share of */
                                       /* pairs taken to be the wrong way round; default 0 */
    double ld_alpha;                   /* DPO: the weight of a reply's tokens beyond the length of the other one; default 1 */
    double center_rewards;             /* reward models: factor of the squared sum of a pair's scores, added to its loss; default 0 */
    double neftune_alpha;              /* noise of this strength on the embeddings of a step; 0: none */
    double desirable_weight, undesirable_weight; /* KTO: weights of losses by label; default 1 */
    double router_aux_loss;            /* factor of the loss that balances the routers of experts; default 0 */
    pt_loss_per loss_per;              /* what has the same weight in a step's loss: each target token, or each example */
    const char *const *eval_data; int eval_data_n; /* none: the validation files of folders in `data` that have splits */
    double eval_split;                 /* or: hold out this share of the data; 0: none */
    int64_t eval_every;                /* steps between evaluations, and one at the end; 0: chosen, so that they take little time */
    pt_keep_best keep_best;            /* keep the checkpoint with the best evaluation, and export its model at the end */
    int64_t patience;                  /* end after so many evaluations in a row without a better one; 0: never */
    const char *out;                   /* output folder, created if missing */
    int64_t steps;                     /* 0: by epochs */
    double epochs;                     /* default 1 */
    int64_t seq_len;                   /* 0: the model's maximum, at most 1024 */
    const char *rope_scaling;          /* TYPE:FACTOR, such as "yarn:4": extend the model's positions; "none": longer ones as they are; */
                                       /* NULL: as config.json has them, no sequence is longer */
    bool drop_last;                    /* leave out the windows of an epoch that do not fill its last batch; else it is padded */
    int64_t batch_size, micro_batch;   /* sequences; micro_batch 0: planned. It must divide the batch, and is raised to a multiple of the */
                                       /* unit (2048 / seq_len sequences, at least 1; on a GPU 2048 to 8192 tokens) */
    int lanes;                         /* partial sums of a step's gradients; must divide the batch, or divide each sequence into 2, 4, */
                                       /* 8 ... equal parts. 0: one, or the checkpoint's number */
    int ranks;                         /* processes that share a step, started by protrain train --ranks N, torchrun, mpirun or */
                                       /* srun; 0: one. Budgets and threads are those of each rank. With lanes 0 there are as many lanes; */
                                       /* each rank has a power of two of lanes */
    bool shuffle;
    bool document_mask;                /* tokens attend only to their own document, and positions restart at each document; the last */
                                       /* token of a document has no target */
    pt_precision precision;
    pt_activations activations;        /* changes the result, not the loss of a step: gradients are computed from rounded activations */
    pt_optimizer optimizer;
    const char *optimizer_args;        /* "clip_threshold=1,decay_rate=-1": what only this optimizer has; NULL: its defaults */
    double lr;                         /* 0: 5e-5; pairs 1e-6, adapters 2e-4, random weights 3e-4; Muon 1e-4, random weights 1e-3 */
    pt_lr_schedule lr_schedule; int64_t warmup_steps; double min_lr_ratio;
    double warmup_ratio;               /* warm-up as a share of the steps, rounded up, in place of warmup_steps; 0: none */
    int64_t lr_cycles;                 /* COSINE_RESTARTS: number of cosines */
    int64_t lr_decay_steps;            /* WSD: steps of the decay at the end; 0: a tenth of all */
    pt_lr_decay lr_decay;              /* WSD: its form */
    double weight_decay, beta1, beta2, eps;
    double momentum; pt_lr_adjust lr_adjust; /* of Muon's matrices; momentum 0: 0.95 */
    double max_grad_norm;              /* 0: no clipping */
    /* Shell patterns on Hugging Face names ("model.layers.1*"). A tensor is trained if a pattern of train_only matches it (or there is */
    /* none) and no pattern of freeze does. Frozen tensors keep their bits and have no gradients and moments. */
    const char *const *freeze; int freeze_n;
    const char *const *train_only; int train_only_n;
    /* Layers by turns: so many neighbouring layers are trained for switch_every steps, then others, in an order that follows from the */
    /* seed; everything else is frozen. 0: all layers at once. */
    int64_t train_blocks, switch_every;
    /* Low-rank adapters: the model is frozen, and `out` gets PEFT's adapter_config.json and adapter_model.safetensors instead of a */
    /* model. */
    int64_t lora_rank;                 /* 0: none, unless `adapter` is given */
    double lora_alpha, lora_dropout;   /* alpha 0: 2 x lora_rank; dropout below 0: none, or as the config of `adapter` has it */
    const char *lora_targets;          /* "all-linear" (NULL), "attention", "mlp", "experts" or names of modules, separated by commas */
    bool rslora, dora;                 /* scale by alpha / sqrt(rank); also train magnitudes */
    const char *add_tokens;            /* file with new tokens for the tokenizer, one a line; with lora_rank, train_also has the tables */
    const char *train_also;            /* modules outside the layers that are trained in full beside adapters, "embed_tokens,lm_head" */
    const char *adapter;               /* folder of an adapter to continue, which sets all of the above; NULL: a new one */
    pt_base base;                      /* few-bit matrices are computed with their decoded values, and saved as they came in; */
                                       /* AS_COMPUTED with `adapter`: the format that its base had in training */
    uint64_t seed;
    int threads;                       /* 0: all cores available to the process */
    const char *device;                /* "auto" (a usable GPU, else the CPU), "cpu", "cuda" or "cuda:N"; for several ranks also */
                                       /* "cuda:N,M,...", one GPU each */
    uint64_t device_memory, host_memory, disk_memory; /* bytes or PT_AUTO */
    const char *disk_path;             /* NULL: a folder in `out` */
    int disk_slots;                    /* of each state on the disk. 2: after every step the run can be resumed, without checkpoints; */
                                       /* 0: 2 where there is room, else 1 */
    const char *plan_file;             /* NULL: planned */
    const char *machine_file;          /* memory sizes and speeds; NULL: detected and measured */
    double search_effort;              /* how long a plan is searched, a multiple of the usual; 0: 1 */
    const char *profile_file;          /* profile.json of an earlier run; NULL: measured, or a kept one */
    int64_t save_every; int keep;      /* checkpoints; the newest `keep` stay, by default 2; 0: all */
    bool resume; const char *resume_from; /* NULL: the newest complete one in `out` */
    pt_save_type save_type;
    /* Prompts in UTF-8 that the model continues before and after training, in samples.jsonl. The texts are generated while no memory is */
    /* allocated for training: pt_trainer_finish frees it, and no step or evaluation can follow. */
    const char *const *sample; int sample_n;
    int64_t preview;                   /* examples that pt_trainer_preview shows; PT_PREVIEW_DEFAULT: one; 0: none */
    bool tensorboard;                  /* also write an event file for TensorBoard */
    bool trace;                        /* pt_trainer_save and pt_trainer_finish write trace.json of the last step */
    void (*notice)(void *arg, const char *sentence);  /* a note for the user; may be NULL */
    /* stage ("reading the data", "measuring ...", "evaluating", "saving"), done of total; may be NULL */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
    bool (*stop)(void *arg);           /* called repeatedly during an evaluation; true ends it, and the step returns; may be NULL */
    /* The learning rate of a step, 1 to `steps`, in place of `lr`, which is what the schedule says; 0 or more. It must depend on these */
    /* alone: ranks, steps that are computed again and resumed runs ask for the same step again. No checkpoint records it. May be NULL. */
    double (*lr_of_step)(void *arg, int64_t step, int64_t steps, double lr);
    void *arg;
} pt_train_options;

typedef struct pt_step {
    int64_t step;            /* 1, 2, ... */
    double loss;             /* mean over the target tokens, nats */
    double grad_norm;        /* before clipping */
    double lr;
    int64_t tokens, learned_tokens; /* seen so far; learned tokens are targets (all of plain text) */
    double step_s, predicted_step_s, tokens_per_s; /* predicted: for a steady step */
    bool evaluated; double eval_loss; /* after this step's update; pairs: the mean over the pairs, and also: */
    double eval_reward_chosen, eval_reward_rejected, eval_reward_margin, eval_reward_accuracy, eval_kl;
    int64_t pairs;           /* of DPO, ORPO, SimPO: pairs in this step; loss and the following are means over them. KTO: replies */
    double reward_chosen, reward_rejected; /* beta * log-ratio of the chosen reply, of the rejected one; without a */
                                            /* reference: beta * mean log-probability */
    double reward_margin, reward_accuracy; /* the difference of the two; share of pairs above 0. KTO: rewards of desirable and of */
                                           /* undesirable replies, NAN if there is none; share of those on their side of `kl` */
    double kl;                             /* KTO: the baseline of log-ratios. Else NAN, as eval_kl */
    double accuracy, eval_accuracy; /* classification: the share of examples whose label has the highest score. Else NAN */
    int64_t first_layer;     /* of those that train_blocks trains in this step; -1: layers have no turns */
    double expert_load_max;  /* of a model with experts: the largest share of a layer's rows that one expert has, times the number of */
                             /* experts: 1 is balanced. NAN: the model has none */
    double experts_idle;     /* the share of experts without a row, over all layers. NAN likewise */
    double aux_loss;         /* with router_aux_loss: the loss that balances routers, without the factor. Else NAN */
    bool stopped;            /* there was no step: `stop` of one of several ranks returned true, and all should end here */
} pt_step;

typedef struct pt_trainer pt_trainer;

static inline void pt_train_defaults(pt_train_options *o) { pt_defaults("train", o, sizeof *o); }
/* Reads model and data, plans, proves that the plan fits, allocates the memory, loads the weights (or a checkpoint).
 * The strings and lists in `o` are not copied: they must stay valid until pt_trainer_close. */
PT_API int pt_trainer_open(const pt_train_options *o, pt_trainer **out, pt_error *e);
/* One step: 1 if there was one, 0 when all are done, negative on error. After resuming, an evaluation may be due first: if `stop` ends it,
 * the result is 1 with step_s 0, and the run should end, because a later evaluation would give another result. If only the checkpoint of
 * the step could not be written (a full disk), the step is done: make room, then call pt_trainer_save or go on with the next step. */
PT_API int pt_trainer_step(pt_trainer *t, pt_step *s, pt_error *e);
/* Writes checkpoint-STEP into the output folder, and summary.json. */
PT_API int pt_trainer_save(pt_trainer *t, pt_error *e);
/* Mean loss over all target tokens of the evaluation data, and their number; PT_FAILED if `stop` ended it. */
PT_API int pt_trainer_evaluate(pt_trainer *t, double *loss, int64_t *tokens, pt_error *e);
/* Writes into the output folder a checkpoint of the last step if there is room (from which a run of more steps continues), the trained
 * model, and summary.json: what was predicted and what was measured. */
PT_API int pt_trainer_finish(pt_trainer *t, pt_error *e);
PT_API void pt_trainer_close(pt_trainer *t);

typedef struct pt_memory { const char *tier; uint64_t budget_bytes, predicted_bytes, peak_bytes; } pt_memory;
typedef struct pt_summary {
    const char *model_type; int64_t parameters, trained, layers; /* trained: number of parameters that are not frozen */
    char trains[256];                  /* in words: "LoRA of rank 16 on all linear layers, 8.8M of 502.8M parameters with adamw" */
    const char *machine;               /* processor and arithmetic */
    int threads;
    const char *room;                  /* free memory and the margins left of it, in words; "": all budgets were given */
    int64_t steps, first_step;         /* of the whole run; already done when resumed */
    int64_t seq_len, batch_size, windows, tokens;
    const char *files, *eval_files;    /* trained on; evaluated on ("": none, or a part of the former) */
    const char *costs;                 /* source of the predictions: "measured in 2.10 s" */
    double predicted_step_s;           /* with the corrections so far */
    char sure[64];                     /* in words: ", within 10% in most runs", ", within 10% if the disk keeps its pace"; "": unknown */
    char plan[512];                    /* the plan, in sentences */
    char limits[384];                  /* how busy each queue is, predicted */
    pt_memory memory[3]; int memory_n; /* of each tier; an unused tier has 0 bytes */
    int64_t corrected_step, moved_step; /* last correction of the prediction, last change of the plan; 0: never */
    uint64_t process_peak_bytes;       /* RAM of the whole process; 0: unknown */
    bool complete;                     /* `resume` found a run that had ended and left no checkpoint: no step is left to take, and there */
                                       /* is no plan */
    const char *measured_of;           /* the steps that pt_trainer_timings is about: "steady steps", if there were any */
    char settings[1024];               /* the options that the result depends on, by the names of their flags: "steps 12, lr 5e-05, ..." */
    double eval_loss, best_eval_loss;  /* the newest evaluation, and the one with the lowest loss */
    int64_t best_step;                 /* of that one; 0: there was no evaluation */
    const char *best_metric;           /* what `keep_best` compares: "eval_loss" ...; then best_step is that of the best by it, */
    double best_value;                 /* which has this value */
    int64_t model_step;                /* whose model pt_trainer_finish has written; 0: none yet */
} pt_summary;
PT_API void pt_trainer_summary(const pt_trainer *t, pt_summary *s);
/* Predicted and measured times of a steady step: the step itself (median of all), each phase, "waiting" (the time without computation),
 * and the busy time of each queue (medians of the timed steps). predicted: before the first step; corrected: the prediction after steps
 * took another time (pt_summary says whether they did); measured: with the current plan. Returns their number, 0 while nothing has been
 * measured. */
enum { PT_TIMINGS = 12 };
typedef struct pt_timing { const char *name; double predicted_s, corrected_s, measured_s; } pt_timing;
PT_API int pt_trainer_timings(const pt_trainer *t, pt_timing out[PT_TIMINGS]);
/* plan.json's text; free() it. */
PT_API char *pt_trainer_plan_json(const pt_trainer *t);
/* The first examples as they are trained, in the order of the run: what the template made of them, and which text is learned: that between
 * PT_LEARNED_BEGINS and PT_LEARNED_ENDS. Each ends with a newline and PT_EXAMPLE_ENDS; a long one with " ...". Valid as long as the
 * trainer. NULL: none, or the data are ids without a tokenizer. */
enum { PT_PREVIEW_DEFAULT = -1, PT_LEARNED_BEGINS = 0x0E, PT_LEARNED_ENDS = 0x0F, PT_EXAMPLE_ENDS = 0x1E };
PT_API const char *pt_trainer_preview(const pt_trainer *t);

/* ---- several ranks ----
 *
 * Under torchrun, mpirun or srun, pt_trainer_open joins the other ranks by itself. A program that starts its ranks on this machine:
 *
 *     if (pt_ranks_find(&o, &rank, &e) < 0) ...
 *     if (o.ranks > 1 && rank < 0)               alone so far
 *         return pt_ranks_run(o.ranks, argv, &status, &e) < 0 ? 1 : status;
 */

/* *rank: the number of this process among the ranks of a run; -1: it is alone. o->ranks, if it is 0, becomes the number of ranks that a
 * launcher has started, or of usable GPUs if there are several; it stays 0 otherwise. PT_USAGE if a launcher has started another number. */
PT_API int pt_ranks_find(pt_train_options *o, int *rank, pt_error *e);
/* The launcher that started this process as one of several ranks, such as "torchrun"; NULL: none. */
PT_API const char *pt_ranks_launcher(int *rank, int *ranks);
/* Runs this program once per rank, with these arguments (NULL after the last); each rank has its share of the processors, and only rank 0
 * prints. Returns after all have ended. If a rank fails, hangs or is killed, all end within seconds. *status: the exit status of rank 0.
 * PT_FAILED: a reason that rank 0 could not print. */
PT_API int pt_ranks_run(int ranks, char *const arguments[], int *status, pt_error *e);
/* Sends a signal to the ranks of pt_ranks_run. A signal handler may call it. */
PT_API void pt_ranks_signal(int number);
/* Has the run of this rank ended because a rank has failed? Then *why and *ago_s, seconds since then; may be asked from any thread.
 * *told: rank 0 knows the reason and reports it. Ranks of pt_ranks_run learn it from their calls alone. */
PT_API bool pt_ranks_ended(pt_error *why, double *ago_s, bool *told);

/* ---- planning without training ---- */

typedef struct pt_plan pt_plan;

/* Makes the plan of pt_trainer_open, predicts its time, and says whether it fits. `model` may also be a config.json. Only the options that
 * the plan depends on are used: it needs no data (but knows whether the run evaluates), no weights, no output folder, and with
 * machine_file (a path, or a name that comes with the program, such as "rtx3090") not the hardware. If nothing fits, the result is
 * PT_DOES_NOT_FIT and *out is set all the same: its JSON says what is missing. */
PT_API int pt_plan_open(const pt_train_options *o, pt_plan **out, pt_error *e);
/* A screen of text: whether it fits, how fast it is, what would help, other ways to train the model with the memory and time of each; then
 * where every byte lives, what each layer saves and what limits the step. free() it. */
PT_API char *pt_plan_text(const pt_plan *p);
/* Lines about other plans that fit, and why they are slower: with other chunks or updates, and as other systems plan. free() it. */
PT_API char *pt_plan_others_text(const pt_plan *p);
/* {"fits", "predicted", "plan", "why", "ways", ...}; plan_file reads it, or its "plan" alone. free() it. */
PT_API char *pt_plan_json(const pt_plan *p);
PT_API void pt_plan_close(pt_plan *p);
/* Plans for several machines: machine_file has their names and paths between commas, or "all" for those that come with the program, which
 * are then in the order of their speed. *out: a table of the ways to train the model, or with `json` an array of objects. free() it. */
PT_API int pt_plan_machines(const pt_train_options *o, bool json, char **out, pt_error *e);
/* Proposes which tensors to train within `memory` bytes of the device, with AdamW. Measures how much each contributes in `steps` steps of
 * the data (0: 16) that change nothing, chooses those with the largest sum of which a plan fits, and plans that run. RAM beside a GPU is
 * used as in any run, the disk only if disk_memory is given. *out: the choice, the options that train it, and the text of its plan; with
 * `json` the JSON of the plan with the choice as "select". free() it. PT_DOES_NOT_FIT: not one tensor can be trained. */
PT_API int pt_select(const pt_train_options *o, uint64_t memory, int64_t steps, bool json, char **out, pt_error *e);

/* ---- measuring ---- */

typedef struct pt_profile pt_profile;

/* Measures what a step costs on this machine: each kind of block, updates, transfers by size and with contention. `model` may be a
 * config.json; options as for pt_plan_open. A kept profile is checked and used, unless `fresh` asks for a new one. */
PT_API int pt_profile_open(const pt_train_options *o, bool fresh, pt_profile **out, pt_error *e);
/* A screen of text. free() it. */
PT_API char *pt_profile_text(const pt_profile *p);
/* profile.json, for profile_file. free() it. */
PT_API char *pt_profile_json(const pt_profile *p);
/* Writes the profile to the file `path`; if it is a folder, writes profile.json and machine.json, a machine file, into it. A path that does
 * not exist is a folder, which is made, if its last name has no ending such as .json. A file that is no profile is not replaced. */
PT_API int pt_profile_write(const pt_profile *p, const char *path, pt_error *e);
PT_API void pt_profile_close(pt_profile *p);

/* ---- evaluation ---- */

typedef struct pt_evaluate_options {
    size_t size;                       /* of this struct; pt_evaluate_defaults sets it */
    const char *model;                 /* Hugging Face folder with weights */
    const char *adapter;               /* folder of an adapter to apply; NULL: none */
    const char *const *data; int data_n;
    /* as in training */
    const char *columns; pt_data_format data_format; pt_train_on train_on; const char *chat_template; bool plain_contents, no_packing;
    pt_long long_examples;
    int64_t seq_len;                   /* 0: the model's maximum, at most 1024 */
    bool document_mask;                /* as in training */
    const char *predictions;           /* of a model that scores texts: write a line of JSON for each record to this file; NULL: none */
    pt_precision precision;
    pt_base base;                      /* format of the layers' matrices; AS_COMPUTED: that of the adapter's base in training, else the */
                                       /* compute type */
    int threads;                       /* 0: all cores available to the process */
    const char *device;                /* "auto" (a usable GPU, else the CPU), "cpu", "cuda" or "cuda:N" */
    uint64_t device_memory, host_memory, disk_memory; /* bytes or PT_AUTO */
    const char *disk_path;             /* NULL: $TMPDIR, or /var/tmp; used only if memory does not suffice */
    void (*notice)(void *arg, const char *sentence);  /* may be NULL */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* may be NULL */
    void *arg;
} pt_evaluate_options;

typedef struct pt_evaluation {
    double loss;        /* mean over all target tokens, nats */
    double perplexity;  /* exp(loss) */
    double accuracy;    /* share of the targets that were the most probable token */
    int64_t tokens;     /* text: target tokens, all but the first (with document_mask, of each document); examples: all tokens */
    int64_t learned_tokens; /* target tokens; 0: no record has a label, and loss, perplexity and accuracy are NAN */
    int64_t predictions;    /* lines written to `predictions` */
} pt_evaluation;

static inline void pt_evaluate_defaults(pt_evaluate_options *o) { pt_defaults("eval", o, sizeof *o); }
/* The data are cut into windows of seq_len targets, each computed alone; the last may be shorter. */
PT_API int pt_evaluate(const pt_evaluate_options *o, pt_evaluation *out, pt_error *e);

/* ---- a run's folder as a page ---- */

typedef struct pt_report pt_report;

/* Reads the folder of a run, which may still be going on. */
PT_API int pt_report_open(const char *folder, pt_report **out, pt_error *e);
PT_API const char *pt_report_note(const pt_report *r, int i); /* i = 0, 1, ...: what is missing or damaged; NULL: no more */
/* One HTML file, which needs no network and no scripts. path NULL: report.html in the run's folder. *written (may be
 * NULL): where it is. */
PT_API int pt_report_write(const pt_report *r, const char *path, const char **written, pt_error *e);
/* A summary of the same. free() it. */
PT_API char *pt_report_json(const pt_report *r);
PT_API void pt_report_close(pt_report *r);

/* ---- text <-> token ids ---- */

typedef struct pt_tokenizer pt_tokenizer;

/* Reads tokenizer.json of a Hugging Face folder. */
PT_API int pt_tokenizer_open(const char *model, pt_tokenizer **out, pt_error *e);
PT_API void pt_tokenizer_close(pt_tokenizer *t);
/* Special tokens in the text are recognized; with `add_special`, those of the tokenizer's template (BOS ...) are
 * added. free() *ids. Bytes that are not UTF-8 are encoded as single bytes if the tokenizer has tokens for them, else
 * PT_FAILED with the byte offset. */
PT_API int pt_tokenizer_encode(pt_tokenizer *t, const char *text, size_t bytes, bool add_special, uint32_t **ids, size_t *n,
                               pt_error *e);
/* Converts ids to text, byte for byte; with `drop_special`, without the special tokens of the template. free() *text,
 * which has a NUL after its *bytes. */
PT_API int pt_tokenizer_decode(pt_tokenizer *t, const uint32_t *ids, size_t n, bool drop_special, char **text, size_t *bytes,
                               pt_error *e);

/* ---- training examples ---- */

typedef struct pt_span { size_t first, end; } pt_span; /* [first, end) */
typedef struct pt_example {
    const char *text; size_t bytes;            /* the conversation, rendered by the chat template */
    const pt_span *spans; size_t spans_n;      /* ranges of bytes that are trained on, in order */
    const uint32_t *ids; const uint8_t *learned; size_t n; /* its tokens; 1 for each that is trained on, else 0 */
    const struct pt_example *rejected;         /* the other reply, if this is the chosen one of a pair; else NULL */
    const char *notice;                        /* keys of the record that look like content and were not read; NULL: none */
    void *own;                                 /* the library's */
} pt_example;

/* Makes an example of a record of training data in JSON, or of a list of messages, as training does. template_file: a chat template to use
 * instead of the model's, or NULL; plain_contents as in training. Errors call the record `name`. */
PT_API int pt_example_make(const char *model, const char *template_file, pt_train_on train_on, bool plain_contents, const char *name,
                           const char *json, size_t bytes, pt_example *out, pt_error *e);
/* {"ids", "learned", "text"}; of a pair also "rejected", another such object. free() it. */
PT_API char *pt_example_json(const pt_example *x);
PT_API void pt_example_free(pt_example *x);

/* ---- generation ----
 *
 *     pt_generate_options o;
 *     pt_generate_defaults(&o);
 *     o.model = "my-model";
 *     pt_generator *g;
 *     if (pt_generator_open(&o, &g, &e) < 0 || pt_generator_prompt(g, "Once upon", 9, 128, &e) < 0) ...
 *     while ((more = pt_generator_next(g, &text, &bytes, &e)) > 0)
 *         fwrite(text, 1, bytes, stdout);
 *     pt_generator_close(g);
 */

/* For temperature, top_k, top_p and repetition_penalty: as the model's generation_config.json says; without it 0.8, 0, 0.95 and 1. */
#define PT_OF_MODEL (-1)

typedef struct pt_generate_options {
    size_t size;                       /* of this struct; pt_generate_defaults sets it */
    const char *model;                 /* Hugging Face folder with weights and tokenizer.json */
    const char *adapter;               /* folder of an adapter to apply; NULL: none */
    pt_precision precision;
    pt_base base;                      /* as in pt_evaluate_options */
    double temperature;                /* 0: always the most probable token */
    int64_t top_k;                     /* sample from the k most probable tokens; 0: from all */
    double top_p;                      /* from the fewest whose probabilities add up to it; 1: from all */
    double repetition_penalty;         /* the logits of tokens that the text has already are divided by it, or multiplied if negative */
    uint64_t seed;                     /* the same seed gives the same text */
    bool ignore_eos;                   /* do not stop at the end-of-text token */
    const char *system;                /* system message of conversations; NULL: none */
    const char *chat_template;         /* file of a Jinja template; NULL: the model's own */
    bool plain_contents;               /* special tokens in messages are plain text */
    int threads;                       /* 0: all cores available to the process */
    const char *device;                /* "auto" (a usable GPU, else the CPU), "cpu", "cuda" or "cuda:N" */
    uint64_t device_memory;            /* bytes or PT_AUTO. Weights and a KV cache that do not fit are fetched for each token, from: */
    uint64_t host_memory;              /* beside a GPU, bytes or PT_AUTO, */
    uint64_t disk_memory;              /* else a scratch file; bytes, PT_AUTO or 0: never */
    const char *disk_path;             /* its folder; NULL: $TMPDIR, or /var/tmp */
    void (*notice)(void *arg, const char *sentence);  /* may be NULL */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* may be NULL */
    void *arg;
} pt_generate_options;

typedef struct pt_generator pt_generator;

/* How to sample: PT_OF_MODEL; seed 0. */
static inline void pt_generate_defaults(pt_generate_options *o) { pt_defaults("generate", o, sizeof *o); }
/* Reads everything but the weights. */
PT_API int pt_generator_open(const pt_generate_options *o, pt_generator **out, pt_error *e);
/* Starts a text with a prompt, to be followed by at most max_new_tokens, or as many as the model's context has room
 * for. Special tokens in the prompt are recognized; BOS is put before it if the tokenizer does so, and an empty prompt
 * starts from BOS. The first call loads the weights after it has checked that everything fits; the message of
 * PT_DOES_NOT_FIT says what is missing. */
PT_API int pt_generator_prompt(pt_generator *g, const char *text, size_t bytes, int64_t max_new_tokens, pt_error *e);
/* The next turn of a conversation, through the model's chat template: the user's text, to be followed by the reply. Earlier turns are
 * part of the prompt. On failure the conversation is as before the call. */
PT_API int pt_generator_say(pt_generator *g, const char *text, size_t bytes, int64_t max_new_tokens, pt_error *e);
/* The next turn starts another conversation. */
PT_API void pt_generator_forget(pt_generator *g);
/* The next token: 1, and the text that it adds (UTF-8, valid until the next call; empty while a character is
 * incomplete); 0 at the end of the text. */
PT_API int pt_generator_next(pt_generator *g, const char **text, size_t *bytes, pt_error *e);
/* The logits after each token of a batch of texts, each of `length` ids: out[(text * length + i) * vocabulary + v] is that of v as the id
 * behind it. pt_generator_vocabulary is the number of logits. A prompt, or the next turn of the conversation, may follow. */
PT_API int pt_generator_logits(pt_generator *g, const uint32_t *ids, int64_t texts, int64_t length, float *out, pt_error *e);
PT_API int64_t pt_generator_vocabulary(const pt_generator *g);
PT_API int64_t pt_generator_tokens(const pt_generator *g, int64_t *prompt); /* new ones so far; prompt may be NULL */
PT_API void pt_generator_close(pt_generator *g);

/* ---- a server ---- */

typedef struct pt_serve_options {
    pt_generate_options generate;      /* the model; sampling where a request does not say how */
    const char *host;                  /* the address to listen on: of IPv4 or IPv6, in numbers */
    int port;                          /* 0: any that is free */
    int64_t max_new_tokens;            /* the most for a reply, and for a request that does not say */
    void (*ready)(void *arg, const char *url); /* requests are accepted; may be NULL */
    bool (*stop)(void *arg);           /* asked several times a second: true ends the server */
    void *arg;
} pt_serve_options;

/* Answers requests in the form of OpenAI's API, one after the other, until `stop` says so: models, completions, chat completions. */
PT_API int pt_serve(const pt_serve_options *o, pt_error *e);

/* ---- merging an adapter ---- */

typedef struct pt_merge_options {
    size_t size;                       /* of this struct; pt_merge_defaults sets it */
    const char *model;                 /* Hugging Face folder with weights */
    const char *const *adapter; int adapter_n; /* folders of PEFT's files; "DIR:0.7": with this weight in the sum */
    const char *out;                   /* a new folder */
    pt_save_type save_type;            /* PT_SAVE_AS_STORED: the dtype of the model's weights */
    void (*notice)(void *arg, const char *sentence);  /* may be NULL */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* may be NULL */
    void *arg;
} pt_merge_options;

static inline void pt_merge_defaults(pt_merge_options *o) { pt_defaults("merge", o, sizeof *o); }
/* Writes the model with the sum of the adapters merged into its weights, in fp32 and rounded once. */
PT_API int pt_merge(const pt_merge_options *o, pt_error *e);

/* ---- export ---- */

typedef enum pt_export_type {
    PT_EXPORT_F32, PT_EXPORT_F16, PT_EXPORT_BF16, PT_EXPORT_Q8_0, PT_EXPORT_Q4_0, PT_EXPORT_Q4_K_M, PT_EXPORT_Q5_K_M, PT_EXPORT_Q6_K
} pt_export_type;

typedef struct pt_export_options {
    size_t size;                       /* of this struct; pt_export_defaults sets it */
    const char *model;                 /* Hugging Face folder with weights and tokenizer.json */
    const char *adapter;               /* folder of an adapter to merge into the weights; NULL: none */
    const char *out;                   /* the GGUF file; it appears whole or not at all */
    const char *modelfile;             /* a file for `ollama create`, written as well; NULL: none */
    bool adapter_only;                 /* write the adapter alone, for llama.cpp's --lora, not the model with it */
    pt_export_type type;               /* of the matrices (of most, for the types in few bits); norms and biases are F32 */
    void (*notice)(void *arg, const char *sentence);  /* where llama.cpp's output will differ; may be NULL */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* bytes; may be NULL */
    void *arg;
} pt_export_options;

/* F16. */
static inline void pt_export_defaults(pt_export_options *o) { pt_defaults("export", o, sizeof *o); }
/* Writes a file that llama.cpp runs: weights, tokenizer, chat template. The message of PT_FAILED names the feature of the model or its
 * tokenizer that llama.cpp does not know. */
PT_API int pt_export(const pt_export_options *o, pt_error *e);

/* ---- options by name ----
 *
 * The options of a command of the program, by the names of its flags and with their values as text: what a command line, a file of
 * settings or another language has.
 *
 *     pt_options *o;
 *     if (pt_options_open("train", &o, &e) < 0 || pt_options_set(o, "model", "my-model", &e) < 0 ||
 *         pt_options_set(o, "data", "text.txt", &e) < 0 || pt_options_set(o, "lr", "1e-4", &e) < 0) ...
 *     if (pt_trainer_open(pt_options_train(o), &t, &e) < 0) ...
 */

typedef enum pt_option_kind {
    PT_OPTION_FLAG,   /* bool: true or false */
    PT_OPTION_NOT,    /* bool, the opposite of its field */
    PT_OPTION_EITHER, /* bool: the second of two choices */
    PT_OPTION_CHOICE, /* an enum, in the order of the choices */
    PT_OPTION_TEXT,   /* const char * */
    PT_OPTION_RESUME, /* bool, and const char *, NULL if the text is empty */
    PT_OPTION_TEXTS,  /* const char *const *, and int: every value is one more */
    PT_OPTION_INT, PT_OPTION_INT32, PT_OPTION_SEED, PT_OPTION_REAL, /* int64_t, int, uint64_t, double */
    PT_OPTION_SIZE    /* uint64_t: bytes, 512MiB, 1.5GiB ... */
} pt_option_kind;

typedef struct pt_option {
    const char *name, *field;          /* "lr-schedule", and the field of the struct: "lr_schedule" */
    const char *group;                 /* a heading: "Optimizer" */
    pt_option_kind kind;
    const char *values;                /* "X", "DIR", or all choices: "constant|linear|cosine"; NULL: a flag */
    const char *initial;               /* the default; NULL: none, or `help` says what it is */
    const char *help;                  /* lines of text */
    double low, high;                  /* the range of a number; the default may lie outside */
    double unset;                      /* a number's default without `initial` */
    const char *implied;               /* the value of a flag that is given without one; NULL: it needs one */
    bool idle;                         /* has no effect in this command, which takes it because train does */
    size_t at, also;                   /* offsets in the struct; also: of the second field */
} pt_option;

typedef struct pt_options pt_options;

/* command: "train", "plan", "profile", "eval", "generate", "serve", "merge", "export" or "ritz". All options have their defaults. */
PT_API int pt_options_open(const char *command, pt_options **out, pt_error *e);
/* i = 0, 1, ...; NULL: no more. Those of a group follow one another. */
PT_API const pt_option *pt_options_list(const pt_options *o, int i);
/* Copies the value. NULL: the default again. PT_USAGE names what the value must be, and the option by its field. */
PT_API int pt_options_set(pt_options *o, const char *name, const char *value, pt_error *e);
/* Sets what a file in YAML or JSON has, an object by the names of the flags, and what has not been set yet. Of `steps` and `epochs`, the
 * one that has been set counts. */
PT_API int pt_options_read(pt_options *o, const char *path, pt_error *e);
/* What options of training leave open. With `resume`, `out` is the folder of the run, and where `model` is not set, all that is not set is
 * taken from its run.yaml: a trainer is opened from a checkpoint with `resume` alone. Else `out` is runs/MODEL-N, with the first free N.
 *
 *     if (pt_options_open("train", &o, &e) < 0 || pt_options_set(o, "resume", "runs/qwen-1/checkpoint-500", &e) < 0 ||
 *         pt_options_complete(o, &e) < 0 || pt_trainer_open(pt_options_train(o), &t, &e) < 0) ...
 */
PT_API int pt_options_complete(pt_options *o, pt_error *e);
/* The i-th value as text, which pt_options_set takes; valid until the next call with these options. NULL: there is none. Only lists have
 * more than one. */
PT_API const char *pt_options_get(pt_options *o, const char *name, int i);
PT_API bool pt_options_given(const pt_options *o, const char *name); /* was it set? */
/* The struct of the command, valid until pt_options_close; its fields may be changed. NULL: the command has another. */
PT_API pt_train_options *pt_options_train(pt_options *o);            /* of train, plan and profile */
PT_API pt_evaluate_options *pt_options_evaluate(pt_options *o);
PT_API pt_generate_options *pt_options_generate(pt_options *o);      /* of generate and serve */
PT_API pt_merge_options *pt_options_merge(pt_options *o);
PT_API pt_export_options *pt_options_export(pt_options *o);
PT_API void pt_options_close(pt_options *o);

/* ---- sizes, times and counts, as people write and read them ---- */

/* Bytes, or a number with a unit: "512MiB", "1.5G" (binary), "6GB" (decimal). */
PT_API int pt_size_parse(const char *text, uint64_t *bytes, pt_error *e);
/* Each writes into `buf` and returns it. */
PT_API char *pt_size_text(char buf[32], uint64_t bytes);    /* "96.00 MiB" */
PT_API char *pt_seconds_text(char buf[32], double seconds); /* "12.3 ms"  "3m05s" */
PT_API char *pt_count_text(char buf[32], uint64_t count);   /* "124.4M" */

PT_API const char *pt_version(void);

#ifdef __cplusplus
}
#endif
#endif
