# The API server of the oldest Kubernetes that Knack promises to run on. Built only by the test that needs it.
minutes=5
flags=(-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.33.13 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=33" tool)
afterwards() { mv "$1/kube-apiserver" "$1/kube-apiserver-oldest"; }
