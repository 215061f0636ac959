/* hub.h - names on the Hugging Face hub ("owner/name") that are given where files are needed. */
#ifndef PT_HUB_H
#define PT_HUB_H

#include "base/error.h"

#include <stdbool.h>

/* Whether the path, which does not exist, may be such a name; old models have no owner. */
bool hub_is_name(const char *path);

/* "FOLDER is not a folder: NEED", and for a name on the hub the command that makes a folder of it. need: "`model` must be ..." */
int hub_fail_model(const char *folder, const char *need, pt_error *e);
int hub_fail_data(const char *path, pt_error *e); /* the same for a data set */

#endif
