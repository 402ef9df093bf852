//! Who asks the registry: the ServiceAccount whose token a request carries.

use http::request::Parts;
use http::{HeaderMap, header};
use knack_hub_api::{HubRefusal, RefusalCode};
use knack_serving::Peer;

use crate::account_auth::{Authenticator, ServiceAccountCaller};

/// The account that a request proves to be. Errors: 401, 429 for an address that sends many unknown tokens, 503.
pub(super) async fn authenticate(accounts: &Authenticator, parts: &Parts) -> Result<ServiceAccountCaller, HubRefusal> {
    let peer = parts
        .extensions
        .get::<Peer>()
        .map(|peer| peer.address.to_string())
        .unwrap_or_default();
    match token(&parts.headers) {
        Some(token) => accounts.authenticate(&token, &peer).await,
        None => Err(HubRefusal::new(
            RefusalCode::Unauthenticated,
            "send a ServiceAccount token for the audience knack as API key: Authorization: Bearer <token>, or x-api-key",
        )),
    }
}

/// The token of a request, where SDKs put API keys.
fn token(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION.as_str()).and_then(|value| value.split_once(' '));
    let bearer = bearer
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token);
    bearer
        .or_else(|| text("x-api-key"))
        .map(|token| token.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_where_sdks_put_api_keys() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (
                    http::HeaderName::from_static(name),
                    http::HeaderValue::from_static(value),
                )
            };
            pairs.iter().map(pair).collect()
        };
        for (pairs, expected) in [
            (vec![("authorization", "Bearer a.b.c")], Some("a.b.c")),
            (vec![("x-api-key", "a.b.c")], Some("a.b.c")),
            (vec![("authorization", "Bearer a"), ("x-api-key", "b")], Some("a")),
            (vec![("authorization", "Basic a"), ("x-api-key", "b")], Some("b")),
            (vec![], None),
        ] {
            assert_eq!(token(&headers(&pairs)).as_deref(), expected, "{pairs:?}");
        }
    }
}
