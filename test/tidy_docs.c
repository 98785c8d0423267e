/* Rules about the pages of docs/: the tour shows every folder, files that a page names or links
 * exist, and a page is short enough to be read.
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

enum { page_words = 2500 };

/* Pages that have more words, and the most that each may have: these may only shrink. */
static const struct {
    const char *path;
    uint32_t words;
} long_pages[] = {
    {"docs/job.md", 8000}, /* made from the table of job keys */
    {"docs/elastic.md", 2520},
    {"docs/library.md", 2520},
    {"docs/tour.md", 2750},
};

static void check_words(rui_tidy *t, const char *path, const char *text)
{
    uint32_t most = page_words, words = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(long_pages); k++) {
        most = strcmp(path, long_pages[k].path) == 0 ? long_pages[k].words : most;
    }
    for (const char *p = text; *p != '\0'; p++) {
        words += strchr(" \n\t", *p) == NULL && strchr(" \n\t", p[1]) != NULL;
    }
    if (words > most) {
        rui_tidy_breach(t, path, 1, "%u words (%u): split the page by its headings", words, most);
    }
}

/* Check the links of `line` that name files: relative to the folder of the page. */
static void check_links(rui_tidy *t, const char *path, ru_str line, uint32_t n)
{
    const char *slash = strrchr(path, '/');
    int folder = slash != NULL ? (int)(slash - path) : 0;
    for (int64_t at; (at = ru_str_find(line, "](")) >= 0;) {
        line = ru_str_from(line, at + 2);
        ru_str to = ru_str_n(line.p, 0);
        while (to.n < line.n && strchr("#) ", to.p[to.n]) == NULL) {
            to.n++;
        }
        if (to.n == 0 || ru_str_find(to, ":") >= 0) {
            continue;
        }
        char full[4096];
        snprintf(full, sizeof full, "%s/%.*s/%.*s", t->root, folder, path, RU_STR_ARG(to));
        if (access(full, F_OK) != 0) {
            rui_tidy_breach(t, path, n, "the link to %.*s leads nowhere", RU_STR_ARG(to));
        }
    }
}

void rui_tidy_page(rui_tidy *t, const char *path, const char *text)
{
    ru_str rest = ru_str_c(text), line;
    bool code = false;
    for (uint32_t n = 1; ru_str_next(&rest, '\n', &line); n++) {
        if (ru_str_starts(line, "```")) {
            code = !code;
        }
        if (!code) {
            rui_tidy_paths(t, path, line, n);
            check_links(t, path, line, n);
        }
    }
    check_words(t, path, text);
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

/* The page of plan/ names every policy and its page. */
static void check_policies(rui_tidy *t)
{
    const char *def = rui_tidy_read(t, "plan/row/policy.def");
    const char *page = rui_tidy_read(t, "docs/plan.md");
    RU_CHECK(def != NULL && page != NULL);
    ru_str rest = ru_str_c(def), line;
    for (uint32_t n = 1; ru_str_next(&rest, '\n', &line); n++) {
        ru_str name = ru_str_from(line, 11);
        name.n = ru_str_find(name, "\"");
        char want[64];
        if (!ru_str_starts(line, "RU_POLICY(\"") || name.n < 0) {
            continue;
        }
        snprintf(want, sizeof want, "[%.*s](policies/", RU_STR_ARG(name));
        if (ru_str_find(ru_str_c(page), want) < 0) {
            rui_tidy_breach(t, "plan/row/policy.def", n, "docs/plan.md does not name %.*s",
                            RU_STR_ARG(name));
        }
    }
}

void rui_tidy_docs(rui_tidy *t)
{
    check_picture(t);
    check_policies(t);
    check_folder(t, "docs");
    check_folder(t, "docs/measured");
    check_folder(t, "docs/policies");
    static const char *const pages[] = {"README.md", "CONTRIBUTING.md"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(pages); k++) {
        const char *text = rui_tidy_read(t, pages[k]);
        RU_CHECK(text != NULL);
        rui_tidy_page(t, pages[k], text);
    }
}
