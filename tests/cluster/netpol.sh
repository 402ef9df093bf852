#!/usr/bin/env bash
# netpol.sh [NAMESPACE...]: TEST ONLY, stands in for a network plugin that enforces a deny-all policy.
#
# While it runs, pods of the named namespaces with the label knack.dev/role=sandbox may not open any connection; replies
# pass. It reads pods, not NetworkPolicy objects: those are compared with what they must be by other tests.
# Fail closed: every pod address is denied until the pod is seen to be another's. Prints `enforcing` once it does.
# Its rules go with it, or with the bed. One at a time: a second one waits. Without a namespace it prints `turn` when it is the only
# one, and begins when a line on its standard input names them; until then it enforces nothing.
set -euo pipefail
HERE=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
# shellcheck source=/dev/null
. "$HERE/lib/settings.sh"
[ -e "$NETNS" ] || { echo "netpol.sh: $BED is down; run: $HERE/bed up" >&2; exit 1; }
# kubectl comes from the caller's path (bed env) or from the bed's programs.
command -v kubectl >/dev/null || PATH=$("$HERE/binaries/build.sh" kubernetes):$PATH

# There is one table: a second stand-in waits for the end of the first.
exec 8>"$DIR/netpol.lock"
flock 8
if [ $# = 0 ]; then
  echo turn
  read -r -a named || exit 0
  set -- "${named[@]}"
fi
closed=" $* "

rules() { nsenter --net="$NETNS" -- nft "$@"; }
remove_rules() { rules delete table inet knack_policy 2>/dev/null || true; }
watcher=
trap 'remove_rules; [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true' EXIT
trap 'exit 0' TERM INT

remove_rules
rules -f - <<EOF_RULES
table inet knack_policy {
  set allowed { type ipv4_addr; }
  chain forwarded { type filter hook forward priority -10; ct state established,related accept; ip saddr $POD_CIDR ip saddr != @allowed counter drop; }
  chain to_node { type filter hook input priority -10; ct state established,related accept; ip saddr $POD_CIDR ip saddr != @allowed counter drop; }
}
EOF_RULES

# The pod that has an address, and whether it may open connections. Most events change nothing of it: on a busy machine a call of nft
# for each would come later and later.
declare -A held=()
decide() { # event, namespace, phase, address, pod, role
  local may=no before=${held[$4]:-}
  local was=${before##* }
  case "$1 $3" in
    # Its address may be another pod's by now.
    DELETED* | *" Succeeded" | *" Failed") [[ $before = "$5 "* ]] || return 0 ;;
    *) [[ $6 = sandbox && $closed = *" $2 "* ]] || may=yes ;;
  esac
  held[$4]="$5 $may"
  [ "$may" != "${was:-no}" ] || return 0
  if [ "$may" = yes ]; then
    rules add element inet knack_policy allowed "{ $4 }"
  else
    rules delete element inet knack_policy allowed "{ $4 }" 2>/dev/null || true
  fi
}

fields='{.type} {.object.metadata.namespace} {.object.status.phase} {.object.status.podIP} {.object.metadata.uid} {.object.metadata.labels.knack\.dev/role}{"\n"}'
exec 3< <(exec nsenter --net="$NETNS" -- kubectl --kubeconfig "$KUBECONFIG_ADMIN" get pods -A -w --output-watch-events -o "jsonpath=$fields" 8>&-)
watcher=$!
echo enforcing
while read -r event namespace phase address pod role <&3; do
  [[ $address =~ ^[0-9.]+$ ]] || continue
  # Pods on the host's network have the node's address, which no rule is about.
  [ "$address" = $NODE_IP ] || decide "$event" "$namespace" "$phase" "$address" "$pod" "$role"
done
