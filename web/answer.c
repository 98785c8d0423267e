#include "web/answer.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

enum { ASKED_WAIT_MAX_S = 60 };
static const int64_t wait_first_ns = 100000000, wait_max_ns = 20000000000;

void rui_answer_begin(rui_answer *a)
{
    *a = (rui_answer){.first = -1, .last = -1, .retry_after_s = -1, .version = {.size_bytes = -1}};
}

/* Printable bytes; nothing when there are more than fit. */
static void keep(char *into, size_t room, ru_str v)
{
    into[0] = '\0';
    if (v.n >= (int64_t)room) {
        return;
    }
    for (int64_t i = 0; i < v.n; i++) {
        into[i] = v.p[i] >= ' ' && v.p[i] < 127 ? v.p[i] : '?';
    }
    into[v.n] = '\0';
}

/* "bytes 0-99/1000", "bytes 0-99/\*", "bytes \*\/1000" (without the backslashes) */
static void read_range(rui_answer *a, ru_str v)
{
    ru_str range;
    int64_t first = -1, last = -1, size = -1;
    if (!ru_str_starts(v, "bytes ")) {
        return;
    }
    v = ru_str_trim(ru_str_from(v, 6));
    int64_t slash = ru_str_find(v, "/"), dash = ru_str_find(v, "-");
    if (slash < 1) {
        return;
    }
    range = ru_str_n(v.p, slash);
    ru_str whole = ru_str_from(v, slash + 1);
    bool all = ru_str_eq_c(range, "*");
    bool ok = all || (dash > 0 && dash < slash && ru_str_i64(ru_str_n(v.p, dash), &first) &&
                      ru_str_i64(ru_str_n(v.p + dash + 1, slash - dash - 1), &last) && first >= 0 &&
                      last >= first && last < INT64_MAX);
    ok = ok && (ru_str_eq_c(whole, "*") || (ru_str_i64(whole, &size) && size >= 0));
    if (ok && (size < 0 || last < size)) {
        a->ranged = true;
        a->first = first;
        a->last = last;
        a->version.size_bytes = size;
    }
}

void rui_answer_line(rui_answer *a, const char *line, int64_t n)
{
    ru_str s = ru_str_trim(ru_str_n(line, n));
    if (ru_str_starts(s, "HTTP/")) {
        int64_t status, blank = ru_str_find(s, " ");
        rui_answer_begin(a);
        if (blank > 0 && s.n >= blank + 4 && ru_str_i64(ru_str_n(s.p + blank + 1, 3), &status)) {
            a->status = (int32_t)status;
        }
        return;
    }
    int64_t colon = ru_str_find(s, ":"), seconds;
    if (colon < 1 || colon >= 32) {
        return;
    }
    char name[32];
    memcpy(name, s.p, (size_t)colon);
    name[colon] = '\0';
    ru_str v = ru_str_trim(ru_str_from(s, colon + 1));
    if (strcasecmp(name, "content-range") == 0) {
        read_range(a, v);
    } else if (strcasecmp(name, "etag") == 0) {
        keep(a->version.tag, sizeof a->version.tag, v);
    } else if (strcasecmp(name, "last-modified") == 0) {
        keep(a->version.date, sizeof a->version.date, v);
    } else if (strcasecmp(name, "content-encoding") == 0) {
        keep(a->encoding, sizeof a->encoding, v);
        if (v.n >= (int64_t)sizeof a->encoding) {
            keep(a->encoding, sizeof a->encoding, ru_str_c("of unknown name"));
        }
    } else if (strcasecmp(name, "x-amz-bucket-region") == 0) {
        keep(a->region, sizeof a->region, v);
    } else if (strcasecmp(name, "retry-after") == 0 && ru_str_i64(v, &seconds) && seconds >= 0) {
        a->retry_after_s = seconds < ASKED_WAIT_MAX_S ? seconds : ASKED_WAIT_MAX_S;
    }
}

void rui_answer_body(rui_answer *a, const char *text, int64_t n)
{
    ru_str s = ru_str_n(text, n);
    int64_t open = ru_str_find(s, "<Code>");
    s = open >= 0 ? ru_str_from(s, open + 6) : ru_str_c(NULL);
    int64_t close = ru_str_find(s, "</Code>");
    if (close > 0) {
        keep(a->code, sizeof a->code, ru_str_n(s.p, close));
    }
}

/* -- the verdict ---------------------------------------------------------------------------------
 */

/* The same object as at first? Tags are compared without their mark of weakness. */
static bool same(const rui_version *was, const rui_version *is)
{
    const char *a = strncmp(was->tag, "W/", 2) == 0 ? was->tag + 2 : was->tag;
    const char *b = strncmp(is->tag, "W/", 2) == 0 ? is->tag + 2 : is->tag;
    if (was->size_bytes >= 0 && is->size_bytes >= 0 && was->size_bytes != is->size_bytes) {
        return false;
    }
    return a[0] != '\0' && b[0] != '\0' ? strcmp(a, b) == 0 : strcmp(was->date, is->date) == 0;
}

static rui_verdict changed(const rui_asked *q, const char *how, ru_err *err)
{
    (void)RU_FAIL(err, RU_E_DATA,
                  "%s changed while it was read (%s); its samples would be mixed: put the object "
                  "back as it was, or start a new run",
                  q->name, how);
    return RUI_STOP;
}

static rui_verdict judge_part(const rui_answer *a, const rui_asked *q, ru_err *err)
{
    bool plain = a->encoding[0] == '\0' || strcasecmp(a->encoding, "identity") == 0 ||
                 strcasecmp(a->encoding, "aws-chunked") == 0; /* how it was sent to the store */
    if (!plain) {
        (void)RU_FAIL(err, RU_E_UNSUPPORTED,
                      "%s is sent compressed (Content-Encoding %s), so its bytes have no fixed "
                      "places; store it without an encoding, or copy it to the disk",
                      q->name, a->encoding);
        return RUI_STOP;
    }
    if (q->version->size_bytes >= 0 && !same(q->version, &a->version)) {
        char how[64];
        (void)snprintf(how, sizeof how, "%lld bytes at first, now %lld",
                       (long long)q->version->size_bytes, (long long)a->version.size_bytes);
        bool size = a->version.size_bytes >= 0 && a->version.size_bytes != q->version->size_bytes;
        return changed(q, size ? how : "another ETag or date", err);
    }
    bool first = q->version->size_bytes < 0;
    int64_t end = q->offset + q->size_bytes; /* fewer bytes may come: the rest is asked for */
    bool fits = a->ranged && a->first == q->offset && a->last < end;
    if (!fits || (first && a->version.size_bytes < 0)) {
        (void)RU_FAIL(err, RU_E_UNSUPPORTED,
                      "%s: the server does not say which bytes it sends (Content-Range) in answer "
                      "to a request for a part; copy the file to the disk or use another server",
                      q->name);
        return RUI_STOP;
    }
    return RUI_TAKE;
}

static void refused(const rui_answer *a, const rui_asked *q, ru_err *err)
{
    const char *what =
        !q->s3 && q->token ? "the token is not its own"
        : !q->s3           ? "name a file with a token in data.token_file, or put the login into "
                             "~/.netrc"
        : q->login
            ? "check the credentials, and what they may do there"
            : "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
              "AWS_PROFILE";
    (void)RU_FAIL(err, RU_E_PERM, "%s: the server refuses access (status %d%s%s); %s", q->name,
                  a->status, a->code[0] != '\0' ? ", " : "", a->code, what);
}

/* Neither what was asked for nor about its version. */
static rui_verdict judge_rest(const rui_answer *a, const rui_asked *q, bool first, ru_err *err)
{
    int32_t s = a->status;
    if (s == 429 || s == 408 || (s >= 500 && s != 501 && s != 505)) {
        (void)RU_FAIL(err, RU_E_PEER, "%s: the server answers with status %d%s%s", q->name, s,
                      a->code[0] != '\0' ? ", " : "", a->code);
        return RUI_AGAIN;
    }
    if (s == 401 || s == 403 || (s == 400 && q->s3 && a->code[0] != '\0')) {
        refused(a, q, err);
    } else if (s == 404 || s == 410) {
        (void)RU_FAIL(err, first ? RU_E_MISSING : RU_E_DATA,
                      "%s: there is no such object (status %d%s%s); %s", q->name, s,
                      a->code[0] != '\0' ? ", " : "", a->code,
                      first ? "check the address" : "it was removed while it was read");
    } else if (q->s3 && s >= 300 && s < 400 && a->region[0] != '\0') {
        (void)RU_FAIL(err, RU_E_CONFIG, "%s: its bucket is in region %s; set AWS_REGION to it",
                      q->name, a->region);
    } else {
        (void)RU_FAIL(err, RU_E_IO, "%s: the server answers with status %d%s%s", q->name, s,
                      a->code[0] != '\0' ? ", " : "", a->code);
    }
    return RUI_STOP;
}

rui_verdict rui_answer_written(const rui_answer *a, const rui_asked *q, ru_err *err)
{
    if (a->status >= 200 && a->status < 300 && a->code[0] == '\0') {
        return RUI_TAKE;
    }
    if (a->status >= 200 && a->status < 300) { /* an error that was found after the head was sent */
        (void)RU_FAIL(err, RU_E_PEER, "%s: the server answers %s", q->name, a->code);
        return RUI_AGAIN;
    }
    return judge_rest(a, q, true, err);
}

rui_verdict rui_answer_judge(const rui_answer *a, const rui_asked *q, ru_err *err)
{
    bool first = q->version->size_bytes < 0;
    int32_t s = a->status;
    if (s == 206) {
        return judge_part(a, q, err);
    }
    if (s == 200) {
        (void)RU_FAIL(err, RU_E_UNSUPPORTED,
                      "%s: the server sends the whole file in answer to a request for a part; copy "
                      "the file to the disk, or use a server that serves ranges",
                      q->name);
        return RUI_STOP;
    }
    if (s == 416 && first && a->version.size_bytes == 0) {
        return RUI_TAKE; /* an empty object has no first byte */
    }
    if (s == 412 || (s == 416 && !first)) {
        return changed(q, s == 412 ? "another ETag" : "it is shorter", err);
    }
    return judge_rest(a, q, first, err);
}

int64_t rui_answer_wait_ns(uint32_t tries, int64_t retry_after_s, ru_rng *r)
{
    int64_t wait = tries < 8 ? wait_first_ns << tries : wait_max_ns;
    wait = wait < wait_max_ns ? wait : wait_max_ns;
    wait = wait / 2 + (int64_t)(ru_rng_f64(r) * (double)(wait / 2));
    int64_t asked = retry_after_s * 1000000000; /* with up to a tenth more: not all at once */
    asked += asked > 0 ? (int64_t)(ru_rng_f64(r) * 0.1 * (double)asked) : 0;
    return asked > wait ? asked : wait;
}
