#!/usr/bin/env bash
# office.sh: makes the image sandbox-office, and runs its tests: in a folder with every lock (crates/execution/tests/office), and in pods
# of the test cluster (tests/cluster_packages/office.py; not with KNACK_NO_CLUSTER=1). Needs root. KNACK_PROGRAM names knack.
set -euo pipefail
cd "$(dirname "$0")/.."
roots=$(mktemp -d)
trap 'rm -rf "$roots"' EXIT
images/build.sh --roots "$roots" sandbox-office
status=0
KNACK_OFFICE_ROOT=$roots/sandbox-office cargo test -p knack-execution --features runner --test office -- --ignored --nocapture --test-threads=1 --skip document_skills || status=$?
if [ "${KNACK_NO_CLUSTER:-}" = 1 ]; then
  echo "SKIPPED the programs of sandbox-office in pods: KNACK_NO_CLUSTER=1"
else
  images/build.sh --output "${KNACK_IMAGES:-$PWD/target/images}" sandbox-office
  tests/cluster/for_tests.sh around tests/cluster_packages/run.sh office || status=$?
fi
exit "$status"
