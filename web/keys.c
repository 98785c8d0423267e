#include "web/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "web/address.h"
#include "web/answer.h"
#include "web/post.h"
#include "web/redis.h"

enum { URL_MAX = 2048, ONCE_MS = 20000 };
static const int64_t patience_ns = 20000000000;

typedef struct asking {
    struct asking *next, **at; /* of all under way */
    ru_keys *of;
    ru_keys_ask ask;
    ru_time since;
    uint32_t tries;
    char key[RU_KEYS_NAME_MAX];
    char url[URL_MAX];
} asking;

struct ru_keys {
    ru_loop *loop;
    const char *name; /* for messages */
    ru_redis *redis;  /* or else S3 */
    ru_posts *posts;
    const char *base; /* of URLs, with the prefix */
    ru_rng rng;
    asking *under_way;
    uint32_t busy;
    bool told; /* a line says that it does not answer well */
};

static void send_once(asking *q);

static void asking_free(asking *q)
{
    *q->at = q->next;
    if (q->next != NULL) {
        q->next->at = q->at;
    }
    q->of->busy--;
    free(q);
}

static void finish(asking *q, ru_status st, const char *why, const void *data, int64_t n)
{
    const ru_keys_ask a = q->ask;
    q->of->told = q->of->told && st != RU_OK;
    asking_free(q);
    if (a.done != NULL) {
        a.done(a.self, st, why, data, n);
    }
}

static void on_again(void *self, uint32_t what, ru_time now)
{
    (void)what;
    (void)now;
    send_once(self);
}

/* Later, or not at all when it has lasted too long. */
static void again(asking *q, int64_t retry_after_s, const ru_err *why)
{
    ru_keys *k = q->of;
    ru_time now = ru_clock_now();
    int64_t wait = rui_answer_wait_ns(q->tries++, retry_after_s, &k->rng);
    if (ru_time_since(now, q->since) + wait > patience_ns) {
        finish(q, why->status, why->text, NULL, 0);
        return;
    }
    if (!k->told && q->tries > 2) {
        k->told = true;
        ru_log(RU_LOG_WARN, "store", "store_waits", "%s; it is asked again", why->text);
    }
    ru_loop_timer(k->loop, on_again, q, 0, ru_time_after(now, wait));
}

static void missing(asking *q)
{
    ru_err err = {0};
    (void)RU_FAIL(&err, RU_E_MISSING,
                  "%s: key %s was put and is not there any more; was the store restarted, or does "
                  "it remove keys?",
                  q->of->name, q->key);
    finish(q, err.status, err.text, NULL, 0);
}

/* -- Redis ---------------------------------------------------------------------------------------
 */

static bool says(const ru_redis_reply *r, const char *word)
{
    return ru_str_starts(ru_str_n(r->text, r->n), word);
}

static void on_reply(void *self, const ru_redis_reply *r)
{
    asking *q = self;
    ru_err err = {0};
    int shown = (int)(r->n < 160 ? r->n : 160);
    if (r->kind == 0 && r->refused) {
        (void)RU_FAIL(&err, RU_E_PERM, "%s: %s; SSL_CERT_FILE names other authorities", q->of->name,
                      r->text);
        finish(q, err.status, err.text, NULL, 0);
    } else if (r->kind == 0) {
        (void)RU_FAIL(&err, RU_E_PEER, "%s: %s", q->of->name, r->text);
        again(q, -1, &err);
    } else if (r->kind == '-' && (says(r, "NOAUTH") || says(r, "NOPERM") || says(r, "WRONGPASS"))) {
        (void)RU_FAIL(&err, RU_E_PERM, "%s refuses access: %.*s; set REDISCLI_AUTH", q->of->name,
                      shown, r->text);
        finish(q, err.status, err.text, NULL, 0);
    } else if (r->kind == '-') {
        (void)RU_FAIL(&err, RU_E_PEER, "%s answers: %.*s", q->of->name, shown, r->text);
        again(q, -1, &err);
    } else if (q->ask.what == RU_KEYS_GET && r->kind == '$' && r->n < 0) {
        missing(q);
    } else {
        bool get = q->ask.what == RU_KEYS_GET;
        finish(q, RU_OK, NULL, get ? r->text : NULL, get ? r->n : 0);
    }
}

static ru_status send_redis(asking *q, ru_err *err)
{
    ru_keys_what what = q->ask.what;
    const ru_str words[] = {ru_str_c(what == RU_KEYS_PUT   ? "SET"
                                     : what == RU_KEYS_GET ? "GET"
                                                           : "DEL"),
                            ru_str_c(q->key),
                            ru_str_n(q->ask.data, q->ask.n),
                            ru_str_c("NX"),
                            ru_str_c("EX"),
                            ru_str_c("86400")};
    return ru_redis_send(q->of->redis, words, what == RU_KEYS_PUT ? 6 : 2, on_reply, q, err);
}

/* -- S3 ------------------------------------------------------------------------------------------
 */

static void on_post(void *self, const ru_post_answer *a)
{
    asking *q = self;
    ru_err err = {0};
    rui_answer r;
    int64_t retry_s = -1;
    const rui_asked asked = {.name = q->of->name, .s3 = true, .login = true};
    if (a->note[0] != '\0' && !ru_str_i64(ru_str_c(a->note), &retry_s)) {
        retry_s = -1; /* a date */
    }
    if (a->status == 0) {
        (void)RU_FAIL(&err, RU_E_PEER, "%s: %s", q->of->name, a->why);
        again(q, -1, &err);
        return;
    }
    rui_answer_begin(&r);
    r.status = (int32_t)a->status;
    if (a->status >= 300) {
        rui_answer_body(&r, a->text, a->n);
    }
    bool key = strcmp(r.code, "NoSuchBucket") != 0;
    if (a->status == 404 && key && q->ask.what == RU_KEYS_GET) {
        missing(q);
        return;
    }
    rui_verdict v = rui_answer_written(&r, &asked, &err);
    if (v == RUI_AGAIN) {
        again(q, retry_s, &err);
    } else if (v == RUI_STOP) {
        finish(q, err.status, err.text, NULL, 0);
    } else {
        finish(q, RU_OK, NULL, a->text, a->n);
    }
}

static ru_status send_s3(asking *q, ru_err *err)
{
    ru_keys_what what = q->ask.what;
    const ru_post p = {.url = q->url,
                       .method = what == RU_KEYS_PUT   ? "PUT"
                                 : what == RU_KEYS_GET ? "GET"
                                                       : "DELETE",
                       .body = what == RU_KEYS_PUT ? q->ask.data : "",
                       .body_bytes = what == RU_KEYS_PUT ? q->ask.n : 0,
                       .type = what == RU_KEYS_PUT ? "application/octet-stream" : NULL,
                       .note = "Retry-After",
                       .patience_ms = ONCE_MS,
                       .answer_max_bytes = what == RU_KEYS_GET ? q->ask.n + 4096 : 0,
                       .done = on_post,
                       .self = q};
    return ru_posts_send(q->of->posts, &p, err);
}

/* -- from outside --------------------------------------------------------------------------------
 */

static ru_status send_by(asking *q, ru_err *err)
{
    return q->of->redis != NULL ? send_redis(q, err) : send_s3(q, err);
}

static void send_once(asking *q)
{
    ru_err err = {0};
    if (send_by(q, &err) != RU_OK) {
        again(q, -1, &err);
    }
}

ru_status ru_keys_send(ru_keys *k, const ru_keys_ask *ask, ru_err *err)
{
    asking *q = malloc(sizeof *q);
    if (q == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a request to a store");
    }
    *q = (asking){.next = k->under_way, .at = &k->under_way, .of = k, .ask = *ask};
    q->since = ru_clock_now();
    (void)snprintf(q->key, sizeof q->key, "%s", ask->key);
    (void)snprintf(q->url, sizeof q->url, "%s%s", k->base, ask->key);
    if (q->next != NULL) {
        q->next->at = &q->next;
    }
    k->under_way = q;
    k->busy++;
    ru_status st = send_by(q, err);
    if (st != RU_OK) {
        asking_free(q);
    }
    return st;
}

uint32_t ru_keys_busy(const ru_keys *k)
{
    return k->busy;
}

static ru_status open_s3(ru_keys *k, const char *address, ru_arena *arena, ru_err *err)
{
    rui_s3_login login;
    rui_address at;
    size_t n = strlen(address);
    while (n > 5 && address[n - 1] == '/') {
        n--;
    }
    /* A key stands behind it: rui_address_read wants one. */
    const char *any = ru_arena_printf(arena, "%.*s/x", (int)n, address);
    RU_TRY(any != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for an address"));
    RU_TRY(rui_s3_login_find(ru_conf_env, arena, &login, err));
    RU_TRY(rui_address_read(any, ru_conf_env, login.region, arena, &at, err));
    if (strlen(at.url) + RU_KEYS_NAME_MAX > URL_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "%.60s...: the address is too long", address);
    }
    k->base = ru_arena_strn(arena, at.url, (int64_t)strlen(at.url) - 1);
    RU_TRY(k->base != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for an address"));
    return ru_posts_open(k->loop, "s3", arena, &k->posts, err);
}

ru_status ru_keys_open(ru_loop *loop, const char *address, ru_arena *arena, ru_keys **out,
                       ru_err *err)
{
    ru_keys *k = RU_NEW(arena, ru_keys, 1);
    const char *name = ru_arena_str(arena, address);
    if (k == NULL || name == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for requests to a store");
    }
    *k = (ru_keys){.loop = loop, .name = name, .base = ""};
    k->rng = ru_rng_from((uint64_t)ru_clock_now().ns, 0); /* of waits: workers differ */
    bool tls = strncmp(address, "rediss://", 9) == 0;
    if (tls || strncmp(address, "redis://", 8) == 0) {
        RU_TRY(ru_redis_open(loop, address + (tls ? 9 : 8), tls, ru_conf_env("REDISCLI_AUTH"),
                             arena, &k->redis, err));
    } else {
        RU_TRY(open_s3(k, address, arena, err));
    }
    *out = k;
    return RU_OK;
}

void ru_keys_close(ru_keys *k)
{
    if (k == NULL) {
        return;
    }
    ru_posts_close(k->posts);
    ru_redis_close(k->redis);
    while (k->under_way != NULL) {
        ru_loop_timer_off(k->loop, on_again, k->under_way, 0);
        asking_free(k->under_way);
    }
}
