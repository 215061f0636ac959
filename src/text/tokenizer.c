#include "base/json.h"
#include "io/files.h"
#include "io/hub.h"
#include "text/tokenizer_parts.h"

#include "text/buffer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const json_t *check_root(const json_t *root, pt_error *e)
{
    static const char *const known[] = {"version", "truncation", "padding", "added_tokens", "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder", "model"};
    const char *key;
    const json_t *value;
    if (!json_is_object(root)) {
        pt_fail(e, PT_FAILED, "the JSON is no object; is this a tokenizer.json?");
        return NULL;
    }
    json_object_foreach((json_t *)root, key, value) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(key, known[i]) != 0)
            i++;
        if (i == sizeof known / sizeof *known) {
            pt_fail(e, PT_FAILED, "section \"%.60s\" is not known; use a tokenizer without it", key);
            return NULL;
        }
    }
    return root;
}

static int check_ids(const tokenizer *tok, pt_error *e)
{
    const id_list *lists[] = {&tok->post.before, &tok->post.after};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->n; i++)
            if (lists[k]->ids[i] >= tok->decoder.n_ids || tok->decoder.tokens[lists[k]->ids[i]].n == NO_ID)
                return pt_fail(e, PT_FAILED, "post_processor: id %u is not in the vocabulary; correct the template",
                               lists[k]->ids[i]);
    return 0;
}

static int open_parts(tokenizer *tok, const json_t *root, pt_error *e)
{
    tok->eos = -1;
    if (!check_root(root, e))
        return PT_FAILED;
    int status = normalizer_open(&tok->normalizer, json_object_get(root, "normalizer"), e);
    if (!status)
        status = pretokenizer_open(&tok->pre, json_object_get(root, "pre_tokenizer"), e);
    if (!status)
        status = bpe_open(&tok->model, json_object_get(root, "model"), tok->pre.byte_level, e);
    if (!status)
        status = added_tokens_open(&tok->added, json_object_get(root, "added_tokens"), &tok->model.tokens, &tok->normalizer, e);
    if (!status)
        status = decoder_open(&tok->decoder, json_object_get(root, "decoder"), &tok->model, &tok->added,
                              normalizer_prepends(&tok->normalizer), e);
    if (!status)
        status = post_processor_open(&tok->post, json_object_get(root, "post_processor"), e);
    if (!status)
        status = check_ids(tok, e);
    if (!status)
        tokenizer_find_cut_rule(tok);
    return status;
}

static int open_root(const char *name, const json_t *root, tokenizer **out, pt_error *e)
{
    tokenizer *tok = calloc(1, sizeof *tok);
    if (!tok)
        return pt_fail(e, PT_FAILED, "%s: no memory for a tokenizer; free some memory", name);
    int status = open_parts(tok, root, e);
    if (status) {
        tokenizer_close(tok);
        return pt_error_prefix(e, "%s", name);
    }
    *out = tok;
    return 0;
}

int tokenizer_open_memory(const char *name, const char *json, size_t n, tokenizer **out, pt_error *e)
{
    json_t *root;
    int status = json_text_load(name, json, n, 0, &root, e);
    if (status)
        return status;
    status = open_root(name, root, out, e);
    json_decref(root);
    return status;
}

/* name: of root's file. */
static int open_of_model(const char *name, const json_t *root, const char *model_dir, tokenizer **out, pt_error *e)
{
    tokenizer *tok;
    int status = open_root(name, root, &tok, e);
    if (status)
        return status;
    if ((status = tokenizer_read_eos(tok, model_dir, e)))
        tokenizer_close(tok);
    else
        *out = tok;
    return status;
}

int tokenizer_open_text(const char *model_dir, const char *name, const char *json, size_t n, tokenizer **out, pt_error *e)
{
    json_t *root;
    int status = json_text_load(name, json, n, 0, &root, e);
    if (status)
        return status;
    status = open_of_model(name, root, model_dir, out, e);
    json_decref(root);
    return status;
}

static int open_file(const char *path, const char *model_dir, tokenizer **out, pt_error *e)
{
    json_t *root;
    int status = json_file_load_most(path, JSON_TOKENIZER_MAX_BYTES, 0, &root, e);
    if (status)
        return status;
    status = open_of_model(path, root, model_dir, out, e);
    json_decref(root);
    return status;
}

int tokenizer_open_beside(const char *model_dir, const char *adapter, tokenizer **out, pt_error *e)
{
    char path[4096];
    if (!adapter || snprintf(path, sizeof path, "%s/tokenizer.json", adapter) >= (int)sizeof path || access(path, F_OK))
        return tokenizer_open(model_dir, out, e);
    return open_file(path, model_dir, out, e);
}

int tokenizer_open(const char *model_dir, tokenizer **out, pt_error *e)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/tokenizer.json", model_dir) >= (int)sizeof path)
        return pt_fail(e, PT_FAILED, "%.200s...: the path is too long; move the model", model_dir);
    if (hub_is_name(model_dir) && !path_exists(model_dir))
        return hub_fail_model(model_dir, "the model's folder is needed", e);
    if (access(model_dir, F_OK))
        return pt_fail_errno(e, PT_FAILED, "%.400s: the model's folder cannot be opened", model_dir);
    if (access(path, F_OK) && errno == ENOTDIR)
        return pt_fail(e, PT_FAILED, "%.400s: is a file, but the model's folder is needed", model_dir);
    if (access(path, F_OK))
        return pt_fail(e, PT_FAILED, "%.400s: the model has no tokenizer: put its tokenizer.json beside config.json", path);
    return open_file(path, model_dir, out, e);
}

void tokenizer_close(tokenizer *tok)
{
    if (!tok)
        return;
    normalizer_close(&tok->normalizer);
    pretokenizer_close(&tok->pre);
    bpe_close(&tok->model);
    added_tokens_close(&tok->added);
    post_processor_close(&tok->post);
    decoder_close(&tok->decoder);
    free(tok);
}

uint32_t tokenizer_vocab_size(const tokenizer *tok) { return tok->decoder.n_ids; }

int64_t tokenizer_bos(const tokenizer *tok) { return tok->post.before.n ? (int64_t)tok->post.before.ids[0] : -1; }

int64_t tokenizer_eos(const tokenizer *tok) { return tok->eos; }

int64_t tokenizer_unknown(const tokenizer *tok) { return tok->model.unk == NO_ID ? -1 : (int64_t)tok->model.unk; }

size_t tokenizer_template_after(const tokenizer *tok) { return tok->post.after.n; }

bool tokenizer_template_adds_bos(const tokenizer *tok) { return tok->post.before.n > 0; }

int64_t tokenizer_find(const tokenizer *tok, const char *token)
{
    uint32_t id = string_table_find(&tok->added.names, token, strlen(token));
    if (id == NO_ID)
        id = string_table_find(&tok->model.tokens, token, strlen(token));
    return id == NO_ID ? -1 : (int64_t)id;
}

bool tokenizer_has_id(const tokenizer *tok, uint32_t id) { return id < tok->decoder.n_ids && tok->decoder.tokens[id].n != NO_ID; }

int tokenizer_id_bytes(const tokenizer *tok, uint32_t id, bool first, bool skip_special, const char **bytes,
                       size_t *n_bytes, pt_error *e)
{
    if (!tokenizer_has_id(tok, id))
        return pt_fail(e, PT_FAILED, "token id %u is not in the vocabulary of %u ids; was it made by another tokenizer?",
                       id, tok->decoder.n_ids);
    const decoded_token *token = &tok->decoder.tokens[id];
    *bytes = token->n ? tok->decoder.bytes.bytes + token->at : "";
    *n_bytes = skip_special && token->special ? 0 : token->n;
    if (first && token->drops_space && *n_bytes > 0 && **bytes == ' ') {
        ++*bytes;
        --*n_bytes;
    }
    return 0;
}

int tokenizer_decode(const tokenizer *tok, const uint32_t *ids, size_t n_ids, bool skip_special, text_buffer *out,
                     pt_error *e)
{
    bool first = true;
    for (size_t i = 0; i < n_ids; i++) {
        const char *bytes = "";
        size_t n = 0;
        int status = tokenizer_id_bytes(tok, ids[i], first, skip_special, &bytes, &n, e);
        if (!status)
            status = text_buffer_append(out, bytes, n, e);
        if (status)
            return status;
        const decoded_token *token = &tok->decoder.tokens[ids[i]];
        if (!(skip_special && token->special))
            first = token->starts_anew;
    }
    return 0;
}
