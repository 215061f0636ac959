# The examples that make a text and a tokenizer do the same every time, and refuse what makes no sense:
# test_examples.sh BUILD
set -eu
examples=$1/examples
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

"$examples/stories" 300 7 >"$root/a.jsonl"
"$examples/stories" 300 7 >"$root/b.jsonl"
"$examples/stories" 300 8 >"$root/c.jsonl"
cmp "$root/a.jsonl" "$root/b.jsonl" || fail "one seed, two texts"
cmp -s "$root/a.jsonl" "$root/c.jsonl" && fail "two seeds, one text"
[ "$(grep -c '^{"text": ".*\."}$\|^{"text": ".*!"}$' "$root/a.jsonl")" = 300 ] || fail "not 300 stories"
grep -q '[{}?]  *[a-z]*}' "$root/a.jsonl" && fail "a name in braces was not replaced"

"$examples/make_tokenizer" 400 "$root/a.jsonl" >"$root/tokenizer.json"
grep -q '"Once\|Once"' "$root/tokenizer.json" || fail "a frequent word is no token"
echo '{}' >"$root/config.json"
sed -n 's/{"text": "\(.*\)"}/\1/p' "$root/a.jsonl" >"$root/text"
printf 'bytes: \001\377\303\251 \t\r\n' >>"$root/text"
"$1/protrain" tokenize --model "$root" <"$root/text" >"$root/ids"
"$1/protrain" tokenize --model "$root" --decode <"$root/ids" | cmp - "$root/text" || fail "the text does not come back"
[ "$(wc -w <"$root/ids")" -lt $(($(wc -c <"$root/text") / 2)) ] || fail "tokens are no longer than bytes"

"$examples/make_tokenizer" 10 "$root/a.jsonl" 2>/dev/null && fail "10 tokens"
"$examples/make_tokenizer" 400 "$root/nowhere" 2>/dev/null && fail "a file that is not there"
"$examples/stories" 2>/dev/null && fail "no count"
echo "same text, same tokenizer, and the way back"
