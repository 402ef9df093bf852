#!/usr/bin/env bash
# cargo's runner of test programs (make test-rust): run_test.sh PROGRAM ARGUMENTS... How many tests of a program run at once.
set -euo pipefail
case $(basename "$1") in
  # A namespace each, and most of their time is waiting for the cluster.
  cluster_jobs-* | cluster_hub-* | cluster_operator-* | cluster_registry-*) threads=3 ;;
  # Those that break the cluster wait until no other runs.
  cluster_faults-*) threads=3 ;;
  # Programs and folders of their own for each test, which mostly wait for one another.
  command_line-* | gateway-*) threads=3 ;;
  # They count processes, files and milliseconds of this machine.
  *) threads=1 ;;
esac
RUST_TEST_THREADS=$threads exec "$@"
