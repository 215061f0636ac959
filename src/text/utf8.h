/* utf8.h - code points in and out of UTF-8, and the byte <-> character alphabet of byte-level BPE. */
#ifndef PT_UTF8_H
#define PT_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The length of the well-formed sequence at the start of s (1 to 4), or 0 if it is not well-formed: overlong forms, surrogates and values
 * past U+10FFFF are not. */
static inline unsigned utf8_check(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0)
        return 0;
    if (u[0] < 0x80)
        return 1;
    if (u[0] < 0xc2 || u[0] > 0xf4 || n < 2)
        return 0;
    if (u[0] < 0xe0)
        return (u[1] & 0xc0) == 0x80 ? 2 : 0;
    unsigned char low = 0x80, high = 0xbf; /* range of the second byte */
    if (u[0] == 0xe0)
        low = 0xa0;
    else if (u[0] == 0xed)
        high = 0x9f;
    else if (u[0] == 0xf0)
        low = 0x90;
    else if (u[0] == 0xf4)
        high = 0x8f;
    if (u[1] < low || u[1] > high)
        return 0;
    unsigned length = u[0] < 0xf0 ? 3 : 4;
    for (unsigned i = 2; i < length; i++)
        if (i >= n || (u[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

/* The code point at s, which must be well-formed; *length is its number of bytes. */
static inline uint32_t utf8_read(const char *s, unsigned *length)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *length = 1;
        return u[0];
    }
    if (u[0] < 0xe0) {
        *length = 2;
        return (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    }
    if (u[0] < 0xf0) {
        *length = 3;
        return (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    }
    *length = 4;
    return (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3f) << 12 | (uint32_t)(u[2] & 0x3f) << 6 |
           (u[3] & 0x3f);
}

/* Writes a code point to s (room for 4 bytes); returns the number of bytes. */
static inline unsigned utf8_write(uint32_t c, char *s)
{
    if (c < 0x80) {
        s[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        s[0] = (char)(0xc0 | c >> 6);
        s[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        s[0] = (char)(0xe0 | c >> 12);
        s[1] = (char)(0x80 | (c >> 6 & 0x3f));
        s[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    s[0] = (char)(0xf0 | c >> 18);
    s[1] = (char)(0x80 | (c >> 12 & 0x3f));
    s[2] = (char)(0x80 | (c >> 6 & 0x3f));
    s[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* The length of the longest well-formed prefix. */
static inline size_t utf8_valid_prefix(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= 8 && (memcpy(&eight, s + i, 8), !(eight & 0x8080808080808080u))) {
            i += 8;
            continue;
        }
        unsigned length = utf8_check(s + i, n - i);
        if (length == 0)
            break;
        i += length;
    }
    return i;
}

/* Byte-level BPE spells each byte as one printable character (Radford et al. 2019): printable Latin-1
 * stands for itself, and the other 68 bytes are U+0100 onwards, in order. */
static inline uint32_t byte_to_character(unsigned char b)
{
    if (b <= 0x20)
        return 0x100u + b;
    if (b >= 0x7f && b <= 0xa0)
        return 0x121u + (b - 0x7fu);
    return b == 0xad ? 0x143u : b;
}

/* The byte that a character stands for, or -1. */
static inline int character_to_byte(uint32_t c)
{
    if (c >= 0x100 && c <= 0x120)
        return (int)(c - 0x100);
    if (c >= 0x121 && c <= 0x142)
        return (int)(c - 0x121 + 0x7f);
    if (c == 0x143)
        return 0xad;
    return c < 0x100 && byte_to_character((unsigned char)c) == c ? (int)c : -1;
}

#endif
