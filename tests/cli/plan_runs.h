/* plan_runs.h - a slow machine, plans that are refused, and a fresh cache of profiles. Include after cmocka.h. */
#ifndef PT_TEST_PLAN_RUNS_H
#define PT_TEST_PLAN_RUNS_H

#include "cli/planned.h"

/* So slow that no other's noise hides it. A profile that said so would be refused: it has to agree with its checks. */
static inline const char *slow_machine(void)
{
    return put_text("slow.json",
                    "{\"name\": \"slow\", \"kind\": \"cpu\", \"device\": {\"memory_bytes\": 1073741824, \"memory_bandwidth\": 1e7, "
                                 "\"bf16_flops\": 1e7, \"fp32_flops\": 1e7, \"kernel_s\": 0.1}}");
}

/* 3, and what is missing is more than nothing: the budget of the device that it says would do, "" where it names none. */
static inline const char *refused(words options, words more, json_int_t *missing)
{
    static char option[32];
    assert_int_equal(plan_with(options, more), 3);
    json_t *o = printed();
    option[0] = 0;
    sscanf(json_string_value(json_object_get(o, "smallest_change")), "--device-memory %31s", option);
    *missing = json_integer_value(json_object_get(o, "missing_bytes"));
    assert_true(*missing > 0);
    json_decref(o);
    return option;
}

/* No profile that is kept from before; cache_back undoes it. */
static char kept_cache[500];

static inline void cache_fresh(const char *name)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    snprintf(kept_cache, sizeof kept_cache, "%s", cache ? cache : "");
    assert_int_equal(setenv("XDG_CACHE_HOME", scratch_path(name), 1), 0);
}

static inline void cache_back(void)
{
    assert_int_equal(kept_cache[0] ? setenv("XDG_CACHE_HOME", kept_cache, 1) : unsetenv("XDG_CACHE_HOME"), 0);
}

#endif
