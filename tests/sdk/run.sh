#!/usr/bin/env bash
# Official SDKs against a running gateway: tests/sdk/run.sh PATH/TO/knack [frameworks]
# Makes one virtual environment per requirements file and one node_modules per lock file, outside the tree, starts knack
# on a free port with the scripted model, runs the tests, stops what it started, and closes with `N passed, N failed`.
# `frameworks`: LangChain and LiteLLM, with its proxy, instead of the SDKs; they are much to download.
set -euo pipefail
knack=$(readlink -e "${1:?usage: run.sh PATH/TO/knack}") || { echo "sdk: there is no file $1; build it first"; exit 1; }
cd "$(dirname "$0")"
what=${2:-sdks}
export KNACK=$knack NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 PYTHONDONTWRITEBYTECODE=1

work=$(mktemp -d)
pid=
stop() {
  if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap stop EXIT
# The examples, with a limit that their runs keep where all other suites come first; the default is 10 s.
export KNACK_EXAMPLES=$work/examples
cp -r ../../examples/skills "$KNACK_EXAMPLES"
sed -i -e '/^timeout_ms:/d' -e '1a timeout_ms: 60000' "$KNACK_EXAMPLES"/*/SKILL.md

(cd "$work" && exec "$knack" dev "$OLDPWD/skills" --listen 127.0.0.1:0 --upstream "mock=$OLDPWD/script.yaml" \
  --sandbox-code-tools gemini --files --files-dir "$work/files" --registry "$work/registry" --print-port-file "$work/port") >"$work/log" 2>&1 &
pid=$!
# Light suites give way to all others: a start takes many times what it takes alone.
for _ in $(seq 1200); do
  [ -s "$work/port" ] && break
  kill -0 "$pid" 2>/dev/null || { cat "$work/log"; echo "knack dev did not start"; echo "0 passed, 1 failed"; exit 1; }
  sleep 0.1
done
KNACK_PORT=$(cat "$work/port")
export KNACK_PORT

# The packages of the lock file, and the Node of its own that they ask for. No install script runs.
modules() {
  local home
  home="${XDG_CACHE_HOME:-$HOME/.cache}/knack/node-$(cat node/package.json node/package-lock.json | sha256sum | cut -c1-16)"
  if [ ! -e "$home/ready" ]; then
    rm -rf "$home"
    mkdir -p "$home"
    cp node/package.json node/package-lock.json "$home"
    (cd "$home" && "$OLDPWD/../../tools/again.sh" 3 npm ci --ignore-scripts --no-audit --no-fund --loglevel error) >&2
    touch "$home/ready"
  fi
  echo "$home/node_modules"
}

passed=0 failed=0
# Runs one suite and adds its counts; one that does not reach its closing line counts as one failure.
counted() {
  local out="$work/out" counts
  timeout 1200 "$@" >"$out" 2>&1 || true
  cat "$out"
  counts=$(tail -1 "$out" | sed -nE 's/.*: ([0-9]+) passed, ([0-9]+) failed$/\1 \2/p')
  read -r ok bad <<<"${counts:-0 1}"
  passed=$((passed + ok)) failed=$((failed + bad))
}
suite() {
  local python
  python=$(../../tools/environment.sh sdk "$1")
  counted "$python" "$2"
}
node_suites() {
  local home test
  home=$(modules)
  mkdir "$work/node"
  cp node/*.mjs "$work/node"
  ln -s "$home" "$work/node/node_modules"
  for test in openai anthropic google ai openai_files anthropic_files mcp installer; do
    counted "$home/.bin/node" "$work/node/test_$test.mjs"
  done
}
if [ "$what" = frameworks ]; then
  suite requirements-frameworks.txt test_frameworks.py
  suite requirements-litellm.txt test_litellm.py
  suite requirements-litellm.txt test_litellm_upstreams.py
else
  suite requirements-openai.txt test_openai.py
  suite requirements-openai.txt test_responses.py
  suite requirements-google.txt test_google.py
  suite requirements-anthropic-2.txt test_anthropic.py
  suite requirements-anthropic-0.txt test_anthropic.py
  suite requirements-openai.txt test_openai_skills.py
  suite requirements-openai.txt test_openai_files.py
  suite requirements-anthropic-2.txt test_anthropic_files.py
  suite requirements-anthropic-0.txt test_anthropic_files.py
  suite requirements-openai.txt test_agent_flow.py
  suite requirements-anthropic-2.txt test_anthropic_skills.py
  suite requirements-anthropic-0.txt test_anthropic_skills.py
  suite requirements-agents.txt test_agents.py
  suite requirements-mcp-2.txt test_mcp.py
  suite requirements-mcp-1.txt test_mcp.py
  node_suites
fi

if [ "$failed" -gt 0 ]; then echo "--- log of knack dev (end)"; tail -60 "$work/log"; fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
