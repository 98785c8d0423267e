/* Tokens of jobs, and where this user's files are. */
#include "launch/launch.h"

#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "env/file/file.h"
#include "env/process/self.h"

void ru_token_make(char into[2 * RU_TOKEN_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t raw[RU_TOKEN_BYTES];
    ru_self_random(raw, sizeof raw);
    for (uint32_t k = 0; k < RU_TOKEN_BYTES; k++) {
        into[2 * k] = digits[raw[k] >> 4];
        into[2 * k + 1] = digits[raw[k] & 15];
    }
    into[2 * RU_TOKEN_BYTES] = 0;
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

const char *ru_choices_dir(ru_arena *arena)
{
    const char *base = ru_conf_env("XDG_CACHE_HOME"), *home = ru_conf_env("HOME");
    if (base != NULL && base[0] != 0) {
        return ru_path_join(arena, base, "rubato");
    }
    return home != NULL && home[0] != 0 ? ru_path_join(arena, home, ".cache/rubato") : NULL;
}
