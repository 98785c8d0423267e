#include "tool/serve/client.h"

#include <string.h>

#include "base/conf.h"
#include "env/file/file.h"
#include "web/fetch.h"

static bool has_scheme(const char *word)
{
    return strncmp(word, "http://", 7) == 0 || strncmp(word, "https://", 8) == 0;
}

bool rui_served_is_address(const char *word)
{
    const char *colon = strrchr(word, ':');
    return !ru_path_exists(word) &&
           (has_scheme(word) || (colon != NULL && colon[1] != '\0' &&
                                 strspn(colon + 1, "0123456789") == strlen(colon + 1)));
}

/* body NULL: GET. */
static ru_status ask(const char *address, const char *page, const char *body, ru_arena *arena,
                     char **text, int64_t *n, ru_err *err)
{
    const ru_fetch f = {.url =
                            ru_arena_printf(arena, "%s%s%s%s", has_scheme(address) ? "" : "http://",
                                            address[0] == ':' ? "127.0.0.1" : "", address, page),
                        .token = ru_conf_env("RUBATO_TOKEN"),
                        .body = body,
                        .body_bytes = body != NULL ? (int64_t)strlen(body) : 0,
                        .type = "application/json",
                        .says = body != NULL};
    return f.url != NULL ? ru_http_fetch(&f, arena, text, n, err)
                         : RU_FAIL(err, RU_E_MEM, "no memory for the address %s", address);
}

ru_status rui_served_get(const char *address, const char *page, ru_arena *arena, char **text,
                         int64_t *n, ru_err *err)
{
    return ask(address, page, NULL, arena, text, n, err);
}

ru_status rui_served_post(const char *address, const char *page, const char *body, ru_arena *arena,
                          char **text, int64_t *n, ru_err *err)
{
    return ask(address, page, body, arena, text, n, err);
}
