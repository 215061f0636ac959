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
 * the pt_error passed in: what went wrong, where, and what to do. The library never prints and never
 * exits. NULL for what a function needs is PT_USAGE too; where there is no error to return, nothing happens. An
 * object is used by one thread at a time; different objects are independent.
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

/* For programs around the library: each fills `e` (which may be NULL) and returns its code. */
PT_API int pt_fail(pt_error *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As pt_fail, and appends ": " and the text of errno as it stood when called. */
PT_API int pt_fail_errno(pt_error *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "WHERE: " before the text that is already there; PT_FAILED if `e` has no code. */
PT_API int pt_error_prefix(pt_error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- training ---- */

#define PT_AUTO UINT64_MAX /* a budget: what is free, less a margin */

typedef enum pt_lr_schedule { PT_LR_CONSTANT, PT_LR_LINEAR, PT_LR_COSINE } pt_lr_schedule;
typedef enum pt_precision { PT_PRECISION_BF16, PT_PRECISION_FP32 } pt_precision;
/* How frozen matrices of layers are kept: in the type that is computed in (or as a folder has them that is in few bits already), or in
 * about 4 or 8 bits a value. */
typedef enum pt_base { PT_BASE_AS_COMPUTED, PT_BASE_BF16, PT_BASE_FP32, PT_BASE_NF4, PT_BASE_INT8 } pt_base;
typedef enum pt_optimizer { PT_OPTIMIZER_ADAMW, PT_OPTIMIZER_ADAMW8BIT, PT_OPTIMIZER_MUON } pt_optimizer;
/* Of Muon's matrices (rows, cols): lr sqrt(max(1, rows / cols)); lr 0.2 sqrt(max(rows, cols)), as large a step as AdamW's; lr sqrt(rows
 * / cols). */
typedef enum pt_lr_adjust { PT_LR_ADJUST_ORIGINAL, PT_LR_ADJUST_RMS, PT_LR_ADJUST_SPECTRAL } pt_lr_adjust;
/* What the records of .jsonl, .json and .csv files are; AUTO: by their keys. TOKENS: files of ids. */
typedef enum pt_data_format {
    PT_DATA_AUTO, PT_DATA_TEXT, PT_DATA_MESSAGES, PT_DATA_SHAREGPT, PT_DATA_PROMPT, PT_DATA_ALPACA, PT_DATA_TOKENS,
    PT_DATA_PREFERENCE /* pairs, for PT_TASK_DPO */
} pt_data_format;
/* Which tokens are learned; AUTO: of chats the assistant's replies, of prompts their completion, of text all. LAST: the last reply. */
typedef enum pt_train_on { PT_TRAIN_ON_AUTO, PT_TRAIN_ON_ASSISTANT, PT_TRAIN_ON_COMPLETION, PT_TRAIN_ON_LAST, PT_TRAIN_ON_ALL } pt_train_on;
typedef enum pt_long { PT_LONG_CUT, PT_LONG_DROP, PT_LONG_ERROR } pt_long; /* examples longer than a window */
/* SFT: each target's loss. DPO: pairs of a chosen and a rejected reply, compared with what the model thought of them before training. */
typedef enum pt_task { PT_TASK_SFT, PT_TASK_DPO } pt_task;
typedef enum pt_dpo_loss { PT_DPO_SIGMOID, PT_DPO_IPO } pt_dpo_loss;
typedef enum pt_loss_per { PT_LOSS_PER_TOKEN, PT_LOSS_PER_EXAMPLE } pt_loss_per;
typedef enum pt_save_type { PT_SAVE_AS_STORED, PT_SAVE_F32, PT_SAVE_BF16, PT_SAVE_F16 } pt_save_type;

typedef struct pt_train_options {
    const char *model;                 /* Hugging Face folder */
    bool init_random;                  /* random weights although the folder has some */
    const char *const *data; int data_n;
    pt_data_format data_format;
    pt_train_on train_on;
    const char *chat_template;         /* a file; NULL: the model's own */
    bool no_packing;                   /* a window for each chat, prompt with its completion, or text; else texts are one stream */
    pt_long long_examples;
    pt_task task;
    double beta; pt_dpo_loss dpo_loss; /* of DPO: how near to the model before training; default 0.1, sigmoid */
    pt_loss_per loss_per;              /* what counts the same in a step's loss: each token that is learned, or each example */
    const char *const *eval_data; int eval_data_n;
    double eval_split;                 /* instead: this share of the data is held out; 0: none */
    int64_t eval_every;                /* steps, 0: only at the end */
    const char *out;                   /* output folder, made if absent */
    int64_t steps;                     /* 0: by epochs */
    double epochs;                     /* default 1 */
    int64_t seq_len;                   /* 0: the model's maximum, at most 1024 */
    int64_t batch_size, micro_batch;   /* sequences; micro_batch 0: planned, else it divides the batch; where it is no multiple of the */
                                       /* unit (2048 / seq_len sequences, at least 1, on a GPU of 2048 to 8192 tokens), the next that is */
    int lanes;                         /* sums in which a step's gradients are added: they divide the batch. 0: one, or the checkpoint's */
    int ranks;                         /* processes that share a step, started by `protrain train --ranks N`, torchrun, mpirun or srun; */
                                       /* 0: one. Budgets and threads are each one's. lanes 0: as many; each has a power of two of */
                                       /* neighbouring lanes */
    bool shuffle;
    bool document_mask;                /* tokens see their own document alone, and positions begin anew with each; what follows its */
                                       /* last token is no target */
    pt_precision precision;
    pt_optimizer optimizer;
    double lr;                         /* 0: 5e-5, of DPO 1e-6, of adapters 2e-4, or 3e-4 from random weights */
    pt_lr_schedule lr_schedule; int64_t warmup_steps; double min_lr_ratio;
    double weight_decay, beta1, beta2, eps;
    double momentum; pt_lr_adjust lr_adjust; /* of Muon's matrices; momentum 0: 0.95 */
    double max_grad_norm;              /* 0: no clipping */
    /* Patterns of a shell on Hugging Face names ("model.layers.1*"). Trained is what one of train_only matches, or everything where */
    /* there is none, and none of freeze matches; the rest is frozen: it stays as it is, bit for bit, without gradients and moments. */
    const char *const *freeze; int freeze_n;
    const char *const *train_only; int train_only_n;
    /* Low-rank adapters, as PEFT has them, are trained instead of the model, which is frozen; `out` gets adapter_config.json and */
    /* adapter_model.safetensors instead of a model. */
    int64_t lora_rank;                 /* 0: none, unless `adapter` says so */
    double lora_alpha, lora_dropout;   /* alpha 0: 2 x lora_rank; dropout must be 0: none is applied */
    const char *lora_targets;          /* "all-linear" (NULL), "attention", "mlp", or names of linear layers with commas between them */
    bool rslora, dora;                 /* alpha is divided by the rank's root; magnitudes are trained too */
    const char *adapter;               /* NULL: a new one, else the folder of one to go on from, which says all of the above */
    pt_base base;                      /* in few bits what is frozen is computed with what these stand for, and saved as it came in */
    uint64_t seed;
    int threads;                       /* 0: all cores that the process may use */
    const char *device;                /* "auto": a usable GPU, else the CPU; "cpu", "cuda", "cuda:N" */
    uint64_t device_memory, host_memory, disk_memory; /* bytes or PT_AUTO */
    const char *disk_path;             /* NULL: a folder in `out` */
    const char *plan_file;             /* NULL: planned */
    const char *machine_file;          /* what this machine has and can do; NULL: found and measured */
    const char *profile_file;          /* profile.json of an earlier run; NULL: measured, or kept from before */
    int64_t save_every; int keep;      /* checkpoints; keep 0: all */
    bool resume; const char *resume_from; /* NULL: the newest complete one in `out` */
    pt_save_type save_type;
    /* Prompts: how the model goes on with each before and after training, in samples.jsonl; UTF-8. The text is made while no memory is */
    /* taken for training: pt_trainer_finish gives that back, and no step or evaluation can follow. */
    const char *const *sample; int sample_n;
    bool tensorboard;                  /* an event file beside metrics.jsonl, for TensorBoard */
    bool trace;                        /* trace.json of the last step, written by pt_trainer_save and pt_trainer_finish */
    void (*notice)(void *arg, const char *sentence);  /* what a user should know; may be NULL */
    /* stage ("reading the data", "measuring ...", "evaluating", "saving"), done of total; may be NULL */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
    bool (*stop)(void *arg);           /* asked now and then while evaluating: true ends that, and the step returns; may be NULL */
    void *arg;
} pt_train_options;

typedef struct pt_step {
    int64_t step;            /* 1, 2, ... */
    double loss;             /* mean over the target tokens, nats */
    double grad_norm;        /* before clipping */
    double lr;
    int64_t tokens, learned_tokens; /* seen so far; learned ones are targets, of plain text all */
    double step_s, predicted_step_s, tokens_per_s; /* predicted: of a steady step, between others */
    bool evaluated; double eval_loss; /* after this step's update; of DPO the pairs' mean, and these: */
    double eval_reward_margin, eval_reward_accuracy;
    int64_t pairs;           /* of DPO, in this step: then loss is their mean, and these are too */
    double reward_margin, reward_accuracy; /* beta * (log-ratio of the chosen one - of the rejected one); how often that is above 0 */
    bool stopped;            /* there was no step: `stop` of one of several ranks said so, and all of them should end here */
} pt_step;

typedef struct pt_trainer pt_trainer;

PT_API void pt_train_defaults(pt_train_options *o);
/* The strings and lists in `o` are not copied: they must live until pt_trainer_close.
 * Reads model and data, plans, proves that the plan fits, takes the memory, loads the weights (or a checkpoint). */
PT_API int pt_trainer_open(const pt_train_options *o, pt_trainer **out, pt_error *e);
/* One step: 1 if there was one, 0 when all are done, negative on error; also 1, with step_s 0, where `stop` has ended an evaluation
 * that was still owed when the run was resumed: end the run then, because an evaluation after the next step is another one. Where only the
 * checkpoint of the step could not be written (a full disk), the step is done: make room, then pt_trainer_save or the next step. */
PT_API int pt_trainer_step(pt_trainer *t, pt_step *s, pt_error *e);
/* Writes checkpoint-STEP into the output folder, and summary.json. */
PT_API int pt_trainer_save(pt_trainer *t, pt_error *e);
/* Mean loss over all target tokens of the evaluation data, and their number; PT_FAILED where `stop` has ended it. */
PT_API int pt_trainer_evaluate(pt_trainer *t, double *loss, int64_t *tokens, pt_error *e);
/* Writes the trained model into the output folder, a checkpoint of the last step where there is room for it, from which a run of more
 * steps goes on, and summary.json: what was predicted and what was measured. */
PT_API int pt_trainer_finish(pt_trainer *t, pt_error *e);
PT_API void pt_trainer_close(pt_trainer *t);

typedef struct pt_memory { const char *tier; uint64_t budget_bytes, predicted_bytes, peak_bytes; } pt_memory;
typedef struct pt_summary {
    const char *model_type; int64_t parameters, trained, layers; /* trained: parameters that are not frozen */
    const char *machine;               /* processor and arithmetic */
    int threads;
    const char *room;                  /* what was free and which margins are left of it; "": all budgets were given, and hold */
    int64_t steps, first_step;         /* planned in all; already done when resumed */
    int64_t seq_len, batch_size, windows, tokens;
    const char *costs;                 /* where the predictions come from: "measured in 2.10 s" */
    double predicted_step_s;           /* as far as is known now */
    char sure[64];                     /* ", known to about 3%", in words; "": not known */
    char plan[512];                    /* what was decided, in sentences */
    char limits[384];                  /* how busy each queue will be */
    pt_memory memory[3]; int memory_n; /* of each tier; one that is not used has 0 bytes */
    int64_t corrected_step, moved_step; /* after which the prediction was last corrected, the plan last moved; 0: never */
    uint64_t process_peak_bytes;       /* of RAM, of the whole process; 0: not known */
    const char *measured_of;           /* which steps pt_trainer_timings says the time of: "steady steps", where there were any */
} pt_summary;
PT_API void pt_trainer_summary(const pt_trainer *t, pt_summary *s);
/* Predicted and measured, of a steady step: the step itself (median of all), each phase, "waiting", the time in which nothing is
 * computed, and the busy time of each queue (medians of the steps that were looked at). predicted: before the first step; corrected:
 * what replaced it when steps took another time than that (pt_summary says whether any did); measured: of the plan that runs.
 * Returns how many there are, 0 while nothing has been
 * measured. */
enum { PT_TIMINGS = 12 };
typedef struct pt_timing { const char *name; double predicted_s, corrected_s, measured_s; } pt_timing;
PT_API int pt_trainer_timings(const pt_trainer *t, pt_timing out[PT_TIMINGS]);
/* plan.json's text; free() it. */
PT_API char *pt_trainer_plan_json(const pt_trainer *t);

/* ---- planning without training ---- */

typedef struct pt_plan pt_plan;

/* What pt_trainer_open would decide, what it would cost and whether it fits. `model` may also be a config.json; of the rest
 * only what the plan depends on is looked at: no data (but whether there are any to evaluate on), no weights, no output
 * folder, and with machine_file (a path, or the name of one that came with the program, such as "rtx3090") no such hardware.
 * Where nothing fits it is PT_DOES_NOT_FIT, and *out is there all the same: its JSON says what is missing. */
PT_API int pt_plan_open(const pt_train_options *o, pt_plan **out, pt_error *e);
/* A screen of text: where every byte lies, what each layer does, what limits the step, what would help; and other ways to train the same
 * model, with what each takes and whether it fits. free() it. */
PT_API char *pt_plan_text(const pt_plan *p);
/* {"fits", "predicted", "plan", "why", "ways", ...}; plan_file takes it, or its "plan" alone. free() it. */
PT_API char *pt_plan_json(const pt_plan *p);
PT_API void pt_plan_close(pt_plan *p);

/* ---- measuring ---- */

typedef struct pt_profile pt_profile;

/* What a step costs on this machine: each kind of block, updates, transfers by size and beside each other. `model` may be a
 * config.json; options as for pt_plan_open. What was measured before is checked and used, with `fresh` it is measured anew. */
PT_API int pt_profile_open(const pt_train_options *o, bool fresh, pt_profile **out, pt_error *e);
/* A screen of text. free() it. */
PT_API char *pt_profile_text(const pt_profile *p);
/* profile.json, which profile_file takes. free() it. */
PT_API char *pt_profile_json(const pt_profile *p);
/* Writes profile.json there; into a folder profile.json and machine.json, a machine file of what was measured. */
PT_API int pt_profile_write(const pt_profile *p, const char *path, pt_error *e);
PT_API void pt_profile_close(pt_profile *p);

/* ---- evaluation ---- */

typedef struct pt_evaluate_options {
    const char *model;                 /* Hugging Face folder with weights */
    const char *adapter;               /* folder of one that is applied to it; NULL: none */
    const char *const *data; int data_n;
    /* as in training */
    pt_data_format data_format; pt_train_on train_on; const char *chat_template; bool no_packing; pt_long long_examples;
    int64_t seq_len;                   /* 0: the model's maximum, at most 1024 */
    bool document_mask;                /* as in training */
    pt_precision precision;
    int threads;                       /* 0: all cores that the process may use */
    const char *device;                /* "auto": a usable GPU, else the CPU; "cpu", "cuda", "cuda:N" */
    uint64_t device_memory, host_memory, disk_memory; /* bytes or PT_AUTO */
    const char *disk_path;             /* NULL: $TMPDIR, or /var/tmp; used only where memory does not suffice */
    void (*notice)(void *arg, const char *sentence);  /* may be NULL */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* may be NULL */
    void *arg;
} pt_evaluate_options;

typedef struct pt_evaluation {
    double loss;        /* mean over all target tokens, nats */
    double perplexity;  /* exp(loss) */
    double accuracy;    /* share of the targets that were the most probable token */
    int64_t tokens;     /* of text target tokens: all of the data but the first, with document_mask of each document; of examples all */
    int64_t learned_tokens; /* target tokens */
} pt_evaluation;

PT_API void pt_evaluate_defaults(pt_evaluate_options *o);
/* The data are cut into windows of seq_len targets, each seen alone; the last may be shorter. */
PT_API int pt_evaluate(const pt_evaluate_options *o, pt_evaluation *out, pt_error *e);

/* ---- a run's folder as a page ---- */

typedef struct pt_report pt_report;

/* Reads what a run has left in its folder; it may still be running. */
PT_API int pt_report_open(const char *folder, pt_report **out, pt_error *e);
PT_API const char *pt_report_note(const pt_report *r, int i); /* 0, 1, ...: what is missing or damaged; NULL: nothing more */
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
/* Special tokens spelt in the text are recognised; with `add_special` the ids begin and end with what the
 * tokenizer's template adds (BOS ...). free() *ids. Bytes that are not UTF-8 are encoded as bytes where the
 * tokenizer can, else PT_FAILED with the byte offset. */
PT_API int pt_tokenizer_encode(pt_tokenizer *t, const char *text, size_t bytes, bool add_special, uint32_t **ids, size_t *n,
                               pt_error *e);
/* The way back, byte for byte; with `drop_special` without what the template adds. free() *text, which has a NUL
 * behind its *bytes. */
PT_API int pt_tokenizer_decode(pt_tokenizer *t, const uint32_t *ids, size_t n, bool drop_special, char **text, size_t *bytes,
                               pt_error *e);

/* ---- training examples ---- */

typedef struct pt_span { size_t first, end; } pt_span; /* [first, end) */
typedef struct pt_example {
    const char *text; size_t bytes;            /* what the chat template made */
    const pt_span *spans; size_t spans_n;      /* bytes of it that are learned, in order */
    const uint32_t *ids; const uint8_t *learned; size_t n; /* its tokens, and 0 or 1: whether each is learned */
    void *own;                                 /* the library's */
} pt_example;

/* A record of training data in JSON, or a list of messages, as training makes an example of it. template_file: a chat template in the place
 * of the model's own, or NULL. `name` is what errors call the record. */
PT_API int pt_example_make(const char *model, const char *template_file, pt_train_on train_on, const char *name, const char *json,
                           size_t bytes,
                           pt_example *out, pt_error *e);
/* {"ids", "learned", "text"}. free() it. */
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

typedef struct pt_generate_options {
    const char *model;                 /* Hugging Face folder with weights and tokenizer.json */
    const char *adapter;               /* folder of one that is applied to it; NULL: none */
    pt_precision precision;
    double temperature;                /* 0: always the most probable token */
    int64_t top_k;                     /* draw from the k most probable tokens; 0: from all */
    double top_p;                      /* from the fewest that have this probability together; 1: from all */
    uint64_t seed;                     /* the same seed draws the same text */
    bool ignore_eos;                   /* go on behind the token that ends a text */
    const char *system;                /* of conversations: what the model is told before the first turn; NULL: nothing */
    const char *chat_template;         /* a file with a template in Jinja; NULL: the model's own */
    int threads;                       /* 0: all cores that the process may use */
    const char *device;                /* "auto": a usable GPU, else the CPU; "cpu", "cuda", "cuda:N" */
    uint64_t device_memory;            /* bytes or PT_AUTO */
    void (*notice)(void *arg, const char *sentence);  /* may be NULL */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* may be NULL */
    void *arg;
} pt_generate_options;

typedef struct pt_generator pt_generator;

/* temperature 0.8, top_p 0.95, no top_k, seed 0. */
PT_API void pt_generate_defaults(pt_generate_options *o);
/* Reads everything but the weights. */
PT_API int pt_generator_open(const pt_generate_options *o, pt_generator **out, pt_error *e);
/* Starts a text: reads the prompt (special tokens in it are recognised, BOS is put before it where the tokenizer
 * does so; an empty one starts from BOS), to be followed by at most max_new_tokens, or as many as the model's
 * context has room for. The first call loads the weights, once it is known that everything fits. PT_DOES_NOT_FIT
 * says what is missing. */
PT_API int pt_generator_prompt(pt_generator *g, const char *text, size_t bytes, int64_t max_new_tokens, pt_error *e);
/* The next turn of a conversation, which goes through the model's chat template: what a user says, to be followed by the reply. What was
 * said and replied before is part of it; on failure it is as it was before the call. */
PT_API int pt_generator_say(pt_generator *g, const char *text, size_t bytes, int64_t max_new_tokens, pt_error *e);
/* What comes next is the first turn of another conversation. */
PT_API void pt_generator_forget(pt_generator *g);
/* The next token: 1, and what text it adds (valid UTF-8 until the next call; nothing while a character is
 * incomplete); 0 at the end of the text. */
PT_API int pt_generator_next(pt_generator *g, const char **text, size_t *bytes, pt_error *e);
PT_API int64_t pt_generator_tokens(const pt_generator *g, int64_t *prompt); /* new ones so far; prompt may be NULL */
PT_API void pt_generator_close(pt_generator *g);

/* ---- merging an adapter ---- */

typedef struct pt_merge_options {
    const char *model, *adapter;       /* Hugging Face folder with weights; folder of PEFT's files */
    const char *out;                   /* a folder that is not there yet */
    pt_save_type save_type;            /* PT_SAVE_AS_STORED: as the model's weights are */
    void (*notice)(void *arg, const char *sentence);  /* may be NULL */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* may be NULL */
    void *arg;
} pt_merge_options;

PT_API void pt_merge_defaults(pt_merge_options *o);
/* Writes the model with the adapter added to its weights: in fp32, and rounded once. */
PT_API int pt_merge(const pt_merge_options *o, pt_error *e);

/* ---- export ---- */

typedef enum pt_export_type { PT_EXPORT_F32, PT_EXPORT_F16, PT_EXPORT_BF16, PT_EXPORT_Q8_0 } pt_export_type;

typedef struct pt_export_options {
    const char *model;                 /* Hugging Face folder with weights and tokenizer.json */
    const char *out;                   /* the GGUF file; it appears whole or not at all */
    pt_export_type type;               /* of matrices; norms and biases are F32 */
    void (*notice)(void *arg, const char *sentence);  /* where llama.cpp will do otherwise; may be NULL */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* bytes; may be NULL */
    void *arg;
} pt_export_options;

/* F16. */
PT_API void pt_export_defaults(pt_export_options *o);
/* Writes a file that llama.cpp runs: weights, tokenizer, chat template. PT_FAILED names what of the model or its tokenizer llama.cpp
 * does not know. */
PT_API int pt_export(const pt_export_options *o, pt_error *e);

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
