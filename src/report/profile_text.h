/* profile_text.h - a profile as a screen of text. */
#ifndef PT_PROFILE_TEXT_H
#define PT_PROFILE_TEXT_H

#include "profile/profile.h"

char *profile_text(const profile_request *req, const profile_result *result); /* malloc'ed, NULL: out of memory */

#endif
