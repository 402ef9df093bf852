#!/usr/bin/env bash
# What a crate of crates/ may not depend on, directly or not. The table is an invariant of ARCHITECTURE.md.
set -euo pipefail
cd "$(dirname "$0")/.."

# crate: options of cargo tree: crates that must not be among its dependencies, and features (crate/feature) that these must not have
table='
knack-skill: : tokio kube knack-wire knack-runner
knack-wire: : tokio kube knack-skill knack-runner
knack-runner: : tokio kube knack-skill knack-wire knack-python-schema tree-sitter
knack-vocabulary: : *
knack-api: : tokio hyper reqwest axum
knack-telemetry: --all-features: kube k8s-openapi
knack-hub-api: --all-features: kube k8s-openapi
knack-execution: --all-features: kube k8s-openapi
knack-gateway: --all-features: kube k8s-openapi knack-api knack-mock-provider knack-python-schema tree-sitter knack-mcp rmcp knack-execution/runner knack-execution/local knack-runner landlock seccompiler
knack-gateway-program: --all-features: kube k8s-openapi knack-api knack-mock-provider knack-python-schema tree-sitter knack-execution/runner knack-execution/local knack-runner landlock seccompiler
knack-mcp: --all-features: kube k8s-openapi knack-api knack-mock-provider knack-runner landlock seccompiler
knack-registry: : kube axum hyper reqwest knack-wire knack-gateway
knack-mock-provider: : kube knack-wire knack-skill
knack-python-schema: : tokio kube
knack-injection: : tokio kube
knack-packages: : tokio kube reqwest
knack-egress: : tokio kube reqwest
knack-trust: : kube
knack-serving: : kube k8s-openapi knack-runner landlock seccompiler
knack-memory: : kube k8s-openapi hyper knack-skill knack-wire
knack-tool-schema: : tokio kube k8s-openapi reqwest
'
wrong=
while IFS=: read -r crate options banned; do
  [ -n "$crate" ] || continue
  # A line for each crate: NAME VERSION [(PATH)] [FEATURE,...] [(*)].
  # shellcheck disable=SC2086
  tree=$(cargo tree --locked -q -p "$crate" $options -e normal --prefix none -f '{p} {f}') || { wrong+="  $crate: cargo tree failed, see above"$'\n'; continue; }
  all=$(awk 'NF { print $1; for (i = 3; i <= NF; i++) if ($i !~ /^\(/) { n = split($i, f, ","); for (j = 1; j <= n; j++) print $1 "/" f[j] } }' <<<"$tree" | sort -u)
  # A crate is in its own tree: without it nothing was looked at.
  grep -qx -- "$crate" <<<"$all" || { wrong+="  $crate: cargo tree does not name it"$'\n'; continue; }
  has=$(grep -vE "^$crate(/|\$)" <<<"$all" || true)
  set -f
  for name in $banned; do
    if [ "$name" = '*' ]; then
      [ -z "$has" ] || wrong+="  $crate depends on $(grep -v / <<<"$has" | xargs), and must depend on nothing"$'\n'
    elif grep -qx -- "$name" <<<"$has"; then
      wrong+="  $crate depends on $name; see: cargo tree -p $crate $options -e normal -i ${name%/*}"$'\n'
    fi
  done
  set +f
done <<<"$table"
[ -z "$wrong" ] || { printf 'lint: dependencies that ARCHITECTURE.md rules out:\n%s' "$wrong" >&2; exit 1; }
