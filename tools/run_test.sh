#!/usr/bin/env bash
# cargo's runner of test programs: run_test.sh PROGRAM ARGUMENTS... How many tests of a program run at once, and in which part of
# `make test` it runs. Without KNACK_TEST_PART it runs; with it, only if it belongs to that part, so that each belongs to one.
set -euo pipefail
# A namespace for each test, programs and folders of its own, and mostly waiting: several at once.
threads=3
case $(basename "$1") in
  # They take parts of the cluster of the tests away, or fill the node: no other part may use the cluster meanwhile.
  cluster_faults-*) part=faults ;;
  cluster_attacks-*) part=faults threads=1 ;;
  # These three parts share the cluster: hub beside jobs and then operator.
  cluster_hub-* | cluster_registry-*) part=hub ;;
  cluster_oldest-* | cluster_support-* | bed-* | images-* | shared-*) part=hub threads=1 ;;
  cluster_jobs-*) part=jobs ;;
  # One of its tests waits for four minutes, while the other thread does all the others.
  cluster_operator-*) part=operator threads=2 ;;
  # The rest needs no cluster.
  command_line-* | gateway-*) part=machine ;;
  # npm chooses versions: with an older one those tests are skipped.
  packages-*) part=machine threads=1 needs_npm=1 ;;
  # They count processes, files and milliseconds of this machine.
  *) part=machine threads=1 ;;
esac
case ${KNACK_TEST_PART:-$part} in
  "$part")
    [ -z "${needs_npm:-}" ] || ! npm=$("$(dirname "$0")/npm.sh") || export PATH=$npm:$PATH
    RUST_TEST_THREADS=$threads exec "$@"
    ;;
  faults | hub | jobs | operator | machine) ;;
  *) echo "run_test.sh: KNACK_TEST_PART is faults, hub, jobs, operator or machine, not $KNACK_TEST_PART" >&2 && exit 2 ;;
esac
