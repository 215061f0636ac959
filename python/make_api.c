/* make_api.c - the parts of the Python package that follow from the option table and the header:
 *
 *     make_api table    _table.py: options by keyword, fields of structs
 *     make_api api      _api.py: the functions, with a keyword for each option
 *     make_api stub     _api.pyi: their types
 */
#include "protrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

typedef struct function {
    const char *name, *command, *own; /* own: parameters that are no options, before those */
    const char *own_types, *result, *module, *doc, *own_doc;
} function;

#define CONFIG_DOC "    config: a file with options, in YAML or JSON, such as run.yaml of another run; arguments come first.\n"
#define PROGRESS_DOC "    progress: show how far it is; default: in notebooks and terminals.\n"

static const function functions[] = {
    {"train", "train", "config=None, callback=None, lr_of_step=None, progress=None",
     "config: _Path | None = None, callback: Callable[[Step], object] | Iterable[Callable[[Step], object]] | None = None, "
     "lr_of_step: Callable[[int, int, float], float] | None = None, progress: bool | None = None",
     "Run", "_train", "Trains or fine-tunes a Hugging Face model; the result has the output folder and the steps.\n\n"
     "    Ctrl-C ends the run after its step, with a checkpoint: train(resume=OUT) goes on.",
     CONFIG_DOC
     "    callback: called with each step, or a list of such functions; True as the result ends the run, with a checkpoint.\n"
     "    lr_of_step: called with (step, steps, lr of the schedule); returns the learning rate of the step. It must depend on these\n"
     "        alone, and must be given again to resume.\n" PROGRESS_DOC
     "    data and eval_data also take records: a list or an iterator of dicts, an iterator of texts, or a datasets.Dataset. They\n"
     "    are written to data.jsonl and eval_data.jsonl in the output folder.\n"},
    {"plan", "plan", "config=None, progress=None", "config: _Path | None = None, progress: bool | None = None", "Plan", "_plan",
     "Shows what training would do on this machine or another; notebooks show the result as a picture.", CONFIG_DOC PROGRESS_DOC},
    {"evaluate", "eval", "progress=None", "progress: bool | None = None", "Evaluation", "_infer",
     "Computes loss, perplexity and accuracy of a model on data.", PROGRESS_DOC},
    {"generate", "generate", "prompt='', max_new_tokens=None, chat=False, progress=None",
     "prompt: str = '', max_new_tokens: int | None = None, chat: bool = False, progress: bool | None = None", "str", "_infer",
     "Continues a text, and returns the new part.",
     "    prompt: the text to continue, or with chat the user's message.\n"
     "    max_new_tokens: default 128; with chat 1024.\n"
     "    chat: reply through the model's chat template.\n" PROGRESS_DOC},
    {"generator", "generate", "progress=None", "progress: bool | None = None", "Generator", "_infer",
     "Keeps a model loaded, for several texts, conversations, or logits.", PROGRESS_DOC},
    {"merge", "merge", "progress=None", "progress: bool | None = None", "str", "_infer",
     "Merges an adapter into its base model, and returns the new folder.", PROGRESS_DOC},
    {"export", "export", "progress=None", "progress: bool | None = None", "str", "_infer",
     "Exports a model as a GGUF file for llama.cpp, and returns the file.", PROGRESS_DOC},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static pt_options *open_options(const char *command)
{
    pt_options *o;
    pt_error e = {0};
    if (pt_options_open(command, &o, &e)) {
        fprintf(stderr, "make_api: %s\n", e.text);
        exit(1);
    }
    return o;
}

static void put_keyword(const char *name)
{
    for (; *name; name++)
        putchar(*name == '-' ? '_' : *name);
}

/* Help in one line, with options by their keywords. */
static void put_help(const char *text)
{
    while (*text) {
        if (!strncmp(text, "--", 2) && text[2] >= 'a' && text[2] <= 'z') {
            for (text += 2; *text == '-' || *text == '_' || (*text >= 'a' && *text <= 'z') || (*text >= '0' && *text <= '9'); text++)
                putchar(*text == '-' ? '_' : *text);
            continue;
        }
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar(*text == '\n' ? ' ' : *text);
        text++;
    }
}

static bool is_path(const pt_option *x)
{
    return x->values && (!strcmp(x->values, "DIR") || !strcmp(x->values, "FILE") || !strcmp(x->values, "PATH"));
}

static void put_type(const pt_option *x)
{
    switch (x->kind) {
    case PT_OPTION_FLAG:
    case PT_OPTION_NOT: fputs("bool", stdout); break;
    case PT_OPTION_EITHER:
    case PT_OPTION_CHOICE:
        fputs("Literal['", stdout);
        for (const char *c = x->values; *c; c++)
            *c == '|' ? (void)fputs("', '", stdout) : (void)putchar(*c);
        fputs("']", stdout);
        break;
    case PT_OPTION_RESUME: fputs("bool | _Path", stdout); break;
    case PT_OPTION_TEXT: fputs(is_path(x) ? "_Path" : "str", stdout); break;
    case PT_OPTION_TEXTS:
        fputs(is_path(x) ? "_Data" : "str | Sequence[str]", stdout);
        break;
    case PT_OPTION_REAL: fputs("float", stdout); break;
    case PT_OPTION_SIZE: fputs("int | str", stdout); break;
    default: fputs("int", stdout);
    }
    fputs(" | None", stdout);
}

static void put_function(const function *f, bool stub)
{
    pt_options *o = open_options(f->command);
    const pt_option *x;
    const bool prompt = !strcmp(f->name, "generate");
    const char *own = stub ? f->own_types : f->own;
    printf("\n\ndef %s(", f->name);
    if (prompt) { /* by position, too */
        const char *end = strchr(own, ',');
        printf("%.*s, *, ", (int)(end - own), own);
        own = end + 2;
    } else {
        fputs("*, ", stdout);
    }
    for (int i = 0; (x = pt_options_list(o, i)); i++) {
        put_keyword(x->name);
        if (stub) {
            fputs(": ", stdout);
            put_type(x);
        }
        fputs(stub ? " = None,\n        " : "=None, ", stdout);
    }
    printf("%s)", own);
    if (stub) {
        printf(" -> %s: ...\n", f->result);
        pt_options_close(o);
        return;
    }
    printf(":\n    \"\"\"%s\n\n", f->doc);
    for (int i = 0; (x = pt_options_list(o, i)); i++) {
        fputs("    ", stdout);
        put_keyword(x->name);
        fputs(": ", stdout);
        if (x->idle)
            fputs("no effect here; taken because train takes it", stdout);
        else
            put_help(x->help);
        if (!x->idle && (x->kind == PT_OPTION_CHOICE || x->kind == PT_OPTION_EITHER))
            printf(" (%s)", x->values);
        if (!x->idle && x->initial)
            printf("; default %s", x->initial);
        fputs(".\n", stdout);
    }
    printf("%s    \"\"\"\n    return _load('%s').%s(**locals())\n", f->own_doc, f->module, f->name);
    pt_options_close(o);
}

static void put_api(void)
{
    puts("\"\"\"Generated by make_api from the option table.\"\"\"\n\n\n"
         "def _load(module):\n"
         "    import importlib\n\n"
         "    return importlib.import_module('.' + module, __package__)");
    for (int i = 0; i < FUNCTIONS; i++)
        put_function(&functions[i], false);
}

static void put_stub(void)
{
    puts("import os\n"
         "from typing import Any, Callable, Iterable, Literal, Mapping, Sequence, Union\n\n"
         "from ._infer import Evaluation, Generator\n"
         "from ._plan import Plan\n"
         "from ._train import Run, Step\n\n"
         "_Path = Union[str, os.PathLike[str]]\n"
         "_Data = Union[_Path, Sequence[_Path], Iterable[Mapping[str, Any]], Iterable[str]]");
    for (int i = 0; i < FUNCTIONS; i++)
        put_function(&functions[i], true);
}

/* ---- structs ---- */

/* The letter of Python's struct module for a field. */
#define LETTER(x)                                                                                                                          \
    _Generic((x), int64_t: "q", uint64_t: "Q", double: "d", bool: "?", int: "i", const char *: "P", char *: "s", void *: "P", default: "P")
#define FIELD(S, f) printf("        '%s': ('%s', %zu),\n", #f, LETTER(((S *)0)->f), offsetof(S, f))

static void put_step(void)
{
    printf("    'step': (%zu, {\n", sizeof (pt_step));
    FIELD(pt_step, step); FIELD(pt_step, loss); FIELD(pt_step, grad_norm); FIELD(pt_step, lr); FIELD(pt_step, tokens);
    FIELD(pt_step, learned_tokens); FIELD(pt_step, step_s); FIELD(pt_step, predicted_step_s); FIELD(pt_step, tokens_per_s);
    FIELD(pt_step, evaluated); FIELD(pt_step, eval_loss); FIELD(pt_step, eval_reward_chosen); FIELD(pt_step, eval_reward_rejected);
    FIELD(pt_step, eval_reward_margin); FIELD(pt_step, eval_reward_accuracy); FIELD(pt_step, eval_kl); FIELD(pt_step, pairs);
    FIELD(pt_step, reward_chosen); FIELD(pt_step, reward_rejected); FIELD(pt_step, reward_margin); FIELD(pt_step, reward_accuracy);
    FIELD(pt_step, kl); FIELD(pt_step, accuracy); FIELD(pt_step, eval_accuracy);
    FIELD(pt_step, first_layer);
    FIELD(pt_step, expert_load_max); FIELD(pt_step, experts_idle); FIELD(pt_step, aux_loss);
    FIELD(pt_step, stopped);
    puts("    }),");
}

static void put_others(void)
{
    printf("    'summary': (%zu, {\n", sizeof (pt_summary));
    FIELD(pt_summary, steps); FIELD(pt_summary, first_step); FIELD(pt_summary, predicted_step_s); FIELD(pt_summary, complete);
    printf("    }),\n    'evaluation': (%zu, {\n", sizeof (pt_evaluation));
    FIELD(pt_evaluation, loss); FIELD(pt_evaluation, perplexity); FIELD(pt_evaluation, accuracy); FIELD(pt_evaluation, tokens);
    FIELD(pt_evaluation, learned_tokens); FIELD(pt_evaluation, predictions);
    puts("    }),");
}

#define CALLBACKS(name, S)                                                                                                                 \
    do {                                                                                                                                   \
        printf("    '" name "': (%zu, {\n", sizeof (S));                                                                                   \
        FIELD(S, notice); FIELD(S, progress); FIELD(S, arg);                                                                               \
    } while (0)

static void put_callbacks(void)
{
    CALLBACKS("train", pt_train_options); FIELD(pt_train_options, stop); FIELD(pt_train_options, lr_of_step);
    FIELD(pt_train_options, ranks);
    puts("    }),");
    CALLBACKS("eval", pt_evaluate_options);
    puts("    }),");
    CALLBACKS("generate", pt_generate_options);
    puts("    }),");
    CALLBACKS("merge", pt_merge_options);
    puts("    }),");
    CALLBACKS("export", pt_export_options);
    puts("    }),");
}

static void put_table(void)
{
    static const char *const commands[] = {"train", "plan", "eval", "generate", "merge", "export"};
    const pt_option *x;
    puts("\"\"\"Generated by make_api from the option table and the header: option names and fields by keyword; fields of structs,\n"
         "by the letters of the module struct, and their offsets.\"\"\"\n\nOPTIONS = {");
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
        pt_options *o = open_options(commands[c]);
        printf("    '%s': {\n", commands[c]);
        for (int i = 0; (x = pt_options_list(o, i)); i++) {
            fputs("        '", stdout);
            put_keyword(x->name);
            printf("': ('%s', '%s', %s),\n", x->name, x->field, x->kind == PT_OPTION_TEXTS ? "True" : "False");
        }
        puts("    },");
        pt_options_close(o);
    }
    puts("}\n\nSTRUCTS = {");
    put_step();
    put_others();
    put_callbacks();
    printf("}\n\nVERSION = '%s'\n", pt_version());
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "table"))
        put_table();
    else if (argc == 2 && !strcmp(argv[1], "api"))
        put_api();
    else if (argc == 2 && !strcmp(argv[1], "stub"))
        put_stub();
    else
        return fputs("usage: make_api table|api|stub\n", stderr), 2;
    return fflush(stdout) || ferror(stdout);
}
