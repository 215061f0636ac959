/* target.h - what a batch has in place of a target: an input without one, which others still see; padding, which is no input at all. */
#ifndef PT_TARGET_H
#define PT_TARGET_H

enum { TARGET_NONE = -100, TARGET_PADDING = -101 };

#endif
