/* The file holds 64 hexadecimal digits and a line end. It is written whole under another name and
 * gets its own by link(), which fails if somebody was faster, also over NFS. */
#include "env/file/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "env/file/file.h"
#include "env/file/file_error.h"
#include "env/process/self.h"

enum { TEXT_BYTES = 2 * RU_SECRET_BYTES };

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse(const char text[TEXT_BYTES], uint8_t secret[RU_SECRET_BYTES])
{
    for (uint32_t k = 0; k < RU_SECRET_BYTES; k++) {
        int high = digit_of(text[2 * k]), low = digit_of(text[2 * k + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        secret[k] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* What is in the open file, if it can be trusted. */
static ru_status read_secret(int fd, const char *path, uint8_t secret[RU_SECRET_BYTES], ru_err *err)
{
    struct stat st;
    char text[TEXT_BYTES + 2];
    if (fstat(fd, &st) != 0) {
        return rui_file_fail(err, errno, "look at", path);
    }
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "%s is %s, so others may know what is in it; remove it, and Rubato makes a "
                       "new one",
                       path, S_ISREG(st.st_mode) ? "another user's" : "no regular file");
    }
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "other users may read or write %s; remove it, and Rubato makes a new one",
                       path);
    }
    ssize_t n = read(fd, text, sizeof text);
    if (n < 0) {
        return rui_file_fail(err, errno, "read", path);
    }
    bool whole = n == TEXT_BYTES + 1 && text[TEXT_BYTES] == '\n' && parse(text, secret);
    OPENSSL_cleanse(text, sizeof text);
    return whole
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "%s does not hold the %d hexadecimal digits and the line end that Rubato "
                         "wrote; remove it, and Rubato makes a new one",
                         path, TEXT_BYTES);
}

static ru_status make(const char *path, ru_err *err)
{
    char temp[PATH_MAX], dir[PATH_MAX], text[TEXT_BYTES + 1];
    uint8_t raw[RU_SECRET_BYTES];
    uint64_t name;
    const char *slash = strrchr(path, '/');
    ru_self_random(&name, sizeof name);
    int n = snprintf(temp, sizeof temp, "%s.new-%016llx", path, (unsigned long long)name);
    if (slash == NULL || slash == path || n < 0 || n >= (int)sizeof temp) {
        return rui_file_fail_new(err, ENAMETOOLONG, "create", path);
    }
    (void)snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
    RU_TRY(ru_dir_make(dir, err));
    ru_self_random(raw, sizeof raw);
    ru_secret_text(raw, text);
    text[TEXT_BYTES] = '\n';
    ru_status st = ru_file_secret(temp, text, sizeof text, err);
    OPENSSL_cleanse(text, sizeof text);
    OPENSSL_cleanse(raw, sizeof raw);
    if (st == RU_OK && link(temp, path) != 0 && errno != EEXIST) {
        st = rui_file_fail_new(err, errno, "create", path);
    }
    (void)unlink(temp);
    return st;
}

void ru_secret_text(const uint8_t raw[RU_SECRET_BYTES], char text[RU_SECRET_TEXT])
{
    for (uint32_t k = 0; k < RU_SECRET_BYTES; k++) {
        text[2 * k] = "0123456789abcdef"[raw[k] >> 4];
        text[2 * k + 1] = "0123456789abcdef"[raw[k] & 15];
    }
    text[TEXT_BYTES] = '\0';
}

void ru_sha256_text(const void *data, int64_t size_bytes, char text[RU_SECRET_TEXT])
{
    uint8_t hash[RU_SECRET_BYTES];
    unsigned made = 0;
    bool fine = EVP_Digest(size_bytes > 0 ? data : "", (size_t)size_bytes, hash, &made,
                           EVP_sha256(), NULL) == 1;
    RU_CHECK(fine && made == sizeof hash);
    ru_secret_text(hash, text);
}

ru_sha256 *ru_sha256_new(void)
{
    ru_sha256 *h = EVP_MD_CTX_new();
    if (h != NULL && EVP_DigestInit_ex(h, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(h);
        h = NULL;
    }
    return h;
}

void ru_sha256_put(ru_sha256 *h, const void *data, int64_t size_bytes)
{
    RU_CHECK(EVP_DigestUpdate(h, data, (size_t)size_bytes) == 1);
}

void ru_sha256_take(ru_sha256 *h, char text[RU_SECRET_TEXT])
{
    uint8_t hash[RU_SECRET_BYTES];
    unsigned made = 0;
    bool fine = EVP_DigestFinal_ex(h, hash, &made) == 1 && made == sizeof hash &&
                EVP_DigestInit_ex(h, NULL, NULL) == 1;
    RU_CHECK(fine);
    ru_secret_text(hash, text);
}

void ru_sha256_free(ru_sha256 *h)
{
    EVP_MD_CTX_free(h);
}

ru_status ru_secret_derive(const void *secret, uint32_t secret_bytes, const char *purpose,
                           uint8_t key[RU_SECRET_BYTES], ru_err *err)
{
    unsigned made = 0;
    bool fine = HMAC(EVP_sha256(), secret, (int)secret_bytes, (const unsigned char *)purpose,
                     strlen(purpose), key, &made) != NULL;
    return fine && made == RU_SECRET_BYTES ? RU_OK
                                           : RU_FAIL(err, RU_E_MEM, "no memory to derive a key");
}

ru_status ru_secret_key(const char *path, const char *purpose, uint8_t key[RU_SECRET_BYTES],
                        ru_err *err)
{
    enum { FLAGS = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };
    uint8_t secret[RU_SECRET_BYTES];
    int fd = open(path, FLAGS);
    if (fd < 0 && errno == ENOENT) {
        RU_TRY(make(path, err));
        fd = open(path, FLAGS);
    }
    if (fd < 0) {
        return rui_file_fail(err, errno, errno == ELOOP ? "follow the link" : "open", path);
    }
    ru_status st = read_secret(fd, path, secret, err);
    close(fd);
    st = st == RU_OK ? ru_secret_derive(secret, sizeof secret, purpose, key, err) : st;
    OPENSSL_cleanse(secret, sizeof secret);
    return st;
}
