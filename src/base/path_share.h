/* path_share.h - a path with a number behind it: "chats.jsonl:0.3". */
#ifndef PT_PATH_SHARE_H
#define PT_PATH_SHARE_H

#include <stddef.h>

/* The length of the path, and *share, above 0 and at most 1. Without a share, or if there is a file of the whole name, its whole length
 * and 1. */
size_t path_share(const char *text, double *share);
/* The same with any finite number. */
size_t path_weight(const char *text, double *weight);

#endif
