#!/usr/bin/env bash
# Banned crates, second versions, licences and sources of both lock files, by the rules of deny.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
exec /usr/bin/python3 tools/dependencies.py
