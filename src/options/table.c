#include "options/table.h"

#include <stdio.h>
#include <string.h>

void options_reset(const option_table *t, void *into)
{
    memset(into, 0, t->bytes);
    *(size_t *)into = t->bytes;
    for (int i = 0; i < t->n; i++)
        option_reset(&t->rows[i].is, into);
}

int options_check_size(const option_table *t, const void *from, pt_error *e)
{
    const size_t size = *(const size_t *)from;
    if (size == t->bytes)
        return 0;
    if (!size)
        return pt_fail(e, PT_USAGE, "the options have no size: fill them with the function for their defaults first");
    return pt_fail(e, PT_USAGE, "the options have %zu bytes, and here %zu: build the program with the header of this library, version %s",
                   size, t->bytes, PT_VERSION);
}

int options_check_values(const option_table *t, const void *from, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < t->n && !failed; i++)
        failed = option_check(&t->rows[i].is, from, e);
    return failed;
}

const option_row *option_find(const option_table *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->rows[i].is.name, name))
            return &t->rows[i];
    return NULL;
}

void options_tell_idle(const option_table *t, const void *from, const option_needs *needs, void (*notice)(void *, const char *), void *arg)
{
    static const char *const why[] = {[NEED_PAIRS] = "without `task` dpo, orpo, simpo or kto",
                                      [NEED_GAMMA] = "without `task` simpo", [NEED_DPO] = "without `task` dpo",
                                      [NEED_SMOOTHING] = "with `dpo_loss` ipo, and with `task` orpo or kto",
                                      [NEED_LABELS] = "without `task` kto",
                                      [NEED_CHATS] = "on these data, which are no chats",
                                      [NEED_TEXT] = "on these data: examples never see each other",
                                      [NEED_CONTENTS] = "on these data: special tokens in text are tokens",
                                      [NEED_EXAMPLES] = "on these data: text is cut into windows",
                                      [NEED_DECAY] = "with `lr_schedule` constant",
                                      [NEED_RESTARTS] = "without `lr_schedule` cosine_restarts",
                                      [NEED_WSD] = "without `lr_schedule` wsd", [NEED_CHECKPOINTS] = "without `save_every`",
                                      [NEED_DISK] = "with `disk_memory` 0", [NEED_SEARCH] = "with `plan_file`",
                                      [NEED_TURNS] = "without `train_blocks`"};
    char sentence[400];
    for (int i = 0; i < t->n && notice; i++) {
        const option_row *r = &t->rows[i];
        if (!needs->unmet[r->need] || option_is_default(&r->is, from) || !why[r->need])
            continue;
        snprintf(sentence, sizeof sentence, "`%s` has no effect %s", r->is.field, why[r->need]);
        notice(arg, sentence);
    }
}
