//! A caller from the answer to a TokenReview, and the claims inside a token. Pure.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::TokenReviewStatus;
use serde::Deserialize;
use serde_json::Value;

/// A ServiceAccount that proved itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccountCaller {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// The ServiceAccount's name.
    pub service_account: String,
    /// Its uid: an account that is deleted and created again has another one.
    pub uid: String,
    /// `system:serviceaccount:<namespace>:<name>`.
    pub username: String,
    /// The groups of the ServiceAccount.
    pub groups: Vec<String>,
    /// Further facts from the API server.
    pub extra: BTreeMap<String, Vec<String>>,
    /// When its token ends, seconds since the Unix epoch.
    pub expires: u64,
    /// The namespace of the client that it names; it needs the verb `use-for`.
    pub acting_for: Option<String>,
}

/// Why a token is not accepted. The texts name no part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallerError {
    /// Not of the form of a ServiceAccount token.
    #[error("the token is not a ServiceAccount token")]
    Form,
    /// Issued for another audience.
    #[error("the token is not for the audience {0}; project one with `serviceAccountToken: {{audience: {0}}}`")]
    Audience(String),
    /// Too old.
    #[error("the token has expired; read it again from its file, the kubelet renews it")]
    Expired,
    /// The API server does not accept it.
    #[error("the token is not valid in this cluster")]
    Unknown,
}

/// Prefix of the user names of ServiceAccounts.
const USER_PREFIX: &str = "system:serviceaccount:";

/// Longest token: those with many pod and node claims have about 1.5 KiB.
const TOKEN_MAX_BYTES: usize = 8 << 10;

#[derive(Deserialize)]
struct TokenClaims {
    #[serde(default)]
    aud: Value,
    #[serde(default)]
    exp: u64,
}

/// Reads the unverified claims of a token: what cannot be accepted is refused before the API server is asked. Returns
/// when it expires.
pub(super) fn inspect(token: &str, audience: &str, now: u64) -> Result<u64, CallerError> {
    if token.len() > TOKEN_MAX_BYTES {
        return Err(CallerError::Form);
    }
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(CallerError::Form);
    };
    let claims: TokenClaims = URL_SAFE_NO_PAD
        .decode(claims)
        .ok()
        .and_then(|json| serde_json::from_slice(&json).ok())
        .ok_or(CallerError::Form)?;
    let named = match &claims.aud {
        Value::String(one) => one == audience,
        Value::Array(many) => many.iter().any(|one| one == audience),
        _ => false,
    };
    if !named {
        return Err(CallerError::Audience(audience.to_owned()));
    }
    if claims.exp <= now {
        return Err(CallerError::Expired);
    }
    Ok(claims.exp)
}

/// The decision on an answer of the API server. `expires` is from [`inspect`].
pub(super) fn accept(
    status: Option<TokenReviewStatus>,
    audience: &str,
    expires: u64,
) -> Result<ServiceAccountCaller, CallerError> {
    let status = status.ok_or(CallerError::Unknown)?;
    if status.authenticated != Some(true) {
        return Err(CallerError::Unknown);
    }
    // A server that does not support audiences answers without them: accepting that would accept tokens issued for the
    // server itself.
    if !status
        .audiences
        .is_some_and(|audiences| audiences.iter().any(|one| one == audience))
    {
        return Err(CallerError::Audience(audience.to_owned()));
    }
    let user = status.user.ok_or(CallerError::Unknown)?;
    let username = user.username.unwrap_or_default();
    let (namespace, service_account) = username
        .strip_prefix(USER_PREFIX)
        .and_then(|rest| rest.split_once(':'))
        .ok_or(CallerError::Form)?;
    let uid = user.uid.filter(|uid| !uid.is_empty()).ok_or(CallerError::Unknown)?;
    Ok(ServiceAccountCaller {
        namespace: namespace.to_owned(),
        service_account: service_account.to_owned(),
        uid,
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
        expires,
        username,
        acting_for: None,
    })
}

impl ServiceAccountCaller {
    /// The key of its executions: `<namespace>/<name>/<uid>`.
    pub fn key(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.service_account, self.uid)
    }

    /// `namespace/name`, for texts.
    pub fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.service_account)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::UserInfo;
    use serde_json::json;

    use super::*;

    fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn what_cannot_be_accepted_is_refused_before_anybody_is_asked() {
        const NOW: u64 = 1000;
        for (token, expected) in [
            (token(&json!({"aud": ["knack"], "exp": 2000})), Ok(2000)),
            (token(&json!({"aud": "knack", "exp": 2000})), Ok(2000)),
            (
                token(&json!({"aud": ["https://kubernetes.default.svc"], "exp": 2000})),
                Err(CallerError::Audience("knack".to_owned())),
            ),
            (
                token(&json!({"exp": 2000})),
                Err(CallerError::Audience("knack".to_owned())),
            ),
            (
                token(&json!({"aud": ["knack"], "exp": 1000})),
                Err(CallerError::Expired),
            ),
            (token(&json!({"aud": ["knack"]})), Err(CallerError::Expired)),
            ("sk-123".to_owned(), Err(CallerError::Form)),
            ("a.b.c".to_owned(), Err(CallerError::Form)),
            ("a.b.c.d".to_owned(), Err(CallerError::Form)),
            (String::new(), Err(CallerError::Form)),
            ("a".repeat(9 << 10), Err(CallerError::Form)),
        ] {
            assert_eq!(inspect(&token, "knack", NOW), expected, "{token:.40}");
        }
    }

    fn status(authenticated: bool, audiences: &[&str], username: &str, uid: &str) -> TokenReviewStatus {
        TokenReviewStatus {
            authenticated: Some(authenticated),
            audiences: (!audiences.is_empty()).then(|| audiences.iter().map(ToString::to_string).collect()),
            user: Some(UserInfo {
                username: Some(username.to_owned()),
                uid: Some(uid.to_owned()),
                ..UserInfo::default()
            }),
            error: None,
        }
    }

    #[test]
    fn only_a_service_account_with_the_audience_is_a_caller() {
        let user = "system:serviceaccount:team:app";
        let good = accept(Some(status(true, &["knack"], user, "u")), "knack", 9).unwrap();
        assert_eq!((good.key().as_str(), good.name().as_str()), ("team/app/u", "team/app"));
        for bad in [
            None,
            Some(status(false, &["knack"], user, "u")),
            Some(status(true, &[], user, "u")),
            Some(status(true, &["other"], user, "u")),
            Some(status(true, &["knack"], "jane", "u")),
            Some(status(true, &["knack"], user, "")),
        ] {
            assert!(accept(bad.clone(), "knack", 9).is_err(), "{bad:?}");
        }
    }
}
