/* other_tables.c - the options of evaluation, generation, merging and export. */
#include "options/table.h"

#define ANY .taken_by = 0
#define ADAPTER_HELP "apply this adapter (written by PEFT or protrain)"
#define WHOLE_BASE_HELP                                                                                                                    \
    "format of the layers' matrices: nf4, mxfp4 (half a byte per value)\n"                                                                 \
    "or int8; auto: as the base of --adapter was in training, else as\n--dtype"

#define V(f, flag, k, v) OPTION(pt_evaluate_options, f, flag, k, v)
static const option_row evaluate[] = {
    {V(model, "model", TEXT, "DIR"), .is.help = "Hugging Face folder with weights"},
    {V(adapter, "adapter", TEXT, "DIR"), .is.help = ADAPTER_HELP},
    {OPTION_LIST(pt_evaluate_options, data, "data", "PATH"), .is.help = DATA_HELP},
    DATA_ROWS(pt_evaluate_options, ANY),
    {V(seq_len, "seq-len", INT, "N"), RANGE(1, SEQ_LEN_MOST), .is.help = "tokens per window; default: the model's maximum, at most 1024"},
    {V(document_mask, "document-mask", FLAG, NULL), .is.help = DOCUMENT_HELP, .need = NEED_TEXT},
    {V(predictions, "predictions", TEXT, "FILE"),
     .is.help = "of a model that scores texts: also write a line of JSON for each record:\nits label and probabilities, or its scores; "
                "records need no label"},
    {V(precision, "dtype", CHOICE, DTYPES), .is.initial = "bf16", .is.help = "type of the computation"},
    {V(base, "base", CHOICE, BASES), .is.initial = "auto", .is.help = WHOLE_BASE_HELP},
    {V(device, "device", TEXT, "NAME"), .is.initial = "auto", .is.help = DEVICE_HELP},
    {V(threads, "threads", INT32, "N"), RANGE(0, THREADS_MOST), .is.help = THREADS_HELP},
    {V(device_memory, "device-memory", SIZE, "SIZE"), .is.help = DEVICE_MEMORY_HELP},
    {V(host_memory, "host-memory", SIZE, "SIZE"), .is.help = HOST_MEMORY_HELP},
    {V(disk_memory, "disk-memory", SIZE, "SIZE"), .is.help = DISK_MEMORY_HELP},
    {V(disk_path, "disk-path", TEXT, "DIR"), .is.help = "folder of the disk tier; default: $TMPDIR, or /var/tmp"},
};
const option_table evaluate_table = {evaluate, sizeof evaluate / sizeof *evaluate, sizeof (pt_evaluate_options)};

#define G(f, flag, k, v) OPTION(pt_generate_options, f, flag, k, v)
static const option_row generate[] = {
    {G(model, "model", TEXT, "DIR"), .is.group = "Model", .is.help = "Hugging Face folder with weights and tokenizer.json"},
    {G(adapter, "adapter", TEXT, "DIR"), .is.help = ADAPTER_HELP},
    {G(system, "system", TEXT, "TEXT"), .is.group = "Text", .is.help = "system message, put before the first turn of a conversation"},
    {G(chat_template, "chat-template", TEXT, "FILE"), .is.help = "of conversations: use this Jinja template instead of the model's own"},
    {G(plain_contents, "plain-contents", FLAG, NULL), .is.help = "special tokens in messages are plain text"},
    {G(temperature, "temperature", REAL, "X"), .is.group = "Sampling", RANGE(0, 1e3), .is.unset = PT_OF_MODEL,
     .is.help = "0: always take the most probable token. The default of this option\nand the next three is that of the model's\n"
                "generation_config.json, else 0.8"},
    {G(top_k, "top-k", INT, "N"), RANGE(0, 1e15), .is.unset = PT_OF_MODEL,
     .is.help = "sample from the N most probable tokens; else 0: from all"},
    {G(top_p, "top-p", REAL, "X"), RANGE(ABOVE_0, 1), .is.unset = PT_OF_MODEL,
     .is.help = "sample from the fewest tokens whose probabilities add up to X;\nelse 0.95; 1: from all"},
    {G(repetition_penalty, "repetition-penalty", REAL, "X"), RANGE(ABOVE_0, 1e3), .is.unset = PT_OF_MODEL,
     .is.help = "above 1: make tokens that the text has already less probable; else 1:\noff"},
    {G(seed, "seed", SEED, "N"), .is.initial = "0", RANGE(0, (double)INT64_MAX),
     .is.help = "random seed: the same seed gives the same text"},
    {G(ignore_eos, "ignore-eos", FLAG, NULL), .is.help = "do not stop at the end-of-text token"},
    {G(precision, "dtype", CHOICE, DTYPES), .is.group = "Computation", .is.initial = "bf16", .is.help = "type of the computation"},
    {G(base, "base", CHOICE, BASES), .is.initial = "auto", .is.help = WHOLE_BASE_HELP},
    {G(device, "device", TEXT, "NAME"), .is.initial = "auto", .is.help = DEVICE_HELP},
    {G(threads, "threads", INT32, "N"), RANGE(0, THREADS_MOST), .is.help = THREADS_HELP},
    {G(device_memory, "device-memory", SIZE, "SIZE"), .is.help = DEVICE_MEMORY_HELP},
    {G(host_memory, "host-memory", SIZE, "SIZE"), .is.help = "RAM budget for weights and KV cache that do not fit into a GPU"},
    {G(disk_memory, "disk-memory", SIZE, "SIZE"),
     .is.help = "budget of disk space for weights that fit nowhere else; 0: never use the\ndisk"},
    {G(disk_path, "disk-path", TEXT, "DIR"), .is.help = "folder of these weights; default: $TMPDIR, or /var/tmp"},
};
const option_table generate_table = {generate, sizeof generate / sizeof *generate, sizeof (pt_generate_options)};

#define M(f, flag, k, v) OPTION(pt_merge_options, f, flag, k, v)
static const option_row merge[] = {
    {M(model, "model", TEXT, "DIR"), .is.help = "Hugging Face folder with weights"},
    {OPTION_LIST(pt_merge_options, adapter, "adapter", "DIR"),
     .is.help = "folder with adapter_config.json and adapter_model.safetensors; repeatable:\n"
                "merges the sum. DIR:0.7 gives an adapter this weight"},
    {M(out, "out", TEXT, "DIR"), .is.help = "the new folder to write; it appears whole or not at all"},
    {M(save_type, "save-dtype", CHOICE, SAVE_DTYPES), .is.help = "dtype of the written weights; default: as loaded"},
};
const option_table merge_table = {merge, sizeof merge / sizeof *merge, sizeof (pt_merge_options)};

#define X(f, flag, k, v) OPTION(pt_export_options, f, flag, k, v)
static const option_row export[] = {
    {X(model, "model", TEXT, "DIR"), .is.help = "Hugging Face folder with weights and tokenizer.json"},
    {X(adapter, "adapter", TEXT, "DIR"), .is.help = "merge this adapter (written by PEFT or protrain) into the weights first"},
    {X(adapter_only, "adapter-only", FLAG, NULL), .is.help = "write the adapter alone, for llama.cpp's --lora"},
    {X(out, "out", TEXT, "FILE"), .is.help = "the file to write; it appears whole or not at all"},
    {X(modelfile, "modelfile", TEXT, "FILE"), .is.help = "also write a file with which `ollama create` takes the model"},
    {X(type, "type", CHOICE, "f32|f16|bf16|q8_0|q4_0|q4_k_m|q5_k_m|q6_k"), .is.initial = "f16",
     .is.help = "type of the matrices; norms and biases are always f32. The last four\ngive some matrices more bits, as llama.cpp does"},
};
const option_table export_table = {export, sizeof export / sizeof *export, sizeof (pt_export_options)};
