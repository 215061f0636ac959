/* byte_model.h - a folder with a tokenizer of single bytes and a chat template, for tests of what chats become. */
#ifndef TEST_CHAT_BYTE_MODEL_H
#define TEST_CHAT_BYTE_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTE_MODEL_TEMPLATE                                                                                  \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"             \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

static inline void put(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f)
        abort();
    fputs(text, f);
    fclose(f);
}

/* A byte-level tokenizer of the bytes below `bytes` (128 or 256), each an id, with five special tokens behind them and, if asked for, <s>
 * in front of a text. */
static inline void put_tokenizer(const char *dir, int bytes, bool adds_bos)
{
    static const char *const specials[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>"};
    json_t *vocab = json_object(), *added = json_array();
    for (int byte = 0, other = 256; byte < bytes; byte++) {
        const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        const unsigned c = (unsigned)(printable ? byte : other++);
        const char utf8[] = {(char)(c < 0x80 ? c : 0xc0 | c >> 6), (char)(c < 0x80 ? 0 : 0x80 | (c & 0x3f)), 0};
        json_object_set_new(vocab, utf8, json_integer(byte));
    }
    for (int i = 0; i < 5; i++)
        json_array_append_new(added, json_pack("{s:i, s:s, s:b}", "id", bytes + i, "content", specials[i], "special", 1));
    json_t *post = json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i], s:[s]}}}", "type", "TemplateProcessing",
                             "single", "SpecialToken", "id", "<s>", "type_id", 0, "Sequence", "id", "A", "type_id", 0, "pair",
                             "special_tokens", "<s>", "id", "<s>", "ids", bytes, "tokens", "<s>");
    json_t *root = json_pack("{s:o, s:{s:s, s:b}, s:{s:s}, s:{s:s, s:o, s:[]}}", "added_tokens", added, "pre_tokenizer", "type",
                             "ByteLevel", "add_prefix_space", 0, "decoder", "type", "ByteLevel", "model", "type", "BPE", "vocab", vocab,
                             "merges");
    json_object_set_new(root, "post_processor", adds_bos ? post : json_null());
    char *text = json_dumps(root, 0);
    put(dir, "tokenizer.json", text);
    free(text);
    if (!adds_bos)
        json_decref(post);
    json_decref(root);
}

/* Tokenizer, template and what belongs to them. */
static inline void put_byte_model(const char *dir, int bytes, bool adds_bos)
{
    put_tokenizer(dir, bytes, adds_bos);
    put(dir, "tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    put(dir, "chat_template.jinja", BYTE_MODEL_TEMPLATE);
}

#endif
