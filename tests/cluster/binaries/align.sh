#!/usr/bin/env bash
# align.sh: the modules beside this file require the same version of what they share, the newest that any of them asks for. Go compiles
# a package once for all of them then. Run it after a change of a version.
# k8s.io stays at what a module replaces it with. So does what would not compile: etcd and its parts are of one version, and the oldest
# Kubernetes has older ones of four modules.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
modules=(containerd coredns helm kubernetes registry)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$work" && go work init "${modules[@]/#/$here/}")
(cd "$here" && GOWORK=$work/go.work go list -m -f '{{if not (or .Main .Replace)}}{{.Path}} {{.Version}}{{end}}' all) >"$work/newest"

stays() { # module, path
  [[ $2 = go.etcd.io/* ]] || { [ "$1" = oldest ] && [[ $2 =~ ^(k8s\.io/|github\.com/google/(cel-go|gnostic-models)$|sigs\.k8s\.io/structured|.*/otelgrpc$) ]]; }
}

for module in "${modules[@]}" oldest; do
  cd "$here/$module"
  # shellcheck source=/dev/null
  . ./recipe.sh
  go list -mod=mod -deps -f '{{with .Module}}{{.Path}}{{end}}' "${flags[@]}" | sort -u >"$work/used"
  required=()
  while read -r path version; do
    if grep -qxF "$path" "$work/used" && ! stays "$module" "$path"; then required+=("-require=$path@$version"); fi
  done <"$work/newest"
  go mod edit "${required[@]}"
  go mod tidy
  echo "$module: $(git diff --numstat -- go.mod | cut -f1 | grep . || echo 0) lines of go.mod are new"
done
