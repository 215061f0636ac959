/* hello.h - the messages by which ranks find each other, and the notes of the control connections. Messages are structs of fixed size in
 * the byte order of x86-64.
 *
 *     rank r -> rank 0    hello (control) and hello (data), each on a connection of its own
 *     rank 0 -> rank r    an answer to each; once all ranks have come, on the control connection: an answer, the run's nonce, all places
 *     rank r -> rank q    hello (data) with the nonce as its key, for q < r
 *     control             from then on notes: a beat every second, the reason why the run ends, or a goodbye
 *
 * Anybody may connect, so that every message is validated first (fuzz/fuzz_hello.c). A process without the run's key is turned away. What a
 * hello says never ends the run: it is refused, and rank 0 waits on. The key is a secret only if it was given or drawn (launcher.h), and it
 * is sent as it is.
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
    uint32_t port, unused; /* at which this rank listens */
    uint64_t machine;      /* the same on all ranks that can share memory */
    char version[HELLO_VERSION_BYTES], host[HELLO_HOST_BYTES];
} hello;

/* HELLO_LATER: not now; the same may be asked again. */
typedef enum hello_verdict { HELLO_TAKEN, HELLO_OTHER_RUN, HELLO_REFUSED, HELLO_LATER } hello_verdict;
typedef struct hello_answer {
    char magic[8];
    uint32_t verdict, unused;
    char why[HELLO_WHY_BYTES]; /* of HELLO_REFUSED and HELLO_LATER */
} hello_answer;

/* Where a rank is. */
typedef struct hello_place {
    char address[HELLO_ADDRESS_BYTES]; /* "": the address at which rank 0 is reached */
    uint32_t port, unused;
    uint64_t machine;
    char host[HELLO_HOST_BYTES];
} hello_place;

typedef enum note_kind { NOTE_BEAT, NOTE_FAILED, NOTE_GOODBYE } note_kind;
enum { NOTE_TEXT_BYTES = 432 };
typedef struct note_head { uint8_t kind, code; uint16_t bytes; } note_head; /* bytes: of the text behind it; code: without its sign */

hello hello_make(hello_kind kind, uint64_t key, int rank, int ranks, int port, uint64_t machine);
hello_answer hello_answer_make(hello_verdict verdict, const char *why);
/* Is the message valid: values within their limits, strings terminated and printable? The version is not compared. */
bool hello_is_whole(const hello *h);
bool hello_answer_is_whole(const hello_answer *a);
bool hello_places_are_whole(const hello_place *p, int ranks);

/* Assembles notes, which arrive in pieces. */
typedef struct note_reader { char bytes[sizeof(note_head) + NOTE_TEXT_BYTES]; size_t n; } note_reader;
typedef struct note { note_kind kind; int code; char text[NOTE_TEXT_BYTES + 1]; } note;
/* Consumes *used of n bytes. 1: *out is the next note; 0: more bytes are needed; -1: the bytes are no note. */
int note_take(note_reader *r, const char *p, size_t n, size_t *used, note *out);
size_t note_make(char out[sizeof(note_head) + NOTE_TEXT_BYTES], note_kind kind, int code, const char *text);

#endif
