#!/bin/bash
# The recipes of docs/cookbook.md, as the page has them: cookbook.sh PATH_OF_RUBATO PAGE [NUMBER...]
#
# Each "## N. ..." gets an empty folder. A yaml block whose first line is "# NAME" becomes the file
# NAME; sh blocks run with the rubato given; "<!-- check: COMMAND -->" must succeed afterwards. With
# numbers: only these recipes.
set -euo pipefail
rubato=$(realpath "$1")
page=$(realpath "$2")
shift 2
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-cookbook-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache"
mkdir bin
ln -s "$rubato" bin/rubato
export PATH="$work/bin:$PATH"

# Cut the page: N/run.sh with files and commands in their order, N/check.sh.
awk '
    /^## [0-9]+\./ { n = $2 + 0; system("mkdir -p recipe-" n); run = "recipe-" n "/.run"; check = "recipe-" n "/.check" }
    !n { next }
    /^```/ { kind = $0; inside = !inside; if (!inside && here) { print "RECIPE_END" > run; here = 0 }; first = 1; next }
    inside && kind == "```yaml" && first { first = 0; here = 1; print "cat >" substr($0, 3) " <<\"RECIPE_END\"" > run; next }
    inside && kind == "```yaml" { print > run }
    inside && kind == "```sh" { print > run }
    /^<!-- check: / { sub(/^<!-- check: /, ""); sub(/ -->$/, ""); print > check }
' "$page"

failed=0
count=0
for dir in $(ls -d recipe-* | sort -t- -k2 -n); do
    n=${dir#recipe-}
    [[ $# -eq 0 || " $* " == *" $n "* ]] || continue
    count=$((count + 1))
    SECONDS=0
    if ! (cd "$dir" && timeout 300 bash -eu -o pipefail .run) >"$dir.out" 2>&1; then
        echo "FAIL: recipe $n: $(tail -5 "$dir.out")" >&2
        failed=1
    elif ! (cd "$dir" && cp "../$dir.out" .out && bash -eu -o pipefail .check) >"$dir.check" 2>&1; then
        echo "FAIL: recipe $n ran, but its result is not that of the page: $(cat "$dir.check" "$dir.out" | tail -8)" >&2
        failed=1
    else
        echo "ok: recipe $n"
    fi
done
[[ $# -gt 0 || $count -eq 12 ]] || { echo "FAIL: $page has $count recipes, expected 12" >&2; failed=1; }
exit $failed
