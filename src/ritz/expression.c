#include "ritz/expression.h"
#include "ritz/muparser.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NESTING_MOST = 100, NAME_BYTES = 16, WORD_MOST = 255, UNKNOWN_NAME = 1 /* muParser's ecUNASSIGNABLE_TOKEN */ };

struct expression { const muparser *mup; muParserHandle_t parser; int64_t dim; double *x; };

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
    x->mup->SetExpr(x->parser, call);
    x->mup->Eval(x->parser);
    return !x->mup->Error(x->parser) || x->mup->GetErrorCode(x->parser) != UNKNOWN_NAME;
}

static int parser_error(const char *where, const char *key, const char *text, const expression *x, pt_error *e)
{
    char token[48], message[160], more[32] = "";
    snprintf(token, sizeof token, "%s", x->mup->GetErrorToken(x->parser));
    snprintf(message, sizeof message, "%s", x->mup->GetErrorMsg(x->parser));
    char *place = strstr(message, " at expression position");
    if (place || (place = strstr(message, " at position")))
        *place = '\0'; /* it counts from 0 */
    if (x->dim > 1)
        snprintf(more, sizeof more, " to x%lld", (long long)x->dim);
    const int position = x->mup->GetErrorPos(x->parser), end = (int)strlen(text), at = position < end ? position : end;
    const bool is_name = at >= 0 && (isalpha((unsigned char)token[0]) || token[0] == '_');
    const bool is_unknown = is_name && x->mup->GetErrorCode(x->parser) == UNKNOWN_NAME;
    if (is_unknown && is_function(x, token))
        return pt_fail(e, PT_FAILED, "%s: %s, column %d: \"%s\" is a function: put its arguments in parentheses, as in %s(x1)", where, key,
                       at + 1, token, token);
    if (is_unknown)
        return pt_fail(e, PT_FAILED,
                       "%s: %s, column %d: \"%s\" is unknown; use x1%s, pi, e, d and the functions of muParser", where, key, at + 1, token,
                       more);
    if (at >= 0)
        return pt_fail(e, PT_FAILED, "%s: %s, column %d: %s", where, key, at + 1, message);
    return pt_fail(e, PT_FAILED, "%s: %s: %s", where, key, message);
}

static void define(expression *x)
{
    static const char *const letters[] = {"x", "y", "z"};
    char name[NAME_BYTES];
    for (int64_t j = 0; j < x->dim; j++) {
        snprintf(name, sizeof name, "x%d", (int)j + 1);
        x->mup->DefineVar(x->parser, name, x->x + j);
        if (x->dim <= 3)
            x->mup->DefineVar(x->parser, letters[j], x->x + j);
    }
    x->mup->DefineConst(x->parser, "pi", 3.14159265358979323846);
    x->mup->DefineConst(x->parser, "e", 2.71828182845904523536);
    x->mup->DefineConst(x->parser, "d", (double)x->dim);
}

int expression_open(const char *where, const char *key, const char *text, int64_t dim, expression **out, pt_error *e)
{
    *out = NULL;
    const muparser *mup;
    int failed = check_text(where, key, text, e);
    failed = failed ? failed : muparser_load(&mup, e);
    if (failed)
        return failed;
    expression *x = calloc(1, sizeof *x);
    if (x)
        *x = (expression){mup, mup->Create(muBASETYPE_FLOAT), dim, calloc((size_t)dim, sizeof *x->x)};
    if (!x || !x->x || !x->parser) {
        expression_close(x);
        return pt_fail(e, PT_FAILED, "out of memory");
    }
    x->mup->SetErrorHandler(x->parser, on_error);
    define(x);
    x->mup->SetExpr(x->parser, text);
    for (int64_t j = 0; j < dim; j++)
        x->x[j] = 0.5;
    int results = 1;
    bool wrong = x->mup->Error(x->parser); /* this call clears the error */
    if (!wrong) {
        x->mup->EvalMulti(x->parser, &results);
        wrong = x->mup->Error(x->parser);
    }
    if (wrong)
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

void expression_close(expression *x)
{
    if (!x)
        return;
    if (x->parser)
        x->mup->Release(x->parser);
    free(x->x);
    free(x);
}

void expression_values(expression *x, int64_t n, int64_t dim, const double *points, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(x->x, points + i * dim, (size_t)dim * sizeof *points);
        out[i] = x->mup->Eval(x->parser);
        if (x->mup->Error(x->parser))
            out[i] = NAN;
    }
}
