/* scratch.h - a temporary folder for one test program, small files in it, and a small tokenizer. */
#ifndef TEST_DATA_SCRATCH_H
#define TEST_DATA_SCRATCH_H

#include <dirent.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_dir[64];

static inline void scratch_make(void)
{
    strcpy(scratch_dir, "/tmp/protrain-test-XXXXXX");
    if (!mkdtemp(scratch_dir))
        abort();
}

static inline int scratch_remove_one(const char *path, const struct stat *st, int type, struct FTW *place)
{
    return remove(path);
}

static inline void scratch_remove(void)
{
    nftw(scratch_dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of `name` in the scratch folder; valid until four calls later. */
static inline const char *scratch_path(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *p = paths[next++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", scratch_dir, name);
    return p;
}

static inline const char *scratch_write(const char *name, const void *data, size_t n)
{
    const char *path = scratch_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        abort();
    return path;
}

static inline const char *scratch_text(const char *name, const char *text)
{
    return scratch_write(name, text, strlen(text));
}

static inline void scratch_folder(const char *name)
{
    if (mkdir(scratch_path(name), 0777) < 0)
        abort();
}

static inline char *read_all(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        abort();
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*n + 1);
    if (!p || fread(p, 1, *n, f) != *n)
        abort();
    p[*n] = 0;
    fclose(f);
    return p;
}

/* An .npy file of format `major`. */
static inline const char *scratch_npy(const char *name, int major, const char *dict, const void *ids, size_t bytes)
{
    static unsigned char file[1 << 20];
    size_t header = strlen(dict), at = 8;
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (unsigned char)major;
    file[7] = 0;
    file[at++] = (unsigned char)header;
    file[at++] = (unsigned char)(header >> 8);
    if (major > 1)
        file[at++] = 0, file[at++] = 0;
    memcpy(file + at, dict, header);
    memcpy(file + at + header, ids, bytes);
    return scratch_write(name, file, at + header + bytes);
}

/* An llm.c token file. */
static inline const char *scratch_bin(const char *name, int32_t magic, int32_t version, int32_t n, const void *ids,
                                      size_t bytes)
{
    static unsigned char file[1 << 20];
    int32_t header[256] = {magic, version, n};
    memcpy(file, header, sizeof header);
    memcpy(file + sizeof header, ids, bytes);
    return scratch_write(name, file, sizeof header + bytes);
}

#endif
