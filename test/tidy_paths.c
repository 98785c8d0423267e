/* Paths that comments and pages name exist.
 *
 * A path begins with a folder of the tree, "exec/cpu/low/prim.c", and may end before its ending or
 * hold an asterisk; the name of a source file may also stand alone, "prim.c". Capital letters and
 * what stands in <> are to be filled in by the reader, and so are stems of one letter: x_test.c. */
#include <ctype.h>
#include <dirent.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "test/tidy.h"

static bool is_part(char c)
{
    return isalnum((unsigned char)c) || (c != '\0' && strchr("_-./*", c) != NULL);
}

static bool is_folder(const rui_tidy *t, ru_str s)
{
    bool known = ru_str_eq_c(s, "docs") || ru_str_eq_c(s, "scripts");
    for (uint32_t i = 0; i < t->n_files && !known; i++) {
        known = ru_str_eq_c(s, t->files[i].folder);
    }
    return known;
}

/* Where the token that begins at `i` ends. <name> is a part of it. */
static int64_t token_end(ru_str line, int64_t i)
{
    int64_t end = i;
    while (end < line.n) {
        int64_t close = end + 1;
        while (line.p[end] == '<' && end > i && close < line.n &&
               islower((unsigned char)line.p[close])) {
            close++;
        }
        bool name = close > end + 1 && close < line.n && line.p[close] == '>';
        if (!name && !is_part(line.p[end])) {
            break;
        }
        end = name ? close + 1 : end + 1;
    }
    return end;
}

/* The token as a pattern of names: two capital letters and more stand for any text. */
static void pattern_of(ru_str s, bool open, char *into, int64_t size)
{
    ru_text t = ru_text_into(into, size);
    for (int64_t i = 0; i < s.n; i++) {
        int64_t end = i;
        while (end < s.n && isupper((unsigned char)s.p[end])) {
            end++;
        }
        if (s.p[i] == '<') {
            end = i + ru_str_find(ru_str_from(s, i), ">") + 1;
        }
        if (end - i >= 2) {
            ru_text_put(&t, "*");
            i = end - 1;
        } else {
            ru_text_put_n(&t, s.p + i, 1);
        }
    }
    ru_text_put(&t, open ? "*" : "");
}

static bool is_there(const rui_tidy *t, const char *pattern)
{
    char full[4096];
    glob_t found;
    snprintf(full, sizeof full, "%s/%s", t->root, pattern);
    bool there = glob(full, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    return there;
}

static bool is_source(const rui_tidy *t, const char *pattern)
{
    bool there = false;
    for (uint32_t i = 0; i < t->n_files && !there; i++) {
        const char *path = t->files[i].path, *name = strrchr(path, '/');
        there = fnmatch(pattern, name != NULL ? name + 1 : path, 0) == 0;
    }
    return there;
}

static bool has_ending(ru_str s)
{
    static const char *const ends[] = {".c", ".h", ".def", ".md", ".py", ".sh", ".bib", ".txt"};
    bool ended = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ends); k++) {
        ended = ended || ru_str_ends(s, ends[k]);
    }
    return ended;
}

/* A name of a source file alone, such as prim.c; not x.c. */
static bool is_name(ru_str s)
{
    bool ends = ru_str_ends(s, ".c") || ru_str_ends(s, ".h") || ru_str_ends(s, ".def");
    return ends && s.n > 3 && isalnum((unsigned char)s.p[0]) && isalnum((unsigned char)s.p[1]);
}

void rui_tidy_paths(rui_tidy *t, const char *path, ru_str line, uint32_t number)
{
    for (int64_t i = 0; i < line.n; i++) {
        int64_t end = token_end(line, i);
        ru_str s = ru_str_n(line.p + i, end - i);
        bool open = end < line.n && line.p[end] == '{';
        bool part = i > 0 && strchr(":/~$<>=\\+@#%}", line.p[i - 1]) != NULL;
        while (s.n > 0 && (s.p[s.n - 1] == '.' || s.p[s.n - 1] == '/')) {
            s.n--;
        }
        i = end > i ? end - 1 : i;
        int64_t slash = ru_str_find(s, "/");
        char pattern[256];
        bool there = true;
        if (part || s.n == 0 || s.n > 200 || ru_str_find(s, "..") >= 0) {
            continue;
        }
        if (slash > 0 && is_folder(t, ru_str_n(s.p, slash))) {
            pattern_of(s, open || !has_ending(s), pattern, sizeof pattern);
            there = is_there(t, pattern);
        } else if (slash < 0 && !open && is_name(s)) {
            pattern_of(s, false, pattern, sizeof pattern);
            there = is_source(t, pattern);
        }
        if (!there) {
            rui_tidy_breach(t, path, number, "there is no %.*s", RU_STR_ARG(s));
        }
    }
}

void rui_tidy_comment_paths(rui_tidy *t, const rui_source_file *f)
{
    ru_str rest = f->text, line;
    bool inside = false, own_rules = strncmp(f->path, "test/tidy", 9) == 0;
    for (uint32_t n = 1; !own_rules && ru_str_next(&rest, '\n', &line); n++) {
        while (line.n > 0) {
            int64_t at = ru_str_find(line, inside ? "*/" : "/*");
            if (inside) {
                rui_tidy_paths(t, f->path, at >= 0 ? ru_str_n(line.p, at) : line, n);
            }
            if (at < 0) {
                break;
            }
            inside = !inside;
            line = ru_str_from(line, at + 2);
        }
    }
}

/* Lines of comments of scripts and descriptions of the build. */
static void check_script(rui_tidy *t, const char *path)
{
    const char *text = rui_tidy_read(t, path);
    ru_str rest = ru_str_c(text != NULL ? text : ""), line;
    for (uint32_t n = 1; ru_str_next(&rest, '\n', &line); n++) {
        line = ru_str_trim(line);
        if (ru_str_starts(line, "# ")) {
            rui_tidy_paths(t, path, line, n);
        }
    }
}

static void check_scripts(rui_tidy *t, const char *folder)
{
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", t->root, folder);
    DIR *dir = opendir(full);
    const struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (e->d_type == DT_REG && e->d_name[0] != '.') {
            check_script(t, ru_arena_printf(&t->arena, "%s/%s", folder, e->d_name));
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

void rui_tidy_script_paths(rui_tidy *t)
{
    check_scripts(t, "scripts");
    check_scripts(t, "test/lab");
    check_script(t, "Makefile");
    check_script(t, "meson.build");
    for (uint32_t i = 0; i < t->n_files; i++) {
        const char *folder = t->files[i].folder;
        if (i == 0 || strcmp(folder, t->files[i - 1].folder) != 0) {
            check_script(t, ru_arena_printf(&t->arena, "%s/meson.build", folder));
        }
    }
}
