/* The tidy test: rules of docs/style.md that a program can check. tidy.c holds what each folder may
 * include and the suite, tidy_text.c the rules about sources, tidy_docs.c those about pages,
 * tidy_paths.c those about paths in comments and pages, tidy_archive.c those about archives,
 * tidy_house.c those about folders, structs and headers.
 *
 * Every breach is one line: file:line: what is wrong (rule N). Thread: main only. */
#ifndef RU_TEST_TIDY_H
#define RU_TEST_TIDY_H

#include "base/map.h"
#include "base/str.h"

/* A source file, with a copy in which comments and the insides of strings are blanks. */
typedef struct rui_source_file {
    const char *path;   /* from the root: "base/arena.c" */
    const char *folder; /* "base"; "exec" for exec/cpu/kern too */
    ru_str text, code;
} rui_source_file;

typedef struct rui_tidy {
    ru_arena arena;
    ru_text found; /* one line per breach */
    uint32_t n_found;
    const char *root;
    rui_source_file *files;
    uint32_t n_files;
    ru_map keys;   /* of docs/sources.bib */
    ru_map inner;  /* rui_ symbol -> folder + 1 that defines it, as rui_tidy_archive finds them */
    ru_map wanted; /* "folder symbol" of rui_ symbols that an archive leaves undefined */
} rui_tidy;

/* Read every .c, .h and .def of the tree. */
void rui_tidy_open(rui_tidy *t, const char *root);
void rui_tidy_close(rui_tidy *t);

/* A file that is not in the tree, for tests of the rules themselves. */
rui_source_file rui_tidy_file(rui_tidy *t, const char *path, const char *text);

void rui_tidy_breach(rui_tidy *t, const char *path, uint32_t line, const char *fmt, ...)
    RU_PRINTF(4, 5);

/* May `folder` include `other`? */
bool rui_tidy_arrow(const char *folder, const char *other);

/* Rules about one file. */
void rui_tidy_includes(rui_tidy *t, const rui_source_file *f);
void rui_tidy_sizes(rui_tidy *t, const rui_source_file *f);
void rui_tidy_words(rui_tidy *t, const rui_source_file *f);
void rui_tidy_comments(rui_tidy *t, const rui_source_file *f);
/* Fields of its structs, functions of a header, rooms of plan/. */
void rui_tidy_shape(rui_tidy *t, const rui_source_file *f);

/* Files of each folder. */
void rui_tidy_folders(rui_tidy *t);

/* The text of a file of the tree; NULL when there is none. */
const char *rui_tidy_read(rui_tidy *t, const char *path);

/* Rules about the pages of docs/, and about one page. */
void rui_tidy_docs(rui_tidy *t);
void rui_tidy_page(rui_tidy *t, const char *path, const char *text);

/* Do the paths that a line of a page or comment names exist? Those of the comments of a source, of
 * scripts. */
void rui_tidy_paths(rui_tidy *t, const char *path, ru_str line, uint32_t number);
void rui_tidy_comment_paths(rui_tidy *t, const rui_source_file *f);
void rui_tidy_script_paths(rui_tidy *t);

/* Rules about an archive, `<build>/<folder>/lib<name>.a`; false when there is none. */
bool rui_tidy_archive(rui_tidy *t, const char *build, const char *folder, const char *name);

/* After all archives: does any folder call what another keeps for itself (rui_)? */
void rui_tidy_private_calls(rui_tidy *t);
void rui_tidy_unique_names(rui_tidy *t);

#endif
