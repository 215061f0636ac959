/* memory_file.h - memory.json in a run's folder: the predicted contents of each tier's arena at its fullest moment.
 *
 *     {"device": {"weights": 1048576, "optimizer": 4194304, ...}, "disk": {...}}        bytes; tiers that are used
 *
 * The run writes it, because only the run knows all that it depends on: frozen parameters, adapters, the base's format, documents, ranks.
 */
#ifndef PT_MEMORY_FILE_H
#define PT_MEMORY_FILE_H

#include "predict/forecast.h"

#define MEMORY_FILE "memory.json"

int memory_file_write(const char *folder, const uint64_t part[TIERS][MEMORY_PARTS], pt_error *e);
/* PT_FAILED names the file and the key. */
int memory_file_read(const char *path, uint64_t part[TIERS][MEMORY_PARTS], pt_error *e);

#endif
