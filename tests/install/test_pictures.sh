# The pictures of the README show what the program prints: test_pictures.sh BUILD SOURCE
#
# Compares the names of rows and the words of docs/pictures/plan.svg and report.svg with the screen of the same plan, and with the page of a
# small run over all tiers. Numbers are left out: they depend on the machine. docs/pictures/make makes the pictures.
set -eu
build=$1
source=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0

# The texts of an SVG or HTML file, one a line.
texts() { sed 's/<style>.*<\/style>//; s/<[/]*\(text\|p\|b\|h2\|figcaption\|svg\|div\)[^>]*>/\n/g' "$1" | sed 's/<[^>]*>//g; s/&amp;/\&/g; s/&lt;/</g; s/&gt;/>/g'; }
# The names of rows, and of the rows of `ways`, in their order.
rows() { sed -n '/^ways/,$p' "$1" | sed -n 's/^[a-z]* *\([A-Za-z0-9]\+\( [A-Za-z0-9]\+\)*\)  .*/\1/p'; sed -n 's/^\([a-z]\+\) .*/\1/p' "$1"; }
# Words of two letters or more, each once.
words() { grep -oE '[A-Za-z][A-Za-z_]+' "$@" | sort -u; }
# Fails if the second list of words lacks one of the first.
known() {
    comm -23 "$2" "$3" >"$folder/lost"
    [ ! -s "$folder/lost" ] || { echo "FAILED: $1 has words that the program does not print: $(tr '\n' ' ' <"$folder/lost")"; status=1; }
}

"$build/protrain" plan --model "$source/bench/shapes/qwen3-8b.json" --machine "$source/machines/rtx4090.json" --quiet >"$folder/plan.txt"
texts "$source/docs/pictures/plan.svg" | sed '/^$/d' >"$folder/plan.picture"
rows "$folder/plan.picture" >"$folder/rows.picture"
rows "$folder/plan.txt" >"$folder/rows"
diff "$folder/rows.picture" "$folder/rows" || { echo "FAILED: plan.svg has other rows (left) than the screen (right)"; status=1; }

# What is printed of a plan depends on the plan, so words that the program knows are as good.
grep -v '^[a-z]* *\[' "$folder/plan.picture" | words >"$folder/plan.words"
{ cat "$folder/plan.txt"; strings "$build/protrain"; } | words >"$folder/known"
known plan.svg "$folder/plan.words" "$folder/known"

fixture=$source/tests/fixtures/models/llama
"$build/protrain" train --device cpu --model "$fixture" --data "$fixture/tokens.npy" --out "$folder/run" --seq-len 16 --batch-size 2 --steps 2 \
    --dtype fp32 --threads 1 --trace --device-memory 256MiB --host-memory 16MiB --disk-memory 16MiB --disk-path "$folder/run" --quiet \
    >"$folder/log" 2>&1 || { cat "$folder/log"; echo "FAILED: the run"; exit 1; }
"$build/protrain" report "$folder/run" >/dev/null
texts "$source/docs/pictures/report.svg" | words >"$folder/report.words"
{ texts "$folder/run/report.html"; strings "$build/protrain"; } | words >"$folder/known"
[ "$(wc -l <"$folder/report.words")" -gt 20 ] || { echo "FAILED: report.svg has no words"; status=1; }
known report.svg "$folder/report.words" "$folder/known"
[ $status = 0 ] || echo "docs/pictures/make makes the pictures of this build"
exit $status
