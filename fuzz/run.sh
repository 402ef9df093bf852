#!/bin/sh
# Runs every fuzz target for SECONDS (default 60) from the seed corpus, prints the executions of each, of the targets of
# requests and streams also how many inputs were read to their end (of a power of two of them), and fails if one crashes,
# hangs or runs out of memory. Usage: [INPUTS=N] fuzz/run.sh [SECONDS] [TARGET...]
# With INPUTS each target runs until it has had that many, in SECONDS at most, and without AddressSanitizer, which is
# several times slower: panics, hangs and memory are found all the same, and the parsers have no unsafe code of Knack.
# Brings what it needs: a nightly toolchain of one date, so that it means the same next year, and cargo-fuzz.
set -eu

CARGO_FUZZ_VERSION=0.13.2
TOOLCHAIN=${KNACK_FUZZ_TOOLCHAIN:-nightly-2026-05-20}

cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -gt 0 ] && shift

if ! rustup run "$TOOLCHAIN" rustc --version >/dev/null 2>&1; then
    echo "installing the toolchain $TOOLCHAIN (minimal, some 300 MB)"
    rustup toolchain install "$TOOLCHAIN" --profile minimal --no-self-update >/dev/null || {
        echo "fuzzing needs a nightly toolchain; name one that is here by KNACK_FUZZ_TOOLCHAIN" >&2
        exit 1
    }
fi
if [ "$(cargo fuzz --version 2>/dev/null || true)" != "cargo-fuzz $CARGO_FUZZ_VERSION" ]; then
    echo "installing cargo-fuzz $CARGO_FUZZ_VERSION"
    cargo install --locked --quiet "cargo-fuzz@$CARGO_FUZZ_VERSION"
fi

python3 fuzz/seed.py
echo "building the fuzz targets"
sanitizer=address
[ -z "${INPUTS:-}" ] || sanitizer=none
cargo "+$TOOLCHAIN" fuzz build --sanitizer "$sanitizer"

[ $# -gt 0 ] || set -- $(cargo "+$TOOLCHAIN" fuzz list)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=""
for target in "$@"; do
    # 1 MiB is the bound of every parser's promise; a single input may take 10 s at most.
    begun=$(date +%s)
    if cargo "+$TOOLCHAIN" fuzz run --sanitizer "$sanitizer" "$target" -- "-max_total_time=$seconds" "-runs=${INPUTS:--1}" \
        -max_len=1048576 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 >"$logs/$target" 2>&1; then
        status=ok
    else
        status=FAILED
        failed="$failed $target"
    fi
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$logs/$target" | tail -1)
    whole=$(sed -n 's/^whole: \([0-9]* of [0-9]*\)$/, \1 whole/p' "$logs/$target" | tail -1)
    echo "fuzz $target ${executions:-0} executions in $(($(date +%s) - begun)) s$whole $status"
    [ "$status" = ok ] || tail -n 60 "$logs/$target" >&2
done
if [ -n "$failed" ]; then
    echo "crashed:$failed; the inputs are in fuzz/artifacts/<target>/" >&2
    exit 1
fi
