//! URLs of somebody else: what the address guard lets through. The order of steps is that of `src/sources/fetch.rs`, which asks
//! the guard about a URL before it connects, and about every target of a redirect in the same way.

use std::net::IpAddr;

use knack_egress::{AddressRefusal, Guard, is_cloud_metadata};
use serde_json::{Value, json};
use url::Url;

use super::omniroute::text;
use crate::matching;
use crate::registry::{Compare, Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("http_guard", "url", url),
    Op::new("http_guard", "url_dns", url_dns),
    Op::new("http_guard", "is_cloud_metadata", metadata),
    Op::new("http_guard", "private_before_connect", before_connect).compared(Compare::Custom(same_judgement)),
    Op::new("http_guard", "redirect", redirect).compared(Compare::Custom(same_judgement)),
];

fn url(input: &Value) -> Outcome {
    Ok(json!(verdict(input)?))
}

/// The verdict on a URL, and on the addresses that the resolver answers.
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
        Ok(Err(AddressRefusal::Credentials | AddressRefusal::NotPublic | AddressRefusal::OtherPort)) => "blocked",
        Ok(Err(AddressRefusal::Scheme | AddressRefusal::NoHost)) | Err(_) => "invalid",
    })
}

/// What a fetch does with the verdict on a URL: it ends there, or connects.
fn judged(verdict: &str) -> Value {
    if verdict == "allowed" {
        json!({"verdict": verdict, "connected": true})
    } else {
        json!({"verdict": verdict, "connected": false, "error": verdict})
    }
}

fn before_connect(input: &Value) -> Outcome {
    Ok(judged(verdict(input)?))
}

/// OmniRoute follows no redirect; a fetch of Knack follows five, and each target is judged like the first URL.
fn redirect(input: &Value) -> Outcome {
    let first = verdict(input)?;
    if first != "allowed"
        || !input["status"]
            .as_u64()
            .is_some_and(|status| (300..400).contains(&status))
    {
        return Ok(judged(first));
    }
    let next = Url::parse(text(input, "url")).and_then(|url| url.join(text(input, "location")));
    let mut judged = match next {
        Ok(next) => judged(verdict(&json!({"url": next.as_str()}))?),
        Err(_) => judged("invalid"),
    };
    judged["followed"] = judged["connected"].clone();
    Ok(judged)
}

/// A verdict in one word, or the members that the case names.
fn same_judgement(expected: &Value, actual: &Value) -> Result<(), String> {
    let actual = if expected.is_string() {
        actual["verdict"].clone()
    } else {
        actual.clone()
    };
    matching::check(Compare::Named, expected, &Ok(actual))
}

fn metadata(input: &Value) -> Outcome {
    let host = input["host"].as_str().ok_or_else(|| Failure::of_adapter("no `host`"))?;
    Ok(json!(is_cloud_metadata(host)))
}
