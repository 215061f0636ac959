#include "train/patience.h"

#include <math.h>

#define OFF 0.1         /* share of the prediction */
#define FAR_OFF 0.5     /* more than the usual variation of a machine */
#define LOST_S 10.0     /* long compared with a search */
#define FAR_TOLD 0.25    /* share of what was told */
#define SHORTEST_S 0.05 /* shorter steps are left alone */
enum { FIRST_WAIT = 2, DOUBLED_MOST = 6, CALM_WAITS = 8 };

static int64_t wait_of(const patience *p) { return (int64_t)FIRST_WAIT << p->doubled; }

static void add_calm(patience *p)
{
    p->off = 0;
    if (++p->calm < CALM_WAITS * wait_of(p))
        return;
    p->calm = 0;
    p->doubled -= p->doubled > 0;
}

bool patience_is_due(const patience *p, int64_t steady)
{
    return steady - (steady < p->looked_at ? 0 : p->looked_at) >= PATIENCE_WINDOW;
}

patience_answer patience_look(patience *p, int64_t steady, double predicted_s, double is_s)
{
    if (!patience_is_due(p, steady))
        return PATIENCE_NOTHING;
    double by_s = fabs(is_s - predicted_s), share = by_s / predicted_s;
    p->looked_at = steady;
    p->since++;
    p->lost_s = share > FAR_OFF ? p->lost_s + PATIENCE_WINDOW * by_s : 0;
    if (share <= OFF || fmax(predicted_s, is_s) < SHORTEST_S) {
        add_calm(p);
        return PATIENCE_NOTHING;
    }
    p->calm = 0;
    p->off++;
    return p->off >= FIRST_WAIT && (p->since >= wait_of(p) || p->lost_s >= LOST_S) ? PATIENCE_DECIDE : PATIENCE_WATCH;
}

void patience_decided(patience *p, bool moved)
{
    int doubled = moved ? 0 : p->doubled + (p->doubled < DOUBLED_MOST);
    *p = (patience){.looked_at = p->looked_at, .doubled = doubled};
}

static bool is_apart(double a, double b, double share) { return fabs(a - b) > share * fmin(a, b); }

bool telling_is_first(telling *t, double is_s)
{
    const bool first = !(t->told_s > 0);
    if (first)
        t->told_s = is_s;
    t->now_s = first ? 0 : is_s;
    t->steps = 0;
    return first;
}

bool telling_is_due(telling *t, double is_s)
{
    if (!(t->now_s > 0))
        return false;
    t->steps = is_apart(is_s, t->now_s, OFF) ? 0 : t->steps + 1;
    if (t->steps < TELLING_STEPS)
        return false;
    const bool far = is_apart(t->now_s, t->told_s, FAR_TOLD);
    t->told_s = far ? t->now_s : t->told_s;
    t->now_s = 0;
    return far;
}
