#include "options/table.h"

#include "model/adapter.h"
#include "model/lanes.h"

#define T(f, flag, k, v) OPTION(pt_train_options, f, flag, k, v)
#define LIST(f, flag, v) OPTION_LIST(pt_train_options, f, flag, v)

#define TRAIN .taken_by = BY_TRAIN
#define TRAIN_AND_PLAN .taken_by = BY_TRAIN | BY_PLAN
#define ALL .taken_by = BY_TRAIN | BY_PLAN | BY_PROFILE
#define TOKENS_MOST (1 << 24) /* sequences or tokens of a step */
#define MOST 1e15
#define BELOW_1 0.9999999

#define DATA "Model and data"
#define LENGTH "Length and size"
#define PART "What is trained"
#define OPTIMIZER "Optimizer"
#define HARDWARE "Hardware (detected if not given)"
#define SAVING "Saving"
#define OUTPUT "Output"

/* A row takes the group of the one before it if it has none. */
static const option_row rows[] = {
    {T(model, "model", TEXT, "DIR"), .is.group = DATA,
     .is.help = "Hugging Face folder: config.json, *.safetensors, tokenizer.json;\na folder without weights is trained from random weights",
     .plan_help = "Hugging Face folder, or its config.json alone", .record = RECORD_INPUT, ALL},
    {T(init_random, "init", EITHER, "stored|random"), .is.help = "random: start from random weights even if the folder has weights",
     .record = RECORD_INPUT, TRAIN_AND_PLAN},
    {LIST(data, "data", "PATH"), .is.help = DATA_HELP, .record = RECORD_INPUT, TRAIN},
    DATA_ROWS(pt_train_options, TRAIN),
    {T(task, "task", CHOICE, "sft|dpo|orpo|simpo|kto|reward|classify"), .is.initial = "sft", .record = RECORD_RESULT, TRAIN_AND_PLAN,
     .is.help = "dpo, orpo, simpo: train on preferences: records with a chosen and a rejected reply;\n"
                "kto: on replies with a \"label\": true or false; reward: a model that scores\n"
                "replies, on preferences; classify: labels of texts, on a \"label\" in each record"},
    {T(beta, "beta", REAL, "X"), .is.initial = "0.1", RANGE(ABOVE_0, 1e6), .record = RECORD_RESULT, .need = NEED_PAIRS, TRAIN,
     .is.help = "dpo, kto: how strongly to stay near the starting model;\norpo, simpo: the weight of the comparison"},
    {T(gamma, "gamma", REAL, "X"), .is.initial = "0.5", RANGE(0, 1e6), .record = RECORD_RESULT, .need = NEED_GAMMA, TRAIN,
     .is.help = "simpo: the margin of rewards to reach"},
    {T(dpo_loss, "dpo-loss", CHOICE, "sigmoid|ipo|sigmoid_norm"), .is.initial = "sigmoid", .record = RECORD_RESULT, .need = NEED_DPO, TRAIN,
     .is.help = "dpo: form of the loss; sigmoid_norm: of means over the replies' tokens"},
    {T(ld_alpha, "ld-alpha", REAL, "X"), .is.initial = "1", RANGE(0, 1), .record = RECORD_RESULT, .need = NEED_DPO, TRAIN,
     .is.help = "dpo: the weight of a reply's tokens beyond the length of the other one"},
    {T(label_smoothing, "label-smoothing", REAL, "X"), .is.initial = "0", RANGE(0, 0.5), .record = RECORD_RESULT,
     .need = NEED_SMOOTHING, TRAIN, .is.help = "dpo, simpo: the share of pairs that are taken to be the wrong way round;\n"
                                                              "sft: the share of the loss that all tokens have alike; at most 0.5"},
    {T(desirable_weight, "desirable-weight", REAL, "X"), .is.initial = "1", RANGE(0, 1e6), .record = RECORD_RESULT, .need = NEED_LABELS,
     TRAIN, .is.help = "kto: the weight of replies with the label true"},
    {T(undesirable_weight, "undesirable-weight", REAL, "X"), .is.initial = "1", RANGE(0, 1e6), .record = RECORD_RESULT,
     .need = NEED_LABELS, TRAIN, .is.help = "kto: the weight of replies with the label false"},
    {T(center_rewards, "center-rewards", REAL, "X"), .is.initial = "0", RANGE(0, 1e6), .record = RECORD_RESULT, .need = NEED_CENTER, TRAIN,
     .is.help = "reward: add X times the squared sum of a pair's scores to its loss, so that\nscores stay near 0, such as 0.01 "
                "(TRL's center_rewards_coefficient)"},
    {T(loss_per, "loss-per", CHOICE, "token|example"), .is.initial = "token", .record = RECORD_RESULT, .need = NEED_EXAMPLES, TRAIN,
     .is.help = "give each token, or each example, the same weight in the loss"},
    {T(neftune_alpha, "neftune-alpha", REAL, "X"), .is.initial = "0", RANGE(0, 1e3), .record = RECORD_RESULT, TRAIN,
     .is.help = "add noise to the embeddings in training: uniform, at most\nX / sqrt(seq_len x hidden size), such as 5"},
    {T(router_aux_loss, "router-aux-loss", REAL, "X"), .is.initial = "0", RANGE(0, 1e6), .record = RECORD_RESULT, TRAIN_AND_PLAN,
     .is.help = "of models with experts: add X times the loss that balances their use\n(Transformers' router_aux_loss_coef)"},
    {LIST(eval_data, "eval-data", "PATH"), .is.help = "data to evaluate on; repeatable", .record = RECORD_INPUT, TRAIN_AND_PLAN,
     .plan_help = "the run evaluates: plan memory for it too; the data are not read"},
    {T(eval_split, "eval-split", REAL, "X"), RANGE(0, 0.99), .record = RECORD_RESULT, TRAIN_AND_PLAN,
     .is.help = "hold out this share of the data, such as 0.05, and evaluate on it"},
    {T(eval_every, "eval-every", INT, "N"), RANGE(0, MOST), .record = RECORD_COURSE, TRAIN_AND_PLAN,
     .is.help = "evaluate every N steps and at the end; default: up to ten times in a run,\n"
                "at least ten steps apart, in a tenth of its time",
     .plan_help = "steps between evaluations; with 1, no update waits for the next step"},
    {T(keep_best, "keep-best", CHOICE, "no|eval_loss|eval_reward_accuracy|eval_reward_margin|eval_accuracy"), .is.initial = "no",
     .is.implied = "eval_loss", .record = RECORD_COURSE, TRAIN_AND_PLAN,
     .is.help = "keep the checkpoint with the best evaluation, by its loss unless another\nmetric is named, and export its model at the "
                "end",
     .plan_help = "the run keeps its best checkpoint: leave room on the disk for it"},
    {T(patience, "patience", INT, "N"), RANGE(1, MOST), .record = RECORD_COURSE, TRAIN,
     .is.help = "end after N evaluations in a row without a better one"},
    {T(out, "out", TEXT, "DIR"), .is.help = "folder for the results; default runs/MODEL-N", TRAIN_AND_PLAN,
     .plan_help = "folder where the run would save; default: here; nothing is written"},

    {T(steps, "steps", INT, "N"), .is.group = LENGTH, RANGE(1, MOST), .record = RECORD_LENGTH, TRAIN_AND_PLAN,
     .is.help = "number of steps; default: as many as --epochs take",
     .plan_help = "steps of the run, to compute how much it writes to the disk"},
    {T(epochs, "epochs", REAL, "X"), .is.initial = "1", RANGE(ABOVE_0, 1e9), .record = RECORD_LENGTH, TRAIN,
     .is.help = "passes over the data, if --steps is not given"},
    {T(seq_len, "seq-len", INT, "N"), RANGE(1, SEQ_LEN_MOST), .record = RECORD_RESULT, ALL,
     .is.help = "tokens per sequence; default: the model's maximum, at most 1024"},
    {T(add_tokens, "add-tokens", TEXT, "FILE"), .record = RECORD_INPUT, TRAIN_AND_PLAN,
     .is.help = "add the tokens of this file to the tokenizer, one a line; each starts as the\nmean of its pieces, and is saved with the "
                "model; with --lora, embedding and\nhead are trained in full as by --train-also"},
    {T(rope_scaling, "rope-scaling", TEXT, "TYPE:FACTOR"), .record = RECORD_RESULT, ALL,
     .is.help = "extend the model's positions, such as yarn:4; types: yarn, linear, dynamic,\n"
                "llama3; the saved config.json has it; none: longer positions as they are"},
    {T(batch_size, "batch-size", INT, "N"), .is.initial = "8", RANGE(1, TOKENS_MOST), .record = RECORD_RESULT, ALL,
     .is.help = "sequences per step"},
    {T(drop_last, "drop-last", FLAG, NULL), .record = RECORD_RESULT, TRAIN,
     .is.help = "leave out the windows of an epoch that do not fill its last batch"},
    {T(micro_batch, "micro-batch", INT, "N"), RANGE(0, TOKENS_MOST), TRAIN_AND_PLAN,
     .is.help = "sequences computed at a time; never changes the result; default: planned"},
    {T(lanes, "lanes", INT32, "L"), RANGE(0, LANES_MOST), .record = RECORD_RESULT, TRAIN_AND_PLAN,
     .is.help = "sum a step's gradients in L partial sums, which up to L ranks can\nshare; default: as many as --ranks"},
    {T(shuffle, "no-shuffle", NOT, NULL), .is.help = "take the data in file order", .record = RECORD_RESULT, TRAIN},
    {T(document_mask, "document-mask", FLAG, NULL), .is.help = DOCUMENT_HELP, .record = RECORD_RESULT, .need = NEED_TEXT, TRAIN},
    {T(precision, "dtype", CHOICE, DTYPES), .is.initial = "bf16", .record = RECORD_RESULT, ALL,
     .is.help = "bf16: bf16 compute, fp32 master weights"},
    {T(activations, "activations", CHOICE, "exact|int8|fp8"), .is.initial = "exact", .record = RECORD_RESULT, ALL,
     .is.help = "int8, fp8: backward reads saved activations rounded to 8 bits, which take about\nhalf the memory; changes the result a "
                "little"},

    {LIST(freeze, "freeze", "PATTERN"), .is.group = PART, .record = RECORD_RESULT, ALL,
     .is.help = "do not train tensors whose names match ('model.layers.?.*'); repeatable"},
    {LIST(train_only, "train-only", "PATTERN"), .record = RECORD_RESULT, ALL,
     .is.help = "train only tensors whose names match, except those of --freeze; repeatable"},
    {T(train_blocks, "train-blocks", INT, "N"), RANGE(1, MODEL_MAX_LAYERS), .record = RECORD_RESULT, ALL,
     .is.help = "train N layers at a time and freeze the rest; others follow, all in turn,\nin random order"},
    {T(switch_every, "switch-every", INT, "K"), .is.initial = "50", RANGE(1, MOST), .record = RECORD_RESULT, .need = NEED_TURNS, ALL,
     .is.help = "steps in which the same layers are trained by --train-blocks"},
    {T(lora_rank, "lora", INT, "RANK"), RANGE(1, ADAPTER_MAX_RANK), .record = RECORD_INPUT, ALL,
     .is.help = "freeze the model and train LoRA adapters of this rank"},
    {T(lora_alpha, "lora-alpha", REAL, "X"), RANGE(ADAPTER_LEAST_ALPHA, ADAPTER_MOST_ALPHA), .record = RECORD_INPUT, ALL,
     .is.help = "scale the adapters' output by alpha / rank; default 2 x rank"},
    {T(lora_targets, "lora-targets", TEXT, "NAMES"), .record = RECORD_INPUT, ALL,
     .is.help = "all-linear, attention, mlp, experts, or names such as q_proj,v_proj;\nseveral: separated by commas; default all-linear"},
    {T(lora_dropout, "lora-dropout", REAL, "X"), RANGE(0, ADAPTER_MOST_DROPOUT), .is.unset = -1, .record = RECORD_INPUT, ALL,
     .is.help = "drop this share of the adapters' inputs in training, such as 0.05;\ndefault 0, or as in the config of --adapter"},
    {T(train_also, "train-also", TEXT, "NAMES"), .record = RECORD_INPUT, ALL,
     .is.help = "also train these modules outside the layers in full, and save them with the\n"
                "adapter, or with --train-blocks in every turn; such as embed_tokens,lm_head"},
    {T(rslora, "rslora", FLAG, NULL), .record = RECORD_INPUT, ALL, .is.help = "scale by alpha / sqrt(rank) instead of alpha / rank"},
    {T(dora, "dora", FLAG, NULL), .record = RECORD_INPUT, ALL, .is.help = "DoRA: also train the magnitudes of the outputs"},
    {T(adapter, "adapter", TEXT, "DIR"), .record = RECORD_INPUT, ALL,
     .is.help = "continue training this adapter (written by PEFT or protrain)"},
    {T(base, "base", CHOICE, BASES), .is.initial = "auto", .record = RECORD_RESULT, ALL,
     .is.help = "format of the layers' frozen matrices: nf4 and mxfp4 take half a\nbyte per value, int8 one byte; auto: as the "
                "base of --adapter was,\nas a folder in few bits has them, else as --dtype"},

    {T(optimizer, "optimizer", CHOICE, "adamw|adamw8bit|muon|adafactor|apollo|apollo_mini|adam_mini|galore|apollo8bit|galore8bit"),
     .is.group = OPTIMIZER, .is.initial = "adamw", .record = RECORD_RESULT, ALL,
     .is.help = "adamw8bit: AdamW with 8-bit moments (embeddings and head: fp32);\nmuon: Muon for the layers' matrices, AdamW for the "
                "rest;\nadafactor: second moments of rows and columns; apollo, apollo_mini,\ngalore: moments of few dimensions; adam_mini: "
                "second moments of rows;\napollo8bit, galore8bit: with 8-bit moments"},
    {T(optimizer_args, "optimizer-args", TEXT, "KEY=VALUE,..."), .record = RECORD_RESULT, ALL,
     .is.help = "adafactor: scale_parameter, relative_step, warmup_init (false),\nclip_threshold (1), decay_rate (-0.8); apollo, "
                "galore, and in 8 bits: rank (128),\nscale (1, 0.25), update_proj_gap (200); apollo: scale_type (channel);\n"
                "apollo_mini: rank 1, scale 128, scale_type tensor"},
    {T(lr, "lr", REAL, "X"), RANGE(ABOVE_0, 1e3), .record = RECORD_RESULT, TRAIN,
     .is.help = "learning rate; default 5e-5, adapters 2e-4, preferences 1e-6, random weights 3e-4;\n"
                "with muon 1e-4, preferences 1e-6, random weights 1e-3"},
    {T(lr_schedule, "lr-schedule", CHOICE, "constant|linear|cosine|cosine_restarts|wsd"), .is.initial = "linear", .record = RECORD_RESULT,
     TRAIN, .is.help = "learning rate after the warm-up; cosine_restarts: several cosines, each from\n"
                       "--lr on; wsd: stable, and a decay at the end"},
    {T(lr_cycles, "lr-cycles", INT, "N"), .is.initial = "2", RANGE(1, 1e6), .record = RECORD_RESULT, .need = NEED_RESTARTS, TRAIN,
     .is.help = "cosine_restarts: the number of cosines"},
    {T(lr_decay_steps, "lr-decay-steps", INT, "N"), RANGE(1, MOST), .record = RECORD_RESULT, .need = NEED_WSD, TRAIN,
     .is.help = "wsd: steps of the decay; default: a tenth of all steps"},
    {T(lr_decay, "lr-decay", CHOICE, "cosine|linear|1-sqrt"), .is.initial = "cosine", .record = RECORD_RESULT, .need = NEED_WSD, TRAIN,
     .is.help = "wsd: the form of the decay"},
    {T(warmup_steps, "warmup-steps", INT, "N"), .is.initial = "0", RANGE(0, MOST), .record = RECORD_RESULT, TRAIN,
     .is.help = "steps in which the learning rate rises from 0"},
    {T(warmup_ratio, "warmup-ratio", REAL, "X"), RANGE(0, 1), .record = RECORD_RESULT, TRAIN,
     .is.help = "the same as a share of all steps, such as 0.03, rounded up"},
    {T(min_lr_ratio, "min-lr-ratio", REAL, "X"), .is.initial = "0", RANGE(0, 1), .record = RECORD_RESULT, .need = NEED_DECAY, TRAIN,
     .is.help = "final learning rate as a fraction of --lr"},
    {T(weight_decay, "weight-decay", REAL, "X"), .is.initial = "0", RANGE(0, 1e3), .record = RECORD_RESULT, TRAIN,
     .is.help = "not applied to biases and norms"},
    {T(beta1, "beta1", REAL, "X"), .is.initial = "0.9", RANGE(0, BELOW_1), .record = RECORD_RESULT, TRAIN,
     .is.help = "decay of AdamW's first moment"},
    {T(beta2, "beta2", REAL, "X"), .is.initial = "0.999", RANGE(0, BELOW_1), .record = RECORD_RESULT, TRAIN,
     .is.help = "decay of AdamW's second moment"},
    {T(eps, "eps", REAL, "X"), .is.initial = "1e-8", RANGE(0, 1), .record = RECORD_RESULT, TRAIN, .is.help = "AdamW's epsilon"},
    {T(momentum, "momentum", REAL, "X"), RANGE(ABOVE_0, BELOW_1), .record = RECORD_RESULT, .need = NEED_MUON, TRAIN,
     .is.help = "muon: momentum of the matrices; default 0.95"},
    {T(lr_adjust, "lr-adjust", CHOICE, "auto|original|match_rms_adamw|spectral_unclamped"), .is.initial = "auto", .record = RECORD_RESULT,
     .need = NEED_MUON, TRAIN,
     .is.help = "muon: scale a matrix's learning rate by sqrt(max(1, rows / cols));\nby 0.2 sqrt(max(rows, cols)), which makes steps as "
                "large as AdamW's;\nor by sqrt(rows / cols); auto: match_rms_adamw with the default --lr,\noriginal with a given one, as "
                "in torch.optim.Muon"},
    {T(max_grad_norm, "max-grad-norm", REAL, "X"), .is.initial = "1", RANGE(0, 1e30), .record = RECORD_RESULT, TRAIN_AND_PLAN,
     .is.help = "clip gradients to this global norm; 0: no clipping, so that updates may\nrun during backward"},
    {T(seed, "seed", SEED, "N"), .is.initial = "0", RANGE(0, (double)INT64_MAX), .record = RECORD_RESULT, TRAIN,
     .is.help = "random seed of the initial weights and of shuffling"},

    {T(device, "device", TEXT, "NAME"), .is.group = HARDWARE, .is.initial = "auto", ALL,
     .is.help = "auto (usable GPUs, else the CPU), cpu, cuda, cuda:N or cuda:N,M,..."},
    {T(ranks, "ranks", INT32, "N"), RANGE(0, LANES_MOST), TRAIN_AND_PLAN,
     .is.help = "share each step between N processes of this machine (torchrun, mpirun and\nsrun start them on several), and each "
                "sequence if there are fewer; with the\nsame --lanes, their number never changes the result; default: one, or one\n"
                "for each usable GPU",
     .plan_help = "share each step between N processes of this machine, or N devices\nof the machine that --machine names"},
    {T(threads, "threads", INT32, "N"), RANGE(0, THREADS_MOST), .is.help = THREADS_HELP, ALL},
    {T(device_memory, "device-memory", SIZE, "SIZE"), .is.help = DEVICE_MEMORY_HELP, ALL},
    {T(host_memory, "host-memory", SIZE, "SIZE"), .is.help = HOST_MEMORY_HELP, ALL},
    {T(disk_memory, "disk-memory", SIZE, "SIZE"), .is.help = DISK_MEMORY_HELP, ALL},
    {T(disk_path, "disk-path", TEXT, "DIR"), .is.help = "folder of the disk tier; default: one in --out", .need = NEED_DISK, ALL,
     .plan_help = "folder of the disk tier; default: here, or the folder for temporary files"},
    {T(disk_slots, "disk-slots", INT32, "1|2"), RANGE(1, 2), .need = NEED_DISK, TRAIN_AND_PLAN,
     .is.help = "slots of each state on the disk; 2: every step commits what it writes there,\nso that --resume continues from it "
                "without checkpoints, in twice the space;\ndefault: 2 if there is room"},
    {T(machine_file, "machine", TEXT, "FILE"), .is.help = "take memory sizes and speeds from this machine file", TRAIN_AND_PLAN,
     .plan_help = "plan for the machine of this file, or for one that comes with\nthe program (rtx3090, a100-80, h100 ...); "
                  "several between commas,\nor all: one table of them"},
    {T(search_effort, "search-effort", REAL, "X"), .is.initial = "1", RANGE(0.01, 1000), .need = NEED_SEARCH, TRAIN_AND_PLAN,
     .is.help = "how much work the search for a plan does, a multiple of the usual;\nthe same work gives the same plan on every machine"},
    {T(profile_file, "profile", TEXT, "FILE"), .is.help = "use this profile.json of an earlier run instead of measuring", TRAIN_AND_PLAN},
    {T(plan_file, "plan", TEXT, "FILE"), .is.help = "run exactly this plan, or say why it cannot run", TRAIN_AND_PLAN,
     .plan_help = "predict this plan instead of searching for the fastest"},

    {T(save_every, "save-every", INT, "N"), .is.group = SAVING, RANGE(0, MOST), .record = RECORD_COURSE, TRAIN_AND_PLAN,
     .is.help = "write a checkpoint every N steps", .plan_help = "the run saves checkpoints: leave room on the disk for them"},
    {T(keep, "keep", INT32, "N"), .is.initial = "2", RANGE(0, 1e9), .need = NEED_CHECKPOINTS, TRAIN_AND_PLAN,
     .is.help = "keep the newest N checkpoints; 0: all"},
    {.is.field = "resume_from", .is.name = "resume", .is.kind = PT_OPTION_RESUME, .is.values = "DIR", TRAIN, .is.implied = "",
     .is.at = offsetof(pt_train_options, resume), .is.also = offsetof(pt_train_options, resume_from),
     .is.help = "continue from a checkpoint; default: the newest one in --out"},
    {T(save_type, "save-dtype", CHOICE, SAVE_DTYPES), .record = RECORD_RESULT, TRAIN_AND_PLAN,
     .is.help = "dtype of the exported weights; default: as loaded"},

    {LIST(sample, "sample", "PROMPT"), .is.group = OUTPUT, TRAIN,
     .is.help = "let the model continue this text before and after training; repeatable"},
    {T(preview, "preview", INT, "N"), RANGE(0, 1000), .is.unset = PT_PREVIEW_DEFAULT, TRAIN,
     .is.help = "show the first N examples as they are trained, with what is learned\nmarked; default: one on a terminal"},
    {T(tensorboard, "tensorboard", FLAG, NULL), TRAIN, .is.help = "also write an event file, which tensorboard --logdir OUT shows"},
    {T(trace, "trace", FLAG, NULL), .is.help = "write the tasks of the last step to trace.json, for Perfetto", TRAIN},
};

const option_table train_table = {rows, sizeof rows / sizeof *rows, sizeof (pt_train_options)};
