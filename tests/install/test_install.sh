# The installed tree is enough to build a program against the library: test_install.sh BUILD SOURCE COMPILER
#
# Installs into a folder of its own, from a build without the library, as ./demo leaves it. Looks at what is there,
# lets pkg-config build examples/train.c, trains two steps with it, and checks that the library shows no symbol but
# those of its headers.
set -eu
build=$1
source=$2
compiler=$3
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

rm -f "$build"/libprotrain.so*
cmake --install "$build" --component Unspecified --prefix "$root/usr" >"$root/log" || { cat "$root/log"; fail "cmake --install"; }
library=$(find "$root/usr" -name libprotrain.so)
pc=$(find "$root/usr" -name protrain.pc)
[ -x "$root/usr/bin/protrain" ] || fail "no bin/protrain"
[ -e "$library" ] || fail "no libprotrain.so"
[ -e "$pc" ] || fail "no protrain.pc"
[ -e "$root/usr/include/protrain.h" ] || fail "no include/protrain.h"
[ -e "$root/usr/include/protrain_ritz.h" ] || fail "no include/protrain_ritz.h"
[ -e "$root/usr/share/protrain/machines/rtx3090.json" ] || fail "no machine files"
[ -e "$root/usr/share/man/man1/protrain.1" ] || fail "no man page of the program"
[ -e "$root/usr/share/man/man3/protrain.3" ] || fail "no man page of the library"

flags() { PKG_CONFIG_PATH=$(dirname "$pc") pkg-config "$@" protrain; }
"$compiler" -std=c11 -Wall -Werror "$source/examples/train.c" $(flags --cflags --libs) -o "$root/train"
"$compiler" -std=c11 -Wall -Werror "$source/examples/ritz.c" $(flags --cflags --libs) -lm -o "$root/ritz"
echo '#include <protrain.h>' >"$root/alone.c"
"$compiler" -std=c99 -Wall -Wextra -pedantic -Werror -fsyntax-only $(flags --cflags) "$root/alone.c"

soname=$(readelf -d "$root/train" | sed -n 's/.*NEEDED.*\[\(libprotrain[^]]*\)\]/\1/p')
[ "$soname" = libprotrain.so.0 ] || fail "the program wants '$soname', not libprotrain.so.0"

ldd "$library" | grep -q libgomp && fail "OpenMP is loaded, which binds threads by OMP_PROC_BIND"
nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort >"$root/shown"
sed -n 's/^PT_API.*[ *]\(pt_[a-z_]*\)(.*/\1/p' "$source"/include/*.h | sort >"$root/promised"
diff "$root/promised" "$root/shown" || fail "the library's symbols are not those of its headers"

fixture=$source/tests/fixtures/models/llama
export LD_LIBRARY_PATH="$(dirname "$library")"
mkdir "$root/data"
"$build/examples/stories" 50 | tr -d '{}' >"$root/data/stories.txt"
mkdir "$root/model"
"$build/examples/make_tokenizer" 300 "$root/data/stories.txt" >"$root/model/tokenizer.json"
sed -e 's/"vocab_size": [0-9]*/"vocab_size": 300/' -e 's/"eos_token_id": [0-9]*/"eos_token_id": 0/' \
    "$fixture/config.json" >"$root/model/config.json"
"$root/train" "$root/model" "$root/data/stories.txt" "$root/out" 2 >"$root/lines" || fail "the example does not train"
[ "$(grep -c '^step [12]  loss [0-9]' "$root/lines")" = 2 ] || { cat "$root/lines"; fail "not two steps"; }
[ -s "$root/out/model.safetensors" ] || fail "no trained model"
"$root/train" "$root/nowhere" x "$root/out2" 2 2>"$root/lines" && fail "a folder that is not there trains"
grep -q nowhere "$root/lines" || fail "the error does not name the folder"
echo "installed, built against, trained"
