/* scorers.c - models whose head scores classes of a sequence: their classes in Transformers, and their config.json. */
#include "base/json.h"
#include "io/files.h"
#include "model/architectures.h"

#include <stdio.h>
#include <string.h>

static const char *const scorers[][2] = {
    {"arcee", "ArceeForSequenceClassification"},         {"exaone4", "Exaone4ForSequenceClassification"},
    {"gemma", "GemmaForSequenceClassification"},         {"gemma2", "Gemma2ForSequenceClassification"},
    {"gemma3_text", "Gemma3TextForSequenceClassification"}, {"glm4", "Glm4ForSequenceClassification"},
    {"gpt2", "GPT2ForSequenceClassification"},           {"gpt_neox", "GPTNeoXForSequenceClassification"},
    {"gpt_oss", "GptOssForSequenceClassification"},      {"llama", "LlamaForSequenceClassification"},
    {"ministral3", "Ministral3ForSequenceClassification"}, {"mistral", "MistralForSequenceClassification"},
    {"mixtral", "MixtralForSequenceClassification"},     {"nemotron", "NemotronForSequenceClassification"},
    {"olmo2", "Olmo2ForSequenceClassification"},         {"olmo3", "Olmo3ForSequenceClassification"},
    {"opt", "OPTForSequenceClassification"},             {"phi3", "Phi3ForSequenceClassification"},
    {"qwen2", "Qwen2ForSequenceClassification"},         {"qwen2_moe", "Qwen2MoeForSequenceClassification"},
    {"qwen3", "Qwen3ForSequenceClassification"},         {"qwen3_moe", "Qwen3MoeForSequenceClassification"},
    {"qwen3_next", "Qwen3NextForSequenceClassification"}, {"seed_oss", "SeedOssForSequenceClassification"},
    {"smollm3", "SmolLM3ForSequenceClassification"},     {"stablelm", "StableLmForSequenceClassification"},
    {"starcoder2", "Starcoder2ForSequenceClassification"},
};

const char *architecture_scorer(const char *model_type)
{
    for (size_t i = 0; i < sizeof scorers / sizeof *scorers; i++)
        if (!strcmp(scorers[i][0], model_type))
            return scorers[i][1];
    return NULL;
}

bool architecture_scores(const char *class_name)
{
    static const char end[] = "ForSequenceClassification";
    const size_t n = strlen(class_name);
    return n > sizeof end - 1 && !strcmp(class_name + n - (sizeof end - 1), end);
}

static const char *class_of(const json_t *config)
{
    const char *name = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    return name ? name : "";
}

bool model_scores(const char *folder)
{
    char path[FILE_PATH_BYTES];
    json_t *config = NULL;
    const bool scores = !path_join(path, folder, "config.json", NULL) && !json_file_load(path, 0, &config, NULL) &&
                        architecture_scores(class_of(config));
    json_decref(config);
    return scores;
}

void model_set_labels(json_t *config, const model_config *c, const char *const *names)
{
    json_t *name_of = json_object(), *id_of = json_object();
    for (int64_t i = 0; i < c->labels; i++) {
        char id[24], usual[32];
        snprintf(id, sizeof id, "%lld", (long long)i);
        snprintf(usual, sizeof usual, "LABEL_%lld", (long long)i);
        json_object_set_new(name_of, id, json_string(names ? names[i] : usual));
        json_object_set_new(id_of, names ? names[i] : usual, json_integer((json_int_t)i));
    }
    json_object_set_new(config, "id2label", name_of);
    json_object_set_new(config, "label2id", id_of);
    json_object_del(config, "num_labels");
    json_object_set_new(config, "architectures", json_pack("[s]", architecture_scorer(c->model_type)));
}
