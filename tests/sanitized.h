/* sanitized.h - whether a test runs under AddressSanitizer or ThreadSanitizer, where what computes for long does less of the same. */
#ifndef PT_TEST_SANITIZED_H
#define PT_TEST_SANITIZED_H

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#endif
