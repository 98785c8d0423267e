#include "web/address.h"

#include <string.h>

#include "env/file/file.h"

enum { FILE_BYTES_MAX = 1 << 20, ADDRESS_MAX = 4096, BUCKET_MAX = 255 };

/* -- credentials ---------------------------------------------------------------------------------
 */

/* The value of `key` in section [name] of an INI file; NULL: none. `*found`: there is the section.
 */
static const char *ini_value(ru_str text, const char *name, const char *key, ru_arena *arena,
                             bool *found)
{
    ru_str line;
    bool inside = false;
    while (ru_str_next(&text, '\n', &line)) {
        line = ru_str_trim(line);
        if (line.n == 0 || line.p[0] == '#' || line.p[0] == ';') {
            continue;
        }
        if (line.p[0] == '[') {
            int64_t close = ru_str_find(line, "]");
            inside = close > 0 && ru_str_eq_c(ru_str_trim(ru_str_n(line.p + 1, close - 1)), name);
            *found = *found || inside;
            continue;
        }
        int64_t at = ru_str_find(line, "=");
        if (inside && at > 0 && ru_str_eq_c(ru_str_trim(ru_str_n(line.p, at)), key)) {
            ru_str v = ru_str_trim(ru_str_from(line, at + 1));
            return ru_arena_strn(arena, v.p, v.n);
        }
    }
    return NULL;
}

/* A file in ~/.aws, or where `variable` says; "" when there is none. */
static ru_str aws_file(rui_env_fn env, const char *variable, const char *name, ru_arena *arena,
                       const char **path)
{
    const char *home = env("HOME");
    char *text = NULL;
    int64_t n = 0;
    ru_err ignored = {0};
    *path = env(variable);
    if (*path == NULL && home != NULL) {
        *path = ru_arena_printf(arena, "%s/.aws/%s", home, name);
    }
    bool there = *path != NULL && ru_path_is_file(*path) &&
                 ru_file_read(*path, FILE_BYTES_MAX, arena, &text, &n, &ignored) == RU_OK;
    return there ? ru_str_n(text, n) : ru_str_c(NULL);
}

static ru_status from_files(rui_env_fn env, ru_arena *arena, rui_s3_login *out, ru_err *err)
{
    const char *chosen = env("AWS_PROFILE"), *path = NULL, *ignored = NULL;
    const char *profile = chosen != NULL && chosen[0] != '\0' ? chosen : "default";
    ru_str keys = aws_file(env, "AWS_SHARED_CREDENTIALS_FILE", "credentials", arena, &path);
    ru_str settings = aws_file(env, "AWS_CONFIG_FILE", "config", arena, &ignored);
    bool named = false, set = false, also = false;
    const char *section =
        strcmp(profile, "default") == 0 ? "default" : ru_arena_printf(arena, "profile %s", profile);
    if (section == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the login of the store");
    }
    if (out->region == NULL) {
        out->region = ini_value(settings, section, "region", arena, &set);
        out->region =
            out->region != NULL ? out->region : ini_value(keys, profile, "region", arena, &also);
    }
    if (out->key != NULL) {
        return RU_OK;
    }
    out->key = ini_value(keys, profile, "aws_access_key_id", arena, &named);
    out->secret = ini_value(keys, profile, "aws_secret_access_key", arena, &named);
    out->session = ini_value(keys, profile, "aws_session_token", arena, &named);
    out->from = path;
    if (chosen != NULL && chosen[0] != '\0' && !named && !set) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "AWS_PROFILE is '%s', but %s has no section [%s]; name one of its profiles",
                       profile, path != NULL ? path : "~/.aws/credentials", profile);
    }
    if ((out->key == NULL) != (out->secret == NULL)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "section [%s] of %s needs both aws_access_key_id and aws_secret_access_key",
                       profile, path);
    }
    return RU_OK;
}

static const char *given(rui_env_fn env, const char *name)
{
    const char *v = env(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

ru_status rui_s3_login_find(rui_env_fn env, ru_arena *arena, rui_s3_login *out, ru_err *err)
{
    rui_s3_login l = {.key = given(env, "AWS_ACCESS_KEY_ID"),
                      .secret = given(env, "AWS_SECRET_ACCESS_KEY"),
                      .region = given(env, "AWS_REGION"),
                      .from = "AWS_ACCESS_KEY_ID"};
    if ((l.key == NULL) != (l.secret == NULL)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "%s is set, but %s is not; a store needs both, or neither for public data",
                       l.key != NULL ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                       l.key != NULL ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    }
    l.session = l.key != NULL ? given(env, "AWS_SESSION_TOKEN") : NULL;
    l.region = l.region != NULL ? l.region : given(env, "AWS_DEFAULT_REGION");
    RU_TRY(from_files(env, arena, &l, err));
    l.region = l.region != NULL ? l.region : "us-east-1";
    for (const char *c = l.region; *c != '\0'; c++) {
        if (strchr("abcdefghijklmnopqrstuvwxyz0123456789-", *c) == NULL) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "'%.60s' is not a region; expected a name like "
                           "eu-central-1 in AWS_REGION",
                           l.region);
        }
    }
    *out = l;
    return RU_OK;
}

/* -- addresses -----------------------------------------------------------------------------------
 */

static bool has_control(const char *s)
{
    for (; *s != '\0'; s++) {
        if ((unsigned char)*s <= ' ' || *s == 127) {
            return true;
        }
    }
    return false;
}

void rui_address_put(ru_text *t, const char *s, bool slash)
{
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr(slash ? "-._~/" : "-._~", (int)c) != NULL;
        if (plain) {
            ru_text_char(t, (char)c, 1);
        } else {
            ru_text_putf(t, "%%%02X", c);
        }
    }
}

static const char *host_of(const char *url, ru_arena *arena)
{
    const char *at = strstr(url, "://");
    at = at != NULL ? at + 3 : url;
    return ru_arena_strn(arena, at, (int64_t)strcspn(at, "/?#"));
}

static ru_status read_s3(const char *text, rui_env_fn env, const char *region, ru_arena *arena,
                         rui_address *out, ru_err *err)
{
    const char *bucket = text + 5, *slash = strchr(bucket, '/');
    int n = slash != NULL ? (int)(slash - bucket) : 0;
    bool ok = n >= 1 && n <= BUCKET_MAX && slash[1] != '\0', label = n >= 3 && n <= 63;
    for (int k = 0; k < n; k++) {
        char c = bucket[k];
        bool low = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
        label = label && low;
        ok = ok && (low || (c >= 'A' && c <= 'Z') || c == '.' || c == '_');
    }
    if (!ok) {
        return RU_FAIL(err, RU_E_CONFIG, "%.200s: expected an address like s3://BUCKET/KEY", text);
    }
    const char *endpoint = given(env, "AWS_ENDPOINT_URL_S3");
    endpoint = endpoint != NULL ? endpoint : given(env, "AWS_ENDPOINT_URL");
    if (endpoint != NULL &&
        ((strncmp(endpoint, "http://", 7) != 0 && strncmp(endpoint, "https://", 8) != 0) ||
         has_control(endpoint) || strpbrk(endpoint, "?#@") != NULL)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "AWS_ENDPOINT_URL is '%.100s'; expected an address like "
                       "https://store.example:9000",
                       strpbrk(endpoint, "?#@") != NULL ? "..." : endpoint);
    }
    ru_text url = ru_text_arena(arena);
    if (endpoint != NULL) { /* stores of others know buckets by path */
        int64_t m = (int64_t)strlen(endpoint);
        while (m > 0 && endpoint[m - 1] == '/') {
            m--;
        }
        ru_text_putf(&url, "%.*s/%.*s/", (int)m, endpoint, n, bucket);
    } else if (label) {
        ru_text_putf(&url, "https://%.*s.s3.%s.amazonaws.com/", n, bucket, region);
    } else {
        ru_text_putf(&url, "https://s3.%s.amazonaws.com/%.*s/", region, n, bucket);
    }
    rui_address_put(&url, slash + 1, true);
    out->url = url.p;
    out->name = ru_arena_str(arena, text);
    out->s3 = true;
    return RU_OK;
}

ru_status rui_address_read(const char *text, rui_env_fn env, const char *region, ru_arena *arena,
                           rui_address *out, ru_err *err)
{
    rui_address a = {0};
    if (strlen(text) > ADDRESS_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "%.60s...: the address has more than %d bytes", text,
                       ADDRESS_MAX);
    }
    if (strncmp(text, "s3://", 5) == 0) {
        RU_TRY(read_s3(text, env, region, arena, &a, err));
    } else {
        int shown = (int)strcspn(text, "?#");
        const char *host = strstr(text, "://");
        RU_CHECK(host != NULL);
        size_t n = strcspn(host + 3, "/?#");
        if (memchr(host + 3, '@', n) != NULL) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "data: an address holds a user name or a password; put them into "
                           "~/.netrc, where no job and no message shows them");
        }
        if (n == 0 || has_control(text)) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "%.*s: expected an address like https://HOST/PATH, with %%20 for a "
                           "blank",
                           shown, text);
        }
        a.url = ru_arena_str(arena, text);
        a.name = ru_arena_strn(arena, text, shown);
    }
    a.host = a.url != NULL ? host_of(a.url, arena) : NULL;
    if (a.url == NULL || a.name == NULL || a.host == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the address of the data");
    }
    *out = a;
    return RU_OK;
}

const char *rui_address_authority(rui_env_fn env, bool s3)
{
    const char *path = s3 ? given(env, "AWS_CA_BUNDLE") : NULL;
    return path != NULL ? path : given(env, "SSL_CERT_FILE");
}
