/* labels.h - the classes of records: an integer or a string under "label". */
#ifndef PT_DATA_LABELS_H
#define PT_DATA_LABELS_H

#include "base/error.h"
#include "data/columns.h"
#include "data/files.h"

#include <jansson.h>
#include <stdint.h>

enum { LABELS_MOST = 4096 };

typedef struct label_names { /* zero-initialise */
    int64_t n;
    char **name; /* NULL: the labels are the numbers 0 .. n - 1 */
} label_names;

/* Reads all records. Names are sorted. PT_FAILED: a record has no label, both kinds, or all have the same one. */
int labels_find(label_names *l, const char *const *paths, int paths_n, data_use use, const column_names *columns, pt_error *e);
/* Those of "id2label" in a JSON file, if it has them: of a model that scores classes, or beside an adapter. */
int labels_read(label_names *l, const char *folder, const char *file, pt_error *e);
void labels_free(label_names *l);

/* The number of a record's label; -1: it is not one of these. */
int64_t labels_number(const label_names *l, const json_t *label);

#endif
