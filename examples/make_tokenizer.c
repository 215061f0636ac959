/* make_tokenizer.c - learns a small byte-level BPE tokenizer from text, without Python.
 *
 *     make_tokenizer SIZE FILE.jsonl|FILE.txt > tokenizer.json
 *
 * SIZE (258 to 4096) counts everything: <|endoftext|> is token 0, the 256 bytes are 1 to 256, and each
 * further token joins the pair of neighbours that is most frequent inside the words so far. Of a
 * .jsonl the "text" of each line is read. The file is one that Transformers reads too; config.json of
 * the model then wants "vocab_size": SIZE and "eos_token_id": 0.
 */
#include <ctype.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_FROM = 1, MERGES_FROM = 257, SIZE_MOST = 4096, WORD_MOST = 64, TABLE = 1 << 18 };

/* A word of the text, as often as it occurs: symbols are token ids, and become fewer. */
typedef struct word {
    int64_t count;
    int n, bytes_n;
    uint16_t symbols[WORD_MOST];
    char bytes[WORD_MOST];
} word;

static word *words[TABLE]; /* open addressing by the bytes */
static int words_n;
static int64_t *pairs;     /* pairs[a * size + b]: occurrences of b right behind a */
static int size;
static char *texts[SIZE_MOST]; /* of each token, in the alphabet of byte-level BPE */
static int merges[SIZE_MOST][2];

/* ---- the words ---- */

static void word_add(const char *bytes, int n)
{
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
    size_t at = hash % TABLE;
    while (words[at] && (words[at]->bytes_n != n || memcmp(words[at]->bytes, bytes, (size_t)n) != 0))
        at = (at + 1) % TABLE;
    if (!words[at]) {
        if (words_n == TABLE / 2)
            return; /* what comes after so many words is rare */
        words_n++;
        words[at] = calloc(1, sizeof(word));
        if (!words[at])
            exit(1);
        memcpy(words[at]->bytes, bytes, (size_t)n);
        words[at]->bytes_n = words[at]->n = n;
        for (int i = 0; i < n; i++)
            words[at]->symbols[i] = (uint16_t)(BYTES_FROM + (unsigned char)bytes[i]);
    }
    words[at]->count++;
}

static int kind_of(unsigned char c)
{
    return isspace(c) ? 0 : isdigit(c) ? 1 : isalpha(c) || c >= 128 ? 2 : 3;
}

/* A word is a run of letters, of digits or of other signs, with the one space before it. */
static void text_add(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t from = i, first = text[i] == ' ' && i + 1 < n ? i + 1 : i;
        int kind = kind_of((unsigned char)text[first]);
        for (i = first + 1; i < n && i - from < WORD_MOST && kind_of((unsigned char)text[i]) == kind && kind; i++)
            ;
        word_add(text + from, (int)(i - from));
    }
}

static int file_add(const char *path)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0, length = strlen(path);
    ssize_t n;
    bool json = length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
    if (!f)
        return -1;
    while ((n = getline(&line, &room, f)) > 0) {
        json_t *object = json ? json_loads(line, 0, NULL) : NULL;
        const char *text = object ? json_string_value(json_object_get(object, "text")) : NULL;
        if (text)
            text_add(text, strlen(text));
        else if (!json)
            text_add(line, (size_t)n);
        json_decref(object);
    }
    free(line);
    fclose(f);
    return words_n ? 0 : -1;
}

/* ---- the merges ---- */

static void pairs_count(const word *w, int64_t sign)
{
    for (int i = 0; i + 1 < w->n; i++)
        pairs[w->symbols[i] * size + w->symbols[i + 1]] += sign * w->count;
}

static void word_merge(word *w, int a, int b, int joined)
{
    int n = 0;
    pairs_count(w, -1);
    for (int i = 0; i < w->n; i++) {
        bool here = i + 1 < w->n && w->symbols[i] == a && w->symbols[i + 1] == b;
        w->symbols[n++] = here ? (uint16_t)joined : w->symbols[i];
        i += here;
    }
    w->n = n;
    pairs_count(w, 1);
}

/* The number of tokens that could be made: fewer than `size` if every word is one token before. */
static int merges_learn(void)
{
    for (int t = MERGES_FROM; t < size; t++) {
        int64_t most = 0;
        for (int a = BYTES_FROM; a < t; a++)
            for (int b = BYTES_FROM; b < t; b++)
                if (pairs[a * size + b] > most) {
                    most = pairs[a * size + b];
                    merges[t][0] = a;
                    merges[t][1] = b;
                }
        if (!most)
            return t;
        for (int i = 0; i < TABLE; i++)
            if (words[i])
                word_merge(words[i], merges[t][0], merges[t][1], t);
    }
    return size;
}

/* ---- tokenizer.json ---- */

/* Byte-level BPE writes each byte as a letter that can be seen: most of Latin-1 as itself, the others
 * as the letters from U+0100 on. */
static void bytes_name(void)
{
    int others = 256;
    for (int b = 0; b < 256; b++) {
        bool seen = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xff && b != 0xad);
        int letter = seen ? b : others++;
        texts[BYTES_FROM + b] = calloc(1, 3);
        if (!texts[BYTES_FROM + b])
            exit(1);
        if (letter < 128)
            texts[BYTES_FROM + b][0] = (char)letter;
        else
            snprintf(texts[BYTES_FROM + b], 3, "%c%c", 0xc0 | letter >> 6, 0x80 | (letter & 0x3f));
    }
}

static int tokenizer_write(int tokens_n)
{
    json_t *vocab = json_pack("{s:i}", "<|endoftext|>", 0), *list = json_array();
    bytes_name();
    for (int t = BYTES_FROM; t < tokens_n; t++) {
        if (t >= MERGES_FROM) {
            const char *a = texts[merges[t][0]], *b = texts[merges[t][1]];
            if (asprintf(&texts[t], "%s%s", a, b) < 0)
                return -1;
            json_array_append_new(list, json_sprintf("%s %s", a, b));
        }
        json_object_set_new(vocab, texts[t], json_integer(t));
    }
    json_t *level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1);
    json_t *end = json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", 0, "content", "<|endoftext|>", "single_word", 0, "lstrip", 0,
                            "rstrip", 0, "normalized", 0, "special", 1);
    json_t *all = json_pack("{s:s, s:n, s:n, s:[o], s:n, s:O, s:O, s:o, s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:o, s:o}}", "version", "1.0",
                            "truncation", "padding", "added_tokens", end, "normalizer", "pre_tokenizer", level, "post_processor", level,
                            "decoder", level, "model", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix",
                            "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "vocab", vocab, "merges", list);
    return !all || json_dumpf(all, stdout, JSON_INDENT(1)) || fflush(stdout) ? -1 : 0;
}

int main(int argc, char **argv)
{
    size = argc == 3 ? atoi(argv[1]) : 0;
    if (size <= MERGES_FROM || size > SIZE_MOST) {
        fprintf(stderr, "usage: make_tokenizer SIZE FILE.jsonl|FILE.txt > tokenizer.json   (SIZE: 258 to 4096)\n");
        return 2;
    }
    pairs = calloc((size_t)size * (size_t)size, sizeof *pairs);
    if (!pairs || file_add(argv[2])) {
        fprintf(stderr, "make_tokenizer: %s: no text in it\n", argv[2]);
        return 1;
    }
    for (int i = 0; i < TABLE; i++)
        if (words[i])
            pairs_count(words[i], 1);
    int tokens_n = merges_learn();
    if (tokens_n < size)
        fprintf(stderr, "make_tokenizer: %d tokens say all words of the text; set vocab_size to that\n", tokens_n);
    return tokenizer_write(tokens_n) ? 1 : 0;
}
