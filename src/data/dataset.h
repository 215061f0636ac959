/* dataset.h - files of text, chats or token ids -> windows of seq_len targets, in an order that resumes.
 *
 * All documents are tokenized once into one stream of ids, kept in a cache file of uint32 (or uint16) beside the run, and read from
 * there window by window: memory does not grow with the data. A window is made in one of two ways:
 *
 *   stream     text and files of ids. Documents are joined (BOS where the tokenizer's template adds it, EOS at each one's end) and cut:
 *              window i has inputs ids[i*T .. i*T+T) and targets ids[i*T+1 .. i*T+T+1)
 *   examples   chats, prompts with their completions, and texts that are not packed. Each window holds whole examples (packing.h), which
 *              have nothing in common; targets are the ids that are learned, -100 else
 *
 * Sample s of a run is window permutation(seed, epoch, s mod windows) - a keyed bijection, so no list of windows is kept - or window
 * s mod windows without shuffling.
 *
 *   files ──> documents ──> pieces ──> ids of all documents, and where each starts ──> windows
 *   files.h   documents.h   tokenize.h                token_file.h                     windows.c, permute.h
 *                 └──> records ──> examples ──────────────┘ └──> packing ────────────────┘
 *                      formats.h   examples.h                    packing.h
 *   .npy, .bin: id_file.h ────────────────────────────────┘
 *
 * A .txt is one document, a JSON object with "text" is one; a .npy or .bin is one (ids are taken as they
 * are: nothing is added). Where documents of a stream are apart, an id that ends a text ends a document too, wherever it stands; that is
 * looked for in the windows as they are read, and the cache knows nothing of it.
 */
#ifndef PT_DATASET_H
#define PT_DATASET_H

#include "base/error.h"
#include "data/share.h"
#include "text/tokenizer.h"

typedef struct dataset dataset;

typedef struct dataset_options {
    const char *const *paths; int paths_n; /* .txt .jsonl .json .csv .npy .bin, or folders of them (sorted by name) */
    pt_data_format format;
    pt_train_on train_on;
    const char *model_dir, *chat_template; /* where the chat template is, unless a file has one; read where it is needed */
    const tokenizer *tokenizer;            /* may be NULL where all files hold ids */
    const char *cache_dir;                 /* token cache, made if missing; keyed by files (path, size, mtime) and what makes ids
                                              of them. NULL: a temporary file, nothing is kept */
    const char *tokenizer_fingerprint;     /* any string that changes when the ids would */
    int64_t seq_len, vocab;                /* ids >= vocab are an error that names file and place */
    uint64_t seed;
    bool shuffle;
    bool evaluation;                       /* data shorter than one window is fine */
    bool documents;                        /* of a stream: they are apart: what follows a document's last token is no target (-100) */
    int64_t eos;                           /* which ends a document where there is no tokenizer to say it, -1: none */
    bool alone;                            /* an example a window, texts too */
    bool examples;                         /* a stream is an error */
    bool pairs;                            /* the data must be preferences, whose examples are pairs: in a window the chosen one and the
                                              rejected one behind it; else preferences are an error */
    pt_long longer;                        /* examples of more than a window */
    share_part part; double held;          /* SHARE_KEPT, SHARE_HELD: what this share of the data leaves, or it: of examples, or of
                                              the windows of a stream */
    int threads;                           /* tokenizing threads, 0: all cores */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes); void *progress_arg; /* may be NULL;
                                              called from the caller's thread, not at all where a cache is found */
} dataset_options;

int dataset_open(const dataset_options *o, dataset **out, pt_error *e);
void dataset_close(dataset *d);
uint64_t dataset_tokens(const dataset *d);    /* of the stream; of examples the places that they take */
uint64_t dataset_windows(const dataset *d);   /* whole windows: (tokens - 1) / T of a stream */
bool dataset_apart(const dataset *d);         /* windows hold documents that have nothing in common: `first` is written */
bool dataset_packed(const dataset *d);        /* windows are made of examples */
bool dataset_chats(const dataset *d);         /* which went through a chat template: the first one did */
const char *dataset_fingerprint(const dataset *d); /* of the ids: hex, recorded in checkpoints */

/* Sentences for the user, or NULL: what was found in the data and what of it is learned; and a line each for what is odd: files of a folder
 * were left out, a damaged cache made anew, examples cut, text without tokens. */
const char *dataset_summary(const dataset *d);
const char *dataset_notice(const dataset *d);
/* The latter one by one, each behind the words `about`. */
void dataset_tell(const dataset *d, const char *about, void (*notice)(void *arg, const char *sentence), void *arg);

/* Reading a sample allocates nothing, and threads may do it at the same time.
 *
 * Where a window goes, T values each: ids, targets, for each token the position within the window at which its document starts, 0 for
 * one that began before and where documents are not apart (`first`), and what a target's loss counts so that all
 * examples count the same: 1 / the targets of its example, 0 where there is no target (`weights`, of windows of examples). The
 * last two may be NULL. */
typedef struct dataset_row {
    int32_t *ids, *targets, *first;
    float *weights;
} dataset_row;

typedef struct dataset_counts { /* what was in windows, added to what is there */
    int64_t tokens;   /* of a stream targets, of examples places that are taken */
    int64_t learned;  /* targets */
    int64_t examples; /* 0 of a stream; pairs are one */
} dataset_counts;

/* Sample `index` of the run (0, 1, 2, ... over all epochs; windows_per_epoch samples make an epoch, which
 * the caller has cut to a multiple of its batch). counts may be NULL. */
int dataset_sample(dataset *d, uint64_t index, uint64_t windows_per_epoch, const dataset_row *row, dataset_counts *counts, pt_error *e);

/* The window that sample `index` is. */
uint64_t dataset_window_of(const dataset *d, uint64_t index, uint64_t windows_per_epoch);

/* The same for evaluation: window w of ceil((tokens - 1) / T) of a stream, the last one padded with target -100 (ids 0); of a share of
 * one, and of examples, of all windows. */
uint64_t dataset_eval_windows(const dataset *d);
int dataset_eval_window(dataset *d, uint64_t w, const dataset_row *row, dataset_counts *counts, pt_error *e);

#endif
