/* Blocks of nothing, and nothing where bytes should be, by each codec; what they unpack is in data.tables. */
#include "data/unpack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const block_packing all[] = {BLOCK_PLAIN, BLOCK_SNAPPY, BLOCK_GZIP, BLOCK_ZSTD, BLOCK_BROTLI, BLOCK_LZ4, BLOCK_LZ4_FRAME};

static void nothing_is_a_block_of_no_bytes(void **state)
{
    char out[8];
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_null(unpack_block(all[i], "", 0, out, 0));
        assert_non_null(unpack_block(all[i], "", 0, out, 1));
        assert_non_null(unpack_block(all[i], "\1", 1, out, 8));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_a_block_of_no_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
