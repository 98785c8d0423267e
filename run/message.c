#include "run/message.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/wire.h"
#include "env/process/self.h"
#include "run/report_impl.h"

enum { HEAD_BYTES = 12, CRC_BYTES = 4, METRIC_NAME_MAX = 31, BAR_WIDTH = 20 };

static const uint8_t magic[4] = {0x1e, 'R', 'u', 0x1f}; /* no text begins so */

/* -- tables ------------------------------------------------------------------------------------ */

typedef enum field_type {
    I64,
    I64_MAYBE, /* absent when below 0 */
    F64,
    F64_MAYBE, /* absent when not a number */
    TEXT,
    TEXT_MAYBE, /* absent when empty */
    NAMED,      /* a number whose key is its own; the table's: when it has none */
    METRICS,
    NUMBERS, /* a count and a list of u32 */
    OPEN,    /* of a JSON object, no bytes */
    CLOSE,
} field_type;

typedef struct field {
    const char *key;
    field_type type;
    uint32_t offset;
    uint32_t max; /* bytes of a text */
} field;

typedef struct kind {
    const char *schema; /* NULL: has no JSON form */
    const field *fields;
    uint32_t n;
    uint16_t version; /* a later one appends fields */
} kind;

#define AT(s, f) (uint32_t) offsetof(ru_msg_##s, f)

static const field start_fields[] = {
    {"run", TEXT, AT(start, run), 512},
    {"out", TEXT, AT(start, out), RU_MSG_TEXT_MAX},
    {"parameters", I64, AT(start, parameters), 0},
    {"workers", I64, AT(start, workers), 0},
    {"name", TEXT, AT(start, name), 512},
    {"model", TEXT, AT(start, model), 512},
    {"device", TEXT, AT(start, device), 31},
    {"precision", TEXT, AT(start, precision), 31},
    {"threads", I64, AT(start, threads), 0},
    {"batch", I64, AT(start, batch), 0},
    {"steps", I64, AT(start, steps), 0},
    {"epochs", I64, AT(start, epochs), 0},
    {"train_samples", I64, AT(start, train_samples), 0},
    {"test_samples", I64, AT(start, test_samples), 0},
    {"arena_bytes", I64, AT(start, arena_bytes), 0},
    {"arena_bound_bytes", I64, AT(start, arena_bound_bytes), 0},
    {"state_bytes", I64, AT(start, state_bytes), 0},
    {"flops_step", I64, AT(start, flops_step), 0},
    {"open_s", F64, AT(start, open_s), 0},
    {"resumed_step", I64, AT(start, resumed_step), 0},
    {"batch_max", I64_MAYBE, AT(start, batch_max), 0},
    {"local_max", I64_MAYBE, AT(start, local_max), 0},
};

static const field step_fields[] = {
    {"step", I64, AT(step, step), 0},
    {"epoch", I64, AT(step, epoch), 0},
    {"samples", I64, AT(step, samples), 0},
    {"loss", NAMED, AT(step, loss), 0},
    {"lr", F64, AT(step, lr), 0},
    {"step_s", F64, AT(step, step_s), 0},
    {"samples_per_s", F64, AT(step, samples_per_s), 0},
    {"workers", I64, AT(step, workers), 0},
    {"accuracy", F64_MAYBE, AT(step, accuracy), 0},
    {"norm", F64_MAYBE, AT(step, norm), 0},
    {"gradient_noise", F64_MAYBE, AT(step, noise), 0},
    {"compute_s", F64_MAYBE, AT(step, compute_s), 0},
};

static const field eval_fields[] = {
    {"step", I64, AT(eval, step), 0},
    {"epoch", I64, AT(eval, epoch), 0},
    {"metric", METRICS, AT(eval, metric), 0},
    {"eval_s", F64, AT(eval, eval_s), 0},
};

static const field event_fields[] = {
    {"step", I64, AT(event, step), 0},
    {"what", TEXT, AT(event, what), 31},
    {"worker", I64, AT(event, worker), 0},
    {"pause_s", F64_MAYBE, AT(event, more.pause_s), 0},
    {"changed", TEXT_MAYBE, AT(event, more.changed), 1023},
    {"tier", TEXT_MAYBE, AT(event, more.tier), 31},
    {"samples", I64_MAYBE, AT(event, more.samples), 0},
    {"after_s", F64_MAYBE, AT(event, more.after_s), 0},
    {"waited_s", F64_MAYBE, AT(event, more.waited_s), 0},
    {"shares", TEXT_MAYBE, AT(event, more.shares), 1023},
    {"predicted_compute_s", F64_MAYBE, AT(event, more.predicted_compute_s), 0},
};

static const field summary_fields[] = {
    {"steps", I64, AT(summary, steps), 0},
    {"epochs", I64, AT(summary, epochs), 0},
    {"samples", I64, AT(summary, samples), 0},
    {"samples_lost", I64, AT(summary, samples_lost), 0},
    {"samples_repeated", I64, AT(summary, samples_repeated), 0},
    {"samples_damaged", I64, AT(summary, samples_damaged), 0},
    {"wall_s", F64, AT(summary, wall_s), 0},
    {"samples_per_s", F64, AT(summary, samples_per_s), 0},
    {"loss", NAMED, AT(summary, loss), 0},
    {"metric", METRICS, AT(summary, metric), 0},
    {"split", OPEN, 0, 0},
    {"compute", F64, AT(summary, compute_s), 0},
    {"network", F64, AT(summary, network_s), 0},
    {"input", F64, AT(summary, input_s), 0},
    {"wait", F64, AT(summary, wait_s), 0},
    {"other", F64, AT(summary, other_s), 0},
    {"split", CLOSE, 0, 0},
    {"peak_rss_bytes", I64, AT(summary, peak_rss_bytes), 0},
    {"ended", TEXT, AT(summary, ended), 31},
};

static const field progress_fields[] = {
    {"step", I64, AT(progress, step), 0},
    {"steps", I64, AT(progress, steps), 0},
    {"epoch", I64, AT(progress, epoch), 0},
    {"epochs", I64, AT(progress, epochs), 0},
    {"loss", NAMED, AT(progress, loss), 0},
    {"accuracy", F64_MAYBE, AT(progress, accuracy), 0},
    {"samples_per_s", F64, AT(progress, samples_per_s), 0},
    {"left_s", F64_MAYBE, AT(progress, left_s), 0},
    {"members", I64, AT(progress, members), 0},
    {"voters", I64, AT(progress, voters), 0},
};

static const field address_fields[] = {{"address", TEXT, AT(address, address), 127}};
static const field number_fields[] = {{"number", I64, AT(number, number), 0}};
static const field view_fields[] = {{"epoch", I64, AT(view, epoch), 0},
                                    {"numbers", NUMBERS, AT(view, n), 0},
                                    {"last", I64, AT(view, last), 0},
                                    {"address", TEXT, AT(view, address), 127},
                                    {"spares", I64, AT(view, spares), 0}};

#define KIND(s, json, version)                              \
    {                                                       \
        json, s##_fields, RU_ARRAY_LEN(s##_fields), version \
    }

static const kind kinds[RU_MSG_KINDS] = {
    [RU_MSG_START] = KIND(start, "rubato.train.start/1", 2),
    [RU_MSG_STEP] = KIND(step, "rubato.train.step/1", 3),
    [RU_MSG_EVAL] = KIND(eval, "rubato.train.eval/1", 1),
    [RU_MSG_EVENT] = KIND(event, "rubato.train.event/1", 1),
    [RU_MSG_SUMMARY] = KIND(summary, "rubato.train.summary/1", 1),
    [RU_MSG_PROGRESS] = KIND(progress, NULL, 1),
    [RU_MSG_ADDRESS] = KIND(address, NULL, 1),
    [RU_MSG_NUMBER] = KIND(number, NULL, 1),
    [RU_MSG_VIEW] = KIND(view, NULL, 2),
};

/* Every message is a member of the same union, so all begin at its address. */
static const void *body_of(const ru_msg *m)
{
    return &m->start;
}

static int64_t i64_at(const void *body, const field *f)
{
    int64_t v;
    memcpy(&v, (const char *)body + f->offset, sizeof v);
    return v;
}

static double f64_at(const void *body, const field *f)
{
    double v;
    memcpy(&v, (const char *)body + f->offset, sizeof v);
    return v;
}

static const char *text_at(const void *body, const field *f)
{
    const char *v;
    memcpy(&v, (const char *)body + f->offset, sizeof v);
    return v != NULL ? v : "";
}

static ru_metric named_at(const void *body, const field *f)
{
    ru_metric v;
    memcpy(&v, (const char *)body + f->offset, sizeof v);
    v.name = v.name != NULL && v.name[0] != 0 ? v.name : f->key;
    return v;
}

/* -- JSON and text ----------------------------------------------------------------------------- */

static void put_number(ru_text *t, double v)
{
    if (isfinite(v)) {
        ru_text_f64(t, v);
    } else {
        ru_text_put(t, "null");
    }
}

static void put_metrics(ru_text *t, const ru_metrics *m)
{
    ru_text_put(t, "{");
    for (uint32_t k = 0; k < m->n; k++) {
        ru_text_put(t, k > 0 ? "," : "");
        ru_text_json(t, ru_str_c(m->at[k].name));
        ru_text_put(t, ":");
        put_number(t, m->at[k].value);
    }
    ru_text_put(t, "}");
}

static bool absent(const void *body, const field *f)
{
    return (f->type == I64_MAYBE && i64_at(body, f) < 0) ||
           (f->type == F64_MAYBE && isnan(f64_at(body, f))) ||
           (f->type == TEXT_MAYBE && text_at(body, f)[0] == 0);
}

static void put_field(ru_text *t, const void *body, const field *f, bool *first)
{
    if (f->type == CLOSE) {
        ru_text_put(t, "}");
        *first = false;
        return;
    }
    if (absent(body, f)) {
        return;
    }
    ru_text_put(t, *first ? "" : ",");
    ru_text_json(t, ru_str_c(f->type == NAMED ? named_at(body, f).name : f->key));
    ru_text_put(t, ":");
    *first = f->type == OPEN;
    switch (f->type) {
    case I64:
    case I64_MAYBE:
        ru_text_putf(t, "%lld", (long long)i64_at(body, f));
        break;
    case F64:
    case F64_MAYBE:
        put_number(t, f64_at(body, f));
        break;
    case NAMED:
        put_number(t, named_at(body, f).value);
        break;
    case TEXT:
    case TEXT_MAYBE:
        ru_text_json(t, ru_str_c(text_at(body, f)));
        break;
    case METRICS:
        put_metrics(t, (const void *)((const char *)body + f->offset));
        break;
    case OPEN:
        ru_text_put(t, "{");
        break;
    case NUMBERS:
    case CLOSE:
        break;
    }
}

void ru_msg_json(const ru_msg *m, ru_text *into)
{
    const kind *k = &kinds[m->kind];
    bool first = false;
    RU_CHECK(k->schema != NULL);
    ru_text_putf(into, "{\"schema\":\"%s\"", k->schema);
    for (uint32_t i = 0; i < k->n; i++) {
        put_field(into, body_of(m), &k->fields[i], &first);
    }
    ru_text_put(into, "}\n");
}

const char *rui_count_text(double v, char into[32])
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    uint32_t k = 0;
    while (v >= 1000 && k + 1 < RU_ARRAY_LEN(units)) {
        v /= 1000;
        k++;
    }
    (void)snprintf(into, 32, k == 0 ? "%.0f%s" : "%.3g%s", v < 1e15 ? v : 1e15, units[k]);
    return into;
}

const char *rui_duration_text(double s, char into[32])
{
    if (!isfinite(s) || s < 0) {
        s = 0;
    }
    int64_t t = (int64_t)((s < 1e12 ? s : 1e12) + 0.5);
    if (t >= 3600) {
        (void)snprintf(into, 32, "%lld:%02lld:%02lld", (long long)(t / 3600),
                       (long long)(t / 60 % 60), (long long)(t % 60));
    } else if (t >= 60) {
        (void)snprintf(into, 32, "%lld:%02lld", (long long)(t / 60), (long long)(t % 60));
    } else {
        (void)snprintf(into, 32, "%.1f s", s);
    }
    return into;
}

void ru_msg_progress_text(const ru_msg_progress *p, bool bar, ru_text *t)
{
    char text[32];
    if (p->epochs > 0) {
        ru_text_putf(t, "epoch %lld/%lld  ", (long long)p->epoch, (long long)p->epochs);
    }
    ru_text_putf(t, "step %lld", (long long)p->step);
    if (p->steps > 0) {
        ru_text_putf(t, "/%lld", (long long)p->steps);
    }
    if (bar && p->steps > 0) {
        double way = (double)p->step / (double)p->steps;
        int full = (int)((way > 1 ? 1 : way < 0 ? 0 : way) * BAR_WIDTH);
        ru_text_put(t, "  [");
        ru_text_char(t, '#', full);
        ru_text_char(t, '.', BAR_WIDTH - full);
        ru_text_put(t, "]");
    }
    ru_text_put(t, "  ");
    for (const char *c = p->loss.name; *c != 0; c++) { /* no bytes that a terminal obeys */
        ru_text_char(t, *c >= ' ' && *c <= '~' ? *c : '?', 1);
    }
    ru_text_putf(t, " %.4f", p->loss.value);
    if (!isnan(p->accuracy)) {
        ru_text_putf(t, "  accuracy %.1f %%", p->accuracy * 100);
    }
    if (p->voters < p->members) {
        ru_text_putf(t, "  %lld workers, %lld vote%s", (long long)p->members, (long long)p->voters,
                     p->voters == 1 ? "s" : "");
    }
    ru_text_putf(t, "  %s samples/s", rui_count_text(p->samples_per_s, text));
    if (!isnan(p->left_s)) {
        ru_text_putf(t, "  %s left", rui_duration_text(p->left_s, text));
    }
}

/* -- frames out -------------------------------------------------------------------------------- */

static void write_field(ru_wire_out *w, const void *body, const field *f)
{
    switch (f->type) {
    case I64:
    case I64_MAYBE:
        ru_wire_put_u64(w, (uint64_t)i64_at(body, f));
        break;
    case F64:
    case F64_MAYBE:
        ru_wire_put_f64(w, f64_at(body, f));
        break;
    case TEXT:
    case TEXT_MAYBE: {
        const char *text = text_at(body, f);
        size_t n = strlen(text);
        w->bad = w->bad || n > f->max;
        ru_wire_put_text(w, text, w->bad ? 0 : (uint32_t)n);
        break;
    }
    case NAMED: {
        ru_metric v = named_at(body, f);
        ru_wire_put_text(w, v.name, (uint32_t)strlen(v.name));
        ru_wire_put_f64(w, v.value);
        break;
    }
    case METRICS: {
        const ru_metrics *m = (const void *)((const char *)body + f->offset);
        ru_wire_put_u8(w, (uint8_t)m->n);
        for (uint32_t k = 0; k < m->n; k++) {
            ru_wire_put_text(w, m->at[k].name, (uint32_t)strlen(m->at[k].name));
            ru_wire_put_f64(w, m->at[k].value);
        }
        break;
    }
    case NUMBERS: {
        const ru_msg_view *v = body;
        ru_wire_put_u32(w, v->n);
        for (uint32_t k = 0; k < v->n; k++) {
            ru_wire_put_u32(w, v->numbers[k]);
        }
        break;
    }
    case OPEN:
    case CLOSE:
        break;
    }
}

int64_t ru_msg_write(const ru_msg *m, void *into, int64_t size_bytes)
{
    const kind *k = &kinds[m->kind];
    uint8_t *at = into;
    ru_wire_out w = ru_wire_out_into(into, size_bytes);
    ru_wire_put_bytes(&w, magic, sizeof magic);
    ru_wire_put_u16(&w, (uint16_t)m->kind);
    ru_wire_put_u16(&w, k->version);
    ru_wire_put_u32(&w, 0);
    for (uint32_t i = 0; i < k->n; i++) {
        write_field(&w, body_of(m), &k->fields[i]);
    }
    int64_t n = ru_wire_size(&w);
    if (w.bad || n + CRC_BYTES > RU_MSG_BYTES_MAX) {
        return 0;
    }
    ru_wire_out size = ru_wire_out_into(at + 8, 4);
    ru_wire_put_u32(&size, (uint32_t)(n - HEAD_BYTES));
    ru_wire_put_u32(&w, ru_crc32c(0, at, n));
    return w.bad ? 0 : ru_wire_size(&w);
}

ru_status ru_msg_tell(const ru_msg *m, ru_err *err)
{
    uint8_t buf[RU_MSG_BYTES_MAX];
    int64_t n = ru_msg_write(m, buf, sizeof buf);
    if (n == 0) {
        return RU_FAIL(err, RU_E_LIMIT, "a message to the launcher is longer than %d bytes",
                       RU_MSG_BYTES_MAX);
    }
    ru_self_tell(buf, n);
    return RU_OK;
}

/* -- frames in --------------------------------------------------------------------------------- */

/* Texts go into in->texts, which holds more than a frame has bytes. */
static const char *read_text(ru_msg_in *in, ru_wire_in *w, uint32_t max, int64_t *used)
{
    uint32_t n = 0;
    const char *at = ru_wire_text(w, max, &n);
    if (w->bad || (n > 0 && memchr(at, 0, n) != NULL)) {
        w->bad = true;
        return "";
    }
    char *to = in->texts + *used;
    RU_CHECK(*used + n + 1 <= (int64_t)sizeof in->texts);
    if (n > 0) {
        memcpy(to, at, n);
    }
    to[n] = 0;
    *used += n + 1;
    return to;
}

static void read_metrics(ru_msg_in *in, ru_wire_in *w, ru_metrics *m, int64_t *used)
{
    m->n = ru_wire_u8(w);
    w->bad = w->bad || m->n > RU_METRICS_MAX;
    for (uint32_t k = 0; k < m->n && !w->bad; k++) {
        m->at[k].name = read_text(in, w, METRIC_NAME_MAX, used);
        m->at[k].value = ru_wire_f64(w);
    }
}

static void read_numbers(ru_wire_in *w, ru_msg_view *v)
{
    v->n = ru_wire_u32(w);
    w->bad = w->bad || v->n > RU_MSG_NUMBERS_MAX;
    for (uint32_t k = 0; k < v->n && !w->bad; k++) {
        v->numbers[k] = ru_wire_u32(w);
    }
}

/* `there`: the frame has it. */
static void read_field(ru_msg_in *in, ru_wire_in *w, const field *f, bool there, ru_msg *m,
                       int64_t *used)
{
    char *at = (char *)&m->start + f->offset;
    switch (f->type) {
    case I64:
    case I64_MAYBE: {
        int64_t v = there ? (int64_t)ru_wire_u64(w) : f->type == I64 ? 0 : -1;
        memcpy(at, &v, sizeof v);
        break;
    }
    case F64:
    case F64_MAYBE: {
        double v = there ? ru_wire_f64(w) : RU_NAN;
        memcpy(at, &v, sizeof v);
        break;
    }
    case TEXT:
    case TEXT_MAYBE: {
        const char *v = there ? read_text(in, w, f->max, used) : "";
        memcpy(at, &v, sizeof v);
        break;
    }
    case NAMED: {
        ru_metric v = {.name = f->key, .value = RU_NAN};
        if (there) {
            v.name = read_text(in, w, METRIC_NAME_MAX, used);
            v.value = ru_wire_f64(w);
        }
        memcpy(at, &v, sizeof v);
        break;
    }
    case METRICS:
        if (there) {
            read_metrics(in, w, (ru_metrics *)(void *)at, used);
        }
        break;
    case NUMBERS:
        if (there) {
            read_numbers(w, &m->view);
        }
        break;
    case OPEN:
    case CLOSE:
        break;
    }
}

/* A frame whose CRC is right. False: its fields are not those of its kind. */
static bool read_message(ru_msg_in *in, ru_wire_in *w, uint32_t number, uint32_t version)
{
    ru_msg m;
    int64_t used = 0;
    if (number >= RU_MSG_KINDS) {
        return true; /* of a later program */
    }
    const kind *k = &kinds[number];
    memset(&m, 0, sizeof m);
    m.kind = (ru_msg_kind)number;
    for (uint32_t i = 0; i < k->n; i++) {
        bool there = version >= k->version || ru_wire_left(w) > 0;
        read_field(in, w, &k->fields[i], there, &m, &used);
    }
    if (w->bad || (ru_wire_left(w) > 0 && version <= k->version)) {
        return false;
    }
    in->message(in->self, &m);
    return true;
}

/* Bytes of what begins the buffer that are done with; 0: more must come. */
static int64_t take(ru_msg_in *in)
{
    int64_t n = 0;
    while (n < in->n && in->at[n] != magic[0]) {
        n++;
    }
    if (n > 0) {
        in->text(in->self, (const char *)in->at, n);
        return n;
    }
    int64_t same = in->n < (int64_t)sizeof magic ? in->n : (int64_t)sizeof magic;
    bool frame = memcmp(in->at, magic, (size_t)same) == 0;
    if (frame && in->n < HEAD_BYTES) {
        return 0;
    }
    ru_wire_in w = ru_wire_in_from(in->at + sizeof magic, HEAD_BYTES - (int64_t)sizeof magic);
    uint32_t number = 0, version = 0;
    int64_t size = 0;
    if (frame) {
        number = ru_wire_u16(&w);
        version = ru_wire_u16(&w);
        size = ru_wire_u32(&w);
        frame = size <= RU_MSG_BYTES_MAX - HEAD_BYTES - CRC_BYTES;
    }
    int64_t end = HEAD_BYTES + size;
    if (frame && in->n < end + CRC_BYTES) {
        return 0;
    }
    if (frame) {
        ru_wire_in crc = ru_wire_in_from(in->at + end, CRC_BYTES);
        w = ru_wire_in_from(in->at + HEAD_BYTES, size);
        if (ru_wire_u32(&crc) == ru_crc32c(0, in->at, end) &&
            read_message(in, &w, number, version)) {
            return end + CRC_BYTES;
        }
    }
    in->text(in->self, (const char *)in->at, 1);
    return 1;
}

void ru_msg_read(ru_msg_in *in, const char *data, int64_t size_bytes)
{
    for (int64_t i = 0; i < size_bytes;) {
        int64_t room = RU_MSG_BYTES_MAX - in->n, n = size_bytes - i < room ? size_bytes - i : room;
        memcpy(in->at + in->n, data + i, (size_t)n);
        in->n += n;
        i += n;
        for (int64_t used = 1; in->n > 0 && used > 0;) {
            used = take(in);
            in->n -= used;
            memmove(in->at, in->at + used, (size_t)in->n);
        }
        RU_CHECK(in->n <
                 RU_MSG_BYTES_MAX); /* a full buffer begins with a whole frame or with none */
    }
}

void ru_msg_read_end(ru_msg_in *in)
{
    if (in->n > 0) {
        in->text(in->self, (const char *)in->at, in->n);
        in->n = 0;
    }
}
