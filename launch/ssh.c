#include "launch/ssh.h"

#include <stdlib.h>

#include "base/conf.h"

uint32_t ru_ssh_words(ru_arena *arena, const char *host, const char *exe,
                      const char *words[RU_SSH_WORDS_MAX])
{
    const char *ssh = ru_conf_env("RUBATO_SSH");
    uint32_t n = 0;
    words[n++] = ssh != NULL ? ssh : "ssh";
    if (ssh == NULL) {
        words[n++] = "-oBatchMode=yes";
        words[n++] = "-oConnectTimeout=20";
        words[n++] = "-oServerAliveInterval=5"; /* a host that vanishes ends its ssh after 15 s */
        words[n++] = "-oServerAliveCountMax=3";
    }
    words[n++] = host;
    char *real = realpath(exe, NULL);
    words[n++] = ru_arena_str(arena, real != NULL ? real : "rubato");
    free(real);
    return n;
}
