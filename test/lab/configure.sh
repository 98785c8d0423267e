#!/bin/bash
# A build folder configured before something optional was installed: configure.sh SOURCE_DIR
#
# Its tests and manual pages are there after scripts/configure finds cmocka and scdoc, without a new
# folder; a folder that lacks nothing is left alone.
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
PKG_CONFIG_LIBDIR=$work/pc PATH=$work/bin scripts/configure "$work/build" 2>&1 | grep -q . && fail "says something"
before=$(stat -c %Y.%i "$work/build/build.ninja")

scripts/configure "$work/build" || fail "with cmocka and scdoc"
[[ $before != "$(stat -c %Y.%i "$work/build/build.ninja")" ]] || fail "not configured again"
knows test/rubato-test || fail "no tests although cmocka is there"
if command -v scdoc >/dev/null; then knows tool/rubato.1 || fail "no manual pages although scdoc is there"; fi
before=$(stat -c %Y.%i "$work/build/build.ninja")
scripts/configure "$work/build" || fail "once more"
[[ $before == "$(stat -c %Y.%i "$work/build/build.ninja")" ]] || fail "configured again without a reason"
echo "ok: a build folder finds what was installed after it"
