/* Tokens of jobs, and where this user's files are. */
#include "launch/launch.h"

#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "env/file/file.h"
#include "env/file/secret.h"
#include "env/process/self.h"

_Static_assert((int)RU_TOKEN_BYTES == (int)RU_SECRET_BYTES, "a derived key is a token");

void ru_token_make(char into[2 * RU_TOKEN_BYTES + 1])
{
    uint8_t raw[RU_TOKEN_BYTES];
    ru_self_random(raw, sizeof raw);
    ru_secret_text(raw, into);
}

ru_status ru_token_get(const char *file, ru_arena *arena, const char **token, ru_err *err)
{
    const char *t = ru_conf_env("RUBATO_TOKEN");
    if (file != NULL && strcmp(file, "-") == 0) {
        char *line = ru_arena_zalloc(arena, 512, 1);
        t = line != NULL ? fgets(line, 512, stdin) : NULL;
        if (line != NULL) {
            line[strcspn(line, "\r\n")] = 0;
        }
    } else if (file != NULL) {
        char *text;
        int64_t n;
        if (!ru_path_is_private(file)) {
            return RU_FAIL(err, RU_E_USAGE,
                           "other users of this machine can read the token in %s, and with it take "
                           "part in the job; run: chmod 600 %s",
                           file, file);
        }
        RU_TRY(ru_file_read(file, 4096, arena, &text, &n, err));
        while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' ')) {
            text[--n] = 0;
        }
        t = text;
    }
    if (t == NULL || strlen(t) < RU_TOKEN_MIN || strlen(t) > RU_TOKEN_MAX) {
        return RU_FAIL(
            err, RU_E_USAGE,
            "the job's token is %s: set RUBATO_TOKEN or give --token-file FILE with %d to "
            "%d characters, those of OUT/token where the job was started",
            t == NULL                  ? "missing"
            : strlen(t) < RU_TOKEN_MIN ? "too short"
                                       : "too long",
            RU_TOKEN_MIN, RU_TOKEN_MAX);
    }
    *token = t;
    return RU_OK;
}

/* $BASE/rubato or ~/HOME/rubato; NULL: neither is set to an absolute path. A relative one would
 * name another folder for each working directory, and the XDG specification has it ignored. */
static const char *dir_of(ru_arena *arena, const char *base_name, const char *in_home)
{
    const char *base = ru_conf_env(base_name), *home = ru_conf_env("HOME");
    if (base != NULL && base[0] == '/') {
        return ru_path_join(arena, base, "rubato");
    }
    return home != NULL && home[0] == '/' ? ru_path_join(arena, home, in_home) : NULL;
}

const char *ru_choices_dir(ru_arena *arena)
{
    return dir_of(arena, "XDG_CACHE_HOME", ".cache/rubato");
}

/* The same for all processes of one start whose user has the same secret. */
static ru_status derive(const char *launch, const char *path, ru_arena *arena, const char **token,
                        ru_err *err)
{
    uint8_t key[RU_SECRET_BYTES];
    char *text = ru_arena_zalloc(arena, 2 * RU_TOKEN_BYTES + 1, 1);
    const char *purpose = ru_arena_printf(arena, "rubato token 1 %s", launch);
    if (text == NULL || purpose == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a token");
    }
    RU_TRY(ru_secret_key(path, purpose, key, err));
    ru_secret_text(key, text);
    *token = text;
    return RU_OK;
}

ru_status ru_token_shared(const char *file, const char *launch, ru_arena *arena, ru_token *out,
                          ru_err *err)
{
    ru_err why = {0};
    const char *dir = dir_of(arena, "XDG_CONFIG_HOME", ".config/rubato");
    const char *path = dir != NULL ? ru_path_join(arena, dir, "secret") : NULL;
    *out = (ru_token){0};
    if (launch == NULL || file != NULL || ru_conf_env("RUBATO_TOKEN") != NULL) {
        return ru_token_get(file, arena, &out->text, err);
    }
    ru_status st = path != NULL ? derive(launch, path, arena, &out->text, &why)
                                : RU_FAIL(&why, RU_E_CONFIG, "HOME is not set to an absolute path");
    if (st != RU_OK) {
        return RU_FAIL(err, st,
                       "no token for the workers of this start: %s. Or set RUBATO_TOKEN to the "
                       "same %d to %d characters for all of them, as with "
                       "RUBATO_TOKEN=$(openssl rand -hex 16)",
                       why.text, RU_TOKEN_MIN, RU_TOKEN_MAX);
    }
    out->secret = path;
    return RU_OK;
}
