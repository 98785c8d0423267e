#include "web/objects.h"

#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "env/clock.h"
#include "web/objects_impl.h"

bool ru_object_address(const char *path)
{
    return strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0 ||
           strncmp(path, "s3://", 5) == 0;
}

#ifdef RU_HAS_CURL

enum {
    REQUESTS_MAX = 256,
    BYTES_MAX = 64 << 20,
    PATIENCE_MS = 120000,
    PATIENCE_FIRST_MS = 10000,
    STALL_S = 5,
    PIECE_BYTES = 1 << 20, /* of a read that is not tuned: most of what a request can bring */
    PIECES = 16,
    WINDOW_BYTES = 4 << 20,
    SMALL_BYTES = 64 << 10, /* reads up to this go through the window */
};

/* -- the client ----------------------------------------------------------------------------------
 */

static void defaults(ru_objects_options *o)
{
    o->requests_max = o->requests_max > 0 ? o->requests_max : REQUESTS_MAX;
    o->bytes_max = o->bytes_max > 0 ? o->bytes_max : BYTES_MAX;
    o->patience_ms = o->patience_ms > 0 ? o->patience_ms : PATIENCE_MS;
    o->patience_first_ms = o->patience_first_ms > 0 ? o->patience_first_ms : PATIENCE_FIRST_MS;
    o->stall_s = o->stall_s > 0 ? o->stall_s : STALL_S;
    o->env = o->env != NULL ? o->env : ru_conf_env;
}

static ru_status start(ru_objects *o, ru_err *err)
{
    RU_TRY(rui_curl_load(&o->curl, err));
    o->transfer = calloc(o->opt.requests_max, sizeof *o->transfer);
    o->multi = o->curl.multi_init();
    if (o->opt.token != NULL) {
        o->opt.token = ru_arena_str(&o->arena, o->opt.token);
    }
    if (o->transfer == NULL || o->multi == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for requests to a store");
    }
    (void)o->curl.multi_setopt(o->multi, CURLMOPT_MAXCONNECTS, (long)o->opt.requests_max);
    return ru_thread_start(&o->thread, "store", rui_objects_main, o, err);
}

ru_status ru_objects_open(const ru_objects_options *opt, ru_objects **out, ru_err *err)
{
    ru_objects *o = calloc(1, sizeof *o);
    if (o == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for requests to a store");
    }
    o->opt = *opt;
    defaults(&o->opt);
    o->rng = ru_rng_from((uint64_t)ru_clock_now().ns, 0); /* of waits: workers differ */
    ru_arena_init(&o->arena, 0);
    ru_mutex_init(&o->lock);
    ru_mutex_init(&o->window.lock);
    ru_cond_init(&o->ended);
    ru_status st = start(o, err);
    if (st != RU_OK) {
        ru_objects_close(o);
        return st;
    }
    *out = o;
    return RU_OK;
}

void ru_objects_close(ru_objects *o)
{
    if (o == NULL) {
        return;
    }
    RU_CHECK(o->queue == NULL);
    ru_mutex_lock(&o->lock);
    o->stop = true;
    ru_mutex_unlock(&o->lock);
    if (o->thread.started) {
        (void)o->curl.multi_wakeup(o->multi);
    }
    ru_thread_join(&o->thread);
    for (uint32_t k = 0; o->transfer != NULL && k < o->opt.requests_max; k++) {
        if (o->transfer[k].handle != NULL) {
            o->curl.easy_cleanup(o->transfer[k].handle);
        }
    }
    for (uint32_t k = 0; k < o->n_objects; k++) {
        o->curl.slist_free_all(o->object[k]->head);
    }
    if (o->multi != NULL) {
        (void)o->curl.multi_cleanup(o->multi);
    }
    ru_cond_fini(&o->ended);
    ru_mutex_fini(&o->window.lock);
    ru_mutex_fini(&o->lock);
    ru_arena_fini(&o->arena);
    free(o->window.bytes);
    free(o->transfer);
    free(o->object);
    free(o);
}

ru_objects_figures ru_objects_count(ru_objects *o)
{
    ru_mutex_lock(&o->lock);
    ru_objects_figures f = o->figures;
    ru_mutex_unlock(&o->lock);
    return f;
}

/* -- objects -------------------------------------------------------------------------------------
 */

const char *ru_object_version(const ru_object *b)
{
    return b->version.tag[0] != 0 ? b->version.tag : b->version.date;
}

int64_t ru_object_bytes(const ru_object *b)
{
    return b->version.size_bytes;
}

const char *ru_object_name(const ru_object *b)
{
    return b->address.name;
}

uint32_t ru_object_number(const ru_object *b)
{
    return b->number;
}

ru_status ru_object_failed(ru_object *b, ru_err *err)
{
    ru_mutex_lock(&b->of->lock);
    ru_status st = b->failed;
    if (st != RU_OK) {
        (void)RU_FAIL(err, st, "%s", b->err.text);
    }
    ru_mutex_unlock(&b->of->lock);
    return st;
}

bool ru_objects_failed(ru_objects *o)
{
    bool failed = false;
    if (o != NULL) {
        ru_mutex_lock(&o->lock);
        failed = o->figures.failed > 0;
        ru_mutex_unlock(&o->lock);
    }
    return failed;
}

/* One more line of every request. */
static ru_status add_line(ru_object *b, const char *line, ru_err *err)
{
    return rui_curl_line(&b->of->curl, &b->head, line, err);
}

static ru_status add_head(ru_object *b, ru_err *err)
{
    ru_objects *o = b->of;
    const char *trace = rui_trace_line(&o->arena);
    RU_TRY(trace != NULL ? add_line(b, trace, err) : RU_OK);
    if (!b->address.s3 || o->login.key == NULL) {
        return RU_OK;
    }
    /* of no bytes: the requests have no body */
    RU_TRY(add_line(b,
                    "x-amz-content-sha256: "
                    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                    err));
    return o->login.session == NULL
               ? RU_OK
               : add_line(b,
                          ru_arena_printf(&o->arena, "x-amz-security-token: %s", o->login.session),
                          err);
}

static ru_status keep_object(ru_objects *o, ru_object *b, ru_err *err)
{
    if (o->n_objects == o->cap_objects) {
        uint32_t cap = o->cap_objects > 0 ? 2 * o->cap_objects : 16;
        ru_object **more = realloc(o->object, cap * sizeof(ru_object *));
        if (more == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for %u addresses", cap);
        }
        o->object = more;
        o->cap_objects = cap;
    }
    b->number = o->n_objects;
    o->object[o->n_objects++] = b;
    return RU_OK;
}

/* The first bytes, which also tell size and version; they stay in the window. */
static ru_status look(ru_object *b, ru_err *err)
{
    ru_objects *o = b->of;
    rui_window *w = &o->window;
    ru_ranges *r = NULL;
    RU_TRY(ru_ranges_open(o, UINT32_MAX, &r, err));
    ru_mutex_lock(&w->lock);
    if (w->bytes == NULL) {
        w->bytes = malloc(WINDOW_BYTES);
    }
    ru_status st = w->bytes != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a store");
    if (st == RU_OK) {
        ru_read_piece p = {.object = b, .size_bytes = RUI_FIRST_BYTES, .into = w->bytes};
        w->object = NULL;
        ru_ranges_begin(r, &p, 1, 1);
        ru_ranges_end(r);
        if (p.got_bytes < 0) {
            st = ru_object_failed(b, err);
        } else {
            w->object = b;
            w->offset = 0;
            w->size_bytes = p.got_bytes;
        }
    }
    ru_mutex_unlock(&w->lock);
    ru_ranges_close(r);
    return st;
}

/* By its name. */
static ru_object *known(const ru_objects *o, const char *name)
{
    for (uint32_t k = 0; k < o->n_objects; k++) {
        ru_object *b = o->object[k];
        if (b->version.size_bytes >= 0 && strcmp(b->address.name, name) == 0) {
            return b;
        }
    }
    return NULL;
}

ru_status ru_object_open(ru_objects *o, const char *address, ru_object **out, ru_err *err)
{
    *out = known(o, address);
    if (*out != NULL) {
        return RU_OK;
    }
    ru_object *b = RU_NEW(&o->arena, ru_object, 1);
    if (b == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an address");
    }
    b->of = o;
    b->version.size_bytes = -1;
    bool s3 = strncmp(address, "s3://", 5) == 0;
    if (s3 && !o->login_known) {
        RU_TRY(rui_s3_login_find(o->opt.env, &o->arena, &o->login, err));
        o->login_known = true;
    }
    RU_TRY(rui_address_read(address, o->opt.env, o->login.region, &o->arena, &b->address, err));
    const ru_object *other = known(o, b->address.name);
    if (other != NULL && strcmp(other->address.url, b->address.url) != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "%s stands twice, with different words behind '?'; they are never shown, so "
                       "the two would have one name: copy one of the files to the disk",
                       b->address.name);
    }
    b->authority = rui_address_authority(o->opt.env, s3);
    RU_TRY(keep_object(o, b, err));
    RU_TRY(add_head(b, err));
    RU_TRY(look(b, err));
    /* Weak tags never match by the rules; the answer's own tag is compared in any case. */
    if (b->version.tag[0] == '"') {
        RU_TRY(add_line(b, ru_arena_printf(&o->arena, "If-Match: %s", b->version.tag), err));
    }
    *out = b;
    return RU_OK;
}

/* -- reads ---------------------------------------------------------------------------------------
 */

static ru_status read_large(ru_object *b, int64_t offset, uint8_t *into, int64_t size, ru_err *err)
{
    ru_ranges *r = NULL;
    RU_TRY(ru_ranges_open(b->of, UINT32_MAX, &r, err));
    ru_status st = RU_OK;
    for (int64_t done = 0; st == RU_OK && done < size;) {
        ru_read_piece p[PIECES];
        uint32_t n = 0;
        for (; n < PIECES && done < size; n++) {
            int64_t part = size - done < PIECE_BYTES ? size - done : PIECE_BYTES;
            p[n] = (ru_read_piece){
                .object = b, .offset = offset + done, .size_bytes = part, .into = into + done};
            done += part;
        }
        ru_ranges_begin(r, p, n, n);
        ru_ranges_end(r);
        for (uint32_t k = 0; st == RU_OK && k < n; k++) {
            st = p[k].got_bytes == p[k].size_bytes ? RU_OK : ru_object_failed(b, err);
        }
    }
    ru_ranges_close(r);
    return st;
}

/* Twice as much as last time when one small read follows the other, as the indexes of formats are
 * read; else little. */
static ru_status move_window(ru_object *b, int64_t offset, int64_t size, ru_err *err)
{
    rui_window *w = &b->of->window;
    int64_t next = RUI_FIRST_BYTES, end = w->offset + w->size_bytes;
    if (w->object == b && offset >= w->offset && offset <= end + 2 * w->size_bytes) {
        next = w->size_bytes * 2 < WINDOW_BYTES ? w->size_bytes * 2 : WINDOW_BYTES;
    }
    next = next < size ? size : next;
    next = next < b->version.size_bytes - offset ? next : b->version.size_bytes - offset;
    w->object = NULL;
    RU_TRY(read_large(b, offset, w->bytes, next, err));
    w->object = b;
    w->offset = offset;
    w->size_bytes = next;
    return RU_OK;
}

ru_status ru_object_read(ru_object *b, int64_t offset, void *into, int64_t size_bytes, ru_err *err)
{
    if (offset < 0 || size_bytes < 0 || size_bytes > b->version.size_bytes - offset) {
        return RU_FAIL(
            err, RU_E_DATA,
            "%s: the object ends at byte %lld, but %lld bytes from byte %lld on are needed",
            b->address.name, (long long)b->version.size_bytes, (long long)size_bytes,
            (long long)offset);
    }
    if (size_bytes > SMALL_BYTES) {
        return read_large(b, offset, into, size_bytes, err);
    }
    rui_window *w = &b->of->window;
    ru_mutex_lock(&w->lock);
    bool inside =
        w->object == b && offset >= w->offset && offset + size_bytes <= w->offset + w->size_bytes;
    ru_status st = inside || size_bytes == 0 ? RU_OK : move_window(b, offset, size_bytes, err);
    if (st == RU_OK && size_bytes > 0) {
        memcpy(into, w->bytes + (offset - w->offset), (size_t)size_bytes);
    }
    ru_mutex_unlock(&w->lock);
    return st;
}

#else

ru_status ru_objects_open(const ru_objects_options *opt, ru_objects **out, ru_err *err)
{
    (void)opt;
    (void)out;
    return rui_curl_none(err);
}

/* Without ru_objects_open there is no object: nobody comes here. */
void ru_objects_close(ru_objects *o)
{
    RU_CHECK(o == NULL);
}
ru_objects_figures ru_objects_count(ru_objects *o)
{
    RU_CHECK(o != NULL);
    return (ru_objects_figures){0};
}
ru_status ru_object_open(ru_objects *o, const char *address, ru_object **out, ru_err *err)
{
    (void)o;
    (void)address;
    (void)out;
    return rui_curl_none(err);
}
int64_t ru_object_bytes(const ru_object *b)
{
    RU_CHECK(b == NULL);
    return 0;
}
const char *ru_object_name(const ru_object *b)
{
    RU_CHECK(b == NULL);
    return "";
}
uint32_t ru_object_number(const ru_object *b)
{
    RU_CHECK(b == NULL);
    return 0;
}
ru_status ru_object_read(ru_object *b, int64_t offset, void *into, int64_t size_bytes, ru_err *err)
{
    (void)b;
    (void)offset;
    (void)into;
    (void)size_bytes;
    return rui_curl_none(err);
}
ru_status ru_object_failed(ru_object *b, ru_err *err)
{
    (void)b;
    return rui_curl_none(err);
}
ru_status ru_ranges_open(ru_objects *o, uint32_t group, ru_ranges **out, ru_err *err)
{
    (void)o;
    (void)group;
    (void)out;
    return rui_curl_none(err);
}
bool ru_objects_failed(ru_objects *o)
{
    RU_CHECK(o == NULL);
    return false;
}
void ru_ranges_close(ru_ranges *r)
{
    RU_CHECK(r == NULL);
}
void ru_ranges_begin(ru_ranges *r, ru_read_piece *pieces, uint32_t n, uint32_t depth)
{
    (void)pieces;
    RU_CHECK(r == NULL && n == 0 && depth == 0);
}
void ru_ranges_end(ru_ranges *r)
{
    RU_CHECK(r == NULL);
}
void ru_ranges_cancel(ru_ranges *r)
{
    RU_CHECK(r == NULL);
}
void ru_ranges_depth_set(ru_ranges *r, uint32_t depth)
{
    RU_CHECK(r == NULL && depth == 0);
}
int64_t ru_ranges_bytes(const ru_ranges *r)
{
    RU_CHECK(r == NULL);
    return 0;
}

#endif
