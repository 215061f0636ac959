/* disk_parts.h - shared by disk_file.c (files) and disk.c (channels). */
#ifndef PT_DISK_PARTS_H
#define PT_DISK_PARTS_H

#include "io/disk.h"

#include "io/files.h"

enum { DISK_DEPTH_MAX = 64 };

/* name: of a file that stays; else the folder of a scratch file. */
struct disk_file {
    int fd;
    uint64_t bytes, used; /* used: without holes */
    bool direct, named;
    disk_options options;
    bool made_folder;
    char name[FILE_PATH_BYTES];
};

#endif
