#include "fields.h"

#include "base/error.h"

#include <string.h>

/* Is it the field, or the flag written as a field would be? */
static bool names(const pt_option *o, const char *word, size_t n)
{
    bool flag = strlen(o->name) == n;
    for (size_t i = 0; i < n && flag; i++)
        flag = o->name[i] == word[i] || (o->name[i] == '-' && word[i] == '_');
    return flag || (strlen(o->field) == n && !strncmp(o->field, word, n));
}

/* If the n letters are a field of a command's options, prints its flag and returns true. */
static bool print_flag_of(FILE *out, const char *command, const char *word, size_t n)
{
    pt_options *all;
    const pt_option *o;
    bool found = false;
    if (pt_options_open(command, &all, NULL))
        return false;
    for (int i = 0; !found && (o = pt_options_list(all, i)); i++) {
        found = names(o, word, n);
        if (found) /* a field that one choice sets has no flag without it */
            fprintf(out, "--%s%s%s", o->name, o->kind == PT_OPTION_EITHER ? " " : "",
                    o->kind == PT_OPTION_EITHER ? strchr(o->values, '|') + 1 : "");
    }
    pt_options_close(all);
    return found;
}

/* Arguments of pt_generator_prompt and pt_select. */
static bool print_flag_of_call(FILE *out, const char *word, size_t n)
{
    static const char *const all[][2] = {{"max_new_tokens", "--max-new-tokens"}, {"select", "--select"},
                                         {"select_steps", "--select-steps"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (n == strlen(all[i][0]) && !strncmp(word, all[i][0], n)) {
            fputs(all[i][1], out);
            return true;
        }
    return false;
}

/* If the n letters are a field, or a flag, prints the flag and returns true. */
static bool print_flag(FILE *out, const char *word, size_t n)
{
    static const char *const commands[] = {"train", "eval", "generate", "export", "ritz"};
    bool printed = n > 2 && !strncmp(word, "--", 2);
    if (printed)
        fprintf(out, "%.*s", (int)n, word);
    for (size_t i = 0; i < sizeof commands / sizeof *commands && !printed; i++)
        printed = print_flag_of(out, commands[i], word, n);
    return printed || print_flag_of_call(out, word, n);
}

/* Prints a flag or one character, and returns the rest of the text. */
static const char *print_next(FILE *out, const char *text)
{
    const size_t n = strspn(text + 1, "abcdefghijklmnopqrstuvwxyz0123456789_-");
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
