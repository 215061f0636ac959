#include "fields.h"

#include "base/error.h"
#include "protrain_ritz.h"

#include <string.h>

/* Fields whose flag is their name with '-' for '_'. */
#define TRAIN_FIELDS(X)                                                                                                                    \
    X(adapter) X(base) X(batch_size) X(beta) X(beta1) X(beta2) X(chat_template) X(data) X(data_format) X(device) X(device_memory)          \
    X(disk_memory) X(disk_path) X(document_mask) X(dora) X(dpo_loss) X(drop_last) X(epochs) X(eps) X(eval_data) X(eval_every)              \
    X(eval_split) X(freeze) X(host_memory) X(keep) X(lanes) X(lora_alpha) X(lora_dropout) X(lora_targets) X(loss_per) X(lr) X(lr_adjust)   \
    X(lr_schedule) X(max_grad_norm) X(micro_batch) X(min_lr_ratio) X(model) X(momentum) X(no_packing) X(optimizer) X(out)                  \
    X(plain_contents) X(ranks) X(resume) X(rslora) X(sample) X(save_every) X(seed) X(seq_len) X(steps) X(task) X(tensorboard) X(threads)   \
    X(trace) X(train_on) X(train_only) X(warmup_steps) X(weight_decay)
#define GENERATE_FIELDS(X) X(ignore_eos) X(repetition_penalty) X(system) X(temperature) X(top_k) X(top_p)
#define EXPORT_FIELDS(X) X(type)
#define RITZ_FIELDS(X)                                                                                                                     \
    X(activation) X(blocks) X(dim) X(dtype) X(eval_n) X(halve_every) X(n) X(n_boundary) X(no_input_layer) X(points) X(problem)             \
    X(randomize) X(redraw_every) X(width)

/* Does not compile if the name is not a field. */
#define TRAIN(f) {#f, sizeof ((pt_train_options *)0)->f, NULL},
#define GENERATE(f) {#f, sizeof ((pt_generate_options *)0)->f, NULL},
#define EXPORT(f) {#f, sizeof ((pt_export_options *)0)->f, NULL},
#define RITZ(f) {#f, sizeof ((pt_ritz_options *)0)->f, NULL},
#define OTHER(f, flag) {#f, sizeof ((pt_train_options *)0)->f, flag},
static const struct { const char *field; size_t bytes; const char *flag; } fields[] = {
    TRAIN_FIELDS(TRAIN) GENERATE_FIELDS(GENERATE) EXPORT_FIELDS(EXPORT) RITZ_FIELDS(RITZ)
    OTHER(init_random, "init random") OTHER(long_examples, "long") OTHER(lora_rank, "lora") OTHER(machine_file, "machine")
    OTHER(plan_file, "plan") OTHER(precision, "dtype") OTHER(profile_file, "profile") OTHER(resume_from, "resume")
    OTHER(save_type, "save-dtype")
    {"max_new_tokens", 0, NULL}, /* of pt_generator_prompt */
    {"no_shuffle", 0, NULL},     /* `shuffle` off */
};

/* If the n letters are a field, prints its flag and returns true. */
static int print_flag(FILE *out, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strlen(fields[i].field) != n || strncmp(fields[i].field, name, n) != 0)
            continue;
        fputs("--", out);
        for (const char *c = fields[i].flag ? fields[i].flag : fields[i].field; *c; c++)
            fputc(*c == '_' ? '-' : *c, out);
        return 1;
    }
    return 0;
}

/* Prints a flag or one character, and returns the rest of the text. */
static const char *print_next(FILE *out, const char *text)
{
    const size_t n = strspn(text + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (*text == '`' && text[n + 1] == '`' && print_flag(out, text + 1, n))
        return text + n + 2;
    fputc(*text, out);
    return text + 1;
}

void print_as_flags(FILE *out, const char *text)
{
    while (*text)
        text = print_next(out, text);
}

void print_sentence(FILE *out, const char *text)
{
    while (*text) {
        size_t n = *text == '\t' ? 0 : control_character(text);
        if (*text == '\n')
            fputs("\\n", out), text++, n = 0;
        else if (!n)
            text = print_next(out, text);
        for (; n; n--)
            fprintf(out, "\\x%02x", (unsigned char)*text++);
    }
}
