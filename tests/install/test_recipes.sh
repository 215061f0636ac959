# The recipes of examples/recipes train a small model, with the settings that they say: test_recipes.sh PROTRAIN SOURCE
set -eu
program=$1
source=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
status=0
i=0
while [ $((i += 1)) -le 60 ]; do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"Count to $i\"}, {\"role\": \"assistant\", \"content\": \"1 to $i\"}]}"
done >"$root/chats.jsonl"

# "KEY VALUE" of the options with one value, numbers in one form; of several run files that of the first counts.
settings() {
    sed -n 's/ *#.*//; s/"//g; s/^\([a-z0-9-]*\): \(..*\)$/\1 \2/p' "$@" |
        awk 'seen[$1]++ { next } $2 ~ /^[-+.0-9e]+$/ { $2 += 0 } { print }' | sort
}

"$program" train --help-config | sed -n 's/^#\([a-z0-9-]*: \)/\1/p' >"$root/defaults"

for recipe in "$source"/examples/recipes/*.yaml; do
    name=$(basename "$recipe" .yaml)
    grep -q "$name.yaml" "$source/examples/recipes/README.md" || { echo "FAILED: the README does not name $name.yaml"; status=1; }
    evaluate=
    grep -q '^eval-data:' "$recipe" && evaluate="--eval-data $root/chats.jsonl"
    if ! "$program" train --config "$recipe" --model "$source/tests/fixtures/dpo" --data "$root/chats.jsonl" $evaluate \
        --chat-template "$source/examples/turns.jinja" --seq-len 128 --steps 2 --warmup-steps 1 --warmup-ratio 0 --out "$root/$name" \
        >"$root/log" 2>&1; then
        echo "FAILED: $name.yaml:"
        cat "$root/log"
        status=1
        continue
    fi
    settings "$recipe" | grep -v '^\(model\|out\|chat-template\|seq-len\|epochs\|steps\|warmup-[a-z]*\) ' >"$root/wanted"
    settings "$root/$name/run.yaml" "$root/defaults" | comm -23 "$root/wanted" - >"$root/missing"
    [ ! -s "$root/missing" ] || { echo "FAILED: $name.yaml: the run had other settings:"; cat "$root/missing"; status=1; }
    [ "$(wc -l <"$root/wanted")" -ge 5 ] || { echo "FAILED: $name.yaml: few settings were read"; status=1; }
done
exit $status
