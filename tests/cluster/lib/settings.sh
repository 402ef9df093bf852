# Names, places and addresses of one test bed, and the switches that change it. Sourced by `bed`.
#
# Switches (environment):
#   KNACK_BED        name of the bed (default knack-bed); two beds with two names live side by side
#   KNACK_BED_DIR    its state; gone after `down`
#   KNACK_BED_FSYNC  1: etcd and containerd write to disk, and sync, as benches and tests that pull the plug want; else to memory
#   KNACK_BED_PIDS   processes per pod (kubelet's podPidsLimit; default 128; -1: no limit, kubelet's own default)
#   KNACK_BED_PROXY  nftables (default) or iptables

CACHE=${KNACK_CACHE:-$HOME/.cache/knack}
BED=${KNACK_BED:-knack-bed}
DIR=${KNACK_BED_DIR:-$CACHE/beds/$BED}
FSYNC=${KNACK_BED_FSYNC:-0}
PIDS=${KNACK_BED_PIDS:-128}
PROXY=${KNACK_BED_PROXY:-nftables}

[[ $BED =~ ^[a-z][a-z0-9-]{0,20}$ ]] || { echo "bed: KNACK_BED must be a short name of a-z, 0-9 and -, not $BED" >&2; exit 2; }
[[ $DIR = /* ]] || { echo "bed: KNACK_BED_DIR must be an absolute path" >&2; exit 2; }

NODE=node-1
# In the bed's own network namespace, so that nothing can clash with the host's.
NODE_IP=10.99.0.1
OUTSIDE_IP=10.99.0.254
SERVICE_CIDR=10.250.0.0/16
KUBERNETES_IP=10.250.0.1
DNS_IP=10.250.0.10
POD_CIDR=10.88.78.0/24
# Ports of listeners are below 32768, where Linux begins to give ports to outgoing connections (ip_local_port_range): a
# server whose port such a connection has, or had a minute ago, ends at its start. Tests take theirs from 21000 to 28999.
ETCD_PORT=12379
API_PORT=16443
SECOND_API_PORT=16444
OLDEST_API_PORT=16445
REGISTRY_PORT=5000

PKI=$DIR/pki
LOG=$DIR/log
SOCKET=$DIR/containerd.sock
NETNS=/run/netns/$BED
KUBECONFIG_ADMIN=$DIR/admin.kubeconfig
# The source of the holder's mounts. No other process on the machine has it in its mount table.
MARK=knack-bed:$BED
# Paths that kubelet, containerd and CNI have built in. The bed covers them with mounts of its own namespace.
COVERED=(/var/lib/cni /var/lib/kubelet /run/containerd /var/log/containers)
# What is in memory where nothing has to survive the bed: on a disk that a build keeps busy, a write waits for seconds.
IN_MEMORY=("$DIR/etcd" "$DIR/containerd/root")
[ "$FSYNC" != 1 ] || IN_MEMORY=()
# What the bed had to make on the host, one path a line: shared by all beds, removed with the last.
MADE=/run/knack-bed.made

# In the order in which they start.
COMPONENTS=(etcd apiserver containerd controller-manager scheduler kubelet proxy)
# Only where a test asks for them.
EXTRAS=(second-apiserver oldest-apiserver)

# What must not change while a bed runs.
settings_text() { printf 'fsync=%s pids=%s proxy=%s\n' "$FSYNC" "$PIDS" "$PROXY"; }
