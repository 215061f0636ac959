/* dataset.h - files of text or token ids -> windows of seq_len targets, in an order that resumes.
 *
 * All documents are tokenized once into one stream of ids (BOS where the tokenizer's template adds
 * it, EOS at each document's end), kept in a cache file of uint32 (or uint16) beside the run, and read from
 * there window by window: memory does not grow with the data. Window i has inputs
 * ids[i*T .. i*T+T) and targets ids[i*T+1 .. i*T+T+1). Sample s of a run is window
 * permutation(seed, epoch, s mod windows) - a keyed bijection, so no list of windows is kept - or window
 * s mod windows without shuffling.
 *
 *   files ──> documents ──> pieces ──> ids of all documents, and where each starts ──> windows
 *   files.h   documents.h   tokenize.h                token_file.h                     here, permute.h
 *   .npy, .bin: id_file.h ───────────────────────────────┘
 *
 * A .txt is one document, a JSON object with "text" is one; a .npy or .bin is one (ids are taken as they
 * are: nothing is added). Where documents are apart, an id that ends a text ends a document too, wherever it stands; that is
 * looked for in the windows as they are read, and the cache knows nothing of it.
 */
#ifndef PT_DATASET_H
#define PT_DATASET_H

#include "base/error.h"
#include "text/tokenizer.h"

typedef struct dataset dataset;

typedef struct dataset_options {
    const char *const *paths; int paths_n; /* .txt .jsonl .json .npy .bin, or folders of them (sorted by name) */
    const tokenizer *tokenizer;            /* may be NULL where all files hold ids */
    const char *cache_dir;                 /* token cache, made if missing; keyed by files (path, size, mtime) and
                                              tokenizer fingerprint. NULL: a temporary file, nothing is kept */
    const char *tokenizer_fingerprint;     /* any string that changes when the ids would */
    int64_t seq_len, vocab;                /* ids >= vocab are an error that names file and place */
    uint64_t seed;
    bool shuffle;
    bool evaluation;                       /* data shorter than one window is fine */
    bool documents;                        /* they are apart: what follows a document's last token is no target (-100) */
    int64_t eos;                           /* which ends a document where there is no tokenizer to say it, -1: none */
    int threads;                           /* tokenizing threads, 0: all cores */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes); void *progress_arg; /* may be NULL;
                                              called from the caller's thread, not at all where a cache is found */
} dataset_options;

int dataset_open(const dataset_options *o, dataset **out, pt_error *e);
void dataset_close(dataset *d);
uint64_t dataset_tokens(const dataset *d);
uint64_t dataset_windows(const dataset *d);   /* whole windows: (tokens - 1) / T */
const char *dataset_fingerprint(const dataset *d); /* of the ids: hex, recorded in checkpoints */

const char *dataset_notice(const dataset *d); /* a sentence for the user (files of a folder were left out, a damaged cache made anew), or NULL */

/* Reading a sample allocates nothing, and threads may do it at the same time.
 *
 * Sample `index` of the run (0, 1, 2, ... over all epochs; windows_per_epoch samples make an epoch, which
 * the caller has cut to a multiple of its batch): ids and targets, T each, and where documents are apart for each token the position
 * within the window at which its document starts, 0 for one that began before (`first`, T; else left alone, and may be NULL). */
int dataset_sample(dataset *d, uint64_t index, uint64_t windows_per_epoch, int32_t *ids, int32_t *targets,
                   int32_t *first, pt_error *e);

/* The same for evaluation: window w of ceil((tokens - 1) / T), the last one padded with target -100 (ids 0). */
uint64_t dataset_eval_windows(const dataset *d);
int dataset_eval_window(dataset *d, uint64_t w, int32_t *ids, int32_t *targets, int32_t *first, pt_error *e);

#endif
