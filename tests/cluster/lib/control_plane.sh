# etcd, the API server and the controllers: one function a component, each idempotent.

start_etcd() {
  local sync=()
  # Without fsync the bed is up sooner and tests of logic run faster; KNACK_BED_FSYNC=1 for benches and power cuts.
  [ "$FSYNC" = 1 ] || sync=(--unsafe-no-fsync)
  start_daemon etcd etcd --data-dir "$DIR/etcd" --listen-client-urls "http://127.0.0.1:$ETCD_PORT" \
    --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" --listen-peer-urls "http://127.0.0.1:$((ETCD_PORT + 1))" \
    --log-level warn "${sync[@]}"
}

apiserver() { # program, name, port, extra flags...
  local program=$1 name=$2 port=$3
  shift 3
  start_daemon "$name" "$program" --etcd-servers="http://127.0.0.1:$ETCD_PORT" --secure-port="$port" \
    --bind-address=0.0.0.0 --advertise-address=$NODE_IP --service-cluster-ip-range=$SERVICE_CIDR \
    --client-ca-file="$PKI/ca.crt" --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
    --kubelet-certificate-authority="$PKI/ca.crt" --kubelet-client-certificate="$PKI/apiserver-to-kubelet.crt" \
    --kubelet-client-key="$PKI/apiserver-to-kubelet.key" --kubelet-preferred-address-types=InternalIP \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$PKI/service-accounts.pub" \
    --service-account-signing-key-file="$PKI/service-accounts.key" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
    --profiling=false "$@"
}

# On by themselves since Kubernetes 1.37.
TRUST_BUNDLES=(--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true
  --runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true)

start_apiserver() { apiserver kube-apiserver apiserver $API_PORT "${TRUST_BUNDLES[@]}"; }

# True once an API server is ready. One that ended is started again, as kubelet does in other clusters: an API server ends
# itself when its first writes take too long, and relies on that.
ready_apiserver() { # component, kubeconfig's name
  component_pid "$1" >/dev/null || "start_${1//-/_}"
  inside kubectl --kubeconfig "$DIR/$2.kubeconfig" get --raw /readyz
}

wait_for_apiserver() { # component, kubeconfig's name
  wait_for 300 "ready $1" ready_apiserver "$1" "$2" || { tail -n 20 "$LOG/$1.log" >&2; return 1; }
}

# Another API server over the same etcd, as in a cluster of several control-plane nodes.
start_second_apiserver() {
  apiserver kube-apiserver second-apiserver $SECOND_API_PORT --endpoint-reconciler-type=none "${TRUST_BUNDLES[@]}"
  kubeconfig second-admin admin $SECOND_API_PORT
}

# The oldest Kubernetes that is promised, with objects of its own in the same etcd. No node, no controllers.
start_oldest_apiserver() {
  local folder
  folder=$("$HERE/binaries/build.sh" oldest)
  apiserver "$folder/kube-apiserver-oldest" oldest-apiserver $OLDEST_API_PORT --etcd-prefix=/oldest \
    --endpoint-reconciler-type=none
  kubeconfig oldest-admin admin $OLDEST_API_PORT
}

# Client limits well above the defaults: the default ServiceAccount of a new namespace would come seconds late.
start_controller_manager() {
  start_daemon controller-manager kube-controller-manager --kubeconfig="$DIR/controller-manager.kubeconfig" \
    --leader-elect=false --kube-api-qps=500 --kube-api-burst=1000 --use-service-account-credentials \
    --service-account-private-key-file="$PKI/service-accounts.key" --root-ca-file="$PKI/ca.crt" \
    --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
    --service-cluster-ip-range=$SERVICE_CIDR --secure-port=16457 --bind-address=127.0.0.1
}

start_scheduler() {
  cat >"$DIR/scheduler.yaml" <<Y
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: $DIR/scheduler.kubeconfig, qps: 500, burst: 1000}
Y
  start_daemon scheduler kube-scheduler --config="$DIR/scheduler.yaml" --secure-port=16459 --bind-address=127.0.0.1
}
