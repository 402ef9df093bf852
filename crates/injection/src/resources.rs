//! The sidecar's resources in a pod, which keeps its class of quality of service.

use serde_json::{Value, json};

use super::env;
use super::parameters::Resources;

/// The resources that determine a class of quality of service.
const COUNTED: [&str; 2] = ["cpu", "memory"];
/// The resource of which the limits of all containers together bound the pod's volumes too: a kubelet evicts a pod that uses more
/// than the sum, whichever container has used it.
const STORAGE: &str = "ephemeral-storage";

/// Resources of the sidecar in a pod of these containers:
/// - the pod has resources of its own: none of CPU and memory, since they bound all containers together;
/// - every container is guaranteed what it may take: requests equal to limits;
/// - every container has a limit of CPU (a quota may ask for that): one of CPU too;
/// - else no limit of CPU. It has one of memory in any case;
/// - a container has a limit of storage: one of storage too, so that its volume takes nothing from the application; else none,
///   since it would be the whole pod's;
/// - a container requests or limits storage: its request of storage (a quota may ask for that), which is never its limit.
pub(crate) fn of_sidecar(spec: &Value, resources: &Resources) -> Option<Value> {
    let of_pod = spec.get("resources").is_some_and(|own| !own.is_null());
    let all_have =
        |resource: &str| env::containers(spec).all(|container| part(container, "limits", resource).is_some());
    let any_has = |kind: &str| env::containers(spec).any(|container| part(container, kind, STORAGE).is_some());
    let storage_limited = any_has("limits");
    let storage_counted = storage_limited || any_has("requests");
    if of_pod && !storage_counted {
        return None;
    }
    let guaranteed = COUNTED.iter().all(|resource| all_have(resource)) && env::containers(spec).all(is_guaranteed);
    let mut requests = resources.requests.clone();
    if guaranteed {
        requests.retain(|resource, _| resource == STORAGE);
        let rest = resources.limits.iter().filter(|(resource, _)| *resource != STORAGE);
        requests.extend(rest.map(|(resource, limit)| (resource.clone(), limit.clone())));
    }
    let mut limits = resources.limits.clone();
    limits.retain(|resource, _| match resource.as_str() {
        STORAGE => storage_limited,
        "cpu" => !of_pod && all_have("cpu"),
        _ => !of_pod,
    });
    requests.retain(|resource, _| if resource == STORAGE { storage_counted } else { !of_pod });
    Some(json!({"requests": requests, "limits": limits}))
}

fn part<'a>(container: &'a Value, kind: &str, resource: &str) -> Option<&'a Value> {
    container.get("resources")?.get(kind)?.get(resource)
}

/// Whether requests equal limits. A resource without a request is requested at its limit.
fn is_guaranteed(container: &Value) -> bool {
    COUNTED.iter().all(|resource| {
        let limit = part(container, "limits", resource).and_then(quantity);
        part(container, "requests", resource).is_none_or(|request| {
            let request = quantity(request);
            request.is_some() && request == limit
        })
    })
}

/// Units of [`quantity`] in one: the smallest that Kubernetes knows is n.
const NANO: i128 = 1_000_000_000;

/// A quantity of Kubernetes, in billionths; `None` for what is none, or too large to compare.
fn quantity(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // Kubernetes rounds up more digits than billionths; they do not occur in practice.
    if fraction.len() > 9
        || !fraction.bytes().all(|byte| byte.is_ascii_digit())
        || !number.bytes().any(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let whole = match whole {
        "" | "+" | "-" => 0,
        digits => digits.parse::<i128>().ok()?,
    };
    let fraction = format!("{fraction:0<9}").parse::<i128>().ok()?;
    let sign = if number.starts_with('-') { -1 } else { 1 };
    let nanos = whole.checked_mul(NANO)?.checked_add(sign * fraction)?;
    scaled(nanos, suffix)
}

fn scaled(nanos: i128, suffix: &str) -> Option<i128> {
    let decimal = |exponent: i32| -> Option<i128> {
        let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
        if exponent < 0 {
            Some(nanos / power)
        } else {
            nanos.checked_mul(power)
        }
    };
    let binary = |exponent: u32| nanos.checked_mul(1024_i128.checked_pow(exponent)?);
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => Some(nanos),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?;
            decimal(exponent.parse().ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_compared_by_value() {
        for (one, other, equal) in [
            (json!("1"), json!("1000m"), true),
            (json!(1), json!("1"), true),
            (json!("1Gi"), json!("1024Mi"), true),
            (json!("1Gi"), json!("1073741824"), true),
            (json!("1G"), json!("1Gi"), false),
            (json!("0.5"), json!("500m"), true),
            (json!(".5"), json!("500m"), true),
            (json!("1e3"), json!("1k"), true),
            (json!("100m"), json!("100M"), false),
            (json!("-1"), json!("1"), false),
        ] {
            let (a, b) = (quantity(&one), quantity(&other));
            assert!(a.is_some() && b.is_some(), "{one} {other}");
            assert_eq!(a == b, equal, "{one} {other}");
        }
        for none in [
            json!(""),
            json!("m"),
            json!("1x"),
            json!("1.2.3"),
            json!(null),
            json!("9".repeat(60)),
        ] {
            assert_eq!(quantity(&none), None, "{none}");
        }
    }
}
