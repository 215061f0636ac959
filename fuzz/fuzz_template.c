/* fuzz_template.c - any bytes as a chat template, over a fixed conversation.
 *
 * What holds: a template is refused with a sentence that names it, or renders; the same bytes on the second try; what it marks lies in
 * the text, in order; and the text is UTF-8, as all that goes in is. */
#include "chat/source.h"
#include "text/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static json_t *conversation(void)
{
    static const char text[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \" be \\u00e9 \"}, {\"role\": \"user\", \"content\": [{\"type\": "
        "\"text\", \"text\": \"hi\\n\"}]}, "
        "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"abcdefghi\", \"function\": {\"name\": \"f\", "
        "\"arguments\": {\"x\": 1.5}}}]}, "
        "{\"role\": \"tool\", \"content\": \"\\ud83d\\ude42\"}, {\"role\": \"assistant\", \"content\": \"done\"}], \"tools\": "
        "[{\"type\": \"function\"}]}";
    pt_error e = {0};
    json_t *json = json_loads(text, 0, NULL), *variables = NULL;
    int failed = chat_variables(json, "fuzz", &variables, &e);
    assert(!failed);
    json_decref(json);
    json_object_set_new(variables, "bos_token", json_string("<s>"));
    json_object_set_new(variables, "add_generation_prompt", json_true());
    return variables;
}

static int render(const chat_template *t, const json_t *variables, chat_rendering *out)
{
    pt_error e = {0};
    int failed = chat_template_render(t, variables, 0, out, &e);
    assert(!failed || (failed == PT_FAILED && !strncmp(e.text, "fuzz.jinja, line ", 17)));
    return failed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static json_t *variables;
    chat_template *t = NULL;
    chat_rendering first = {0}, second = {0};
    pt_error e = {0};
    if (!variables)
        variables = conversation();
    int failed = chat_template_parse("fuzz.jinja", (const char *)data, n, &t, &e);
    if (failed) {
        assert(failed == PT_FAILED && !strncmp(e.text, "fuzz.jinja", 10) && strlen(e.text) > 20);
        return 0;
    }
    failed = render(t, variables, &first);
    assert(render(t, variables, &second) == failed);
    if (!failed) {
        size_t at = 0;
        assert(first.text.n == second.text.n && (!first.text.n || !memcmp(first.text.bytes, second.text.bytes, first.text.n)));
        assert(utf8_valid_prefix(first.text.bytes, first.text.n) == first.text.n);
        for (size_t i = 0; i < first.n_spans; i++) {
            assert(first.spans[i].first >= at && first.spans[i].end >= first.spans[i].first);
            at = first.spans[i].end;
        }
        assert(at <= first.text.n);
    }
    chat_rendering_free(&first);
    chat_rendering_free(&second);
    chat_template_free(t);
    return 0;
}
