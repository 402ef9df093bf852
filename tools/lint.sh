#!/usr/bin/env bash
# Formatting, clippy, both lock files, file sizes, doc comments, tracked binaries, unused dependencies and items, levels of crates by profile, walls and dependencies between crates, circles of files, citations.
# Each check says what to do. After clippy all of them run, whatever one finds.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check || { echo "lint: run: cargo fmt --all" >&2; exit 1; }
cargo clippy -q --workspace --all-targets --features knack/otel -- -D warnings
# Each with fewer features, as it is built where it is alone: knack without the exporter, the gateway for its own image, parts without
# their features. Every line checks half of the dependencies anew, so `make test` leaves them to `make lint` (KNACK_LINT=workspace).
if [ "${KNACK_LINT:-alone}" = workspace ]; then
  echo "lint: not in make test: knack, knack-gateway, knack-execution and knack-hub-api with their own features only; run: make lint"
else
  cargo clippy -q -p knack --lib -- -D warnings
  cargo clippy -q -p knack-gateway -p knack-gateway-program --all-targets -- -D warnings
  cargo clippy -q -p knack-execution -- -D warnings
  cargo clippy -q -p knack-hub-api -- -D warnings
fi
# A workspace of their own, which only make fuzz builds: nothing else would notice that a target does not compile.
cargo check -q --locked --manifest-path fuzz/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}"

# The runner's locks are written for two architectures; the one that this machine is not must compile as well.
case $(uname -m) in x86_64) other=aarch64 ;; *) other=x86_64 ;; esac
if ! command -v rustup >/dev/null; then
  echo "SKIPPED the runner on $other: rustup is missing, which brings its standard library"
elif ! tools/again.sh 3 rustup -q target add "$other-unknown-linux-gnu"; then
  echo "SKIPPED the runner on $other: rustup could not get its standard library, see above"
else
  cargo clippy -q -p knack-runner --all-targets --target "$other-unknown-linux-gnu" -- -D warnings
fi

status=0
# The fuzz targets have a lock of their own, which no build here reads: releases and the audit would be the first to miss a crate.
for lock in $(git ls-files Cargo.lock '*/Cargo.lock'); do
  cargo update -q --workspace --locked --manifest-path "${lock%lock}toml" || { echo "lint: $lock: run: cargo update --workspace --manifest-path ${lock%lock}toml" >&2; status=1; }
done
tools/binaries.sh || status=1
python3 -B tools/unused.py || status=1
python3 -B tools/reached.py || status=1
python3 -B tools/profiles.py || status=1
tools/walls.sh || status=1
python3 -B tools/edges.py || status=1
python3 -B tools/cycles.py || status=1
python3 -B tools/citations.py || status=1

# No source file over 600 lines: a file near the limit hides a second noun.
long=$(git ls-files '*.rs' '*.py' '*.sh' | while read -r file; do
  lines=$(wc -l <"$file")
  [ "$lines" -le 600 ] || echo "  $file: $lines lines"
done)
[ -z "$long" ] || { printf 'lint: files over 600 lines, split them by concept:\n%s\n' "$long" >&2; status=1; }

# A doc comment begins with the noun that it is about: "Of its file tree." or "Whose." says nothing to who does not read the code.
fragments=$(git ls-files -z 'src/*.rs' 'crates/*.rs' | xargs -0 awk '
  FNR == 1 { before = 0 }
  { doc = $1 == "///" || $1 == "//!"; text = $0; sub(/^ *\/\/[\/!] /, "", text) }
  doc && !before && (text ~ /^(Of|Those|Whose|One that|Another one|That of)( |$)/ || text ~ /^(Why|Where|Who|Whose|(Its|Their) [a-z]+)\.$/) {
    print "  " FILENAME ":" FNR ": " text
  }
  { before = doc }')
[ -z "$fragments" ] || { printf 'lint: doc comments without a noun, say what the item holds:\n%s\n' "$fragments" >&2; status=1; }

[ "$status" = 0 ] || exit 1
echo "lint: clean"
