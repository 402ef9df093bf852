# containerd, kubelet and kube-proxy: the node's side.

start_containerd() {
  mkdir -p "$DIR/cni" "$DIR/registries/$NODE_IP:$REGISTRY_PORT"
  cat >"$DIR/cni/10-bed.conflist" <<J
{"cniVersion": "1.0.0", "name": "bed", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "dataDir": "$DIR/addresses", "ranges": [[{"subnet": "$POD_CIDR"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
J
  # A test may start a registry that speaks plain HTTP on the node.
  printf 'server = "http://%s"\n' "$NODE_IP:$REGISTRY_PORT" >"$DIR/registries/$NODE_IP:$REGISTRY_PORT/hosts.toml"
  install -m 755 "$HERE/lib/runc_without_landlock.sh" "$DIR/runc-without-landlock"
  cat >"$DIR/containerd.toml" <<T
version = 3
root = "$DIR/containerd/root"
state = "$DIR/containerd/state"
oom_score = 0
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "$SOCKET"
[ttrpc]
  address = "$SOCKET.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "$DIR/containerd/opt"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "knack.local/pause:bed"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "$DIR/registries"
[plugins."io.containerd.cri.v1.runtime"]
  # Root without CAP_SYS_RESOURCE cannot lower an oom_score_adj.
  restrict_oom_score_adj = true
  # Else under /var/run/netns of the host.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "$DIR/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.no-landlock]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.no-landlock.options]
      BinaryName = "$DIR/runc-without-landlock"
T
  start_daemon containerd containerd -c "$DIR/containerd.toml"
}

start_kubelet() {
  make_cgroups
  printf 'nameserver %s\n' "$OUTSIDE_IP" >"$DIR/resolv.conf"
  cat >"$DIR/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $PKI/kubelet-server.crt
tlsPrivateKeyFile: $PKI/kubelet-server.key
address: $NODE_IP
healthzPort: 0
readOnlyPort: 0
containerRuntimeEndpoint: unix://$SOCKET
cgroupDriver: cgroupfs
cgroupsPerQOS: true
cgroupRoot: /$BED
enforceNodeAllocatable: [pods]
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
maxOpenFiles: 20000
podPidsLimit: $PIDS
maxPods: 110
clusterDNS: [$DNS_IP]
clusterDomain: cluster.local
resolvConf: $DIR/resolv.conf
podLogsDir: $DIR/pod-logs
volumePluginDir: $DIR/volume-plugins
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
serializeImagePulls: false
registryPullQPS: 0
kubeAPIQPS: 500
kubeAPIBurst: 1000
nodeStatusUpdateFrequency: 2s
syncFrequency: 10s
featureGates: {ClusterTrustBundle: true, ClusterTrustBundleProjection: true}
Y
  start_daemon kubelet kubelet --config="$DIR/kubelet.yaml" --kubeconfig="$DIR/kubelet.kubeconfig" \
    --hostname-override=$NODE --node-ip=$NODE_IP --root-dir="$DIR/kubelet" --cert-dir="$DIR/kubelet-pki"
}

start_proxy() {
  cat >"$DIR/proxy.yaml" <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: $PROXY
hostnameOverride: $NODE
clientConnection: {kubeconfig: $DIR/proxy.kubeconfig}
clusterCIDR: $POD_CIDR
bindAddress: $NODE_IP
healthzBindAddress: ""
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nodePortAddresses: [primary]
nftables: {minSyncPeriod: 100ms}
iptables: {minSyncPeriod: 100ms}
oomScoreAdj: 0
Y
  start_daemon proxy kube-proxy --config="$DIR/proxy.yaml"
}
