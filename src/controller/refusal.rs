//! A refusal of the API server, as a verdict that the object's author can read. Pure.

use kube::core::Status;

use super::conditions::{Verdict, VerdictState};
use super::error::ControllerError;
use super::reason::ConditionReason;
use super::settings::REPORTED_FAILURES;
use crate::api_call::CallError;

/// What the API server answers, with status 500, where it must ask an admission webhook and cannot reach it; the name of the webhook
/// follows in quotes (`ErrCallingWebhook` in k8s.io/apiserver/pkg/util/webhook).
const UNREACHABLE_WEBHOOK: &str = "failed calling webhook ";

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
        return Some(Verdict::new(
            VerdictState::Retrying,
            ConditionReason::NamespaceTerminating,
            text,
        ));
    }
    if let Some(webhook) = unreachable_webhook(status) {
        // Without the cause that the API server names: it has addresses and ports, which differ with each attempt.
        let text = format!(
            "{what}: the API server refuses, since it cannot call the admission webhook {webhook}; restore the webhook, or exempt Knack's objects from it"
        );
        return Some(Verdict::new(
            VerdictState::Retrying,
            ConditionReason::RefusedByApiServer,
            text,
        ));
    }
    // 400 and 422 are what webhooks and policies answer besides 403; 413 is an object that the server finds too large.
    matches!(status.code, 400 | 403 | 413 | 422).then(|| {
        let text = format!("{what}: the API server refuses: {}", status.message);
        Verdict::new(VerdictState::Retrying, ConditionReason::RefusedByApiServer, text)
    })
}

/// Whether the refusal is for want of a right, and not by a quota or a policy: both answer 403.
pub(super) fn is_for_want_of_rights(error: &ControllerError) -> bool {
    let ControllerError::Call(error) = error else {
        return false;
    };
    matches!(error.answer(), Some(status) if status.code == 403 && lacks_right(&status.message))
}

/// The verdict on an object whose reconcile has failed `failures` times before this one, by calls that the API server does not serve.
/// `None`: it has not failed often enough, or for another reason.
pub(super) fn repeated(error: &ControllerError, failures: u32) -> Option<Verdict> {
    let ControllerError::Call(call) = error else {
        return None;
    };
    if failures < REPORTED_FAILURES {
        return None;
    }
    verdict(error).or_else(|| {
        // 429: it is busy. With all other statuses it has served the call.
        call.code().is_none_or(|code| code >= 500 || code == 429).then(|| {
            let text = format!("{error}; the controller retries");
            Verdict::new(VerdictState::Retrying, ConditionReason::ApiServerUnavailable, text)
        })
    })
}

/// Whether the write waits for an admission webhook that cannot be reached: it is refused until somebody restores the webhook.
pub(super) fn is_of_unreachable_webhook(error: &ControllerError) -> bool {
    let ControllerError::Call(error) = error else {
        return false;
    };
    error
        .answer()
        .is_some_and(|status| unreachable_webhook(status).is_some())
}

/// The name of the webhook that the API server cannot reach.
fn unreachable_webhook(status: &Status) -> Option<&str> {
    let (_, rest) = status.message.split_once(UNREACHABLE_WEBHOOK)?;
    (status.code == 500).then(|| rest.split('"').nth(1).unwrap_or_default())
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
            (403, quota, "", Some(ConditionReason::RefusedByApiServer), false),
            (422, policy, "", Some(ConditionReason::RefusedByApiServer), false),
            (
                400,
                "admission webhook \"w\" denied the request: no",
                "",
                Some(ConditionReason::RefusedByApiServer),
                false,
            ),
            (403, right, "", Some(ConditionReason::RefusedByApiServer), true),
            (
                403,
                gone,
                CAUSE_TERMINATING,
                Some(ConditionReason::NamespaceTerminating),
                false,
            ),
            (409, "already exists", "", None, false),
            (500, "etcdserver: request timed out", "", None, false),
            (
                403,
                "failed calling webhook",
                "",
                Some(ConditionReason::RefusedByApiServer),
                false,
            ),
        ] {
            let error = error(code, message, cause);
            let verdict = verdict(&error);
            assert_eq!(verdict.as_ref().map(|verdict| verdict.reason), reason, "{message}");
            assert_eq!(is_for_want_of_rights(&error), rights, "{message}");
            if let Some(verdict) = verdict {
                assert_eq!(verdict.state, VerdictState::Retrying);
                assert!(reason == Some(ConditionReason::NamespaceTerminating) || verdict.message.contains(message));
            }
        }
    }

    #[test]
    fn calls_that_fail_again_and_again_are_a_verdict() {
        let timeout = ControllerError::Call(CallError::Timeout {
            what: "get Skill a".to_owned(),
        });
        let storage = error(500, "etcdserver: request timed out", "");
        let refused = error(403, "exceeded quota: q", "");
        let is_of = |error: &ControllerError, failures| repeated(error, failures).map(|verdict| verdict.reason);
        for (what, error, failures, expected) in [
            ("twice", &timeout, 1, None),
            (
                "the third time",
                &timeout,
                2,
                Some(ConditionReason::ApiServerUnavailable),
            ),
            ("the storage", &storage, 2, Some(ConditionReason::ApiServerUnavailable)),
            ("a refusal", &refused, 2, Some(ConditionReason::RefusedByApiServer)),
            ("a conflict", &error(409, "conflict", ""), 9, None),
            (
                "a task of the process",
                &ControllerError::Stopped("x".to_owned()),
                9,
                None,
            ),
        ] {
            assert_eq!(is_of(error, failures), expected, "{what}");
        }
        let message = repeated(&timeout, 2).unwrap().message;
        assert!(message.starts_with("get Skill a: no answer within"), "{message}");
    }

    /// The message is the same at each attempt, or each would be another status.
    #[test]
    fn a_webhook_that_cannot_be_reached_is_named_without_its_address() {
        let reported = |port: u16| {
            let text = format!(
                "Internal error occurred: failed calling webhook \"check.example.org\": failed to call webhook: Post \"https://hooks.n.svc:443/x?timeout=10s\": read tcp 10.0.0.1:{port}->10.96.7.8:443: connection reset by peer"
            );
            let error = error(500, &text, "");
            assert!(is_of_unreachable_webhook(&error) && !is_for_want_of_rights(&error));
            verdict(&error).unwrap()
        };
        let verdict = reported(4_711);
        assert_eq!(verdict, reported(4_712));
        assert_eq!(
            (verdict.state, verdict.reason),
            (VerdictState::Retrying, ConditionReason::RefusedByApiServer)
        );
        assert!(
            verdict.message.starts_with("create ConfigMap n/a-1: ")
                && verdict.message.contains("webhook check.example.org")
                && !verdict.message.contains("10.96"),
            "{}",
            verdict.message
        );
        assert!(!is_of_unreachable_webhook(&error(
            403,
            "failed calling webhook \"w\"",
            ""
        )));
    }
}
