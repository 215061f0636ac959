/* populate.c - populates pages with several threads, because the kernel clears them faster that way.
 *
 *   | piece 0 | piece 1 | piece 2 | ...          each thread takes the next piece that is not taken
 *
 * MADV_POPULATE_WRITE (Linux 5.14) populates a whole piece in one call, and returns an error if memory runs out; on older kernels a byte of
 * each page is written. In either case a container's limit may kill the process, so callers first check the free memory.
 */
#include "device/populate.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE_BYTES = 4096, PIECE_BYTES = 32 << 20, THREADS_MOST = 16 };

typedef struct populate_job {
    char *base;
    size_t bytes;
    atomic_size_t next; /* byte */
    atomic_int error;   /* errno of a failure */
} populate_job;

static int take_piece(char *piece, size_t bytes)
{
    int failed;
    while ((failed = madvise(piece, bytes, MADV_POPULATE_WRITE)) && errno == EAGAIN) {}
    if (!failed)
        return 0;
    if (errno != EINVAL)
        return errno;
    for (size_t at = 0; at < bytes; at += PAGE_BYTES)
        ((volatile char *)piece)[at] = 0;
    return 0;
}

static void *take_pieces(void *arg)
{
    populate_job *job = arg;
    size_t at;
    while (!atomic_load(&job->error) && (at = atomic_fetch_add(&job->next, PIECE_BYTES)) < job->bytes) {
        int error = take_piece(job->base + at, job->bytes - at < PIECE_BYTES ? job->bytes - at : PIECE_BYTES);
        if (error)
            atomic_store(&job->error, error);
    }
    return NULL;
}

int populate(void *base, size_t bytes, int threads)
{
    populate_job job = {.base = base, .bytes = bytes};
    pthread_t others[THREADS_MOST];
    int started = 0, most = threads < THREADS_MOST ? threads : THREADS_MOST;
    while (started + 1 < most && (size_t)(started + 1) * PIECE_BYTES < bytes && !pthread_create(&others[started], NULL, take_pieces, &job))
        started++;
    take_pieces(&job);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    errno = atomic_load(&job.error);
    return errno ? -1 : 0;
}
