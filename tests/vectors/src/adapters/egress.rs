//! URLs of somebody else: what the address guard lets through.

use std::net::IpAddr;

use knack_egress::{Guard, Refusal, is_cloud_metadata};
use serde_json::{Value, json};
use url::Url;

use crate::registry::{Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("http_guard", "url", url),
    Op::new("http_guard", "url_dns", url_dns),
    Op::new("http_guard", "is_cloud_metadata", metadata),
];

fn url(input: &Value) -> Outcome {
    Ok(json!(verdict(input)?))
}

/// The same, and what the resolver answers is asked, too.
fn url_dns(input: &Value) -> Outcome {
    let guard = Guard::new(Vec::new());
    let wrong = || Failure::of_adapter("`resolves_to` is a list of addresses");
    let addresses = input["resolves_to"].as_array().ok_or_else(wrong)?;
    let url = input["url"].as_str().and_then(|text| Url::parse(text).ok());
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    let mut public = true;
    for address in addresses {
        let address: IpAddr = address.as_str().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        public &= guard.admits(host, address);
    }
    Ok(json!(match verdict(input)? {
        "allowed" if !public => "blocked",
        verdict => verdict,
    }))
}

fn verdict(input: &Value) -> Result<&'static str, Failure> {
    let text = input["url"].as_str().ok_or_else(|| Failure::of_adapter("no `url`"))?;
    let checked = Url::parse(text).map(|url| Guard::new(Vec::new()).check(&url));
    Ok(match checked {
        Ok(Ok(())) => "allowed",
        Ok(Err(Refusal::Credentials | Refusal::NotPublic)) => "blocked",
        Ok(Err(Refusal::Scheme | Refusal::NoHost)) | Err(_) => "invalid",
    })
}

fn metadata(input: &Value) -> Outcome {
    let host = input["host"].as_str().ok_or_else(|| Failure::of_adapter("no `host`"))?;
    Ok(json!(is_cloud_metadata(host)))
}
