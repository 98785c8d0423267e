/* Messages of workers: every kind comes back as it was told, in any pieces, between other bytes;
 * frames of other versions; hostile frames. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "run/message.h"
#include "test/test.h"

enum { HEAD = 12, CRC = 4 };

typedef struct heard {
    char json[1 << 14], text[1 << 12];
    int64_t n_json, n_text;
    uint32_t n, kinds[64];
    ru_msg_progress progress;
    ru_msg_view view;
    char address[128];
} heard;

static void on_message(void *self, const ru_msg *m)
{
    heard *h = self;
    assert_true(h->n < RU_ARRAY_LEN(h->kinds));
    h->kinds[h->n++] = m->kind;
    if (m->kind <= RU_MSG_SUMMARY) {
        ru_text t = ru_text_into(h->json + h->n_json, (int64_t)sizeof h->json - h->n_json);
        ru_msg_json(m, &t);
        assert_false(t.cut);
        h->n_json += t.n;
    } else if (m->kind == RU_MSG_PROGRESS) {
        assert_string_equal(m->progress.loss.name, "loss");
        h->progress = m->progress;
        h->progress.loss.name = "lo\x1bss"; /* a terminal does not obey it */
    } else if (m->kind == RU_MSG_VIEW) {
        h->view = m->view;
    } else if (m->kind == RU_MSG_ADDRESS) {
        (void)snprintf(h->address, sizeof h->address, "%s", m->address.address);
    }
}

static void on_text(void *self, const char *data, int64_t n)
{
    heard *h = self;
    assert_true(h->n_text + n <= (int64_t)sizeof h->text);
    memcpy(h->text + h->n_text, data, (size_t)n);
    h->n_text += n;
}

static ru_msg_event event(void)
{
    ru_msg_event e = {
        .step = 7, .what = "replan", .worker = 3, .more = ru_run_report_details_none()};
    e.more.shares = "1:20 2:\"44\"";
    e.more.predicted_compute_s = 0.1;
    return e;
}

static const ru_metrics metrics = {.at = {{"accuracy", 0.5}, {"loss", 1e-9}}, .n = 2};

static uint32_t all_kinds(ru_msg out[RU_MSG_KINDS])
{
    uint32_t n = 0;
    out[n++] = (ru_msg){.kind = RU_MSG_START,
                        .start = {.run = "r",
                                  .out = "a/\"r\"",
                                  .parameters = INT64_MAX,
                                  .workers = 2,
                                  .name = "n",
                                  .model = "mlp",
                                  .device = "cpu",
                                  .precision = "f32",
                                  .steps = -1,
                                  .open_s = 1.0 / 3}};
    out[n++] = (ru_msg){.kind = RU_MSG_STEP,
                        .step = {.step = 1,
                                 .loss = {"log_likelihood", (double)INFINITY},
                                 .lr = 0.1,
                                 .accuracy = RU_NAN,
                                 .norm = 2.5,
                                 .noise = RU_NAN,
                                 .compute_s = RU_NAN}};
    out[n++] = (ru_msg){.kind = RU_MSG_EVAL, .eval = {.step = 1, .metric = metrics}};
    out[n++] = (ru_msg){.kind = RU_MSG_EVENT, .event = event()};
    out[n++] = (ru_msg){.kind = RU_MSG_SUMMARY,
                        .summary = {.steps = 9, .metric = metrics, .wait_s = 4, .ended = "done"}};
    out[n++] = (ru_msg){.kind = RU_MSG_PROGRESS,
                        .progress = {.step = 5,
                                     .steps = 10,
                                     .epoch = 1,
                                     .epochs = 2,
                                     .loss = {"loss", 0.25},
                                     .accuracy = 0.5,
                                     .samples_per_s = 1234567,
                                     .left_s = 83,
                                     .members = 3,
                                     .voters = 1}};
    out[n++] = (ru_msg){.kind = RU_MSG_ADDRESS, .address = {"10.0.0.1:4000"}};
    out[n++] = (ru_msg){.kind = RU_MSG_NUMBER, .number = {3}};
    out[n++] =
        (ru_msg){.kind = RU_MSG_VIEW,
                 .view = {.epoch = 4, .n = 3, .numbers = {1, 3, 9}, .last = 9, .address = "h:9"}};
    assert_int_equal(n, RU_MSG_KINDS);
    return n;
}

/* All kinds in one buffer, with text around them. */
static int64_t write_all(uint8_t *into, int64_t cap)
{
    ru_msg all[RU_MSG_KINDS];
    int64_t n = 0;
    for (uint32_t k = 0; k < all_kinds(all); k++) {
        memcpy(into + n, "hi\x1eRu\n", 6);
        n += 6;
        int64_t frame = ru_msg_write(&all[k], into + n, cap - n);
        assert_true(frame > HEAD + CRC);
        n += frame;
    }
    return n;
}

static void every_kind_comes_back_in_any_pieces(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 15];
    static heard h;
    static ru_msg_in in;
    char line[512];
    ru_msg all[RU_MSG_KINDS];
    int64_t n = write_all(bytes, sizeof bytes);
    (void)all_kinds(all);
    for (int64_t piece = 1; piece < n + 7; piece += 1 + piece / 2) {
        h = (heard){0};
        in = (ru_msg_in){.message = on_message, .text = on_text, .self = &h};
        for (int64_t i = 0; i < n; i += piece) {
            ru_msg_read(&in, (const char *)bytes + i, n - i < piece ? n - i : piece);
        }
        ru_msg_read_end(&in);
        assert_int_equal(h.n, RU_MSG_KINDS);
        assert_int_equal(h.n_text, 6 * RU_MSG_KINDS);
        assert_memory_equal(h.text, "hi\x1eRu\nhi\x1eRu\n", 12);
        static char json[1 << 14];
        ru_text t = ru_text_into(json, sizeof json);
        for (uint32_t k = 0; k <= RU_MSG_SUMMARY; k++) {
            ru_msg_json(&all[k], &t);
        }
        assert_string_equal(h.json, json);
        assert_true(h.progress.loss.value == 0.25 && h.progress.left_s == 83);
        assert_int_equal(h.view.n, 3);
        assert_int_equal(h.view.numbers[2], 9);
        assert_int_equal(h.view.last, 9);
        assert_string_equal(h.address, "10.0.0.1:4000");
    }
    ru_text t = ru_text_into(line, sizeof line);
    ru_msg_progress_text(&h.progress, true, &t);
    assert_string_equal(line,
                        "epoch 1/2  step 5/10  [##########..........]  lo?ss 0.2500  accuracy "
                        "50.0 %  3 workers, 1 votes  1.23 M samples/s  1:23 left");
}

static void json_has_the_fields_that_are_told(void **state)
{
    (void)state;
    ru_msg all[RU_MSG_KINDS];
    char line[1024];
    (void)all_kinds(all);
    ru_text t = ru_text_into(line, sizeof line);
    ru_msg_json(&all[RU_MSG_STEP], &t);
    assert_string_equal(line, "{\"schema\":\"rubato.train.step/1\",\"step\":1,\"epoch\":0,"
                              "\"samples\":0,\"log_likelihood\":null,\"lr\":0.1,\"step_s\":0,"
                              "\"samples_per_s\":0,\"workers\":0,\"norm\":2.5}\n");
    t = ru_text_into(line, sizeof line);
    ru_msg_json(&all[RU_MSG_EVENT], &t);
    assert_string_equal(line, "{\"schema\":\"rubato.train.event/1\",\"step\":7,\"what\":\"replan\","
                              "\"worker\":3,\"shares\":\"1:20 2:\\\"44\\\"\","
                              "\"predicted_compute_s\":0.1}\n");
    t = ru_text_into(line, sizeof line);
    ru_msg_json(&all[RU_MSG_SUMMARY], &t);
    assert_non_null(strstr(line, "\"metric\":{\"accuracy\":0.5,\"loss\":1e-09},\"split\":{"
                                 "\"compute\":0,\"network\":0,\"input\":0,\"wait\":4,\"other\":0},"
                                 "\"peak_rss_bytes\":0,\"ended\":\"done\"}"));
}

/* The frame again, with other bytes of fields and another version. */
static int64_t seal(uint8_t *frame, uint32_t kind, uint32_t version, int64_t size)
{
    const uint8_t head[] = {(uint8_t)kind, (uint8_t)(kind >> 8), (uint8_t)version, 0,
                            (uint8_t)size, (uint8_t)(size >> 8)};
    memcpy(frame + 4, head, sizeof head);
    frame[10] = frame[11] = 0;
    uint32_t crc = ru_crc32c(0, frame, HEAD + size);
    for (uint32_t k = 0; k < 4; k++) {
        frame[HEAD + size + k] = (uint8_t)(crc >> (8 * k));
    }
    return HEAD + size + CRC;
}

static heard read_one(const uint8_t *frame, int64_t n)
{
    static ru_msg_in in;
    heard h = {0};
    in = (ru_msg_in){.message = on_message, .text = on_text, .self = &h};
    ru_msg_read(&in, (const char *)frame, n);
    ru_msg_read_end(&in);
    return h;
}

static void workers_of_other_versions_are_understood(void **state)
{
    (void)state;
    uint8_t frame[1024] = {0};
    const ru_msg m = {.kind = RU_MSG_EVENT, .event = event()};
    int64_t size = ru_msg_write(&m, frame, sizeof frame) - HEAD - CRC;
    heard h = read_one(frame, seal(frame, RU_MSG_EVENT, 2, size + 9)); /* has one more field */
    assert_int_equal(h.n, 1);
    assert_non_null(strstr(h.json, "\"predicted_compute_s\":0.1}"));
    h = read_one(frame, seal(frame, RU_MSG_EVENT, 1, size + 9)); /* not by its version */
    assert_int_equal(h.n, 0);
    assert_int_equal(h.n_text, HEAD + size + 9 + CRC);
    h = read_one(frame, seal(frame, RU_MSG_EVENT, 0, size - 8)); /* one field less */
    assert_int_equal(h.n, 1);
    assert_non_null(strstr(h.json, "\"shares\":\"1:20 2:\\\"44\\\"\"}"));
    h = read_one(frame, seal(frame, RU_MSG_EVENT, 1, size - 8));
    assert_int_equal(h.n, 0);
    h = read_one(frame, seal(frame, RU_MSG_KINDS, 1, size)); /* of a later program */
    assert_int_equal(h.n + h.n_text, 0);
    /* Steps of the version before have no compute_s. */
    ru_msg all[RU_MSG_KINDS];
    (void)all_kinds(all);
    size = ru_msg_write(&all[RU_MSG_STEP], frame, sizeof frame) - HEAD - CRC;
    h = read_one(frame, seal(frame, RU_MSG_STEP, 2, size - 8));
    assert_int_equal(h.n, 1);
    assert_non_null(strstr(h.json, "\"norm\":2.5}"));
}

static void what_is_too_long_or_damaged_is_no_message(void **state)
{
    (void)state;
    static char name[600];
    uint8_t frame[RU_MSG_BYTES_MAX];
    memset(name, 'n', sizeof name - 1);
    ru_msg all[RU_MSG_KINDS];
    (void)all_kinds(all);
    all[0].start.name = name;
    assert_int_equal(ru_msg_write(&all[0], frame, sizeof frame), 0);
    assert_int_equal(ru_msg_tell(&all[0], NULL), RU_E_LIMIT);
    all[0].start.name = "n";
    for (uint32_t k = 0; k < RU_MSG_KINDS; k++) {
        int64_t n = ru_msg_write(&all[k], frame, sizeof frame);
        assert_int_equal(ru_msg_write(&all[k], frame, n - 1), 0);
        for (int64_t at = 0; at < n; at += 1 + n / 40) {
            frame[at] ^= 0x40;
            heard h = read_one(frame, n);
            assert_int_equal(h.n, 0);
            assert_int_equal(h.n_text, n);
            frame[at] ^= 0x40;
        }
    }
    /* A zero inside of a text: its views would end early. */
    const ru_msg m = {.kind = RU_MSG_ADDRESS, .address = {"h:1"}};
    int64_t n = ru_msg_write(&m, frame, sizeof frame);
    frame[HEAD + 5] = 0;
    assert_int_equal(read_one(frame, seal(frame, RU_MSG_ADDRESS, 1, n - HEAD - CRC)).n, 0);
    frame[HEAD] = 0xff; /* longer than the frame */
    assert_int_equal(read_one(frame, seal(frame, RU_MSG_ADDRESS, 1, n - HEAD - CRC)).n, 0);
}

RU_TESTS(run_message, cmocka_unit_test(every_kind_comes_back_in_any_pieces),
         cmocka_unit_test(json_has_the_fields_that_are_told),
         cmocka_unit_test(workers_of_other_versions_are_understood),
         cmocka_unit_test(what_is_too_long_or_damaged_is_no_message))
