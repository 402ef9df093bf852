//! Namespace and name of an object of the API server.

use std::fmt;

use kube::ResourceExt;

/// The namespace and the name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectName {
    /// Namespace; empty for a value that is no object of a cluster.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
}

impl ObjectName {
    /// Puts the two parts together.
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The name of an object.
    pub(crate) fn of(object: &impl ResourceExt) -> Self {
        Self::new(object.namespace().unwrap_or_default(), object.name_any())
    }
}

impl fmt::Display for ObjectName {
    /// `namespace/name`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
