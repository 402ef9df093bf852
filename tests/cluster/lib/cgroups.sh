# The cgroup below which kubelet puts its pods: one in every v1 hierarchy, or one in the single v2 tree.

CGROUPS=/sys/fs/cgroup

unified() { [ -f $CGROUPS/cgroup.controllers ]; }
pids_cgroup() { if unified; then echo "$CGROUPS/$BED"; else echo "$CGROUPS/pids/$BED"; fi; }

make_cgroups() {
  local hierarchy file
  if unified; then
    mkdir -p "$CGROUPS/$BED"
    # Kubelet hands these on to its pods; a controller that the kernel lacks is not missed.
    for file in $CGROUPS/cgroup.subtree_control "$CGROUPS/$BED/cgroup.subtree_control"; do
      for hierarchy in cpu cpuset memory pids io hugetlb; do echo "+$hierarchy" >"$file" 2>/dev/null || true; done
    done
    return 0
  fi
  # Also name=systemd: kubelet asks for its pod's cgroup in every one.
  for hierarchy in $CGROUPS/*/; do mkdir -p "$hierarchy$BED"; done
  # A new v1 cpuset is empty and refuses processes.
  for file in cpuset.cpus cpuset.mems; do cat $CGROUPS/cpuset/$file >"$CGROUPS/cpuset/$BED/$file"; done
}

cgroup_folders() { if unified; then ls -d "$CGROUPS/$BED"; else ls -d $CGROUPS/*/"$BED"; fi 2>/dev/null || true; }

remove_cgroups() {
  local folder _
  # A cgroup stays busy for a moment after its last process: on a busy machine for seconds.
  for _ in $(seq 1 600); do
    for folder in $(cgroup_folders); do find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
    [ -n "$(cgroup_folders)" ] || return 0
    sleep 0.1
  done
}
