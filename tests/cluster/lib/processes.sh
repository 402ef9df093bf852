# Processes of the bed: the holder of its mount namespace, daemons in it, and how to find every one of them.

# A zombie still answers `kill -0`; its State tells.
alive() { [ -n "${1:-}" ] && grep -qs '^State:.[^ZX]' "/proc/$1/status"; }

# In the bed's mount namespace: by a mark in the mount table, which no reused pid has.
ours() { grep -qs "^$MARK ${COVERED[0]} " "/proc/$1/mounts"; }

holder() {
  local pid
  pid=$(cat "$DIR/pid/holder" 2>/dev/null) || return 1
  alive "$pid" && ours "$pid" && echo "$pid"
}

# Runs a command in the bed's network and mount namespaces.
inside() { nsenter -t "$(holder)" --mount --net="$NETNS" -- "$@"; }

component_pid() {
  local pid
  pid=$(cat "$DIR/pid/$1" 2>/dev/null) || return 1
  alive "$pid" && ours "$pid" && echo "$pid"
}

start_daemon() { # name, command...
  local name=$1
  shift
  component_pid "$name" >/dev/null && return 0
  # The lock's descriptor must not live on in the daemon.
  setsid nsenter -t "$(holder)" --mount --net="$NETNS" -- "$@" >>"$LOG/$name.log" 2>&1 </dev/null 9>&- &
  local pid=$!
  echo "$pid" >"$DIR/pid/$name"
  # Until it is in the bed's mount namespace it counts as down: whoever looks now would start a second one, and the two would fight for
  # a port of which only one's process is known.
  while alive "$pid" && ! ours "$pid"; do sleep 0.02; done
}

start_holder() {
  holder >/dev/null && return 0
  local path
  for path in "${COVERED[@]}"; do
    [ -d "$path" ] || { mkdir -p "$path" && echo "$path" >>"$MADE"; }
  done
  [ ${#IN_MEMORY[@]} = 0 ] || mkdir -p -m 700 "${IN_MEMORY[@]}"
  # shellcheck disable=SC2016
  setsid unshare --mount --propagation private sh -c '
    mark=$0
    for path; do mount -t tmpfs -o mode=755 "$mark" "$path"; done
    mount --make-rshared /
    exec sleep infinity' "$MARK" "${COVERED[@]}" "${IN_MEMORY[@]}" >/dev/null 2>&1 </dev/null 9>&- &
  echo $! >"$DIR/pid/holder"
  wait_for 300 "the holder of the mount namespace" holder
}

wait_for() { # seconds, what, command...
  local seconds=$1 what=$2 begun=$SECONDS
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $((SECONDS - begun)) -lt "$seconds" ] || { echo "bed: no $what within $seconds s; see $LOG" >&2; return 1; }
    sleep 0.1
  done
}

# Every process of the bed, in its mount namespace or in a pod's cgroup.
every_pid() {
  local proc
  for proc in /proc/[0-9]*; do
    ours "${proc#/proc/}" && echo "${proc#/proc/}"
  done
  [ ! -d "$(pids_cgroup)" ] || find "$(pids_cgroup)" -name cgroup.procs -exec cat {} + 2>/dev/null
  true
}
