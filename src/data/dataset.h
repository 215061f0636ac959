/* dataset.h - files of text, chats or token ids -> windows of seq_len targets, in an order that can be resumed.
 *
 * All documents are tokenized once into one stream of ids, stored in a cache file of uint32 (or uint16) in the run's folder, and read from
 * there window by window, so that memory does not grow with the data. A window is made in one of two ways:
 *
 *   stream     text and files of ids. Documents are joined (BOS if the tokenizer's template adds it, EOS at the end of each) and cut:
 *              window i has inputs ids[i*T .. i*T+T) and targets ids[i*T+1 .. i*T+T+1)
 *   examples   chats, prompts with their completions, and texts that are not packed. Each window contains whole examples (packing.h), which
 *              do not see each other; targets are the learned ids, all others less than 0 (base/target.h)
 *
 * Sample s of an epoch is window permutation(seed, epoch, s), a keyed bijection, so that no list of windows is stored; without shuffling it
 * is window s.
 *
 *   files ──> documents ──> pieces ──> ids of all documents, and where each starts ──> windows
 *   files.h   documents.h   tokenize.h                token_file.h                     windows.c, permute.h
 *                 └──> records ──> examples ──────────────┘ └──> packing ────────────────┘
 *                      formats.h   examples.h                    packing.h
 *   .npy, .bin: id_file.h ────────────────────────────────┘
 *
 * A .txt file is one document, and so is a JSON object with "text", and a .npy or .bin file (nothing is added to its ids). If the documents
 * of a stream do not see each other, every EOS id ends a document, too. EOS ids are found when a window is read; the cache does not depend
 * on them.
 */
#ifndef PT_DATASET_H
#define PT_DATASET_H

#include "base/error.h"
#include "data/columns.h"
#include "data/files.h"
#include "data/labels.h"
#include "data/share.h"
#include "text/tokenizer.h"

typedef struct dataset dataset;

typedef struct dataset_options {
    data_use use;
    const char *const *paths; int paths_n; /* files (files.h), or folders of them (sorted by name) */
    const column_names *columns;           /* other names of the keys of records; NULL: none */
    pt_data_format format;
    pt_train_on train_on;
    bool plain;                            /* special tokens in contents of records are plain text */
    const char *model_dir, *chat_template; /* sources of the chat template, unless a file has one; read only if needed */
    const tokenizer *tokenizer;            /* may be NULL if all files contain ids */
    const char *cache_dir;                 /* folder of the token cache, whose key is the files (path, size, mtime) and all
                                              that determines the ids. NULL: a temporary file */
    const char *tokenizer_fingerprint;     /* any string that changes if the tokenizer's ids change */
    int64_t seq_len, vocab;                /* ids >= vocab are an error that names file and place */
    uint64_t seed;
    bool shuffle;
    bool evaluation;                       /* data shorter than one window are allowed */
    bool documents;                        /* documents of a stream do not see each other; a document's last token has no target */
    int64_t eos;                           /* ends a document if there is no tokenizer, -1: none */
    bool alone;                            /* one example per window, also for texts */
    bool examples;                         /* a stream is an error */
    const char *task;                      /* for messages: the task that needs `pairs` */
    bool prompts;                          /* prompts of chosen replies have targets too, and `weights` of a row tell what is what */
    bool margins;                          /* `weights` of a row are the pairs' margins, on the targets of chosen replies; else 0 */
    bool pairs;                            /* the data must be preferences. Their examples are pairs: the chosen reply, then the
                                              rejected one. If false, preferences are an error */
    bool labels;                           /* pairs, of which one may be missing; examples with labels are such, too */
    bool scored; const label_names *names; int64_t padding; /* as in example_rules */
    bool predicts;                         /* scored: records need no label. Names of one label: the data may be preferences instead */
    int64_t mismatched;                    /* labels: windows that are read together (dataset_eval_window) */
    pt_long longer;                        /* what to do with examples longer than a window */
    share_part part; double held;          /* SHARE_HELD: this share of the examples, or of the windows of a stream; SHARE_KEPT:
                                              the rest */
    int threads;                           /* tokenizing threads, 0: all cores */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes); void *progress_arg; /* may be NULL;
                                              called from the caller's thread, unless a cache is found */
} dataset_options;

int dataset_open(const dataset_options *o, dataset **out, pt_error *e);
void dataset_close(dataset *data);
uint64_t dataset_tokens(const dataset *data);    /* of the stream; of examples: places in windows */
uint64_t dataset_windows(const dataset *data);   /* of a stream: whole windows, (tokens - 1) / T */
bool dataset_apart(const dataset *data);         /* windows contain documents that do not see each other: `first` is set */
bool dataset_packed(const dataset *data);        /* windows consist of examples */
bool dataset_chats(const dataset *data);         /* the examples, at least the first, went through a chat template */
const char *dataset_files(const dataset *data);       /* for people */
const char *dataset_fingerprint(const dataset *data); /* hash of the ids in hex, recorded in checkpoints */

/* Text for the user, or NULL. The summary: what the data contain, and which of it is trained on. The notices, one per line: files of a
 * folder left out, a damaged cache rebuilt, examples cut, text without tokens. */
const char *dataset_summary(const dataset *data);
const char *dataset_notice(const dataset *data);
/* Passes on the notices one by one, each after the prefix `about`, but those that `told` has too (may be NULL). */
void dataset_tell(const dataset *data, const dataset *told, const char *about, void (*notice)(void *arg, const char *sentence), void *arg);

/* Reading a sample allocates nothing, and is thread-safe.
 *
 * Destination of a window, T values each: ids; targets; `first`: for each token the position in the window at which its document starts, 0
 * if it started before the window, or if documents see each other; `weights` (windows of examples): the loss weight of each target that
 * makes all examples count the same, 1 / number of targets of its example, 0 if there is no target. With
 * dataset_options.prompts: 1 in chosen replies, -1 in their prompts, 0 in rejected ones. The last two may be NULL. */
typedef struct dataset_row {
    int32_t *ids, *targets, *first;
    float *weights;
} dataset_row;

typedef struct dataset_counts { /* contents of windows, added up */
    int64_t tokens;   /* stream: targets; examples: places */
    int64_t learned;  /* targets, without those of prompts */
    int64_t examples; /* 0 for a stream; a pair is one; with labels: replies */
    int64_t chosen;   /* places of chosen replies with their prompts */
} dataset_counts;

/* Reads sample `index` of the run (0, 1, 2, ... over all epochs; an epoch has per_epoch samples, a multiple of the caller's batch). If an
 * epoch has more samples than there are windows, its last ones are padding, without targets. counts may be NULL. */
int dataset_sample(dataset *data, uint64_t index, uint64_t per_epoch, const dataset_row *row, dataset_counts *counts, pt_error *e);

/* The window of sample `index`; NO_WINDOW: the sample is padding. */
#define NO_WINDOW UINT64_MAX
uint64_t dataset_window_of(const dataset *data, uint64_t index, uint64_t per_epoch);

/* The same for evaluation: window w of ceil((tokens - 1) / T) of a stream, the last one padded (ids 0); for a share of a
 * stream, and for examples, w counts all windows of it. */
uint64_t dataset_eval_windows(const dataset *data);
/* With labels, there are as many windows again: window dataset_windows() + w is window w mismatched, each prompt with the reply before it.
 * The first has the last one's; the only one of a window that of the window before, and the first of each `mismatched` windows the last
 * one's. NO_WINDOW: padding. */
uint64_t dataset_all_windows(const dataset *data);
int dataset_eval_window(dataset *data, uint64_t w, const dataset_row *row, dataset_counts *counts, pt_error *e);

/* Of scored data: the records, in the order of the files, and whether each is a pair. A window's examples, from the first on: the record,
 * and the row of the window that has the score (of a pair two, of the chosen and of the rejected reply). */
uint64_t dataset_records(const dataset *data);
bool dataset_pairs(const dataset *data);
typedef struct scored_example { uint64_t record; int64_t row[2]; } scored_example;
int dataset_scored(const dataset *data, uint64_t w, int (*each)(void *arg, const scored_example *x, pt_error *e), void *arg, pt_error *e);

#endif
