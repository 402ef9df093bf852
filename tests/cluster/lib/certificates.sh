# One certificate authority a bed, its certificates, and the kubeconfigs made of them. 30 days: longer than any bed lives.

CERTIFICATE_DAYS=30

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

issue() { # file, subject, usage, alternative names
  local file=$1 subject=$2 usage=$3 names=${4:-}
  new_key "$file.key"
  openssl req -new -key "$file.key" -subj "$subject" -out "$file.csr"
  printf 'basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n%s\n' \
    "$usage" "${names:+subjectAltName=$names}" >"$file.ext"
  openssl x509 -req -in "$file.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days $CERTIFICATE_DAYS -sha256 \
    -extfile "$file.ext" -out "$file.crt" 2>/dev/null
}

make_certificates() {
  [ -f "$PKI/done" ] && return 0
  rm -rf "$PKI" && mkdir -p "$PKI"
  (
    cd "$PKI"
    new_key ca.key
    openssl req -x509 -new -key ca.key -sha256 -days $CERTIFICATE_DAYS -subj /CN=knack-bed \
      -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign -out ca.crt
    local service=kubernetes.default.svc
    issue apiserver /CN=kube-apiserver serverAuth "DNS:kubernetes,DNS:kubernetes.default,DNS:$service,DNS:$service.cluster.local,DNS:localhost,IP:127.0.0.1,IP:$NODE_IP,IP:$KUBERNETES_IP"
    issue kubelet-server "/O=system:nodes/CN=system:node:$NODE" serverAuth "DNS:$NODE,IP:$NODE_IP"
    issue apiserver-to-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
    issue admin /O=system:masters/CN=admin clientAuth
    issue controller-manager /CN=system:kube-controller-manager clientAuth
    issue scheduler /CN=system:kube-scheduler clientAuth
    issue kubelet "/O=system:nodes/CN=system:node:$NODE" clientAuth
    issue proxy /CN=system:kube-proxy clientAuth
    openssl genrsa -out service-accounts.key 2048 2>/dev/null
    openssl rsa -in service-accounts.key -pubout -out service-accounts.pub 2>/dev/null
  )
  local user
  for user in admin controller-manager scheduler kubelet proxy; do kubeconfig "$user" "$user" $API_PORT; done
  touch "$PKI/done"
}

kubeconfig() { # file name, certificate, port
  cat >"$DIR/$1.kubeconfig" <<Y
apiVersion: v1
kind: Config
current-context: bed
contexts: [{name: bed, context: {cluster: bed, user: $2}}]
clusters: [{name: bed, cluster: {server: "https://127.0.0.1:$3", certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")}}]
users: [{name: $2, user: {client-certificate-data: $(base64 -w0 "$PKI/$2.crt"), client-key-data: $(base64 -w0 "$PKI/$2.key")}}]
Y
}
