/* generator.h - what a pt_generator is made of, inside infer/ only. */
#ifndef PT_INFER_GENERATOR_H
#define PT_INFER_GENERATOR_H

#include "chat/source.h"
#include "infer/inference.h"
#include "infer/sample.h"
#include "infer/stops.h"
#include "infer/stream.h"
#include "io/files.h"
#include "io/safetensors.h"

/* Of a conversation. */
typedef struct chat_state {
    bool open, replying;        /* replying: what is generated is a reply */
    chat_source source;
    json_t *messages;           /* so far */
    text_buffer reply;          /* the model's last, which is not yet among them */
} chat_state;

struct pt_generator {
    pt_generate_options o;
    char folder[FILE_PATH_BYTES];
    model *model;
    tokenizer *tokenizer;
    encoder *encoder;
    safetensors *st;
    device *device, *host;
    inference *x;
    pt_dtype type;
    uint64_t budget;
    stop_ids stops;
    int32_t vocab;              /* ids that have a text and logits */
    sampler sampler;
    id_list prompt, fed;        /* fed: ids whose keys and values are kept, from the first on */
    utf8_stream stream;
    const float *logits;
    int64_t most, made;         /* new tokens */
    int32_t last;               /* drawn and not yet fed, -1: none */
    bool spoken, ended;         /* some text came before; the text is complete */
    chat_state chat;
};

/* Feeds g->prompt, or what of it has not been fed yet; at most max_new_tokens follow. */
int generator_start(pt_generator *g, int64_t max_new_tokens, pt_error *e);
void chat_state_free(chat_state *c);

#endif
