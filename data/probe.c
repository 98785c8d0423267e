#include "data/probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/cache.h"
#include "data/fetch.h"
#include "env/clock.h"

enum {
    SAMPLES = 64,
    SAMPLES_MIN = 32,
    PART = 32,
    DEPTH = 32,
    REQUEST_BYTES = 1 << 20,
    BYTES_MAX = 128 << 20
};

typedef struct sums {
    rui_fetch *fetch;
    int64_t bytes, ranges;
    bool resident; /* some of it stands in memory */
} sums;

static void add(void *self, const rui_source *s, int64_t offset, int64_t size_bytes)
{
    sums *t = self;
    t->bytes += size_bytes;
    t->ranges++;
    t->resident = t->resident || s->bytes != NULL;
    rui_fetch_add(t->fetch, s, offset, size_bytes);
}

static double seconds_since(ru_time from)
{
    return 1e-9 * (double)ru_time_since(ru_clock_now(), from);
}

/* What taking a kept record costs: its hash, and its fields. */
static double unpack(const ru_dataset *d, const uint8_t *record, int64_t size_bytes,
                     void *const *fields)
{
    ru_time from = ru_clock_now();
    uint64_t hash = ru_hash_bytes(record, size_bytes, 0);
    for (uint32_t k = 0; k < d->n_fields; k++) {
        if ((d->pixels >> k & 1) != 0) {
            rui_pixels_put(d, record, ru_type_count(&d->fields[k].type), fields[k]);
        } else {
            memcpy(fields[k], record, (size_t)d->field_bytes[k]);
        }
    }
    double s = seconds_since(from);
    return hash != 0 ? s : s + 1e-12; /* the hash is of use */
}

typedef struct room {
    void *fields[RU_FIELDS_MAX];
    uint8_t *record;
    int64_t record_bytes;
} room;

static ru_status get_room(const ru_dataset *d, room *r, ru_err *err)
{
    bool all = true;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        bool pixels = (d->pixels >> k & 1) != 0;
        r->fields[k] = aligned_alloc(64, ((size_t)d->field_bytes[k] + 63) / 64 * 64);
        r->record_bytes +=
            ((pixels ? ru_type_count(&d->fields[k].type) : d->field_bytes[k]) + 7) / 8 * 8;
        all = all && r->fields[k] != NULL;
    }
    r->record = all ? calloc(1, (size_t)r->record_bytes) : NULL;
    return r->record != NULL ? RU_OK : rui_no_memory(err, "samples that are measured", SAMPLES);
}

static void put_room(const ru_dataset *d, room *r)
{
    for (uint32_t k = 0; k < d->n_fields; k++) {
        free(r->fields[k]);
    }
    free(r->record);
}

static ru_status measure(ru_dataset *d, rui_fetch *fetch, room *r, ru_data_probe *out, ru_err *err)
{
    int64_t n = d->count / PART; /* of a small set a few, so that measuring is a small part */
    n = n < SAMPLES_MIN ? SAMPLES_MIN : n > SAMPLES ? SAMPLES : n;
    n = n < d->count ? n : d->count;
    sums t = {.fetch = fetch};
    ru_dataset there = *d;
    uint32_t pieces;
    for (int64_t k = 0; d->format->where != NULL && k < n; k++) {
        rui_format_where(d, d->count * k / n, 1, add, &t);
    }
    ru_time from = ru_clock_now();
    rui_fetch_begin(fetch, REQUEST_BYTES, DEPTH);
    (void)rui_fetch_end(fetch, &pieces);
    out->fetch_s = pieces > 0 ? seconds_since(from) / (double)n : 0;
    there.fetched = fetch;
    RU_TRY(rui_read_stored(&there, 0, r->fields, err)); /* the first one takes longer */
    from = ru_clock_now();
    for (int64_t k = 0; k < n; k++) {
        RU_TRY(rui_read_stored(&there, d->count * k / n, r->fields, err));
    }
    out->decode_s = seconds_since(from) / (double)n;
    for (int64_t k = 0; k < n; k++) {
        out->unpack_s += unpack(d, r->record, r->record_bytes, r->fields) / (double)n;
    }
    out->bytes = t.resident ? 0 : t.bytes / n;
    out->decoded_bytes = d->format->where != NULL ? r->record_bytes : 0;
    return RU_OK;
}

ru_status ru_data_probe_take(ru_dataset *d, ru_data_probe *out, ru_err *err)
{
    room r = {0};
    rui_fetch *fetch = NULL;
    const rui_fetch_options fo = {.depth_max = DEPTH,
                                  .bytes_max = BYTES_MAX,
                                  .pieces = 2 * SAMPLES,
                                  .bytes = SAMPLES * (rui_sample_bytes(d) + 1),
                                  .objects = d->objects};
    *out = (ru_data_probe){0};
    ru_status st = get_room(d, &r, err);
    st = st == RU_OK ? rui_fetch_open(&fo, &fetch, err) : st;
    st = st == RU_OK ? measure(d, fetch, &r, out, err) : st;
    rui_fetch_close(fetch);
    put_room(d, &r);
    return st;
}

ru_status ru_dataset_keep(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    return rui_cache_open(d, opt, &d->cache, err);
}
