#include "env/file/room.h"

#include <stddef.h>

static int64_t taken(const ru_room *r, ru_lock *held)
{
    int64_t n = ru_lock_number(r->lock);
    if (n < 0) {
        n = ru_dir_bytes(r->folders[0]) + ru_dir_bytes(r->folders[1]);
        ru_lock_number_put(held, n);
    }
    return n;
}

ru_lock *ru_room_hold(const ru_room *r)
{
    ru_err none = {0};
    ru_lock *l = NULL;
    return ru_lock_open(r->lock, true, true, &l, &none) == RU_OK ? l : NULL;
}

int64_t ru_room_left(const ru_room *r, ru_lock *held)
{
    ru_lock *own = NULL;
    int64_t n = held == NULL ? ru_lock_number(r->lock) : -1;
    if (n < 0 && held == NULL && (own = ru_room_hold(r)) == NULL) {
        return 0;
    }
    n = n < 0 ? taken(r, held != NULL ? held : own) : n;
    ru_lock_close(own);
    return r->quota_bytes - n;
}

void ru_room_take(const ru_room *r, ru_lock *held, int64_t bytes)
{
    int64_t n = ru_lock_number(r->lock); /* unknown: the files will be counted */
    if (n >= 0) {
        ru_lock_number_put(held, n + bytes > 0 ? n + bytes : 0);
    }
}

void ru_room_give(const ru_room *r, ru_lock *held, int64_t bytes)
{
    if (held != NULL && bytes > 0) {
        ru_room_take(r, held, -bytes);
    }
    ru_lock_close(held);
}

void ru_room_forget(const ru_room *r, ru_lock *held)
{
    ru_lock *own = held == NULL ? ru_room_hold(r) : NULL;
    if (held != NULL || own != NULL) {
        ru_lock_number_put(held != NULL ? held : own, -1);
        ru_lock_close(own);
    }
}
