/* sobol_table.h - direction numbers, as tools/make_sobol_table.py has packed them; its first comment says how. */
#ifndef PT_SOBOL_TABLE_H
#define PT_SOBOL_TABLE_H

enum { SOBOL_DEGREES = 18 };
extern const int sobol_polynomials[SOBOL_DEGREES]; /* dimensions whose polynomial has degree 1, 2, ... */
extern const unsigned char sobol_bits[]; /* eight a byte, the highest first */

#endif
