/* memory_file.h - memory.json in a run's folder: what each tier's arena holds at its fullest moment, as it was predicted.
 *
 *     {"device": {"weights": 1048576, "optimizer": 4194304, ...}, "disk": {...}}        bytes; tiers that hold something
 *
 * The run says it, since it alone knows all that it follows from: frozen parameters, adapters, how the base is kept, documents, ranks.
 */
#ifndef PT_MEMORY_FILE_H
#define PT_MEMORY_FILE_H

#include "predict/forecast.h"

#define MEMORY_FILE "memory.json"

int memory_file_write(const char *folder, const uint64_t part[TIERS][MEMORY_PARTS], pt_error *e);
/* PT_FAILED names the file and the key. */
int memory_file_read(const char *path, uint64_t part[TIERS][MEMORY_PARTS], pt_error *e);

#endif
