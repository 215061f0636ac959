/* experts_model.h - a small model whose experts' matrices are cut into ranges in chunks of 8 and 16 KiB, without weights: a run draws them
 * from its seed. Its vocabulary is that of the fixtures bf16/. */
#ifndef PT_TEST_EXPERTS_MODEL_H
#define PT_TEST_EXPERTS_MODEL_H

#include "io/files.h"

static inline int put_experts_model(const char *folder, pt_error *e)
{
    static const char config[] =
        "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 256, \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"head_dim\": 8, \"intermediate_size\": 64, \"moe_intermediate_size\": 32, \"num_experts\": 6, "
        "\"num_experts_per_tok\": 2, \"norm_topk_prob\": true, \"max_position_embeddings\": 128, \"tie_word_embeddings\": false, "
        "\"bos_token_id\": 0, \"eos_token_id\": 0}";
    char path[600];
    const int failed = dir_make(folder, e);
    snprintf(path, sizeof path, "%s/config.json", folder);
    return failed ? failed : file_write_atomic(path, config, sizeof config - 1, e);
}

#endif
