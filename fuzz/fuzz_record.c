/* fuzz_record.c - libFuzzer target: a record of any chat format to ids and what is learned, through a template with the usual parts. The
 * input is the record's JSON, but for its first byte, which says what is learned. */
#include "data/documents.h"
#include "data/examples.h"
#include "data/formats.h"
#include "data/unread.h"

#include "chat/byte_model.h"

#include <string.h>
#include <unistd.h>

static tokenizer *the_tokenizer;
static encoder *the_encoder;
static chat_source the_source;

static void open_once(void)
{
    char folder[] = "/tmp/fuzz-record-XXXXXX", command[64];
    pt_error e;
    if (the_tokenizer)
        return;
    if (!mkdtemp(folder))
        abort();
    put_byte_model(folder, 256, true);
    if (tokenizer_open(folder, &the_tokenizer, &e) || encoder_open(the_tokenizer, &the_encoder, &e) ||
        chat_source_open(&the_source, folder, NULL, &e))
        abort();
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    json_t *record;
    pt_error e = {0};
    chat_tokens x[2] = {0};
    open_once();
    if (n < 1 || record_parse("fuzz", (record_place){1, 1}, (const char *)data + 1, n - 1, &record, &e))
        return 0;
    const example_rules rules = {.format = format_of(record), .on = (pt_train_on)(PT_TRAIN_ON_ASSISTANT + data[0] % 4),
                                 .tokenizer = the_tokenizer, .chat = &the_source};
    if (rules.format == PT_DATA_AUTO) {
        if (!format_unknown(record, "fuzz", &e))
            abort();
    } else if (rules.format != PT_DATA_TEXT) {
        format_has_idle_weight(record);
        const bool pair = rules.format == PT_DATA_PREFERENCE;
        int failed = pair ? example_make_pair(&rules, the_encoder, record, "fuzz", x, &e)
                          : example_make(&rules, the_encoder, record, "fuzz", x, &e);
        unread_tally tally = {0};
        if (!failed)
            unread_count(record, (const text_buffer *const[]){&x[0].rendering.text, pair ? &x[1].rendering.text : NULL}, 1, 0, &tally);
        for (int k = 0; k < 1 + pair; k++)
            if (failed ? !e.text[0] : x[k].ids.n && x[k].learned[x[k].ids.n - 1] > 1)
                abort();
    }
    chat_tokens_free(&x[0]);
    chat_tokens_free(&x[1]);
    json_decref(record);
    return 0;
}
