/* A page is one file that loads nothing, and its columns hold what the trace has. */
#include "test/test.h"
#include "tool/page/page.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "env/file/file.h"

enum { SPANS = 3000, STEP_NS = 1000 };

static const ru_trace_name names[2] = {{"op", "</script><b>"}, {"train", "step"}};

static int64_t from_base64(char *s, int64_t n, uint8_t *into)
{
    int64_t at = 0;
    for (int64_t i = 0; i + 3 < n; i += 4) {
        uint32_t v = 0;
        for (int64_t k = 0; k < 4; k++) {
            char c = s[i + k];
            uint32_t d = c >= 'A' && c <= 'Z'   ? (uint32_t)(c - 'A')
                         : c >= 'a' && c <= 'z' ? (uint32_t)(c - 'a') + 26
                         : c >= '0' && c <= '9' ? (uint32_t)(c - '0') + 52
                         : c == '+'             ? 62
                         : c == '/'             ? 63
                                                : 0;
            v = v << 6 | d;
        }
        into[at++] = (uint8_t)(v >> 16);
        into[at++] = (uint8_t)(v >> 8);
        into[at++] = (uint8_t)v;
    }
    return at;
}

static ru_status write_page(ru_arena *arena, const char *path, ru_err *err)
{
    ru_record *records = RU_NEW(arena, ru_record, SPANS);
    for (int64_t i = 0; i < SPANS; i++) {
        records[i] = (ru_record){.start_ns = 5000 + i * STEP_NS, .dur_ns = (uint32_t)(1 + i % 900)};
    }
    ru_trace_thread thread = {.name = "main", .records = records, .n = SPANS};
    ru_trace t = {.process = "rubato",
                  .rank = 1,
                  .names = names,
                  .n_names = 2,
                  .threads = &thread,
                  .n_threads = 1,
                  .records = SPANS,
                  .first_ns = 5000,
                  .last_ns = 5000 + SPANS * STEP_NS};
    ru_rank_steps steps = {0};
    ru_span_facts facts;
    RU_TRY(ru_trace_fold(&t, arena, &facts, err));
    ru_page_in in = {
        .title = "a<b>", .about = "about", .traces = &t, .steps = &steps, .facts = &facts, .n = 1};
    return ru_page_write(&in, path, arena, err);
}

static void test_columns(void **state)
{
    (void)state;
    char root[] = "/tmp/rubato-test-XXXXXX";
    ru_arena arena;
    ru_err err = {0};
    char *text;
    int64_t size;
    ru_arena_init(&arena, 0);
    assert_non_null(mkdtemp(root));
    const char *path = ru_path_join(&arena, root, "page.html");
    assert_ok(write_page(&arena, path, &err), err);
    assert_ok(ru_file_read(path, 0, &arena, &text, &size, &err), err);
    assert_null(strstr(text, "http:"));
    assert_null(strstr(text, "https:"));
    assert_null(strstr(text, "a<b>"));
    assert_null(strstr(text, "</script><b>"));
    assert_non_null(strstr(text, "<title>a&lt;b&gt;</title>"));
    char *data = strstr(text, "octet-stream\">");
    assert_non_null(data);
    data = strchr(data, '>') + 1;
    char *end = strchr(data, '<');
    uint8_t *packed = ru_arena_alloc(&arena, end - data + 4, 8);
    static uint32_t raw[1 << 16];
    z_stream z = {.next_in = packed,
                  .avail_in = (uInt)from_base64(data, end - data, packed),
                  .next_out = (uint8_t *)raw,
                  .avail_out = sizeof raw};
    assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
    assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
    inflateEnd(&z);
    /* 4 bytes of length, 4 of padding, the head, then gaps and durations. */
    const uint32_t *gap = raw + 2 + (raw[0] + 7) / 8 * 2, *dur = gap + SPANS;
    assert_int_equal(gap[0], 0);
    for (uint32_t i = 1; i < SPANS; i++) {
        assert_int_equal(gap[i], STEP_NS);
        assert_int_equal(dur[i], 1 + i % 900);
    }
    assert_ok(ru_path_remove(root, &err), err);
    ru_arena_fini(&arena);
}

#define T(f) cmocka_unit_test(f)
RU_TESTS(tool_page, T(test_columns))
