# The man pages know every command and every option of the program, and no other, with the same values and defaults:
# test_pages.sh PROTRAIN MAN_FOLDER
set -eu
program=$1
pages=$2
status=0

# "--name VALUES" of each option in a command's help.
shown() { "$program" "$1" --help | sed -n 's/^  \(--[a-z0-9-]*\( [^ ]\{1,\}\)\{0,1\}\)\(  .*\)\{0,1\}$/\1/p' | grep -vx -e --help | sort -u; }
# The same of a page.
written() {
    sed -n '/^\.TP/{n;s/\\-/-/g;s/\\f[IRB]//g;s/"//g;s/^\.B[IR]* *\(--.*\)/\1/p;}' "$1" | tr -s ' ' | grep -vx -e --help | sort -u
}
# "NAME DEFAULT" of each option whose help ends with its default.
defaults() {
    "$program" "$1" --help | awk '/^  --/ { name = $1 } match($0, /(; | +)default [^ ]+$/) { print name, $NF }'
}
# The paragraph of option $2 in page $1.
paragraph() {
    sed 's/\\-/-/g;s/"//g' "$1" | awk -v name="$2" '/^\.(TP|SH)/ { inside = 0; head = 1; next }
        head { head = 0; inside = $2 == name } inside'
}

commands=$("$program" --help | sed -n 's/^  \([a-z][a-z]*\)  *.*/\1/p')
[ -n "$commands" ] || { echo "FAILED: --help lists no command"; exit 1; }
for command in $commands; do
    page=$pages/protrain-$command.1
    if [ ! -e "$page" ]; then
        echo "FAILED: no page protrain-$command.1"
        status=1
        continue
    fi
    grep -q "protrain-$command" "$pages/protrain.1" || { echo "FAILED: protrain.1 does not name $command"; status=1; }
    if [ "$(shown "$command")" != "$(written "$page")" ]; then
        echo "FAILED: $command: options of --help and of its page that differ:"
        { shown "$command"; written "$page"; } | sort | uniq -u
        status=1
    fi
    defaults "$command" | while read -r name value; do
        paragraph "$page" "$name" | grep -qF -e "$value" || echo "FAILED: $command: the page does not say that $name is $value by default"
    done >"${TMPDIR:-/tmp}/pages.$$"
    [ ! -s "${TMPDIR:-/tmp}/pages.$$" ] || { cat "${TMPDIR:-/tmp}/pages.$$"; status=1; }
done
rm -f "${TMPDIR:-/tmp}/pages.$$"
exit $status
