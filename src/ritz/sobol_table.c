/* sobol_table.c - the direction numbers new-joe-kuo-6, from sobol_table.bin, which tools/make_sobol_table.py makes.
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

const int sobol_polynomials[SOBOL_DEGREES] = {1, 1, 2, 2, 6, 6, 18, 16, 48, 60, 176, 144, 630, 756, 1800, 2048, 7710, 7776};

/* The path of sobol_table.bin is a definition of CMakeLists.txt. */
__asm__(".pushsection .rodata\n"
        ".globl sobol_bits\n"
        ".hidden sobol_bits\n"
        ".type sobol_bits, %object\n"
        "sobol_bits:\n"
        ".incbin \"" PT_SOBOL_TABLE "\"\n"
        ".size sobol_bits, . - sobol_bits\n"
        ".popsection\n");
