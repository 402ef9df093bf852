#!/usr/bin/env bash
# Tests of tools/: what lint, the audit and the summary must refuse. Closes with `N passed, N failed`.
set -euo pipefail
exec /usr/bin/python3 -B "$(dirname "$0")/main.py"
