/* Any bytes from a worker, in any pieces: messages come out within their bounds, every other byte
 * as text, and what comes out can be shown and told again. */
#include "run/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_message(void *self, const ru_msg *m)
{
    static uint8_t frame[RU_MSG_BYTES_MAX];
    static char line[8 * RU_MSG_BYTES_MAX];
    ru_text t = ru_text_into(line, sizeof line);
    int64_t *bytes = self;
    if (m->kind >= RU_MSG_KINDS) {
        abort();
    }
    if (m->kind <= RU_MSG_SUMMARY) {
        ru_msg_json(m, &t);
    } else if (m->kind == RU_MSG_PROGRESS) {
        ru_msg_progress_text(&m->progress, true, &t);
    } else if (m->kind == RU_MSG_VIEW && m->view.n > RU_MSG_NUMBERS_MAX) {
        abort();
    }
    int64_t n = ru_msg_write(m, frame, sizeof frame);
    if (t.cut || n == 0) {
        abort();
    }
    *bytes += 1;
}

static void on_text(void *self, const char *text, int64_t n)
{
    int64_t *bytes = self;
    if (n <= 0 || text == NULL) {
        abort();
    }
    *bytes += n;
}

/* Half of the inputs are bodies of frames whose CRC is made right: a fuzzer seldom finds one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ru_msg_in in;
    int64_t bytes = 0;
    in = (ru_msg_in){.message = on_message, .text = on_text, .self = &bytes};
    if (size > 3 && size < 4000 && data[0] % 2 == 0) {
        uint8_t frame[4100] = {0x1e, 'R', 'u', 0x1f, data[1], 0, data[2], 0};
        size_t n = size - 3;
        frame[8] = (uint8_t)n;
        frame[9] = (uint8_t)(n >> 8);
        memcpy(frame + 12, data + 3, n);
        uint32_t crc = ru_crc32c(0, frame, (int64_t)n + 12);
        memcpy(frame + 12 + n, &crc, 4);
        ru_msg_read(&in, (const char *)frame, (int64_t)n + 16);
    } else {
        for (size_t i = 0, piece = 0; i < size; i += piece) {
            piece = 1 + data[i] % 61u;
            piece = piece < size - i ? piece : size - i;
            ru_msg_read(&in, (const char *)data + i, (int64_t)piece);
        }
    }
    ru_msg_read_end(&in);
    if (bytes > (int64_t)size + 16) {
        abort();
    }
    return 0;
}
