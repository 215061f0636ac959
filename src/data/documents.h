/* documents.h - the documents of a .txt, .jsonl or .json file, one after the other, in memory that
 * does not grow with the file.
 *
 *   .txt     the whole file, byte for byte, is one document
 *   .jsonl   an object a line; its "text" is a document. Empty lines are skipped
 *   .json    one array of such objects; a scanner that knows strings, escapes and brackets cuts
 *            the array's elements out, and each is parsed alone
 *
 * A JSON record may have at most DOCUMENT_RECORD_MAX bytes.
 */
#ifndef PT_DATA_DOCUMENTS_H
#define PT_DATA_DOCUMENTS_H

#include "data/files.h"

enum { DOCUMENT_RECORD_MAX = 256 << 20 };

/* Who gets the documents. A callback that returns a negative code ends the reading with it. */
typedef struct document_sink {
    void *arg;
    int (*begin)(void *arg, uint64_t line, pt_error *e); /* line: where a record begins, 0 for .txt */
    /* The next bytes of the document. file_bytes: how far the file has been read. */
    int (*text)(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e);
    int (*end)(void *arg, pt_error *e);
} document_sink;

/* Reads fd from its position to its end. Errors name path, line and column. */
int documents_read(int fd, const char *path, data_kind kind, const document_sink *sink, pt_error *e);

#endif
