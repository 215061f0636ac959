#!/bin/sh
# Ranks on two machines, which network namespaces stand for: the run ends in the bits of one rank, and where the link between them is cut both
# ends say so. Needs root, for the namespaces; 77: skipped.
# usage: test_machines.sh PROTRAIN FIXTURES
program=$1 model=$2/bf16/llama
a=pta$$ b=ptb$$
work=$(mktemp -d) || exit 1
first= second=
trap 'kill $first $second 2>/dev/null; ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$work"' EXIT
{ ip netns add $a && ip netns add $b && ip link add $a netns $a type veth peer name $b netns $b; } 2>/dev/null || exit 77
ip -n $a addr add 10.77.0.1/24 dev $a && ip -n $b addr add 10.77.0.2/24 dev $b || exit 77
ip -n $a link set $a up && ip -n $b link set $b up && ip -n $a link set lo up && ip -n $b link set lo up || exit 77

fail() { echo "$*" >&2; cat "$work"/*.err >&2; exit 1; }
train() # OUT STEPS [COMMAND that starts it]
{
  out=$1 steps=$2
  shift 2
  exec "$@" "$program" train --model "$model" --data "$model/tokens.npy" --out "$work/$out" --steps "$steps" --seq-len 32 --batch-size 4 \
    --lanes 4 --lr 1e-3 --quiet --device cpu --threads 1 --device-memory 64MiB --disk-memory 0
}
rank() # NAMESPACE RANK OUT STEPS
{
  train "$3" "$4" ip netns exec "$1" env RANK="$2" WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 PROTRAIN_JOIN_SECONDS=60
}

(train alone 6) >/dev/null 2>"$work/alone.err" || fail "one rank failed"
rank $a 0 both 6 >/dev/null 2>"$work/0.err" & first=$!
rank $b 1 both 6 >/dev/null 2>"$work/1.err" & second=$!
wait $first || fail "rank 0 failed"
wait $second || fail "rank 1 failed"
cmp "$work/alone/model.safetensors" "$work/both/model.safetensors" || fail "other bits on two machines"

rank $a 0 cut 10000000 >/dev/null 2>"$work/0.err" & first=$!
rank $b 1 cut 10000000 >/dev/null 2>"$work/1.err" & second=$!
for i in $(seq 600); do [ -s "$work/cut/metrics.jsonl" ] && break; sleep 0.1; done
ip -n $a link set $a down
begin=$(date +%s)
wait $first; [ $? = 1 ] || fail "rank 0 ended otherwise"
wait $second; [ $? = 1 ] || fail "rank 1 ended otherwise"
[ $(($(date +%s) - begin)) -lt 40 ] || fail "it took $(($(date +%s) - begin)) s to end"
grep -q 'rank 1 on .* has not been heard of for 10 s' "$work/0.err" || fail "rank 0 does not name rank 1"
grep -q 'rank 1: rank 0 on .* has not been heard of for 10 s' "$work/1.err" || fail "rank 1 does not name rank 0"
