#include "search/ahead.h"

#include "base/cores.h"

#include <pthread.h>
#include <stdlib.h>

enum { HELPERS = 7, WINDOW = 3 /* entries per thread: helpers go no further ahead */ };

typedef struct helper { ahead *a; pthread_t thread; uint64_t hash; /* the entry that it prices, 0: none */ } helper;

struct ahead {
    space *s;
    pthread_mutex_t lock;
    pthread_cond_t more, done; /* there is more to price; a helper has finished an entry */
    const ranked *list;
    double limit, prove_below;
    void (*work)(void *, int);  /* runs instead of a list */
    void *arg;
    int n, next, until;        /* entries or jobs; the next that no thread has begun; the first that is too far ahead */
    int jobs_left;
    bool stop;
    int helpers_n;
    helper helpers[HELPERS];
};

/* Prices entry `next`. Called with the lock held, which is released meanwhile. Errors are ignored, because the walk prices that entry again
 * and finds them. */
static void price_next(ahead *a, uint64_t *hash)
{
    const candidate cand = a->list[a->next++].candidate;
    const double limit = a->limit, prove_below = a->prove_below;
    *hash = candidate_hash(a->s, &cand);
    pthread_mutex_unlock(&a->lock);
    candidate_price_ahead(a->s, &cand, limit, prove_below);
    pthread_mutex_lock(&a->lock);
    *hash = 0;
    pthread_cond_signal(&a->done);
}

static void work_next(ahead *a)
{
    const int i = a->next++;
    pthread_mutex_unlock(&a->lock);
    a->work(a->arg, i);
    pthread_mutex_lock(&a->lock);
    if (!--a->jobs_left)
        pthread_cond_signal(&a->done);
}

static bool is_more(const ahead *a) { return a->next < a->n && a->next < a->until; }

static void *help(void *arg)
{
    helper *h = arg;
    ahead *a = h->a;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        if (!is_more(a))
            pthread_cond_wait(&a->more, &a->lock);
        else if (a->work)
            work_next(a);
        else
            price_next(a, &h->hash);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

int search_threads(const search_input *in)
{
    return in->threads ? in->threads : cores_allowed();
}

ahead *ahead_open(space *space)
{
    int wanted = search_threads(space->in) - 1;
    ahead *a = wanted > 0 ? calloc(1, sizeof *a) : NULL;
    if (!a)
        return NULL;
    a->s = space;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->more, NULL);
    pthread_cond_init(&a->done, NULL);
    for (; a->helpers_n < wanted && a->helpers_n < HELPERS; a->helpers_n++) {
        helper *h = &a->helpers[a->helpers_n];
        h->a = a;
        if (pthread_create(&h->thread, NULL, help, h))
            break;
    }
    if (a->helpers_n)
        return a;
    ahead_close(a);
    return NULL;
}

void ahead_close(ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->more);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->helpers_n; i++)
        pthread_join(a->helpers[i].thread, NULL);
    pthread_cond_destroy(&a->done);
    pthread_cond_destroy(&a->more);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static int window(const ahead *a) { return WINDOW * (a->helpers_n + 1); }

void ahead_post(ahead *a, const ranked *list, int n, double limit, double prove_below)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->list = list;
    a->n = n;
    a->next = 0;
    a->until = window(a);
    a->limit = limit;
    a->prove_below = prove_below;
    pthread_mutex_unlock(&a->lock);
}

static bool is_at_work(const ahead *a, uint64_t hash)
{
    bool is = false;
    for (int i = 0; i < a->helpers_n; i++)
        is = is || a->helpers[i].hash == hash;
    return is;
}

void ahead_reach(ahead *a, int i)
{
    uint64_t own;
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    const uint64_t hash = candidate_hash(a->s, &a->list[i].candidate);
    a->next = a->next > i ? a->next : i + 1;
    a->until = i + window(a);
    if (is_more(a))
        pthread_cond_broadcast(&a->more);
    while (is_at_work(a, hash)) { /* meanwhile the walk helps, too */
        if (is_more(a))
            price_next(a, &own);
        else
            pthread_cond_wait(&a->done, &a->lock);
    }
    pthread_mutex_unlock(&a->lock);
}

void ahead_settle(ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->n = 0;
    for (int i = 0; i < a->helpers_n; i++)
        while (a->helpers[i].hash)
            pthread_cond_wait(&a->done, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

void ahead_all(ahead *a, int n, void (*work)(void *arg, int i), void *arg)
{
    for (int i = 0; i < n && !a; i++)
        work(arg, i);
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->work = work;
    a->arg = arg;
    a->next = 0;
    a->n = a->until = a->jobs_left = n;
    pthread_cond_broadcast(&a->more);
    while (is_more(a))
        work_next(a);
    while (a->jobs_left)
        pthread_cond_wait(&a->done, &a->lock);
    a->work = NULL;
    a->n = 0;
    pthread_mutex_unlock(&a->lock);
}
