minutes=2
# Snapshotters that would need C headers and that the bed does not use.
flags=(-tags no_btrfs,no_devmapper,no_zfs,no_aufs -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=2.2.9" tool)
