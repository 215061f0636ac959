/* The body of a request to the server: parsed or refused with a sentence. */
#include "serve/request.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int chat = 0; chat < 2; chat++) {
        serve_request r;
        pt_error e = {0};
        if (serve_request_parse((const char *)data, size, chat, &r, &e)) {
            assert(e.code == PT_FAILED && strlen(e.text) > 10);
            continue;
        }
        assert(chat ? json_array_size(r.messages) > 0 : r.prompt != NULL);
        assert(r.most_tokens == -1 || r.most_tokens >= 1);
        for (int i = 0; i < r.stops_n; i++)
            assert(strlen(r.stops[i]) > 0);
        serve_request_free(&r);
    }
    return 0;
}
