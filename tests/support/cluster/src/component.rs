//! The processes that make a cluster.

/// A process of the bed that a test may kill and start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The store.
    Etcd,
    /// The API server that [`crate::Cluster::client`] speaks to.
    Apiserver,
    /// A second API server over the same store.
    SecondApiserver,
    /// An API server of the oldest Kubernetes that is promised; objects of its own, no node, no controllers.
    /// Built, the first time for some minutes, when it is first started.
    OldestApiserver,
    /// The controllers of Jobs, Deployments, garbage and the rest.
    ControllerManager,
    /// Binds pods to the node.
    Scheduler,
    /// The node's container runtime; running pods survive its end.
    Containerd,
    /// The node's agent; running pods survive its end.
    Kubelet,
    /// Makes Services reachable.
    Proxy,
}

impl Component {
    /// Its name for `bed kill` and `bed start`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Apiserver => "apiserver",
            Self::SecondApiserver => "second-apiserver",
            Self::OldestApiserver => "oldest-apiserver",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::Proxy => "proxy",
        }
    }
}
