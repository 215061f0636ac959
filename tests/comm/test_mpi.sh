#!/bin/sh
# Ranks that mpirun starts, of Open MPI and of MPICH: the same bits by TCP, shared memory and MPI; one that is killed ends all. 77: no mpirun.
# usage: test_mpi.sh PROTRAIN FIXTURES
program=$1 model=$2/bf16/llama
work=$(mktemp -d) || exit 1
trap 'kill $launcher 2>/dev/null; rm -rf "$work"' EXIT
launcher=
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

fail() { echo "$*" >&2; cat "$work/err" >&2; exit 1; }
train() # OUT STEPS [COMMAND that starts it]
{
  out=$1 steps=$2
  shift 2
  "$@" "$program" train --model "$model" --data "$model/tokens.npy" --out "$work/$out" --steps "$steps" --seq-len 32 --batch-size 4 \
    --lanes 4 --lr 1e-3 --quiet --device cpu --threads 1 --device-memory 64MiB --disk-memory 0
}
same() # MPIRUN RANKS TRANSPORT
{
  out=$1-$2-$3
  train "$out" 6 env PROTRAIN_TRANSPORT="$3" "$1" -n "$2" >/dev/null 2>"$work/err" || fail "$1, $2 ranks by ${3:-memory} failed"
  cmp "$work/alone/model.safetensors" "$work/$out/model.safetensors" || fail "$1, $2 ranks by ${3:-memory}: other bits"
}

train alone 6 env >/dev/null 2>"$work/err" || fail "one rank failed"
found=
for kind in openmpi mpich; do
  command -v mpirun.$kind >/dev/null || continue
  found=1
  same mpirun.$kind 1 ""
  same mpirun.$kind 2 ""
  same mpirun.$kind 4 tcp
  [ -e "$(dirname "$program")/libprotrain_$kind.so" ] || continue
  same mpirun.$kind 2 mpi
  same mpirun.$kind 4 mpi
  train killed-$kind 10000000 env PROTRAIN_TRANSPORT=mpi mpirun.$kind -n 2 >/dev/null 2>"$work/err" & launcher=$!
  for i in $(seq 600); do [ -s "$work/killed-$kind/metrics.jsonl" ] && break; sleep 0.1; done
  rank=$(pgrep -f "$program train .*$work/killed-$kind " -n)
  kill -KILL "$rank"
  for i in $(seq 300); do kill -0 $launcher 2>/dev/null || break; sleep 0.1; done
  wait $launcher && fail "$kind: a rank was killed, and mpirun says that all is well"
  sleep 1
  pgrep -f "$work/killed-$kind " >/dev/null && fail "$kind: a rank is left behind"
  launcher=
done
[ "$found" ] || exit 77
