//! The result of a reconcile.

use kube::runtime::controller::Action;

/// How a reconcile ended, as metrics have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReconcileOutcome {
    /// The status was written.
    Changed,
    /// The status is as it was.
    Unchanged,
    /// The object is older than this process's last write.
    Superseded,
    /// The object is gone, or about to be.
    Deleted,
    /// Something that others use is needed first.
    Waiting,
    /// The object does not fit its definition.
    Invalid,
    /// A call to the API server failed.
    Error,
}

impl ReconcileOutcome {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Superseded => "superseded",
            Self::Deleted => "deleted",
            Self::Waiting => "waiting",
            Self::Invalid => "invalid",
            Self::Error => "error",
        }
    }

    /// The outcome of a write.
    pub(super) const fn of_write(is_changed: bool) -> Self {
        if is_changed { Self::Changed } else { Self::Unchanged }
    }
}

/// How a reconcile ended, and when the object is looked at again.
#[derive(Debug)]
pub(super) struct Reconciled {
    pub(super) outcome: ReconcileOutcome,
    pub(super) next: Action,
}

impl Reconciled {
    pub(super) const fn new(outcome: ReconcileOutcome, next: Action) -> Self {
        Self { outcome, next }
    }

    /// Nothing follows before the object changes.
    pub(super) fn until_change(outcome: ReconcileOutcome) -> Self {
        Self::new(outcome, Action::await_change())
    }
}
