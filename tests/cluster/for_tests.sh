#!/usr/bin/env bash
# for_tests.sh begin: the cluster and its images, ready for a test run. for_tests.sh end: takes it down, if `begin` had
# brought it up; a cluster that somebody works with stays. for_tests.sh around COMMAND...: one after the other, whatever the command
# ends with. KNACK_NO_CLUSTER=1: no cluster, said aloud.
set -euo pipefail
cluster=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$cluster/lib/settings.sh"
# Inside the bed's folder, so that it cannot outlive the bed.
mark=$DIR/of-tests

if [ "${KNACK_NO_CLUSTER:-}" = 1 ]; then
  echo "SKIPPED every test on the cluster: KNACK_NO_CLUSTER=1"
  [ "${1:-}" = around ] || exit 0
  shift
  exec "$@"
fi
case ${1:-} in
  begin)
    "$cluster/../../tools/setup.sh" cluster
    [ "$(id -u)" = 0 ] || { echo "the tests start a real Kubernetes, which needs root: sudo -E make test, or KNACK_NO_CLUSTER=1 make test" >&2; exit 1; }
    "$cluster/bed" status >/dev/null 2>&1 || fresh=1
    "$cluster/bed" up
    [ -z "${fresh:-}" ] || touch "$mark"
    "$cluster/images/load.sh" --release
    ;;
  end) [ ! -e "$mark" ] || "$cluster/bed" down ;;
  around)
    shift
    trap '"$cluster/for_tests.sh" end' EXIT
    "$cluster/for_tests.sh" begin
    "$@"
    ;;
  *) echo "usage: for_tests.sh begin|end|around COMMAND..." >&2 && exit 2 ;;
esac
