/* Asking a server of models by its address: http://HOST:PORT, https://HOST:PORT or HOST:PORT.
 *
 * Thread: main only; blocks. */
#ifndef RU_TOOL_SERVE_CLIENT_H
#define RU_TOOL_SERVE_CLIENT_H

#include "base/str.h"

/* Does `word` name a server, and no file? */
bool rui_served_is_address(const char *word);
/* The text of a page, "/v2/..."; the token is RUBATO_TOKEN, if it is set. Errors: those of
 * ru_http_fetch. */
RU_MUST_USE ru_status rui_served_get(const char *address, const char *page, ru_arena *arena,
                                     char **text, int64_t *n, ru_err *err);

/* The same for a POST of JSON. Errors: RU_E_USAGE too, with the server's sentence. */
RU_MUST_USE ru_status rui_served_post(const char *address, const char *page, const char *body,
                                      ru_arena *arena, char **text, int64_t *n, ru_err *err);

#endif
