/* config_mixers.c - what mixes the tokens of each layer, and its sizes. Which layers have another mixer than attention follows from
 * layer_types (config_layers.c), or from a period or a list of the layers with attention. */
#include "model/config_reader.h"

#include <math.h>
#include <string.h>

enum { MAX_DIM = 256 };

/* Layers 0 .. L-1 that have attention; without the key, all or (Mamba-2) none. */
static int read_attention_layers(config_reader *reader)
{
    json_t *list = NULL;
    model_config *config = reader->c;
    int status = json_get_array(&reader->source, reader->a->attention_layers_key, JSON_OPTIONAL, &list, reader->e);
    for (int i = 0; i < config->layers; i++)
        config->mixer[i] = (unsigned char)(list || reader->a->mixer != MIXER_CONV ? reader->a->mixer : MIXER_ATTENTION);
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        char text[64];
        const json_t *value = json_array_get(list, i);
        const json_int_t layer = json_integer_value(value);
        if (json_is_integer(value) && layer >= 0 && layer < config->layers)
            config->mixer[layer] = MIXER_ATTENTION;
        else
            status = pt_fail(reader->e, PT_FAILED, "%s: \"%s\"[%zu] is %s, but layers are numbered 0 to %lld", reader->source.where,
                             reader->a->attention_layers_key, i, config_value_text(value, text), (long long)config->layers - 1);
    }
    return status;
}

int config_read_mixers(config_reader *reader)
{
    const architecture *arch = reader->a;
    int64_t period = 4;
    if (arch->mixer == MIXER_ATTENTION)
        return 0;
    if (arch->one_branch)
        return config_read_branches(reader);
    if (arch->attends_beside) {
        reader->c->attends_beside = true;
        memset(reader->c->mixer, arch->mixer, (size_t)reader->c->layers);
        return 0;
    }
    if (arch->attention_layers_key)
        return read_attention_layers(reader);
    int status = json_get_int(&reader->source, "full_attention_interval", JSON_OPTIONAL, 1, MODEL_MAX_LAYERS, &period, reader->e);
    for (int i = 0; i < reader->c->layers; i++)
        reader->c->mixer[i] = (unsigned char)((i + 1) % period ? arch->mixer : MIXER_ATTENTION);
    return status;
}

static int read_delta(config_reader *reader)
{
    model_config *config = reader->c;
    const struct { config_key key; int64_t most, *out; } sizes[] = {
        {{"linear_num_key_heads", NULL, 16}, MAX_HEADS, &config->scan_key_heads},
        {{"linear_num_value_heads", NULL, 32}, MAX_HEADS, &config->scan_heads},
        {{"linear_key_head_dim", NULL, 128}, MAX_DIM, &config->scan_key_dim},
        {{"linear_value_head_dim", NULL, 128}, MAX_DIM, &config->scan_dim}};
    int status = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        status = config_read_size(reader, &sizes[i].key, sizes[i].most, sizes[i].out);
    if (!status && config->scan_heads % config->scan_key_heads)
        status = pt_fail(reader->e, PT_FAILED,
                         "%s: \"linear_num_value_heads\" is %lld, which is not a multiple of \"linear_num_key_heads\" "
                         "%lld",
                         reader->source.where, (long long)config->scan_heads, (long long)config->scan_key_heads);
    return status;
}

/* [least, most]; Transformers writes infinity as {"__float__": "Infinity"}. */
static int read_step_limit(config_reader *reader)
{
    json_t *limits = NULL;
    model_config *config = reader->c;
    int status = json_get_array(&reader->source, "time_step_limit", JSON_OPTIONAL, &limits, reader->e);
    if (status || !limits)
        return status;
    const json_t *least = json_array_get(limits, 0), *most = json_array_get(limits, 1);
    const char *name = json_string_value(json_object_get(most, "__float__"));
    const bool unlimited = name && !strcmp(name, "Infinity");
    config->step_least = (float)json_number_value(least);
    config->step_most = unlimited ? INFINITY : (float)json_number_value(most);
    if (json_array_size(limits) == 2 && json_is_number(least) && (json_is_number(most) || unlimited) && config->step_least >= 0 &&
        config->step_most >= config->step_least && config->step_least <= 1e6)
        return 0;
    return pt_fail(reader->e, PT_FAILED, "%s: \"time_step_limit\" must be two numbers, the least and the largest step",
                   reader->source.where);
}

static int read_mamba(config_reader *reader)
{
    model_config *config = reader->c;
    const config_key *wide = &reader->a->scan_wide;
    int64_t expand = 2, all = wide->value;
    const struct { config_key key; int64_t most, *out; } sizes[] = {
        {{"mamba_n_heads", NULL, 128}, MAX_HEADS, &config->scan_heads}, {{"mamba_n_groups", NULL, 1}, MAX_HEADS, &config->scan_key_heads},
        {{"mamba_d_state", NULL, 256}, MAX_DIM, &config->scan_key_dim}, {{"mamba_expand", NULL, 2}, 64, &expand}};
    int status = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        status = config_read_size(reader, &sizes[i].key, sizes[i].most, sizes[i].out);
    if (!status && wide->name)
        status = json_get_int(&reader->source, wide->name, JSON_OPTIONAL, 1, MAX_WIDTH, &all, reader->e);
    if (!wide->name || json_is_null(json_object_get(reader->source.object, wide->name)))
        all = expand * config->hidden;
    config->scan_dim = !status ? all / config->scan_heads : 1;
    const json_t *dim = json_object_get(reader->source.object, "mamba_d_head");
    if (!status && !(json_is_string(dim) && !strcmp(json_string_value(dim), "auto")))
        status = json_get_int(&reader->source, "mamba_d_head", JSON_OPTIONAL, 1, MAX_DIM, &config->scan_dim, reader->e);
    if (!status &&
        (config->scan_dim * config->scan_heads != all || config->scan_dim > MAX_DIM || config->scan_heads % config->scan_key_heads))
        status = pt_fail(reader->e, PT_FAILED,
                         "%s: \"mamba_n_heads\" %lld heads of \"mamba_d_head\" %lld (at most %d) must be %s, %lld, and a "
                         "multiple of \"mamba_n_groups\" %lld",
                         reader->source.where, (long long)config->scan_heads, (long long)config->scan_dim, MAX_DIM,
                         wide->name ? "\"mamba_d_ssm\" wide" : "\"mamba_expand\" times \"hidden_size\"", (long long)all,
                         (long long)config->scan_key_heads);
    if (!status)
        status = json_get_bool(&reader->source, "mamba_conv_bias", JSON_OPTIONAL, &config->conv_bias, reader->e);
    if (!status)
        status = json_get_bool(&reader->source, "mamba_proj_bias", JSON_OPTIONAL, &config->mix_bias, reader->e);
    if (!status && config->mix_bias && config->residual_scale != 1)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"mamba_proj_bias\" together with \"residual_multiplier\" is not supported",
                         reader->source.where);
    return status ? status : read_step_limit(reader);
}

static int read_factors(config_reader *reader, const char *key, size_t n, float *const out[])
{
    json_t *list = NULL;
    int status = json_get_array(&reader->source, key, JSON_OPTIONAL, &list, reader->e);
    bool fits = !list || json_array_size(list) == n;
    for (size_t i = 0; i < n && list && fits; i++) {
        const json_t *value = json_array_get(list, i);
        fits = json_is_number(value) && json_number_value(value) >= 1e-6 && json_number_value(value) <= 1e6;
        *out[i] = fits ? (float)json_number_value(value) : 1;
    }
    if (!status && !fits)
        return pt_fail(reader->e, PT_FAILED, "%s: \"%s\" must be %zu numbers from 1e-6 to 1e6", reader->source.where, key, n);
    return status;
}

/* Falcon H1: factors, and whether a scan's output has a norm. That of keys is one of the scores. */
static int read_beside(config_reader *reader)
{
    model_config *config = reader->c;
    model_factors *f = &config->factor;
    float keys = 1;
    const struct { config_number number; float *out; } numbers[] = {
        {{"attention_in_multiplier", 1}, &f->qkv}, {{"attention_out_multiplier", 1}, &f->out}, {{"ssm_in_multiplier", 1}, &f->mix_in},
        {{"ssm_out_multiplier", 1}, &f->mix_out}, {{"key_multiplier", 1}, &keys}};
    int status = read_factors(reader, "mlp_multipliers", 2, (float *const[]){&f->gate, &f->down});
    if (!status)
        status = read_factors(reader, "ssm_multipliers", 5,
                              (float *const[]){&f->mix[0], &f->mix[1], &f->mix[2], &f->mix[3], &f->mix[4]});
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !status; i++)
        status = config_read_number(reader, &numbers[i].number, 1e-6, 1, numbers[i].out);
    config->attention_scale *= keys;
    config->mix_norm = false;
    config->mix_norm_first = true;
    if (!status)
        status = json_get_bool(&reader->source, "mamba_rms_norm", JSON_OPTIONAL, &config->mix_norm, reader->e);
    return status ? status : json_get_bool(&reader->source, "mamba_norm_before_gate", JSON_OPTIONAL, &config->mix_norm_first, reader->e);
}

/* Nemotron H has keys of its own, and a least step instead of limits. */
static int read_mamba_of_branches(config_reader *reader)
{
    model_config *config = reader->c;
    const struct { config_key key; int64_t most, *out;
    } sizes[] = {{{"mamba_num_heads", NULL, 128}, MAX_HEADS, &config->scan_heads},
                 {{"n_groups", "mamba_n_groups", 8}, MAX_HEADS, &config->scan_key_heads},
                 {{"ssm_state_size", NULL, 128}, MAX_DIM, &config->scan_key_dim},
                 {{"mamba_head_dim", NULL, 64}, MAX_DIM, &config->scan_dim}};
    double least = 0.001;
    int status = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        status = config_read_size(reader, &sizes[i].key, sizes[i].most, sizes[i].out);
    if (!status && config->scan_heads % config->scan_key_heads)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"mamba_num_heads\" is %lld, which is not a multiple of \"n_groups\" %lld",
                         reader->source.where, (long long)config->scan_heads, (long long)config->scan_key_heads);
    if (!status)
        status = json_get_bool(&reader->source, "use_conv_bias", JSON_OPTIONAL, &config->conv_bias, reader->e);
    if (!status)
        status = json_get_bool(&reader->source, "use_bias", JSON_OPTIONAL, &config->mix_bias, reader->e);
    if (!status)
        status = json_get_double(&reader->source, "time_step_min", JSON_OPTIONAL, 0, 1e6, &least, reader->e);
    config->step_least = (float)least;
    return status;
}

/* "nope" or null: no rope. */
static int read_position_type(config_reader *reader)
{
    const char *type = "nope";
    int status = json_get_string(&reader->source, "position_embedding_type", JSON_OPTIONAL, &type, reader->e);
    for (int i = 0; i < reader->c->layers && !status && strcmp(type, "rope"); i++)
        reader->c->layer_rope[i] = -1;
    return status;
}

/* The width of LFM2's MLPs: 2/3 of the key's, times a factor, up to a multiple. */
static int read_adjusted_ffn(config_reader *reader)
{
    bool adjusted = true;
    double factor = 1;
    int64_t multiple = 256;
    int status = json_get_bool(&reader->source, "block_auto_adjust_ff_dim", JSON_OPTIONAL, &adjusted, reader->e);
    if (!status)
        status = json_get_double(&reader->source, "block_ffn_dim_multiplier", JSON_OPTIONAL, 1e-3, 1e3, &factor, reader->e);
    if (!status)
        status = json_get_int(&reader->source, "block_multiple_of", JSON_OPTIONAL, 1, MAX_WIDTH, &multiple, reader->e);
    if (status || !adjusted)
        return status;
    const int64_t wide = (int64_t)(factor * (double)(int64_t)(2 * (double)reader->c->ffn / 3));
    reader->c->ffn = (wide + multiple - 1) / multiple * multiple;
    return reader->c->ffn > 0 ? 0 : pt_fail(reader->e, PT_FAILED, "%s: \"%s\" and \"block_ffn_dim_multiplier\" give an MLP of width 0",
                                       reader->source.where, reader->a->ffn.name);
}

int config_read_mixer_sizes(config_reader *reader)
{
    const architecture *arch = reader->a;
    model_config *config = reader->c;
    if (arch->mixer == MIXER_ATTENTION)
        return 0;
    config->output_gate = arch->output_gate;
    config->mix_norm = true;
    for (int i = 0; i < config->layers; i++)
        if (!model_attends(config, i))
            config->layer_rope[i] = -1;
    int status = config_read_size(reader, &arch->taps, CONV_TAPS_MOST, &config->taps);
    if (!status && config->taps < 2)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"%s\" is %lld, but a convolution needs at least 2 tokens", reader->source.where,
                         arch->taps.name, (long long)config->taps);
    if (!status && arch->mixer != MIXER_CONV && !arch->one_branch && config->activation != ACT_SILU)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"%s\" must be silu in %s models, because their convolutions use it, too",
                         reader->source.where, arch->activation_key, arch->model_type);
    if (!status && arch->mixer == MIXER_DELTA)
        status = read_delta(reader);
    if (arch->mixer == MIXER_MAMBA) {
        config->conv_bias = true;
        config->step_most = INFINITY;
    }
    if (!status && arch->mixer == MIXER_MAMBA)
        status = arch->one_branch ? read_mamba_of_branches(reader) : read_mamba(reader);
    if (!status && arch->mixer == MIXER_CONV)
        status = json_get_bool(&reader->source, "conv_bias", JSON_OPTIONAL, &config->conv_bias, reader->e);
    config->mix_bias = arch->mixer == MIXER_CONV ? config->conv_bias : config->mix_bias;
    if (!status && arch->attends_beside)
        status = read_beside(reader);
    if (!status && arch->rope_named)
        status = read_position_type(reader);
    return status || !arch->ffn_adjusted ? status : read_adjusted_ffn(reader);
}
