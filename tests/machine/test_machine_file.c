#include "../../fuzz/fuzz_machine.c"

#include "base/json.h"
#include "io/files.h"
#include "io/mutate.h"
#include "seed.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static const char whole[] =
    "{\"name\": \"Test\", \"kind\": \"cuda\",\n"
    " \"device\": {\"memory_bytes\": 8589934592, \"memory_bandwidth\": 5e11, \"memory_efficiency\": 0.9, \"bf16_flops\": 5e13,"
    " \"fp32_flops\": 1e13, \"matmul_efficiency\": 0.8, \"kernel_s\": 4e-6},\n"
    " \"host\": {\"memory_bytes\": 34359738368, \"memory_bandwidth\": 8e10, \"memory_efficiency\": 0.75, \"cores\": 24,\n"
    "          \"core_bandwidth\": 7e9},\n"
    " \"link\": {\"to_device_bandwidth\": 1.2e10, \"from_device_bandwidth\": 1.3e10, \"latency_s\": 1e-5, \"both_ways\": 0.9},\n"
    " \"disk\": {\"bytes\": 1000000000000, \"read_bandwidth\": 3e9, \"write_bandwidth\": 2e9, \"latency_s\": 1e-4, \"both_ways\": 0.6},\n"
    " \"ranks\": 4, \"devices\": 2, \"collective_bandwidth\": 6e9, \"network_bandwidth\": 3e9, "
    "\"sources\": {\"device.bf16_flops\": \"a data sheet\"}}";

static int read_text(const char *text, machine_spec *x, pt_error *e) { return machine_from_json("m.json", text, strlen(text), x, e); }

static void every_figure_is_read(void **state)
{
    (void)state;
    machine_spec x;
    pt_error e = {0};
    if (read_text(whole, &x, &e))
        fail_msg("%s", e.text);
    assert_string_equal(x.name, "Test");
    assert_true(x.cuda && x.ranks == 4 && x.devices == 2 && x.collective_bandwidth == 6e9 && x.network_bandwidth == 3e9);
    assert_true(x.memory_bytes[TIER_DEVICE] == 8589934592u && x.memory_bytes[TIER_HOST] == 34359738368u &&
                x.memory_bytes[TIER_DISK] == 1000000000000u);
    assert_true(x.memory_bandwidth[TIER_DEVICE] == 5e11 && x.memory_efficiency[TIER_DEVICE] == 0.9);
    assert_true(x.memory_bandwidth[TIER_HOST] == 8e10 && x.memory_efficiency[TIER_HOST] == 0.75);
    assert_true(x.host_cores == 24 && x.core_bandwidth == 7e9);
    assert_true(x.bf16_flops == 5e13 && x.fp32_flops == 1e13 && x.matmul_efficiency == 0.8 && x.kernel_s == 4e-6);
    assert_true(x.to_device_bandwidth == 1.2e10 && x.from_device_bandwidth == 1.3e10 && x.link_latency_s == 1e-5 &&
                x.link_both_ways == 0.9);
    assert_true(x.read_bandwidth == 3e9 && x.write_bandwidth == 2e9 && x.disk_latency_s == 1e-4 && x.disk_both_ways == 0.6);
}

static void tiers_that_are_missing_do_not_exist(void **state)
{
    (void)state;
    machine_spec x;
    pt_error e = {0};
    assert_int_equal(read_text("{\"name\": \"Small\", \"kind\": \"cpu\", \"device\": {\"memory_bytes\": 1e9, \"memory_bandwidth\": 2e10, "
                               "\"bf16_flops\": 1e11, \"fp32_flops\": 1e11}}", &x, &e), 0);
    assert_true(!x.cuda && x.memory_bytes[TIER_HOST] == 0 && x.memory_bytes[TIER_DISK] == 0);
    assert_true(x.ranks == 1 && x.matmul_efficiency == 1 && x.memory_efficiency[TIER_DEVICE] == 1 && x.kernel_s == 0);
}

/* `from` replaced by `to` in the whole file must be refused with the file and the words of `named`. */
static void refused(const char *from, const char *to, const char *named)
{
    char text[2048];
    const char *at = strstr(whole, from);
    machine_spec x;
    pt_error e = {0};
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from));
    assert_int_equal(read_text(text, &x, &e), PT_FAILED);
    if (strncmp(e.text, "m.json", 6) || !strstr(e.text, named))
        fail_msg("\"%s\" for %s does not name %s", e.text, to, named);
}

static void lies_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const lies[] = {"0", "-5e11", "null", "1e30", "\"fast\"", "true", "[5e11]", "1e5", "1e999", "NaN"};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        bool parses = i < 8;
        refused("5e11", lies[i], parses ? "memory_bandwidth" : "m.json:");
        refused("1.2e10", lies[i], parses ? "to_device_bandwidth" : "m.json:");
        refused("2e9", lies[i], parses ? "write_bandwidth" : "m.json:");
        refused("6e9", lies[i], parses ? "collective_bandwidth" : "m.json:");
        refused("5e13", parses && i == 7 ? "1e5" : lies[i], parses ? "bf16_flops" : "m.json:");
    }
    refused("8589934592", "0", "memory_bytes");
    refused("8589934592", "-1", "memory_bytes");
    refused("8589934592", "1e18", "memory_bytes");
    refused("0.9,", "1.5,", "memory_efficiency");
    refused("0.9,", "0,", "memory_efficiency");
    refused("0.9}", "0}", "both_ways");
    refused("4e-6", "-1", "kernel_s");
    refused("1e-5", "100", "latency_s");
    refused("24,", "0,", "cores");
    refused("7e9", "0", "core_bandwidth");
    refused("\"ranks\": 4", "\"ranks\": 0", "ranks");
    refused("\"ranks\": 4", "\"ranks\": 2.5", "ranks");
    refused("\"collective_bandwidth\": 6e9,", "", "collective_bandwidth");
    refused("\"network_bandwidth\": 3e9,", "", "network_bandwidth");
    refused("\"devices\": 2", "\"devices\": 0", "devices");
}

static void wrong_shapes_are_refused_by_name(void **state)
{
    (void)state;
    refused("\"cuda\"", "\"tpu\"", "kind");
    refused("\"Test\"", "\"\"", "name");
    refused("\"Test\"", "7", "name");
    refused("\"Test\"", "\"a\\u001b[31m\"", "control character at byte 1");
    refused("\"Test\"", "\"ab\\u009b\"", "control character at byte 2");
    refused("\"ranks\"", "\"rnaks\"", "rnaks");
    refused("\"both_ways\"", "\"bothways\"", "bothways");
    refused("\"device\": {", "\"device\": 5, \"other\": {", "other");
    refused("\"host\": {", "\"ghost\": {", "ghost");
    refused("\"device.bf16_flops\": \"a", "\"device.speed\": \"a", "device.speed");
    refused("\"a data sheet\"", "5", "device.bf16_flops");
    refused("\"memory_bandwidth\": 8e10, ", "", "memory_bandwidth");
    machine_spec x;
    pt_error e = {0};
    assert_int_equal(read_text("[1]", &x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "m.json: holds a list"));
    assert_int_equal(read_text("{\"name\": \"a\", \"kind\": \"cuda\", \"device\": {\"memory_bytes\": 1e9, \"memory_bandwidth\": 2e10, "
                               "\"bf16_flops\": 1e11, \"fp32_flops\": 1e11}, \"host\": {\"memory_bytes\": 1e9, \"memory_bandwidth\": "
                               "2e10}}",
                               &x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "no \"link\""));
}

static void damaged_files_are_refused_or_whole(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    const char *seeds[] = {whole};
    size_t lengths[] = {sizeof whole - 1};
    mutate_run(seeds, lengths, 1, seed, 20000);
}

/* ---- those that come with the program ---- */

static void read_page(char **text)
{
    char path[MACHINE_PATH_BYTES + 16];
    size_t n;
    pt_error e = {0};
    if (machine_file_find("h100", path, &e))
        fail_msg("%s", e.text);
    strcpy(strrchr(path, '/'), "/README.md");
    if (file_read_all(path, 1 << 20, text, &n, &e))
        fail_msg("%s", e.text);
}

/* Before a colon it says which document, unless it was assumed or measured. */
static void is_a_document(const char *part, size_t n, const char *page)
{
    const char *end = memchr(part, ':', n);
    char code[128];
    if (!end)
        fail_msg("\"%.*s\" does not say which document", (int)n, part);
    snprintf(code, sizeof code, "`%.*s`", (int)(end - part), part);
    if (strcmp(code, "`assumed`") && strncmp(part, "measured for this file", 22) && !strstr(page, code))
        fail_msg("%s is not among the documents of machines/README.md", code);
}

/* Documents are divided by semicolons. */
static void has_source(const json_t *file, const json_t *sources, const char *section, const char *key, const char *page)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s%s", section ? section : "", section ? "." : "", key);
    const char *text = json_string_value(json_object_get(sources, name));
    if (!text || strlen(text) < 8)
        fail_msg("%s: %s has no source", json_string_value(json_object_get(file, "name")), name);
    for (const char *end; (end = strstr(text, "; ")); text = end + 2)
        is_a_document(text, (size_t)(end - text), page);
    is_a_document(text, strlen(text), page);
}

/* Reads it, and finds a source for every figure in it. */
static void check_file(const char *path, const char *page)
{
    machine_spec x;
    pt_error e = {0};
    json_t *file, *section, *figure;
    const char *name, *key;
    if (machine_file_read(path, &x, &e) || json_file_load(path, 0, &file, &e))
        fail_msg("%s", e.text);
    machine_check(&x);
    const json_t *sources = json_object_get(file, "sources");
    json_object_foreach(file, name, section) {
        if (json_is_object(section) && strcmp(name, "sources"))
            json_object_foreach(section, key, figure)
                has_source(file, sources, name, key, page);
        else if (json_is_number(section))
            has_source(file, sources, NULL, name, page);
    }
    json_decref(file);
}

static void the_programs_machines_are_found_and_every_figure_has_a_source(void **state)
{
    (void)state;
    static const char *const names[] = {"rtx3090", "rtx4090", "a100-40", "a100-80", "h100", "h200", "gh200", "laptop16",
                                        "a10", "a6000", "b200", "l4", "l40s", "rtx-pro-6000", "rtx3060-12", "rtx4070", "rtx5090",
                                        "gb10", "thor", "orin", "graviton4", "altra"};
    char *page;
    read_page(&page);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[MACHINE_PATH_BYTES], again[MACHINE_PATH_BYTES], with[64];
        pt_error e = {0};
        if (machine_file_find(names[i], path, &e))
            fail_msg("%s", e.text);
        check_file(path, page);
        snprintf(with, sizeof with, "%s.json", names[i]);
        assert_int_equal(machine_file_find(with, again, &e), 0);
        assert_string_equal(path, again);
        assert_int_equal(machine_file_find(path, again, &e), 0); /* a path is itself */
        assert_string_equal(path, again);
    }
    free(page);
}

/* ---- machines/README.md ---- */

static void is_listed(const char *text, const char *section, const char *key)
{
    char code[128];
    snprintf(code, sizeof code, "`%s%s%s`", section, *section ? "." : "", key);
    if (!strstr(text, code))
        fail_msg("%s is not in machines/README.md", code);
}

static void the_page_of_machine_files_lists_every_key_and_its_example_works(void **state)
{
    (void)state;
    pt_error e = {0};
    machine_spec x;
    json_t *all, *section, *value;
    const char *name, *key;
    char *text;
    read_page(&text);
    const char *example = strstr(text, "```json\n");
    assert_int_equal(json_text_load("whole", whole, strlen(whole), 0, &all, &e), 0);
    json_object_foreach(all, name, section) {
        is_listed(text, "", name);
        if (json_is_object(section) && strcmp(name, "sources"))
            json_object_foreach(section, key, value)
                is_listed(text, name, key);
    }
    json_decref(all);
    assert_non_null(example);
    example += strlen("```json\n");
    if (machine_from_json("machines/README.md", example, (size_t)(strstr(example, "```") - example), &x, &e))
        fail_msg("%s", e.text);
    assert_int_equal(x.ranks, 2);
    free(text);
}

static void an_unknown_machine_is_refused_with_the_known_names(void **state)
{
    (void)state;
    char path[MACHINE_PATH_BYTES];
    machine_spec x;
    pt_error e = {0};
    assert_int_equal(machine_file_find("abacus", path, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "\"abacus\""));
    assert_non_null(strstr(e.text, "rtx3090"));
    assert_int_equal(machine_file_find("", path, &e), PT_FAILED);
    assert_int_equal(machine_file_find("no/such/machine.json", path, &e), 0); /* a path: reading says what is wrong */
    assert_int_equal(machine_file_read(path, &x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "no/such/machine.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_figure_is_read),
        cmocka_unit_test(tiers_that_are_missing_do_not_exist),
        cmocka_unit_test(lies_are_refused_by_name),
        cmocka_unit_test(wrong_shapes_are_refused_by_name),
        cmocka_unit_test(damaged_files_are_refused_or_whole),
        cmocka_unit_test(the_programs_machines_are_found_and_every_figure_has_a_source),
        cmocka_unit_test(the_page_of_machine_files_lists_every_key_and_its_example_works),
        cmocka_unit_test(an_unknown_machine_is_refused_with_the_known_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
