/* generator.h - the parts of a pt_generator, inside infer/ only. */
#ifndef PT_INFER_GENERATOR_H
#define PT_INFER_GENERATOR_H

#include "chat/source.h"
#include "infer/inference.h"
#include "infer/sample.h"
#include "infer/stops.h"
#include "infer/stream.h"
#include "infer/streamed.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "plan/plan.h"

/* Layers whose weights do not stay on the device, and where they are. */
typedef struct generator_fit { int streamed; stream_place place; } generator_fit;

/* State of a conversation. */
typedef struct chat_state {
    bool open, replying;        /* replying: a reply is being generated */
    chat_source source;
    json_t *messages;           /* so far */
    text_buffer reply;          /* the model's last reply, not yet in `messages` */
} chat_state;

struct pt_generator {
    pt_generate_options o;
    char folder[FILE_PATH_BYTES];
    model *model;
    tokenizer *tokenizer;
    encoder *encoder;
    safetensors *st, *adapter;  /* adapter NULL: none */
    device *device, *host;
    inference *x;
    pt_dtype type;
    uint64_t budget[TIERS];
    generator_fit fit;          /* of x */
    stop_ids stops;
    int32_t vocab;              /* number of ids that have a text and logits */
    sampler sampler;
    float *penalized;           /* logits; NULL: there is no penalty */
    id_list prompt, fed;        /* fed: the ids in the KV cache */
    utf8_stream stream;
    const float *logits;
    int64_t most, made;         /* new tokens: limit, and so far */
    int32_t last;               /* sampled and not yet fed, -1: none */
    bool spoken, ended;         /* spoken: some text was returned; ended: the text is complete */
    chat_state chat;
};

/* Feeds the part of g->prompt that was not fed yet; at most max_new_tokens follow. */
int generator_start(pt_generator *g, int64_t max_new_tokens, pt_error *e);
int chat_open(pt_generator *g, pt_error *e); /* finds the template; the conversation is empty */
void chat_state_free(chat_state *c);

#endif
