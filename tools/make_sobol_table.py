"""Makes src/ritz/sobol_table.bin: the direction numbers new-joe-kuo-6 (S. Joe and F. Y. Kuo, 2008), packed bit by bit.

    python3 tools/make_sobol_table.py src/ritz/sobol_table.bin

Prints the numbers of dimensions by degree, for sobol_table.c. Read from SciPy's copy of them. Of dimension 1 nothing is kept; of each other one, whose polynomial has degree s, the s - 1 inner
coefficients of the polynomial, highest first, and of m_2 .. m_s, which are odd and below 2^i, the i - 1 upper bits.
"""
import os
import pathlib
import sys

import numpy as np
import scipy.stats


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
    pathlib.Path(sys.argv[1]).write_bytes(np.packbits(bits).tobytes())
    print(", ".join(str(counts[s]) for s in sorted(counts)))


main()
