/* profile_parts.h - the two parts of a profile, each kept in its own file. Internal to profile/ and measure/. */
#ifndef PT_PROFILE_PARTS_H
#define PT_PROFILE_PARTS_H

#include "base/json.h"
#include "io/files.h"
#include "profile/profile.h"

extern const char *const profile_part_names[PROFILE_PARTS];

/* Sizes that grow with the model, so that small models are measured quickly: elements of the largest part for which updates and gradients
 * are measured (RATES_LEAST * 4^n; the last RATES_LARGEST if that fits), bytes of the largest transfer (LINKS_LEAST * 4^n). */
enum { RATES_LEAST = 4 << 10, RATES_MOST = 16 << 20, RATES_LARGEST = 2 * RATES_MOST, LINKS_LEAST = 64 << 10, LINKS_MOST = 64 << 20 };
enum { CHECK_ELEMENTS = 1 << 20, CHECK_BYTES = 4 << 20 }; /* limits of the update and the transfer that are repeated as checks */
int64_t rates_elements(const model *m);
int64_t timed_matmul_rows(const profile_request *req); /* of the matmul that represents a unit on a CPU: as few as suffice */
uint64_t links_bytes(const model *m);
/* Size of the file in which disk transfers are measured. Some disks change their speed after a certain amount was written
 * (measure_links.c); most plans of a model with states of 4 GiB or more write that much, few plans of others. */
uint64_t links_file_bytes(const model *m);
bool links_have_disk(const profile_request *req);
/* The path, or its nearest existing parent. */
int existing_folder(const char *path, char out[FILE_PATH_BYTES], pt_error *e);

enum { SLOW_MOST = 50 }; /* limit of the factor by which a cost_class slows another one down */

/* What a part is for: an object of names and values; NULL: out of memory. */
json_t *profile_made_for(profile_part p, const profile_request *req);
/* Whether a part that was made for `have` may be used for `want`; `where` is for the message. */
int profile_is_for(const char *where, const json_t *have, const json_t *want, pt_error *e);
/* 16 hexadecimal digits. */
void profile_fingerprint(const json_t *made_for, char out[32]);

/* {"blocks": {...}}, {"machine": {...}}, or both; malloc'ed. `parts`: a bit set. */
char *profile_parts_to_json(unsigned parts, const profile_request *req, const profile_result *result);
/* Fills in the fields of those parts, which must be there. */
int profile_parts_from_json(unsigned parts, const char *name, const char *json, size_t n, const profile_request *req,
                            profile_result *out, pt_error *e);

/* Whether the costs of a part agree with its checks: else PT_FAILED names the key (`name`: the file). (profile_agree.c) */
int profile_agrees(profile_part part, const char *name, const profile_request *req, const profile_result *result, pt_error *e);

/* The cache: 0, or negative where there is none or nothing that can be used. */
int profile_cache_load(profile_part p, const profile_request *req, profile_result *out);
void profile_cache_store(profile_part p, const profile_request *req, const profile_result *result);

#endif
