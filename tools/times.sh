#!/usr/bin/env bash
# times.sh [demo|ci|warm|edit]...: how long developers wait, on two cores, in fresh clones of the commit that is checked out; all of it,
# or some. What was measured is written into docs/benchmarks.md at once, each row with its date; the other rows stay.
# A floor is the same command again with nothing to build: what is above it is the build.
set -euo pipefail
cd "$(dirname "$0")/.."
parts=("$@")
for part in "${parts[@]}"; do
  case $part in demo | ci | warm | edit) ;; *) echo "times: no part $part; there are demo, ci, warm and edit" >&2 && exit 2 ;; esac
done
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
lines=$work/lines
on_two_cores=()
# The first two cores that this process may use: in a container these are not always 0 and 1.
[ "$(nproc)" -le 2 ] || on_two_cores=(taskset -c "$(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2], sep=",")')")
# A clone builds what a newcomer builds, into its own target: nothing of this shell or of the make that called decides on profiles,
# programs or suites. Kept: where uv is, and the settings of the test cluster.
unset MAKEFLAGS MFLAGS MAKELEVEL PROFILE ONLY RUSTFLAGS
for name in "${!CARGO_TARGET_@}" "${!CARGO_BUILD_@}" "${!CARGO_PROFILE_@}" "${!CARGO_INCREMENTAL@}" "${!KNACK_@}"; do
  case $name in KNACK_UV | KNACK_BED*) ;; *) unset "$name" ;; esac
done

is_wanted() {
  [ ${#parts[@]} -eq 0 ] || [[ " ${parts[*]} " == *" $1 "* ]]
}

# in_clone CLONE COMMAND...: runs it in a clone, which is made if need be; sets `took`, in seconds.
in_clone() {
  local clone=$work/$1 begun
  shift
  [ -d "$clone" ] || git clone -q . "$clone"
  echo "times: $* ($clone)" >&2
  begun=$(date +%s%N)
  if ! (cd "$clone" && "${on_two_cores[@]}" "$@") >"$work/log" 2>&1; then
    tail -n 40 "$work/log" >&2
    echo "times: failed: $*" >&2
    exit 1
  fi
  took=$(awk -v nanoseconds=$(($(date +%s%N) - begun)) 'BEGIN { printf "%.1f", nanoseconds / 1e9 }')
}

# budget NAME LIMIT: the last time beside its limit; LIMIT floor: only the time.
budget() {
  local verdict
  case $2 in
    floor) set -- "$1" - ; verdict=floor ;;
    *) verdict=$(awk -v took="$took" -v limit="$2" 'BEGIN { print (took <= limit ? "ok" : "over") }') ;;
  esac
  echo "budget $1 $took $2 $verdict" | tee -a "$lines"
  tools/bench_page.sh times "make times" "$lines" dated
}

# The gateway's own tests, and a file of it.
gateway_tests=(cargo test -q -p knack-gateway)
source=crates/gateway/src/app.rs

if is_wanted demo; then
  in_clone demo make demo
  budget demo_of_a_fresh_clone_s 360
  in_clone demo make demo
  budget demo_with_nothing_to_build_s floor
fi
if is_wanted ci; then
  in_clone tests .ci/run
  budget ci_cold_s 3600
fi
# Both times by .ci/run: make test alone builds with other settings of the compiler, so that the second one would build all of it anew.
if is_wanted warm; then
  is_wanted ci || in_clone tests .ci/run
  in_clone tests .ci/run
  budget tests_warm_s 900
fi
if is_wanted edit; then
  in_clone tests "${gateway_tests[@]}"
  in_clone tests "${gateway_tests[@]}"
  budget gateway_tests_with_nothing_to_build_s floor
  [ -f "$work/tests/$source" ] || { echo "times: there is no $source" >&2; exit 1; }
  for edit in 1 2 3; do
    echo "const _: u32 = $edit;" >>"$work/tests/$source"
    in_clone tests "${gateway_tests[@]}"
    echo "$took"
  done >"$work/edits"
  # The median of three.
  took=$(sort -n "$work/edits" | sed -n 2p)
  budget gateway_edit_to_its_tests_green_s 20
fi

! grep -q ' over$' "$lines"
