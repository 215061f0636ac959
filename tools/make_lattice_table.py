"""Makes src/ritz/lattice_table.c: a generating vector for rank-1 lattices of any number of points 2^5 .. 2^18.

    python3 tools/make_lattice_table.py > src/ritz/lattice_table.c          takes minutes

Component by component. The error is that of the weighted Sobolev space of mixed first derivatives under random shifts, with product weights
1 / j^2; of CANDIDATES odd numbers, drawn with a fixed seed, the one is taken whose error, beside the least of any candidate for so many
points, is the smallest in the worst of all numbers of points.
"""
import numpy as np

DIMENSIONS, LEVELS, LEAST, CANDIDATES = 256, 18, 5, 96


def main():
    n = 1 << LEVELS
    k = np.arange(n, dtype=np.uint32)
    x = k / n
    kernel = x * x - x + 1 / 6
    random = np.random.Generator(np.random.Philox(52))
    product, vector = np.ones(n), []
    for j in range(1, DIMENSIONS + 1):
        candidates = np.unique(random.integers(0, n // 2, CANDIDATES, dtype=np.uint32) * 2 + 1)
        if j == 1:
            candidates = np.array([1], dtype=np.uint32)
        errors = np.empty((len(candidates), LEVELS + 1 - LEAST))
        for i, z in enumerate(candidates):
            q = product * (1 + kernel[(k * z) & np.uint32(n - 1)] / j**2)
            errors[i] = [q[:: n >> m].mean() - 1 for m in range(LEAST, LEVELS + 1)]
        z = candidates[np.argmin((errors / errors.min(axis=0)).max(axis=1))]
        product *= 1 + kernel[(k * z) & np.uint32(n - 1)] / j**2
        vector.append(int(z))
    print("/* lattice_table.c - made by tools/make_lattice_table.py, which says how. */")
    print('#include "ritz/lattice_table.h"\n')
    print("const uint32_t lattice_vector[LATTICE_DIMENSIONS] = {")
    for i in range(0, DIMENSIONS, 12):
        print("    " + ", ".join(map(str, vector[i:i + 12])) + ",")
    print("};")


main()
