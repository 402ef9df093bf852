#!/usr/bin/env bash
# Runs every bench against its floor, prints the budget lines, and writes them to docs/benchmarks.md.
# bench.sh: all. bench.sh gateway|local_exec|locks|autoscore: one.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
status=0

bench() {
  local name=$1
  shift
  [ -z "$only" ] || [ "$only" = "$name" ] || return 0
  echo "== $name"
  "$@" 2>&1 | tee -a "$lines" || status=1
}
only=${1:-}
KNACK_RUNNER=$(realpath -m "$target/release/knack-runner")
export KNACK_RUNNER
cargo build -q --release --example floor_proxy
bench gateway cargo bench -q --bench gateway
bench local_exec cargo bench -q --bench local_exec
bench locks cargo bench -q -p knack-runner --bench locks
bench autoscore cargo bench -q -p knack-skill --bench autoscore

if [ -z "$only" ]; then
  {
    echo "# Benchmarks"
    echo
    echo "Printed by \`make bench\` on $(nproc) cores, $(uname -sr), $(date -u +%F). Each value stands beside its floor or limit of the same run."
    echo "Ratios are medians of 10 interleaved pairs; a row whose pairs spread over 10 % is measured up to three times."
    echo
    echo "| budget | value | limit | verdict |"
    echo "|---|---|---|---|"
    # The last try of each row counts.
    grep '^budget ' "$lines" | awk '{ row[$2] = "| `" $2 "` | " $3 " | " $4 " | " $5 " |"; if (!($2 in seen)) { seen[$2] = 1; order[++n] = $2 } } END { for (i = 1; i <= n; i++) print row[order[i]] }'
  } >docs/benchmarks.md
fi
! grep -q '^budget .* over' "$lines" || status=1
exit "$status"
