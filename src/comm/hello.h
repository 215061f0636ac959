/* hello.h - what ranks say to each other before they exchange anything: messages of a fixed size, as they lie in memory (all machines that
 * this runs on are alike).
 *
 *     rank r -> rank 0    hello (control), hello (data): each on a connection of its own
 *     rank 0 -> rank r    answer, to each; when all ranks are there, on the control connection another, the run's nonce, and who is where
 *     rank r -> rank q    hello (data) with that nonce, q < r
 *     control             notes, from then on: a beat a second, why the run ends, or a goodbye
 *
 * Anybody may connect: what comes is looked at before it is believed (fuzz/fuzz_hello.c), and who does not know the run's key is turned
 * away. The key tells runs apart; it is no secret.
 */
#ifndef PT_HELLO_H
#define PT_HELLO_H

#include "comm/comm.h"

#include <stdbool.h>

enum { HELLO_VERSION_BYTES = 24, HELLO_HOST_BYTES = 64, HELLO_ADDRESS_BYTES = 48, HELLO_WHY_BYTES = 256 };
typedef enum hello_kind { HELLO_CONTROL, HELLO_DATA } hello_kind;

typedef struct hello {
    char magic[8];
    uint32_t format, kind;
    uint64_t key;
    int32_t ranks, rank;
    uint32_t port, unused; /* where this rank listens */
    uint64_t machine;      /* the same on all ranks that can share memory */
    char version[HELLO_VERSION_BYTES], host[HELLO_HOST_BYTES];
} hello;

typedef enum hello_verdict { HELLO_TAKEN, HELLO_OTHER_RUN, HELLO_REFUSED } hello_verdict;
typedef struct hello_answer {
    char magic[8];
    uint32_t verdict, unused;
    char why[HELLO_WHY_BYTES]; /* of HELLO_REFUSED */
} hello_answer;

/* Of each rank. */
typedef struct hello_place {
    char address[HELLO_ADDRESS_BYTES]; /* "": that by which rank 0 is reached */
    uint32_t port, unused;
    uint64_t machine;
    char host[HELLO_HOST_BYTES];
} hello_place;

typedef enum note_kind { NOTE_BEAT, NOTE_FAILED, NOTE_GOODBYE } note_kind;
enum { NOTE_TEXT_BYTES = 432 };
typedef struct note_head { uint8_t kind, code; uint16_t bytes; } note_head; /* of text behind it; code: an error's, without its sign */

hello hello_make(hello_kind kind, uint64_t key, int rank, int ranks, int port, uint64_t machine);
hello_answer hello_answer_make(hello_verdict verdict, const char *why);
/* Whether it is one at all: within its limits, strings ended and printable. Of the version nothing is said. */
bool hello_is_whole(const hello *h);
bool hello_answer_is_whole(const hello_answer *a);
bool hello_places_are_whole(const hello_place *p, int ranks);

/* Notes come in pieces. */
typedef struct note_reader { char bytes[sizeof(note_head) + NOTE_TEXT_BYTES]; size_t n; } note_reader;
typedef struct note { note_kind kind; int code; char text[NOTE_TEXT_BYTES + 1]; } note;
/* Takes *used of n bytes. 1: *out is the next note; 0: more is needed; -1: what came is none. */
int note_take(note_reader *r, const char *p, size_t n, size_t *used, note *out);
size_t note_make(char out[sizeof(note_head) + NOTE_TEXT_BYTES], note_kind kind, int code, const char *text);

#endif
