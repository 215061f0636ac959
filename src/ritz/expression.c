#include "ritz/expression.h"
#include "ritz/muparser.h"

#include <ctype.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NESTING_MOST = 100, NAME_BYTES = 16, WORD_MOST = 255, UNKNOWN_NAME = 1 /* muParser's ecUNASSIGNABLE_TOKEN */ };

enum { VARIABLES_MOST = 1 << 18 }; /* of all parsers of an expression together */

/* One per thread that evaluates, as muParser keeps the variables' addresses. */
typedef struct parser { muParserHandle_t handle; double *x; atomic_flag busy; } parser;

struct expression {
    const muparser *mup;
    int64_t dim;
    const char *extra; /* name of one more variable, in x[dim]; NULL: there is none */
    char *text;
    int parsers_n;
    parser *parsers;
};

enum { CLASS_NONE, CLASS_NAME, CLASS_OPERATOR };

static int class_of(char c)
{
    if (isalnum((unsigned char)c) || c == '_' || c == '.')
        return CLASS_NAME;
    return isspace((unsigned char)c) || strchr("(),", c) ? CLASS_NONE : CLASS_OPERATOR;
}

/* Refuses what muParser accepts although it is no formula. It also limits the depth of parentheses, as muParser parses by recursion, and
 * the length of names, numbers and runs of operators, as muParser copies a wrong one into a buffer of 2 KiB. */
static int check_text(const char *where, const char *key, const char *text, pt_error *e)
{
    int depth = 0, word = 0;
    if (strlen(text) > EXPRESSION_BYTES)
        return pt_fail(e, PT_FAILED, "%s: %s has %zu characters, but at most %d are possible", where, key, strlen(text), EXPRESSION_BYTES);
    for (const char *c = text; *c; c++) {
        const bool equals = *c == '=' && c[1] != '=' && (c == text || !strchr("=<>!", c[-1]));
        if (*c == '"' || equals || (unsigned char)*c >= 127 || (iscntrl((unsigned char)*c) && !isspace((unsigned char)*c)))
            return pt_fail(e, PT_FAILED, "%s: %s, column %td: %s", where, key, c - text + 1, equals ? "an assignment is not possible; == "
                                                                                                      "compares"
                           : "invalid character");
        word = class_of(*c) && c > text && class_of(*c) == class_of(c[-1]) ? word + 1 : 1;
        if (word > WORD_MOST && class_of(*c))
            return pt_fail(e, PT_FAILED, "%s: %s, column %td: a name, a number or a run of operators of more than %d characters", where,
                           key, c - text + 1 - WORD_MOST, WORD_MOST);
        depth += (*c == '(' || *c == '?') - (*c == ')');
        if (depth > NESTING_MOST)
            return pt_fail(e, PT_FAILED, "%s: %s, column %td: nested deeper than %d", where, key, c - text + 1, NESTING_MOST);
    }
    return 0;
}

static void on_error(muParserHandle_t parser) { (void)parser; } /* mupError() tells it */

/* Whether muParser has a function of this name. Takes the parser's expression. */
static bool is_function(const expression *x, const char *name)
{
    char call[64];
    snprintf(call, sizeof call, "%s(1)", name);
    x->mup->SetExpr(x->parsers->handle, call);
    x->mup->Eval(x->parsers->handle);
    return !x->mup->Error(x->parsers->handle) || x->mup->GetErrorCode(x->parsers->handle) != UNKNOWN_NAME;
}

static int parser_error(const char *where, const char *key, const char *text, const expression *x, pt_error *e)
{
    char token[48], message[160], more[32] = "";
    snprintf(token, sizeof token, "%s", x->mup->GetErrorToken(x->parsers->handle));
    snprintf(message, sizeof message, "%s", x->mup->GetErrorMsg(x->parsers->handle));
    char *place = strstr(message, " at expression position");
    if (place || (place = strstr(message, " at position")))
        *place = '\0'; /* it counts from 0 */
    if (x->dim > 1)
        snprintf(more, sizeof more, " to x%lld", (long long)x->dim);
    const int position = x->mup->GetErrorPos(x->parsers->handle), end = (int)strlen(text), at = position < end ? position : end;
    const bool is_name = at >= 0 && (isalpha((unsigned char)token[0]) || token[0] == '_');
    const bool is_unknown = is_name && x->mup->GetErrorCode(x->parsers->handle) == UNKNOWN_NAME;
    if (is_unknown && is_function(x, token))
        return pt_fail(e, PT_FAILED, "%s: %s, column %d: \"%s\" is a function: put its arguments in parentheses, as in %s(x1)", where, key,
                       at + 1, token, token);
    if (is_unknown)
        return pt_fail(e, PT_FAILED,
                       "%s: %s, column %d: \"%s\" is unknown; use x1%s,%s%s%s pi, e, d and the functions of muParser", where, key, at + 1,
                       token, more, x->extra ? " " : "", x->extra ? x->extra : "", x->extra ? "," : "");
    if (at >= 0)
        return pt_fail(e, PT_FAILED, "%s: %s, column %d: %s", where, key, at + 1, message);
    return pt_fail(e, PT_FAILED, "%s: %s: %s", where, key, message);
}

static void define(const expression *x, const parser *p)
{
    static const char *const letters[] = {"x", "y", "z"};
    char name[NAME_BYTES];
    for (int64_t j = 0; j < x->dim; j++) {
        snprintf(name, sizeof name, "x%d", (int)j + 1);
        x->mup->DefineVar(p->handle, name, p->x + j);
        if (x->dim <= 3)
            x->mup->DefineVar(p->handle, letters[j], p->x + j);
        p->x[j] = 0.5;
    }
    if (x->extra)
        x->mup->DefineVar(p->handle, x->extra, p->x + x->dim);
    p->x[x->dim] = 0.5;
    x->mup->DefineConst(p->handle, "pi", 3.14159265358979323846);
    x->mup->DefineConst(p->handle, "e", 2.71828182845904523536);
    x->mup->DefineConst(p->handle, "d", (double)x->dim);
}

/* Parses the text, which muParser does when it evaluates for the first time. */
static bool add_parser(expression *x, bool *wrong, int *results)
{
    parser *p = &x->parsers[x->parsers_n];
    *p = (parser){x->mup->Create(muBASETYPE_FLOAT), calloc((size_t)x->dim + 1, sizeof *p->x), ATOMIC_FLAG_INIT};
    x->parsers_n++;
    if (!p->handle || !p->x)
        return false;
    x->mup->SetErrorHandler(p->handle, on_error);
    define(x, p);
    x->mup->SetExpr(p->handle, x->text);
    *wrong = x->mup->Error(p->handle); /* this call clears the error */
    if (!*wrong) {
        x->mup->EvalMulti(p->handle, results);
        *wrong = x->mup->Error(p->handle);
        x->mup->Eval(p->handle);
        x->mup->Error(p->handle);
    }
    return true;
}

int expression_open(const char *where, const char *key, const char *text, int64_t dim, const char *extra, expression **out,
                    pt_error *e)
{
    *out = NULL;
    const muparser *mup;
    int failed = check_text(where, key, text, e), results = 1;
    failed = failed ? failed : muparser_load(&mup, e);
    if (failed)
        return failed;
    bool wrong = false;
    expression *x = calloc(1, sizeof *x);
    if (x)
        *x = (expression){.mup = mup, .dim = dim, .extra = extra, .text = strdup(text), .parsers = calloc(1, sizeof *x->parsers)};
    if (!x || !x->text || !x->parsers || !add_parser(x, &wrong, &results))
        failed = pt_fail(e, PT_FAILED, "out of memory");
    else if (wrong)
        failed = parser_error(where, key, text, x, e);
    else if (results != 1)
        failed = pt_fail(e, PT_FAILED, "%s: %s has %d results, separated by commas; one is needed", where, key, results);
    if (failed) {
        expression_close(x);
        return failed;
    }
    *out = x;
    return 0;
}

int expression_share(expression *x, int threads, pt_error *e)
{
    const int64_t most = VARIABLES_MOST / x->dim, n = threads < most ? threads : most;
    bool wrong, fine = true;
    int results;
    if (n <= x->parsers_n)
        return 0;
    parser *more = realloc(x->parsers, (size_t)n * sizeof *more);
    if (more)
        x->parsers = more;
    while (more && fine && x->parsers_n < n)
        fine = add_parser(x, &wrong, &results);
    return more && fine ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

void expression_close(expression *x)
{
    if (!x)
        return;
    for (int i = 0; i < x->parsers_n; i++) {
        if (x->parsers[i].handle)
            x->mup->Release(x->parsers[i].handle);
        free(x->parsers[i].x);
    }
    free(x->parsers);
    free(x->text);
    free(x);
}

const char *expression_text(const expression *x) { return x->text; }

/* Takes a parser that no other thread has. */
static parser *take(expression *x)
{
    for (int i = 0;; i = (i + 1) % x->parsers_n) {
        if (!atomic_flag_test_and_set_explicit(&x->parsers[i].busy, memory_order_acquire))
            return &x->parsers[i];
        if (i == x->parsers_n - 1)
            sched_yield();
    }
}

void expression_values(expression *x, int64_t n, int64_t dim, const double *points, const double *extra, double *out)
{
    parser *p = take(x);
    for (int64_t i = 0; i < n; i++) {
        memcpy(p->x, points + i * dim, (size_t)dim * sizeof *points);
        if (extra)
            p->x[dim] = extra[i];
        out[i] = x->mup->Eval(p->handle);
        if (x->mup->Error(p->handle))
            out[i] = NAN;
    }
    atomic_flag_clear_explicit(&p->busy, memory_order_release);
}
