"""Makes src/ritz/sobol_table.c: the direction numbers new-joe-kuo-6 (S. Joe and F. Y. Kuo, 2008) in 6 bits a character.

    python3 tools/make_sobol_table.py > src/ritz/sobol_table.c

Read from SciPy's copy of them. Of dimension 1 nothing is kept; of each other one, whose polynomial has degree s, the s - 1 inner
coefficients of the polynomial, highest first, and of m_2 .. m_s, which are odd and below 2^i, the i - 1 upper bits.
"""
import os

import numpy as np
import scipy.stats

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
COLUMNS = 120

LICENSE = """\
/* sobol_table.c - made by tools/make_sobol_table.py: direction numbers new-joe-kuo-6.
 *
 * S. Joe and F. Y. Kuo, Constructing Sobol sequences with better two-dimensional projections, SIAM J. Sci. Comput. 30, 2635-2654
 * (2008), and Remark on Algorithm 659, ACM Trans. Math. Softw. 29, 49-57 (2003). Their numbers come with this licence:
 *
 * Copyright (c) 2008, Frances Y. Kuo and Stephen Joe. All rights reserved.
 *
 * Redistribution and use in source and binary forms, with or without modification, are permitted provided that the following
 * conditions are met:
 *
 *     * Redistributions of source code must retain the above copyright notice, this list of conditions and the following disclaimer.
 *     * Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following
 *       disclaimer in the documentation and/or other materials provided with the distribution.
 *     * Neither the names of the copyright holders nor the names of the University of New South Wales and the University of Waikato
 *       and its contributors may be used to endorse or promote products derived from this software without specific prior written
 *       permission.
 *
 * THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE
 * IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDERS BE
 * LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT
 * OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF
 * LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF
 * THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
 */
#include "ritz/sobol_table.h"
"""


def main():
    table = np.load(os.path.join(os.path.dirname(scipy.stats.__file__), "_sobol_direction_numbers.npz"))
    poly, vinit = table["poly"], table["vinit"]
    bits, counts = [], {}

    def put(value, n):
        bits.extend(value >> i & 1 for i in range(n - 1, -1, -1))

    last = 1
    for p, m in zip(poly[1:], vinit[1:]):
        p, s = int(p), int(p).bit_length() - 1
        assert s >= last and p & 1 and int(m[0]) == 1
        last = s
        counts[s] = counts.get(s, 0) + 1
        put((p >> 1) & ((1 << (s - 1)) - 1), s - 1)
        for i in range(2, s + 1):
            v = int(m[i - 1])
            assert v & 1 and v < 1 << i
            put(v >> 1, i - 1)
        assert not m[s:].any()
    assert 1 + sum(counts.values()) == 21201
    bits += [0] * (-len(bits) % 6)
    text = "".join(ALPHABET[int("".join(map(str, bits[i:i + 6])), 2)] for i in range(0, len(bits), 6))
    print(LICENSE)
    print("const int sobol_polynomials[SOBOL_DEGREES] = {%s};\n" % ", ".join(str(counts[s]) for s in sorted(counts)))
    print("const char sobol_bits[] =")
    lines = [text[i:i + COLUMNS] for i in range(0, len(text), COLUMNS)]
    print("\n".join('    "%s"' % line for line in lines) + ";")


main()
