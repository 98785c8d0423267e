/* TensorBoard event files: TFRecord framing around Event messages.
 *
 *   record = u64 length | u32 masked crc32c(length) | data | u32 masked crc32c(data)
 *   mask(c) = rotate_right(c, 15) + 0xa282ead8                                     */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/pb.h"
#include "env/file/file.h"
#include "trace/export/export.h"

enum {
    EVENT_WALL = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_SUMMARY = 5,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_HISTOGRAM = 5,
    HISTOGRAM_MIN = 1,
    HISTOGRAM_MAX = 2,
    HISTOGRAM_NUM = 3,
    HISTOGRAM_SUM = 4,
    HISTOGRAM_SQUARES = 5,
    HISTOGRAM_LIMITS = 6,
    HISTOGRAM_COUNTS = 7,
};

struct ru_tensorboard {
    ru_out *file;
    ru_pb_out pb;
};

static uint32_t masked_crc(const void *data, int64_t size_bytes)
{
    uint32_t c = ru_crc32c(0, data, size_bytes);
    return ((c >> 15) | (c << 17)) + 0xa282ead8u;
}

static ru_status record(ru_tensorboard *t, ru_err *err)
{
    RU_TRY(ru_pb_out_end(&t->pb, err));
    uint64_t n = (uint64_t)t->pb.size_bytes;
    uint32_t crc = masked_crc(&n, sizeof n);
    RU_TRY(ru_out_write(t->file, &n, sizeof n, err));
    RU_TRY(ru_out_write(t->file, &crc, sizeof crc, err));
    RU_TRY(ru_out_write(t->file, t->pb.data, t->pb.size_bytes, err));
    crc = masked_crc(t->pb.data, t->pb.size_bytes);
    return ru_out_write(t->file, &crc, sizeof crc, err);
}

ru_status ru_tensorboard_open(const char *dir, int64_t wall_ns, ru_tensorboard **out, ru_err *err)
{
    char host[256] = "localhost", path[4096];
    (void)gethostname(host, sizeof host - 1);
    int n = snprintf(path, sizeof path, "%s/events.out.tfevents.%lld.%s", dir,
                     (long long)(wall_ns / 1000000000), host);
    if (n < 0 || n >= (int)sizeof path) {
        return RU_FAIL(err, RU_E_CONFIG, "the folder's name is too long: %s", dir);
    }
    RU_TRY(ru_dir_make(dir, err));
    ru_tensorboard *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the TensorBoard file");
    }
    ru_pb_out_init(&t->pb);
    ru_status st = ru_out_open(path, &t->file, err);
    if (st == RU_OK) {
        ru_pb_put_f64(&t->pb, EVENT_WALL, (double)wall_ns * 1e-9);
        ru_pb_put_str(&t->pb, EVENT_VERSION, "brain.Event:2");
        st = record(t, err);
    }
    if (st != RU_OK) {
        ru_tensorboard_close(t);
        return st;
    }
    *out = t;
    return RU_OK;
}

ru_status ru_tensorboard_scalar(ru_tensorboard *t, const char *tag, int64_t step, int64_t wall_ns,
                                double value, ru_err *err)
{
    ru_pb_out_reset(&t->pb);
    ru_pb_put_f64(&t->pb, EVENT_WALL, (double)wall_ns * 1e-9);
    ru_pb_put_i64(&t->pb, EVENT_STEP, step);
    ru_pb_begin(&t->pb, EVENT_SUMMARY);
    ru_pb_begin(&t->pb, SUMMARY_VALUE);
    ru_pb_put_str(&t->pb, VALUE_TAG, tag);
    ru_pb_put_f32(&t->pb, VALUE_SIMPLE, (float)value);
    ru_pb_end(&t->pb);
    ru_pb_end(&t->pb);
    return record(t, err);
}

/* Packed doubles are their bytes. */
ru_status ru_tensorboard_histogram(ru_tensorboard *t, const char *tag, int64_t step,
                                   int64_t wall_ns, const ru_tb_histogram *h, ru_err *err)
{
    ru_pb_out *o = &t->pb;
    ru_pb_out_reset(o);
    ru_pb_put_f64(o, EVENT_WALL, (double)wall_ns * 1e-9);
    ru_pb_put_i64(o, EVENT_STEP, step);
    ru_pb_begin(o, EVENT_SUMMARY);
    ru_pb_begin(o, SUMMARY_VALUE);
    ru_pb_put_str(o, VALUE_TAG, tag);
    ru_pb_begin(o, VALUE_HISTOGRAM);
    ru_pb_put_f64(o, HISTOGRAM_MIN, h->min);
    ru_pb_put_f64(o, HISTOGRAM_MAX, h->max);
    ru_pb_put_f64(o, HISTOGRAM_NUM, h->num);
    ru_pb_put_f64(o, HISTOGRAM_SUM, h->sum);
    ru_pb_put_f64(o, HISTOGRAM_SQUARES, h->squares);
    ru_pb_put_bytes(o, HISTOGRAM_LIMITS, h->limits, h->n * (int64_t)sizeof *h->limits);
    ru_pb_put_bytes(o, HISTOGRAM_COUNTS, h->counts, h->n * (int64_t)sizeof *h->counts);
    ru_pb_end(o);
    ru_pb_end(o);
    ru_pb_end(o);
    return record(t, err);
}

ru_status ru_tensorboard_commit(ru_tensorboard *t, ru_err *err)
{
    return ru_out_commit(t->file, err);
}

void ru_tensorboard_close(ru_tensorboard *t)
{
    if (t != NULL) {
        ru_out_close(t->file);
        ru_pb_out_fini(&t->pb);
        free(t);
    }
}
