/* simplex.h - small dense linear programs:
 *
 *   min cost . x   with   a x = b,  x >= 0
 *
 * The caller names a variable for each row that starts in the basis; with them alone the rows must have a solution of at least 0. */
#ifndef PT_SIMPLEX_H
#define PT_SIMPLEX_H

/* rows + 1 rows of columns + 1 numbers, row by row: a and in the last column b; the last row is the cost, and 0. basis: rows. */
typedef struct simplex { int rows, columns; double *at; int *basis; } simplex;

/* Minimizes, in place. The last row is then the reduced cost of each variable: of a row's slack it is that row's multiplier. It ends after
 * `most` changes of the basis even if it is not at the minimum. */
void simplex_solve(simplex *x, int most);

#endif
