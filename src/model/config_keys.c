/* config_keys.c - keys of config.json that are not read: refused if they may change the computation (check 2 of config.c). */
#include "model/config_reader.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool in_list(const char *const list[ARCHITECTURE_MAX_KEYS], const char *key)
{
    for (int i = 0; i < ARCHITECTURE_MAX_KEYS && list[i]; i++)
        if (!strcmp(list[i], key))
            return true;
    return false;
}

static bool is_power_of_two(const json_t *value)
{
    const json_int_t n = json_integer_value(value);
    return n > 0 && (n & (n - 1)) == 0;
}

static int check_fp8(config_reader *reader, const json_t *quantized)
{
    static const char mend[] = "give a copy in bf16, whose config.json has no \"quantization_config\"";
    char shown[64];
    const json_t *format = json_object_get(quantized, "fmt"), *block = json_object_get(quantized, "weight_block_size");
    const char *name = json_string_value(format);
    if (format && !json_is_null(format) && (!name || (strcmp(name, "e4m3") && strcmp(name, "float8_e4m3fn"))))
        return pt_fail(reader->e, PT_FAILED, "%s: \"fmt\" of \"quantization_config\" is %s: of FP8 only \"e4m3\" is read; %s",
                       reader->source.where, config_value_text(format, shown), mend);
    if (!block || json_is_null(block) || (json_array_size(block) == 2 && is_power_of_two(json_array_get(block, 0)) &&
                                          is_power_of_two(json_array_get(block, 1))))
        return 0;
    return pt_fail(reader->e, PT_FAILED, "%s: \"weight_block_size\" of \"quantization_config\" is %s: it must be two powers of two; %s",
                   reader->source.where, config_value_text(block, shown), mend);
}

int config_check_few_bits(config_reader *reader)
{
    char shown[64];
    const json_t *quantized = json_object_get(reader->source.object, "quantization_config");
    const char *method = json_string_value(json_object_get(quantized, "quant_method"));
    const bool four = json_is_true(json_object_get(quantized, "load_in_4bit"));
    const bool eight = json_is_true(json_object_get(quantized, "load_in_8bit"));
    if (method && !strcmp(method, "mxfp4") && reader->a && reader->a->mxfp4)
        return 0;
    if (!quantized || json_is_null(quantized) || ((four || eight) && (!method || !strcmp(method, "bitsandbytes"))))
        return 0;
    if (method && !strcmp(method, "fp8"))
        return check_fp8(reader, quantized);
    return pt_fail(reader->e, PT_FAILED,
                   "%s: \"quantization_config\" is %s: of quantized weights those of bitsandbytes and in FP8 are read; give "
                   "the model that they were made from, and train with `base` nf4, int8 or mxfp4 to keep its frozen matrices in few bits",
                   reader->source.where, config_value_text(quantized, shown));
}

/* Dropout of anything that is trained; that of classification heads does not matter. */
static bool is_dropout_key(const char *key)
{
    return strstr(key, "drop") && strncmp(key, "summary_", 8) && strncmp(key, "classifier", 10);
}

int config_read_dropout(config_reader *reader)
{
    char names[256] = "";
    size_t used = 0;
    const char *key;
    json_t *value;
    for (int i = 0; i < ARCHITECTURE_MAX_KEYS && reader->a->dropout_keys[i]; i++)
        if (!json_object_get(reader->source.object, reader->a->dropout_keys[i])) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s %g by default",
                                     used ? ", " : "", reader->a->dropout_keys[i], reader->a->dropout);
        }
    json_object_foreach(reader->source.object, key, value)
    {
        if (!is_dropout_key(key) || json_is_boolean(value))
            continue;
        double p = 0;
        int status = json_get_double(&reader->source, key, JSON_OPTIONAL, 0, 1, &p, reader->e);
        if (status)
            return status;
        if (p > 0 && used + 80 < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.40s %g", used ? ", " : "", key,
                                     p);
    }
    reader->c->dropout = used > 0;
    char text[900];
    snprintf(text, sizeof text, "%s: dropout (%s) is not applied", reader->source.where, names);
    if (used && reader->notice)
        reader->notice(reader->arg, text);
    return 0;
}

/* Check 2: words in the name of a key, and the number with which such a key has no effect. */
static const struct marker {
    const char *word;
    double neutral;
} markers[] = {
    {"window", 0}, {"scal", 1},  {"multiplier", 1}, {"softcap", 0},   {"rope", 0},            {"rotary", 1},
    {"quant", 0},  {"expert", 0}, {"moe", 0},        {"bias", 0},      {"qk_", 0},             {"alibi", 0},
    {"pruned", 0}, {"per_layer", 0},                 {"cross_attention", 0},                   {"encoder_decoder", 0},
};

static const struct marker *key_marker(const char *key)
{
    for (size_t i = 0; i < sizeof markers / sizeof markers[0]; i++) {
        size_t n = strlen(markers[i].word);
        for (const char *at = key; *at; at++) /* only at the beginning of a word: "prope" does not contain "rope" */
            if ((at == key || at[-1] == '_' || at[-1] == '.') && !strncasecmp(at, markers[i].word, n))
                return &markers[i];
    }
    return NULL;
}

static bool is_neutral(const json_t *value, double neutral)
{
    switch (json_typeof(value)) {
    case JSON_NULL: case JSON_FALSE: return true;
    case JSON_OBJECT: return json_object_size(value) == 0;
    case JSON_ARRAY: return json_array_size(value) == 0;
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_INTEGER: case JSON_REAL: return json_number_value(value) == neutral;
    default: return false;
    }
}

static bool is_fixed(const architecture *arch, const char *key)
{
    for (int i = 0; i < ARCHITECTURE_MAX_FIXED && arch->fixed[i].name; i++)
        if (!strcmp(arch->fixed[i].name, key))
            return true;
    return false;
}

int config_check_fixed_keys(config_reader *reader)
{
    for (int i = 0; i < ARCHITECTURE_MAX_FIXED && reader->a->fixed[i].name; i++) {
        char text[64];
        const json_t *value = json_object_get(reader->source.object, reader->a->fixed[i].name);
        if (value && !json_is_null(value) && strcmp(config_value_text(value, text), reader->a->fixed[i].value))
            return pt_fail(reader->e, PT_FAILED, "%s: \"%s\" is %s, and %s models are supported with %s only", reader->source.where,
                           reader->a->fixed[i].name, text, reader->a->model_type, reader->a->fixed[i].value);
    }
    double size = (double)reader->a->zero.value;
    int status =
        reader->a->zero.name ? json_get_double(&reader->source, reader->a->zero.name, JSON_OPTIONAL, 0, MAX_WIDTH, &size, reader->e) : 0;
    if (!status && size != 0)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"%s\" is %g%s, and %s models are supported with 0 only", reader->source.where,
                         reader->a->zero.name, size, config_key_present(&reader->source, reader->a->zero.name) ? "" : " by default",
                         reader->a->model_type);
    return status;
}

int config_check_other_keys(config_reader *reader)
{
    const char *key;
    json_t *value;
    int quantized = config_check_few_bits(reader);
    if (quantized)
        return quantized;
    json_object_foreach(reader->source.object, key, value)
    {
        char text[64];
        const bool known = in_list(reader->a->keys, key) || is_fixed(reader->a, key) || !strcmp(key, "quantization_config");
        const struct marker *m = known ? NULL : key_marker(key);
        if (m && !is_neutral(value, m->neutral))
            return pt_fail(
                reader->e, PT_FAILED,
                "%s: \"%.60s\" is %s, which may change the computation and is not supported for %s models: set it to null, false or %g, "
                "or remove the key if it has no effect",
                reader->source.where, key, config_value_text(value, text), reader->a->model_type, m->neutral);
        if (!strcmp(key, "is_causal") && !json_is_true(value) && !json_is_null(value))
            return pt_fail(reader->e, PT_FAILED, "%s: \"is_causal\" is %s: models in which tokens attend to later tokens are not supported",
                           reader->source.where, config_value_text(value, text));
        if (!strcmp(key, "attention_sink_size") && !is_neutral(value, 0) && reader->notice) {
            char sentence[640];
            snprintf(sentence, sizeof sentence,
                     "%s: \"attention_sink_size\" only concerns generation in other programs and is not applied",
                     reader->source.where);
            reader->notice(reader->arg, sentence);
        }
    }
    return 0;
}
