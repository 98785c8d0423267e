/* Apps by name, users' own libraries, and bytes that grow. */
#include "train/app/app.h"

#include <dlfcn.h>
#include <elf.h>
#include <string.h>

#include "env/file/file.h"
#include "train/app/find.h"

bool ru_app_take(ru_app_cursor *c, void *into, int64_t bytes)
{
    if (bytes < 0 || bytes > c->n) {
        return false;
    }
    if (bytes > 0) {
        memcpy(into, c->p, (size_t)bytes);
    }
    c->p += bytes;
    c->n -= bytes;
    return true;
}

#define RUI_X(name) extern const ru_app_ops ru_app_##name;
RUI_APP_LIST(RUI_X)
#undef RUI_X

const ru_app_ops *ru_app_at(uint32_t k)
{
    static const ru_app_ops *const apps[] = {
#define RUI_X(name) &ru_app_##name,
        RUI_APP_LIST(RUI_X)
#undef RUI_X
    };
    return k < RU_ARRAY_LEN(apps) ? apps[k] : NULL;
}

static ru_status check_ops(const char *path, const ru_app_ops *ops, ru_err *err)
{
    const char *lacks = ops->name == NULL        ? "a name"
                        : ops->tables == NULL    ? "tables"
                        : ops->exec_open == NULL ? "exec_open"
                        : ops->wants == NULL     ? "wants"
                        : ops->run == NULL       ? "run"
                                                 : NULL;
    if (lacks == NULL && ((ops->exec_save == NULL) != (ops->exec_load == NULL) ||
                          (ops->drive_save == NULL) != (ops->drive_load == NULL))) {
        lacks = "the other one of save and load";
    }
    if (lacks == NULL && ops->eval != NULL && ops->metrics == NULL) {
        lacks = "metrics, which eval needs";
    }
    if (lacks == NULL && ops->config != NULL && ops->config_bytes != ops->config->size_bytes) {
        lacks = "the size of its settings";
    }
    return lacks == NULL ? RU_OK : RU_FAIL(err, RU_E_USER, "the app of %s lacks %s", path, lacks);
}

/* The loader maps segments without looking at the size of the file: a file that is cut short would
 * end the process by SIGBUS. `self`: this program. */
static ru_status check_elf(const char *path, const uint8_t *p, int64_t size,
                           const ru_map_file *self, ru_err *err)
{
    Elf64_Ehdr head, own = {0};
    if (size < (int64_t)sizeof head || memcmp(p, ELFMAG, SELFMAG) != 0) {
        return RU_FAIL(err, RU_E_USER, "%s is not a shared library", path);
    }
    memcpy(&head, p, sizeof head);
    memcpy(&own, self->data, self->size_bytes < (int64_t)sizeof own ? 0 : sizeof own);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_type != ET_DYN ||
        head.e_ident[EI_DATA] != own.e_ident[EI_DATA] || head.e_machine != own.e_machine) {
        return RU_FAIL(err, RU_E_USER, "%s is not a shared library for this processor", path);
    }
    uint64_t n = (uint64_t)size, table = (uint64_t)head.e_phnum * sizeof(Elf64_Phdr);
    bool whole = head.e_phentsize == sizeof(Elf64_Phdr) && table <= n && head.e_phoff <= n - table;
    for (uint32_t k = 0; whole && k < head.e_phnum; k++) {
        Elf64_Phdr part;
        memcpy(&part, p + head.e_phoff + k * sizeof part, sizeof part);
        whole = part.p_filesz <= n && part.p_offset <= n - part.p_filesz;
    }
    return whole ? RU_OK
                 : RU_FAIL(err, RU_E_USER, "the library %s is cut short: build it again", path);
}

static ru_status check_file(const char *path, ru_err *err)
{
    ru_map_file map, self;
    RU_TRY(ru_file_map("/proc/self/exe", &self, err));
    ru_status st = ru_file_map(path, &map, err);
    if (st == RU_OK) {
        st = check_elf(path, map.data, map.size_bytes, &self, err);
        ru_file_unmap(&map);
    } else {
        st = ru_err_wrap(err, st, "the app's library");
    }
    ru_file_unmap(&self);
    return st;
}

static ru_status load(const char *path, const ru_app_ops **out, ru_err *err)
{
    RU_TRY(check_file(path, err));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* stays for the life of the process */
    if (library == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "the app's library cannot be loaded: %s", dlerror());
    }
    void *symbol = dlsym(library, RU_APP_MAIN);
    ru_app_main_fn main_fn;
    if (symbol == NULL) {
        return RU_FAIL(err, RU_E_USER, "%s does not export %s", path, RU_APP_MAIN);
    }
    memcpy(&main_fn, &symbol, sizeof main_fn);
    const ru_app_ops *ops = main_fn();
    if (ops == NULL) {
        return RU_FAIL(err, RU_E_USER, "%s of %s returned no app", RU_APP_MAIN, path);
    }
    if (ops->version != RU_APP_VERSION) {
        return RU_FAIL(err, RU_E_USER,
                       "%s was built for version %u of the app interface; this program has "
                       "version %d: build it again with the headers of this version",
                       path, ops->version, RU_APP_VERSION);
    }
    RU_TRY(check_ops(path, ops, err));
    *out = ops;
    return RU_OK;
}

ru_status ru_app_find(const char *name, const ru_app_ops **out, ru_err *err)
{
    if (strchr(name, '/') != NULL) {
        return load(name, out, err);
    }
    char known[256];
    ru_text t = ru_text_into(known, sizeof known);
    for (uint32_t k = 0; ru_app_at(k) != NULL; k++) {
        if (strcmp(ru_app_at(k)->name, name) == 0) {
            *out = ru_app_at(k);
            return RU_OK;
        }
        ru_text_putf(&t, "%s%s", k > 0 ? ", " : "", ru_app_at(k)->name);
    }
    return RU_FAIL(err, RU_E_CONFIG,
                   "unknown app '%s'; expected one of %s, or the path of a library such as "
                   "./libmyapp.so",
                   name, known);
}
