# The cluster of a demonstration: sourced, from the root, with KNACK_BED set. Up from nothing; down again at the end (KEEP=1 leaves it up).
bed=tests/cluster/bed
stop() {
  status=$?
  if [ "${KEEP:-}" = 1 ]; then
    echo "the cluster stays up; a shell inside: KNACK_BED=$KNACK_BED $bed shell; take it down: KNACK_BED=$KNACK_BED $bed down"
  else
    $bed down
  fi
  exit $status
}
trap stop EXIT
$bed down >/dev/null 2>&1 || true
$bed up
