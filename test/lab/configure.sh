#!/bin/bash
# A build folder configured before something optional was installed: configure.sh SOURCE_DIR
#
# Its tests and manual pages are there after scripts/configure finds cmocka and scdoc, without a new
# folder; a folder that lacks nothing is left alone. What was installed from it is removed from where it was
# put, and from nowhere else.
set -euo pipefail
source=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-configure-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL: $*" >&2
    exit 1
}
knows() { ninja -C "$work/build" -t query "$1" >/dev/null 2>&1; }

# pkg-config without cmocka, PATH without scdoc (and cmake, which would find cmocka, too).
mkdir "$work/pc" "$work/bin"
IFS=: read -ra folders <<<"$(pkg-config --variable pc_path pkg-config)"
for folder in "${folders[@]}"; do
    for file in "$folder"/*.pc; do
        [[ ! -e $file || $file == */cmocka.pc ]] || ln -sf "$file" "$work/pc/"
    done
done
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do
    for file in "$folder"/*; do
        [[ $file == */scdoc || $file == */cmake || ! -x $file || -e $work/bin/${file##*/} ]] || ln -s "$file" "$work/bin/"
    done
done
pkg-config --exists cmocka || { echo "skipped: cmocka is not installed" && exit 77; }
cd "$source"
PKG_CONFIG_LIBDIR=$work/pc PATH=$work/bin scripts/configure "$work/build" --prefix=/usr/local ||
    fail "without cmocka and scdoc"
! knows test/rubato-test || fail "tests without cmocka"
! knows tool/rubato.1 || fail "manual pages without scdoc"
grep -qx 'library cmocka' "$work/build/missing" || fail "cmocka is not said to be missing"
said=$(PKG_CONFIG_LIBDIR=$work/pc PATH=$work/bin scripts/configure "$work/build" 2>&1) || fail "fails: $said"
[[ -z $said ]] || fail "says something: $said"
before=$(stat -c %Y.%i "$work/build/build.ninja")

scripts/configure "$work/build" || fail "with cmocka and scdoc"
[[ $before != "$(stat -c %Y.%i "$work/build/build.ninja")" ]] || fail "not configured again"
knows test/rubato-test || fail "no tests although cmocka is there"
if command -v scdoc >/dev/null; then knows tool/rubato.1 || fail "no manual pages although scdoc is there"; fi
before=$(stat -c %Y.%i "$work/build/build.ninja")
scripts/configure "$work/build" || fail "once more"
[[ $before == "$(stat -c %Y.%i "$work/build/build.ninja")" ]] || fail "configured again without a reason"

log=$work/build/meson-logs/install-log.txt
mkdir -p "$work"/{here,default/usr/local}/{bin,include/rubato}
touch "$work"/{here,default/usr/local}/{bin/rubato,bin/other,include/rubato/x.h,include/other.h}
uninstall() { make --no-print-directory uninstall B="$work/build" DESTDIR="$work/default" >/dev/null 2>&1; }
uninstall || fail "nothing was installed, and uninstall fails"
[[ -e $work/here/include/rubato && -e $work/default/usr/local/include/rubato ]] || fail "uninstall without install"
printf '# a list\n%s\n' "$work/here/bin/rubato" >"$log"
uninstall || fail "uninstall fails"
[[ ! -e $work/here/bin/rubato && ! -e $work/here/include/rubato ]] || fail "uninstall leaves files"
[[ -e $work/here/bin/other && -e $work/here/include/other.h ]] || fail "uninstall removes others' files"
[[ -e $work/default/usr/local/include/rubato/x.h ]] || fail "uninstall removes headers from another place"
echo "ok: a build folder finds what was installed after it"
