/* muparser.h - muParser, loaded when the first expression is read.
 *
 * It is not linked, because it brings OpenMP along: with OMP_PROC_BIND in the environment, that binds the thread that loads it, and every
 * thread which that one starts later, to one processor. Here the thread gets its processors back.
 */
#ifndef PT_MUPARSER_H
#define PT_MUPARSER_H

#include "base/error.h"

#include <muParserDLL.h>

#define MUPARSER_FUNCTIONS(X) \
    X(Create) X(Release) X(SetExpr) X(DefineVar) X(DefineConst) X(SetErrorHandler) X(Eval) X(EvalMulti) X(Error) X(GetErrorToken) \
    X(GetErrorMsg) X(GetErrorPos) X(GetErrorCode)

#define MUPARSER_MEMBER(name) __typeof__(mup##name) *name;
typedef struct muparser { MUPARSER_FUNCTIONS(MUPARSER_MEMBER) } muparser;
#undef MUPARSER_MEMBER

/* The same for every caller and thread, and never unloaded. PT_FAILED: the library is missing. */
int muparser_load(const muparser **out, pt_error *e);

#endif
