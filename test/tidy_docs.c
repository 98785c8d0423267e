/* Rules about the pages of docs/: the tour shows every folder, and files that a page names exist.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/tidy.h"

/* The text between the first two fences: the picture of the folders. */
static ru_str picture_of(ru_str page)
{
    int64_t begin = ru_str_find(page, "```");
    if (begin < 0) {
        return ru_str_n(page.p, 0);
    }
    ru_str rest = ru_str_from(page, begin + 3);
    int64_t end = ru_str_find(rest, "```");
    return ru_str_n(rest.p, end > 0 ? end : 0);
}

static void check_picture(rui_tidy *t)
{
    const char *tour = rui_tidy_read(t, "docs/tour.md");
    ru_str picture = picture_of(ru_str_c(tour != NULL ? tour : ""));
    const char *last = "";
    for (uint32_t i = 0; i < t->n_files; i++) {
        const char *folder = t->files[i].folder;
        char want[64];
        if (strcmp(folder, last) == 0) {
            continue;
        }
        last = folder;
        snprintf(want, sizeof want, "%s/", folder);
        if (ru_str_find(picture, want) < 0) {
            rui_tidy_breach(t, "docs/tour.md", 1, "the picture does not show %s", want);
        }
    }
}

static bool is_file_name(ru_str s)
{
    static const char *const ends[] = {".c", ".h", ".def", ".md", ".py", ".sh", ".bib"};
    bool ended = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ends); k++) {
        ended = ended || ru_str_ends(s, ends[k]);
    }
    for (int64_t i = 0; i < s.n; i++) {
        bool plain = (s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= '0' && s.p[i] <= '9') ||
                     strchr("_-./", s.p[i]) != NULL;
        ended = ended && plain;
    }
    return ended && ru_str_find(s, "/") > 0;
}

static bool is_folder(const rui_tidy *t, ru_str s)
{
    int64_t slash = ru_str_find(s, "/");
    ru_str first = ru_str_n(s.p, slash);
    bool known = ru_str_eq_c(first, "docs") || ru_str_eq_c(first, "scripts");
    for (uint32_t i = 0; i < t->n_files && !known; i++) {
        known = ru_str_eq_c(first, t->files[i].folder);
    }
    return known;
}

void rui_tidy_page(rui_tidy *t, const char *path, const char *text)
{
    ru_str rest = ru_str_c(text), line;
    bool code = false;
    for (uint32_t n = 1; ru_str_next(&rest, '\n', &line); n++) {
        if (ru_str_starts(line, "```")) {
            code = !code;
        }
        ru_str part;
        for (uint32_t k = 0; !code && ru_str_next(&line, '`', &part); k++) {
            char full[4096];
            if (k % 2 == 0 || !is_file_name(part) || !is_folder(t, part)) {
                continue;
            }
            snprintf(full, sizeof full, "%s/%.*s", t->root, RU_STR_ARG(part));
            if (access(full, F_OK) != 0) {
                rui_tidy_breach(t, path, n, "there is no %.*s", RU_STR_ARG(part));
            }
        }
    }
}

static void check_folder(rui_tidy *t, const char *folder)
{
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", t->root, folder);
    DIR *dir = opendir(full);
    const struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (ru_str_ends(ru_str_c(e->d_name), ".md")) {
            const char *path = ru_arena_printf(&t->arena, "%s/%s", folder, e->d_name);
            const char *text = path != NULL ? rui_tidy_read(t, path) : NULL;
            RU_CHECK(text != NULL);
            rui_tidy_page(t, path, text);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

void rui_tidy_docs(rui_tidy *t)
{
    check_picture(t);
    check_folder(t, "docs");
    check_folder(t, "docs/policies");
    const char *readme = rui_tidy_read(t, "README.md");
    RU_CHECK(readme != NULL);
    rui_tidy_page(t, "README.md", readme);
}
