/* config_reader.h - shared by the readers of config.json, inside model/ only. */
#ifndef PT_CONFIG_READER_H
#define PT_CONFIG_READER_H

#include "base/json.h"
#include "model/architectures.h"

/* Sizes beyond any model, and small enough that no product of them exceeds 2^63. A row of MAX_WIDTH and a head of MAX_HEAD_DIM are the
 * largest whose tiles fit a thread's scratch (device/cpu). */
enum {
    MAX_WIDTH = 1 << 17,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 512,
    MAX_VOCAB = 1 << 24,
    MAX_POSITIONS = 1 << 30
};

typedef struct config_reader {
    json_source source;
    json_t *outer; /* the object that contains the source, for the text part of a larger model; NULL */
    bool tied_unsaid;  /* it does not say whether tables are tied, which means that they are */
    bool untied;       /* given by the caller: its weights say that they are not */
    bool fused;        /* given by the caller: its weights have all experts of a layer in one tensor */
    model_changes changes; /* given by the caller */
    const architecture *a;
    model_config *c;
    void (*notice)(void *, const char *);
    void *arg;
    pt_error *e;
} config_reader;

/* A value as in the file, cut to fit a message. */
const char *config_value_text(const json_t *value, char buffer[64]);
/* True if the key exists and is not null. */
bool config_key_present(const json_source *src, const char *key);

int config_read_windows(config_reader *reader); /* config_layers.c: windows of the layers */
int config_read_latents(config_reader *reader);     /* config_latents.c: the sizes of latent attention */
int config_read_heads(config_reader *reader);       /* config_heads.c: heads of layers without a window */
int config_read_mixers(config_reader *reader);      /* config_mixers.c: the mixer of each layer, before layer_types is read */
int config_read_mixer_sizes(config_reader *reader); /* and its sizes */
int config_count_branches(config_reader *reader);   /* config_branches.c: the number of layers of one branch, if only their list says it */
int config_read_branches(config_reader *reader);    /* and what each of them is */
int config_read_experts(config_reader *reader); /* config_layers.c: the experts, and which layers have them */
int config_read_size(config_reader *reader, const config_key *key, int64_t max, int64_t *out);
/* A number of the architecture; null has the value `null`. */
int config_read_number(config_reader *reader, const config_number *n, double min, double null, float *out);
int config_read_ropes(config_reader *reader);   /* config_rope.c: the ropes, and which layers use which */

/* config_keys.c: keys that are not read, but could change the computation. */
int config_check_few_bits(config_reader *reader);   /* quantized weights: those of bitsandbytes are read (prequantized.h) */
int config_check_fixed_keys(config_reader *reader); /* keys with one supported value, which is also the default */
int config_check_other_keys(config_reader *reader);
int config_read_dropout(config_reader *reader);     /* dropout is not applied; a notice says so */

#endif
