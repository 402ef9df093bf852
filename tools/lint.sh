#!/usr/bin/env bash
# Formatting, clippy, file sizes, tracked binaries, citations. Each check says what to do.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check || { echo "lint: run: cargo fmt --all" >&2; exit 1; }
cargo clippy -q --workspace --all-targets --features knack/otel -- -D warnings
# Without the exporter, as a plain cargo build has it.
cargo clippy -q -p knack --lib -- -D warnings

# The runner's locks are written for two architectures; the one that this machine is not must compile as well.
case $(uname -m) in x86_64) other=aarch64 ;; *) other=x86_64 ;; esac
if command -v rustup >/dev/null; then
  rustup -q target add "$other-unknown-linux-gnu"
  cargo clippy -q -p knack-runner --all-targets --target "$other-unknown-linux-gnu" -- -D warnings
else
  echo "SKIPPED the runner on $other: rustup is missing, which brings its standard library"
fi

tools/binaries.sh
python3 -B tools/citations.py

# No source file over 600 lines: a file near the limit hides a second noun.
# attacks.py is one program that is handed to the sandbox as source: a list of a hundred small attacks, better whole.
long=$(git ls-files '*.rs' '*.py' '*.sh' | grep -v '^tests/attacks/attacks.py$' | while read -r file; do
  lines=$(wc -l <"$file")
  [ "$lines" -le 600 ] || echo "  $file: $lines lines"
done)
[ -z "$long" ] || { printf 'lint: files over 600 lines, split them by concept:\n%s\n' "$long" >&2; exit 1; }

echo "lint: clean"
