/* cutter.h - where a long text may be cut so that its pieces give the ids of the whole.
 *
 * A tokenizer reads a document as a whole, but a document may be larger than memory and is to be
 * tokenized by many threads. A cut between two bytes is taken if both hold:
 *
 *   1. No token of the vocabulary has these two bytes next to each other. Then no merge can reach
 *      across the cut, however far away it begins: what stands on either side is merged alone.
 *      (Enough by itself where a tokenizer has no pre-tokenizer.)
 *   2. The pre-tokenizer, the normalizer and the added tokens agree: the ids of the CUT_CONTEXT
 *      bytes before the cut are the first ids of these bytes together with as many behind it.
 *
 * The piece behind the cut is encoded with that context in front, and the context's ids are taken
 * off again, so that what a tokenizer does at the beginning of a text (SentencePiece puts a space
 * there) happens in the context only.
 *
 *      ... piece k ............. | piece k+1 .............
 *               [--- context ---]|[- as many -]          check 2
 *               [--- context --- | piece k+1 ............]  what is encoded for piece k+1
 *
 * Places are tried from the most promising on (behind a newline, before white space, anywhere),
 * the last in the range first.
 */
#ifndef PT_DATA_CUTTER_H
#define PT_DATA_CUTTER_H

#include "text/tokenizer.h"

enum { CUT_CONTEXT = 256, CUT_MARGIN = CUT_CONTEXT + 4 /* bytes that must stand behind a cut */ };

typedef struct cutter cutter;

int cutter_open(const tokenizer *t, cutter **out, pt_error *e);
void cutter_close(cutter *c);

/* The best place p in [low, high] for a cut before text[p], or 0 if there is none; *context is the
 * number of bytes before p that are encoded with the piece behind. 0 < low, high + CUT_MARGIN <= n. */
size_t cutter_find(cutter *c, const char *text, size_t low, size_t high, size_t *context);

#endif
