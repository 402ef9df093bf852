//! A refusal of the API server, as a verdict that the object's author can read. Pure.

use kube::core::Status;

use super::conditions::{Verdict, VerdictState};
use super::error::ControllerError;
use super::reason::Reason;
use crate::api_call::CallError;

/// Cause of a refusal in a namespace that is being deleted, as the API server spells it.
const CAUSE_TERMINATING: &str = "NamespaceTerminating";

/// The verdict on an object whose write the API server refused: by a quota, an admission policy or webhook, missing
/// rights, or a namespace that is being deleted. It is retried without an edit, since the cause can change without the
/// object. `None`: the write failed and was not refused.
pub(super) fn verdict(error: &ControllerError) -> Option<Verdict> {
    let ControllerError::Call(error @ CallError::Api { what, .. }) = error else {
        return None;
    };
    let status = error.answer()?;
    if is_terminating(status) {
        let text = format!("the namespace is being deleted, so nothing can be created in it ({what})");
        return Some(Verdict::new(VerdictState::Retrying, Reason::NamespaceTerminating, text));
    }
    // 400 and 422 are what webhooks and policies answer besides 403; 413 is an object that the server finds too large.
    matches!(status.code, 400 | 403 | 413 | 422).then(|| {
        let text = format!("{what}: the API server refuses: {}", status.message);
        Verdict::new(VerdictState::Retrying, Reason::RefusedByApiServer, text)
    })
}

/// Whether the refusal is for want of a right, and not by a quota or a policy: both answer 403.
pub(super) fn is_for_want_of_rights(error: &ControllerError) -> bool {
    let ControllerError::Call(error) = error else {
        return false;
    };
    matches!(error.answer(), Some(status) if status.code == 403 && lacks_right(&status.message))
}

/// The words of the API server's authorization: `User "..." cannot create resource "..." in API group "..."`.
fn lacks_right(message: &str) -> bool {
    message.contains("User \"") && message.contains("\" cannot ") && message.contains(" resource \"")
}

fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == CAUSE_TERMINATING)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(code: u16, message: &str, cause: &str) -> ControllerError {
        let status: Status = serde_json::from_value(json!({
            "status": "Failure", "code": code, "message": message, "details": {"causes": [{"reason": cause}]},
        }))
        .unwrap();
        ControllerError::Call(CallError::Api {
            what: "create ConfigMap n/a-1".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        })
    }

    #[test]
    fn refusals_differ_from_failures_and_missing_rights() {
        let quota = "configmaps \"a-1\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=0, limited: count/configmaps=0";
        let policy =
            "configmaps \"a-1\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no";
        let right = "configmaps is forbidden: User \"system:serviceaccount:k:c\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"n\"";
        let gone = "configmaps \"a-1\" is forbidden: unable to create new content in namespace n because it is being terminated";
        for (code, message, cause, reason, rights) in [
            (403, quota, "", Some(Reason::RefusedByApiServer), false),
            (422, policy, "", Some(Reason::RefusedByApiServer), false),
            (
                400,
                "admission webhook \"w\" denied the request: no",
                "",
                Some(Reason::RefusedByApiServer),
                false,
            ),
            (403, right, "", Some(Reason::RefusedByApiServer), true),
            (403, gone, CAUSE_TERMINATING, Some(Reason::NamespaceTerminating), false),
            (409, "already exists", "", None, false),
            (500, "etcdserver: request timed out", "", None, false),
        ] {
            let error = error(code, message, cause);
            let verdict = verdict(&error);
            assert_eq!(verdict.as_ref().map(|verdict| verdict.reason), reason, "{message}");
            assert_eq!(is_for_want_of_rights(&error), rights, "{message}");
            if let Some(verdict) = verdict {
                assert_eq!(verdict.state, VerdictState::Retrying);
                assert!(reason == Some(Reason::NamespaceTerminating) || verdict.message.contains(message));
            }
        }
    }
}
