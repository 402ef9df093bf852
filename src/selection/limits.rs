//! Ceilings and images: what a skill asks of a sandbox against what the runtime allows.

use knack_api::runtime_sandbox::RuntimeSandbox;
use knack_api::shared::Resources;
use knack_api::skill::SkillSandbox;
use knack_api::{Quantity, SkillRuntime};

use super::types::{Rejection, RejectionReason, Scope};
use crate::jobs::PodResources;

/// What a skill asks for in its spec and the runtime does not allow, if anything. What the frontmatter asks for is
/// capped instead: its author does not know the runtime.
pub(super) fn check(runtime: &SkillRuntime, asked: &SkillSandbox, scope: &Scope<'_>) -> Option<Rejection> {
    over_ceiling(&runtime.spec.sandbox, asked)
        .or_else(|| asked_image(runtime, asked.image.as_deref(), asked.image_name.as_deref(), scope).err())
}

/// The time or resources that a skill asks for in its spec above the limits of a runtime, if any.
pub fn over_ceiling(runtime: &RuntimeSandbox, asked: &SkillSandbox) -> Option<Rejection> {
    timeout(runtime, asked).or_else(|| resources_allowed(runtime, asked.resources.as_ref()?).err())
}

fn timeout(runtime: &RuntimeSandbox, asked: &SkillSandbox) -> Option<Rejection> {
    let ceiling = runtime.time_limits().max_seconds;
    let seconds = asked.timeout_seconds.filter(|seconds| *seconds > ceiling)?;
    Some(Rejection {
        reason: RejectionReason::TimeoutOverCeiling,
        message: format!(
            "spec.sandbox.timeoutSeconds {seconds} exceeds the runtime's maxTimeoutSeconds {ceiling}; lower it or raise the limit"
        ),
    })
}

/// Whether a runtime gives a skill what it asks for.
pub fn resources_allowed(runtime: &RuntimeSandbox, asked: &Resources) -> Result<(), Rejection> {
    // With the defaults: a runtime that names no resources is no runtime without limits.
    let own = PodResources::of(runtime.resources.as_ref());
    for (name, wanted) in asked.limits.iter().chain(&asked.requests) {
        let max = runtime.max_resources.get(name).map(Quantity::as_str);
        let over = match max.or_else(|| own.offered(name)) {
            Some(ceiling) if Quantity::parse(ceiling).is_ok_and(|ceiling| wanted.milli() <= ceiling.milli()) => {
                continue;
            }
            Some(ceiling) => format!("above the runtime's limit {ceiling}"),
            None => "a resource that the runtime does not offer".to_owned(),
        };
        return Err(Rejection {
            reason: RejectionReason::ResourcesOverCeiling,
            message: format!(
                "spec.sandbox.resources: {name} {wanted} is {over}; lower it or raise spec.sandbox.maxResources of the runtime"
            ),
        });
    }
    Ok(())
}

/// The image that a skill asks for, by reference or by name, if it does and the runtime allows it.
pub fn asked_image<'a>(
    runtime: &'a SkillRuntime,
    image: Option<&'a str>,
    name: Option<&str>,
    scope: &Scope<'_>,
) -> Result<Option<&'a str>, Rejection> {
    match (name, image) {
        (Some(name), _) => image_named(runtime, name, scope).map(Some),
        (None, Some(image)) => image_allowed(runtime, image, scope).map(|()| Some(image)),
        (None, None) => Ok(None),
    }
}

/// The image of a name: allowed by being named, with a digest, and by nothing else.
fn image_named<'a>(runtime: &'a SkillRuntime, name: &str, scope: &Scope<'_>) -> Result<&'a str, Rejection> {
    let sandbox = &runtime.spec.sandbox;
    let Some(image) = sandbox.named(name) else {
        let names: Vec<&str> = sandbox.images.iter().map(|named| named.name.as_str()).collect();
        let known = if names.is_empty() {
            "it has none".to_owned()
        } else {
            format!("it has {}", names.join(", "))
        };
        return Err(Rejection {
            reason: RejectionReason::ImageUnknown,
            message: format!(
                "spec.sandbox.imageName {name}: the runtime has no image of that name in spec.sandbox.images ({known}); add it there or correct the name"
            ),
        });
    };
    if !scope.is_pinned(image) {
        return Err(Rejection {
            reason: RejectionReason::ImageNotPinned,
            message: format!(
                "spec.sandbox.images of the runtime: {name} ({image}) has no digest; write {}@sha256:<digest>",
                repository(image)
            ),
        });
    }
    Ok(image)
}

/// Whether an image may run at a runtime: its own image, or one of `allowedImages`, with a digest.
fn image_allowed(runtime: &SkillRuntime, image: &str, scope: &Scope<'_>) -> Result<(), Rejection> {
    let sandbox = &runtime.spec.sandbox;
    let own = sandbox.own_image().or(scope.default_image);
    if own == Some(image) {
        return Ok(());
    }
    let repository = repository(image);
    if !sandbox.allowed_images.iter().any(|allowed| allowed == repository) {
        return Err(Rejection {
            reason: RejectionReason::ImageNotAllowed,
            message: format!(
                "image {image}: {repository} is not in spec.sandbox.allowedImages of the runtime; add it there or use the runtime's image"
            ),
        });
    }
    if !scope.is_pinned(image) {
        return Err(Rejection {
            reason: RejectionReason::ImageNotPinned,
            message: format!("image {image} has no digest; write {repository}@sha256:<digest>"),
        });
    }
    Ok(())
}

/// An image without tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(before, _)| before);
    match image.rsplit_once(':') {
        // A colon before the last slash is the registry's port.
        Some((before, after)) if !after.contains('/') => before,
        _ => image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_an_image_without_tag_and_digest() {
        for (image, expected) in [
            ("r.io/a", "r.io/a"),
            ("r.io/a:1", "r.io/a"),
            ("r.io:5000/a", "r.io:5000/a"),
            ("r.io:5000/a:1@sha256:00", "r.io:5000/a"),
            ("a@sha256:00", "a"),
        ] {
            assert_eq!(repository(image), expected);
        }
    }
}
