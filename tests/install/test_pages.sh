# The man pages know every command and every option of the program, and no other: test_pages.sh PROTRAIN MAN_FOLDER
set -eu
program=$1
pages=$2
status=0

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
    shown=$("$program" "$command" --help | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' | grep -vx -e --help | sort -u)
    written=$(sed -n 's/\\-/-/g; s/^\.B[IR]* "*\(--[a-z0-9-]*\).*/\1/p' "$page" | grep -vx -e --help | sort -u)
    if [ "$shown" != "$written" ]; then
        echo "FAILED: $command: options of --help (left) and of its page (right) that differ:"
        for option in $shown $written; do echo "$option"; done | sort | uniq -u
        status=1
    fi
done
exit $status
