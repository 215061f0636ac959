/* sanitized.h - whether a test runs under AddressSanitizer or ThreadSanitizer, or in an emulator, where what computes for long does less of
 * the same. Include cmocka.h before it is used. */
#ifndef PT_TEST_SANITIZED_H
#define PT_TEST_SANITIZED_H

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || defined PT_EMULATED
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#ifdef PT_EMULATED
enum { EMULATED = 1 }; /* no program can be executed but by PT_PROGRAM, so that ranks cannot start */
#else
enum { EMULATED = 0 };
#endif

#if defined __SANITIZE_THREAD__ || defined PT_EMULATED
enum { THREADS_SANITIZED = 1 };
#else
enum { THREADS_SANITIZED = 0 };
#endif

/* What a result is compared with is computed as fast as without a sanitizer. All that it calls has to be marked too, to be inlined. */
#define REFERENCE __attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))

/* Ends a test that cannot run under a sanitizer, or from which it learns no more than from others: what asks for the
 * quality of a result. */
#define NOT_SANITIZED() do { if (SANITIZED) skip(); } while (0)

/* Ends a test whose threads are those of others: it asks what one thread does. */
#define NO_OTHER_THREADS() do { if (THREADS_SANITIZED) skip(); } while (0)

#endif
