/* thrift.h - reads Thrift's compact protocol, in which Parquet writes its metadata. Nothing is read past `end`: then, and where the bytes
 * are not what is asked for, `failed` is set, and all that follows reads as zeros and ends.
 *
 *     int id = 0;
 *     unsigned type;
 *     while (thrift_field(&t, &id, &type))
 *         if (id == 3) rows = thrift_int(&t, type); else thrift_skip(&t, type);
 */
#ifndef PT_DATA_THRIFT_H
#define PT_DATA_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { THRIFT_TRUE = 1, THRIFT_FALSE, THRIFT_BYTE, THRIFT_I16, THRIFT_I32, THRIFT_I64, THRIFT_DOUBLE, THRIFT_BINARY, THRIFT_LIST,
       THRIFT_SET, THRIFT_MAP, THRIFT_STRUCT };

typedef struct thrift {
    const uint8_t *p, *end;
    bool failed;
} thrift;

uint64_t thrift_varint(thrift *t);
/* The next field of a struct; *id: 0 at its beginning, then of the field before. false: the struct has ended. */
bool thrift_field(thrift *t, int *id, unsigned *type);
int64_t thrift_int(thrift *t, unsigned type);
bool thrift_bool(thrift *t, unsigned type);
/* A field's bytes, which stay where they are. */
const char *thrift_binary(thrift *t, unsigned type, size_t *n);
/* The number of elements of a list, and their type. Each takes at least one byte. */
size_t thrift_list(thrift *t, unsigned type, unsigned *element);
void thrift_skip(thrift *t, unsigned type);

#endif
