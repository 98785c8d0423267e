/* Apps by name, users' own libraries, and bytes that grow. */
#include "train/app/app.h"

#include <dlfcn.h>
#include <string.h>

#include "train/apps/apps.h"

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

#define RUI_X(name) extern const ru_app_ops rui_app_##name;
RUI_APP_LIST(RUI_X)
#undef RUI_X

const ru_app_ops *ru_app_at(uint32_t k)
{
    static const ru_app_ops *const apps[] = {
#define RUI_X(name) &rui_app_##name,
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

static ru_status load(const char *path, const ru_app_ops **out, ru_err *err)
{
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
    if (ops == NULL || ops->version != RU_APP_VERSION) {
        return RU_FAIL(err, RU_E_USER,
                       "%s was built for version %u of the app interface; this program has "
                       "version %d: build it again with the headers of this version",
                       path, ops != NULL ? ops->version : 0, RU_APP_VERSION);
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
