# 5 to 7 minutes cold on 2 cores. etcd's main package is called `server`.
minutes=7
flags=(-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3" tool)
afterwards() { mv "$1/server" "$1/etcd"; }
