#include "train/watch.h"

#include "base/median.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SEQUENCES = 8, RISES = 2 };
static const double MUCH_WORSE = 1.06, LITTLE = 0.01; /* a loss that is above the best one by more than evaluations vary */

void watch_open(watch *w, double guess, int64_t batch)
{
    *w = (watch){.guess = guess, .first_n = batch >= SEQUENCES ? 1 : (SEQUENCES + batch - 1) / batch};
}

static __attribute__((format(printf, 4, 5))) void warn(watch *w, watch_kind kind, int64_t step, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    w->at[kind] = step;
    vsnprintf(w->text[kind], WATCH_TEXT, fmt, ap);
    va_end(ap);
}

static double much_more(double loss) { return 1.5 * loss + 1; }

/* Much more than in the first steps, or clearly worse than a guess; or much more than in the first step, of which one batch may be easy, so
 * that its gradient has to be another, too. */
static bool is_high(const watch *w, double loss, double norm)
{
    if (w->steps > w->first_n && loss > much_more(w->start))
        return true;
    return loss > 1.1 * fmax(w->first, w->guess) + 0.5 || (loss > much_more(w->first) && norm > WATCH_STEEP * w->first_norm);
}

static void look_at_loss(watch *w, int64_t step, double loss, double norm)
{
    if (w->steps == 1) {
        w->first = loss;
        w->first_norm = norm;
    }
    if (w->steps <= w->first_n)
        w->start += (loss - w->start) / (double)w->steps;
    w->high = is_high(w, loss, norm) ? w->high + 1 : 0;
    if (w->high >= WATCH_ROW && !w->at[WATCH_LOSS])
        warn(w, WATCH_LOSS, step, "the loss has risen from %.4g at the start to %.4g in step %lld", fmin(w->first, w->start), loss,
             (long long)step);
}

static void look_at_norm(watch *w, int64_t step, double norm)
{
    if (w->steps <= WATCH_FIRST)
        w->norms[w->steps - 1] = norm;
    if (w->steps == WATCH_FIRST)
        w->usual = median(w->norms, WATCH_FIRST);
    if (w->steps <= WATCH_FIRST)
        return;
    w->steep = w->usual > 0 && norm > WATCH_STEEP * w->usual ? w->steep + 1 : 0;
    if (w->steep >= WATCH_ROW && !w->at[WATCH_NORM])
        warn(w, WATCH_NORM, step, "the gradient norm is %.3g in step %lld, and was %.3g in the first %d steps", norm, (long long)step,
             w->usual, WATCH_FIRST);
}

bool watch_step(watch *w, int64_t step, double loss, double grad_norm)
{
    w->steps++;
    w->sum += loss;
    w->n++;
    look_at_loss(w, step, loss, grad_norm);
    if (isfinite(grad_norm))
        look_at_norm(w, step, grad_norm);
    return w->at[WATCH_LOSS] == step || w->at[WATCH_NORM] == step;
}

bool watch_evaluation(watch *w, int64_t step, double eval_loss)
{
    if (!isfinite(eval_loss) || !w->n)
        return false;
    const double train = w->sum / (double)w->n;
    w->rises = w->best_step && eval_loss > w->last ? w->rises + 1 : 0;
    w->last = eval_loss;
    w->sum = 0;
    w->n = 0;
    if (!w->best_step || eval_loss < w->best) {
        w->best = eval_loss;
        w->best_train = train;
        w->best_step = step;
        return false;
    }
    if (w->rises < RISES || eval_loss < MUCH_WORSE * w->best + LITTLE || train >= w->best_train || w->at[WATCH_EVALUATION])
        return false;
    warn(w, WATCH_EVALUATION, step,
         "the evaluation loss has risen from %.4f in step %lld to %.4f in step %lld while the training loss fell", w->best,
         (long long)w->best_step, eval_loss, (long long)step);
    return true;
}
