/* Rules about the archives of the build, read with objdump: names, hidden state, purity. */
#include <stdio.h>
#include <string.h>

#include "test/tidy.h"

/* One symbol of "objdump -t": flags, section, size, name. */
typedef struct symbol {
    ru_str section, name;
    bool global;
} symbol;

static bool parse_symbol(ru_str line, symbol *out)
{
    /* 0000000000000000 l     O .rodata<tab>0000000000000030 name */
    enum { FLAGS_AT = 17, SECTION_AT = 25 };
    if (line.n < SECTION_AT || line.p[16] != ' ') {
        return false;
    }
    out->global = line.p[FLAGS_AT] == 'g' || line.p[FLAGS_AT] == 'u' || line.p[FLAGS_AT + 1] == 'w';
    ru_str rest = ru_str_from(line, SECTION_AT - 1);
    int64_t tab = ru_str_find(rest, "\t");
    if (tab < 0) {
        return false;
    }
    out->section = ru_str_trim(ru_str_n(rest.p, tab));
    ru_str tail = ru_str_from(rest, tab + 1), word;
    while (ru_str_next(&tail, ' ', &word)) {
        out->name = word.n > 0 ? word : out->name;
    }
    return true;
}

static bool is_state(ru_str section)
{
    bool data = ru_str_starts(section, ".data") && !ru_str_starts(section, ".data.rel.ro");
    return data || ru_str_starts(section, ".bss") || ru_str_starts(section, ".tbss") ||
           ru_str_starts(section, ".tdata") || ru_str_eq_c(section, "*COM*");
}

/* What pure archives may call besides ru_ functions of base, world and (for plan) cost: memory,
 * string and mathematics, and what the compiler itself inserts. */
static const char pure_calls[] =
    " memcpy memmove memset memcmp bcmp memchr memmem strlen strcmp strncmp strchr strrchr strstr "
    "strspn strpbrk strncpy "
    "strcspn strnlen snprintf vsnprintf sqrt sqrtf exp expf exp2 expm1 log logf log2 log10 log1p "
    "pow powf "
    "floor floorf ceil ceilf round roundf trunc truncf fabs fabsf fmax fmin fmaxf fminf fmod fmodf "
    "sin cos "
    "tan asin acos atan atan2 sinh cosh tanh tanhf sinf cosf asinh acosh atanh erf erff rint rintf "
    "nearbyint "
    "nearbyintf lrint llrint ldexp frexp scalbn hypot cbrt isnan isinf sincos sincosf tgamma "
    "lgamma fma fmaf "
    "sinhf coshf tanf asinf acosf atanf asinhf acoshf atanhf log1pf expm1f exp2f log2f copysign "
    "copysignf "
    "qsort bsearch "
    "__stack_chk_fail __memcpy_chk __memset_chk __snprintf_chk __vsnprintf_chk "
    "_GLOBAL_OFFSET_TABLE_ "
    "__isoc99_sscanf __divti3 __modti3 __udivti3 __umodti3 __popcountdi2 ";

/* Functions of base that reach outside the process or allocate on the heap. */
static const char *const impure_base[] = {"ru_log", "ru_conf", "ru_spsc", "ru_alloc"};

static bool may_call(ru_str name)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(impure_base); i++) {
        if (ru_str_starts(name, impure_base[i])) {
            return false;
        }
    }
    if (ru_str_starts(name, "ru_")) {
        return true;
    }
    char padded[128];
    ru_text t = ru_text_into(padded, sizeof padded);
    ru_text_putf(&t, " %.*s ", RU_STR_ARG(name));
    return strstr(pure_calls, padded) != NULL;
}

static void check_defined(rui_tidy *t, const char *folder, const char *member, const symbol *s)
{
    bool prefix = ru_str_starts(s->name, "ru_") || ru_str_starts(s->name, "rui_");
    bool named = s->name.n > 0 && s->name.p[0] != '.';
    if (s->global && named && !prefix) {
        rui_tidy_breach(t, member, 0,
                        "%.*s is visible outside its file without ru_ or rui_ (rule 8)",
                        RU_STR_ARG(s->name));
    }
    bool state = is_state(s->section) && named;
    bool allowed = strcmp(folder, "env") == 0 || strcmp(member, "base/log.c") == 0;
    if (state && !allowed) {
        rui_tidy_breach(t, member, 0, "%.*s is mutable and lives as long as the process (rule 3)",
                        RU_STR_ARG(s->name));
    }
}

/* "/build/base/libbase.a.p/conf.c.o:     file format elf64-x86-64" -> "base/conf.c"; other lines
 * leave the member alone. Archives are thin: members of another archive have ".." in their path and
 * are left out (*member NULL). */
static void read_member(rui_tidy *t, const char *folder, ru_str line, const char **member)
{
    int64_t end = ru_str_find(line, ".o:     file format");
    if (end < 0) {
        return;
    }
    ru_str path = ru_str_n(line.p, end);
    int64_t at = ru_str_find(path, ".a.p/");
    ru_str file = at < 0 ? path : ru_str_from(path, at + 5);
    *member = NULL;
    if (ru_str_find(path, "/../") < 0) {
        *member = ru_arena_printf(&t->arena, "%s/%.*s", folder, RU_STR_ARG(file));
        RU_CHECK(*member != NULL);
    }
}

/* "exec" of "exec/cpu/kern". */
static ru_str top_of(const char *folder)
{
    const char *slash = strchr(folder, '/');
    return slash != NULL ? ru_str_n(folder, slash - folder) : ru_str_c(folder);
}

/* Remember who defines and who uses a rui_ symbol: keys "folder symbol". */
static void note_private(rui_tidy *t, const char *folder, const symbol *s, bool undefined)
{
    if (!ru_str_starts(s->name, "rui_") || (!undefined && !s->global)) {
        return;
    }
    char key[256];
    ru_text k = ru_text_into(key, sizeof key);
    ru_text_putf(&k, "%.*s %.*s", RU_STR_ARG(top_of(folder)), RU_STR_ARG(s->name));
    RU_CHECK(ru_map_put_c(undefined ? &t->wanted : &t->inner, key, NULL) != NULL);
}

void rui_tidy_private_calls(rui_tidy *t)
{
    for (const ru_map_entry *e = NULL; (e = ru_map_next(&t->wanted, e)) != NULL;) {
        if (ru_map_get_c(&t->inner, e->key) == NULL) {
            ru_str symbol_name = ru_str_c(e->key), folder;
            (void)ru_str_next(&symbol_name, ' ', &folder);
            rui_tidy_breach(t, ru_arena_strn(&t->arena, folder.p, folder.n), 0,
                            "%.*s is private to another folder (rule 8)", RU_STR_ARG(symbol_name));
        }
    }
}

/* A rui_ name that two folders define is a link error that waits for both to be pulled in. */
void rui_tidy_unique_names(rui_tidy *t)
{
    ru_map first;
    ru_map_init(&first, &t->arena, 0);
    for (const ru_map_entry *e = NULL; (e = ru_map_next(&t->inner, e)) != NULL;) {
        ru_str name = ru_str_c(e->key), folder;
        (void)ru_str_next(&name, ' ', &folder);
        if (ru_map_get(&first, name) != NULL) {
            rui_tidy_breach(t, ru_arena_strn(&t->arena, folder.p, folder.n), 0,
                            "%.*s is defined in another folder too (rule 8)", RU_STR_ARG(name));
        }
        RU_CHECK(ru_map_put(&first, name, NULL) != NULL);
    }
}

bool rui_tidy_archive(rui_tidy *t, const char *build, const char *folder, const char *name)
{
    char command[4096];
    snprintf(command, sizeof command, "objdump -t '%s/%s/lib%s.a' 2>/dev/null", build, folder,
             name);
    FILE *in = popen(command, "r");
    if (in == NULL) {
        return false;
    }
    ru_text all = ru_text_arena(&t->arena);
    char buf[65536];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, in)) > 0) {
        ru_text_put_n(&all, buf, (int64_t)n);
    }
    if (pclose(in) != 0 || all.n == 0) {
        return false;
    }
    bool pure =
        strcmp(name, "world") == 0 || strcmp(name, "cost") == 0 || strcmp(name, "plan") == 0;
    ru_map own;
    ru_map_init(&own, &t->arena, 0);
    for (int pass = 0; pass < 2; pass++) {
        ru_str rest = ru_str_n(all.p, all.n), line;
        const char *member = folder;
        while (ru_str_next(&rest, '\n', &line)) {
            symbol s = {0};
            read_member(t, folder, line, &member);
            if (member == NULL || !parse_symbol(line, &s)) {
                continue;
            }
            bool undefined = ru_str_eq_c(s.section, "*UND*");
            note_private(t, folder, &s, undefined);
            if (pass == 0 && !undefined) {
                RU_CHECK(ru_map_put(&own, s.name, NULL) != NULL);
                check_defined(t, folder, member, &s);
            } else if (pass == 1 && undefined && pure && ru_map_get(&own, s.name) == NULL &&
                       !may_call(s.name)) {
                rui_tidy_breach(t, member, 0, "%.*s may not be called from pure folders (rule 31)",
                                RU_STR_ARG(s.name));
            }
        }
    }
    return true;
}
