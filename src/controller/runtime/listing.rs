//! How the list of skills comes out in requests: the same computation as the gateway's, over everything that the runtime serves.

use std::borrow::Cow;
use std::collections::HashMap;

use knack_api::runtime_status::ListingStatus;
use knack_api::{Skill, SkillRuntime};
use knack_skill::catalog::{ListingCounts, listing_counts};
use knack_skill::model::ActivationMode;
use kube::ResourceExt as _;

use crate::selection::Selected;

/// The end of a description in a Skill's status that is cut there.
const CUT_MARK: &str = "...";

/// Counts the lines of the list. `None`: nothing is listed.
pub(super) fn listing(runtime: &SkillRuntime, selected: &[Selected<'_>]) -> Option<ListingStatus> {
    let served = || {
        selected
            .iter()
            .filter(|item| item.accepted.is_ok() && item.mode != ActivationMode::Never)
    };
    let mut namesakes: HashMap<&str, usize> = HashMap::new();
    for item in served() {
        *namesakes.entry(name(item)).or_default() += 1;
    }
    let lines: Vec<(Cow<'_, str>, Cow<'_, str>)> = served()
        .filter(|item| item.mode == ActivationMode::Listed)
        .map(|item| {
            let alone = namesakes.get(name(item)).is_none_or(|count| *count == 1);
            let handle = if alone {
                name(item).into()
            } else {
                format!("{}/{}", item.skill.namespace().unwrap_or_default(), name(item)).into()
            };
            (handle, description(item))
        })
        .collect();
    if lines.is_empty() {
        return None;
    }
    let budget = runtime.spec.gateway.injection.max_listing_tokens;
    let lines = lines.iter().map(|(handle, text)| (&**handle, &**text));
    let counts = listing_counts(lines, budget.unwrap_or(knack_vocabulary::defaults::MAX_LISTING_TOKENS));
    let ListingCounts {
        whole,
        cut,
        bare,
        left_out,
    } = counts;
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    Some(ListingStatus {
        whole: number(whole),
        cut: number(cut),
        bare: number(bare),
        left_out: number(left_out),
    })
}

fn name<'a>(item: &'a Selected<'_>) -> &'a str {
    item.skill.metadata.name.as_deref().unwrap_or_default()
}

/// The description that models read. The status holds at most as much as a line shows; a longer one is cut in both.
pub(super) fn description<'a>(item: &Selected<'a>) -> Cow<'a, str> {
    let skill: &'a Skill = item.skill;
    let description = skill.status.as_ref().and_then(|status| status.description.as_deref());
    let text = description.or(skill.metadata.name.as_deref()).unwrap_or_default();
    if text.ends_with(CUT_MARK) && text.chars().count() == crate::controller::settings::DESCRIPTION_MAX {
        return format!("{text}{CUT_MARK}").into();
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::selection::{Audience, NamespaceLabels, Scope, select};

    fn skill(namespace: &str, name: &str, mode: &str, description: &str) -> Skill {
        serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"source": {}, "suspend": name == "suspended"},
            "status": {"activation": mode, "description": description,
                "artifact": {"revision": "r", "digest": "d", "size": 1, "fileCount": 1}},
        }))
        .unwrap()
    }

    fn listed(tokens: Option<usize>, skills: &[Skill]) -> Option<ListingStatus> {
        let runtime: SkillRuntime = serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"name": "main", "namespace": "n"},
            "spec": {"maxActivation": "Always", "gateway": {"injection": {"maxListingTokens": tokens}}},
        }))
        .unwrap();
        let none = NamespaceLabels::new();
        let scope = Scope {
            cluster_default: true,
            namespaces: &none,
            default_image: None,
            allow_image_tags: false,
            environments: None,
        };
        listing(&runtime, &select(&runtime, &scope, Audience::All, skills))
    }

    #[test]
    fn the_status_counts_the_lines_that_requests_get() {
        let status = |whole, cut, bare, left_out| {
            Some(ListingStatus {
                whole,
                cut,
                bare,
                left_out,
            })
        };
        let few = [
            skill("n", "a", "Listed", "Makes charts."),
            skill("n", "always", "Always", "Styles answers."),
            skill("n", "never", "Never", "Nothing."),
            skill("n", "suspended", "Listed", "Nothing."),
            skill("n", "long", "Listed", &format!("{}...", "x".repeat(1_021))),
        ];
        assert_eq!(listed(None, &few), status(1, 1, 0, 0));
        assert_eq!(listed(None, &few[1..4]), None);
        let many: Vec<Skill> = (0..300)
            .map(|place| skill("n", &format!("skill-{place:04}"), "Listed", &"word ".repeat(40)))
            .collect();
        let counted = |tokens| listed(Some(tokens), &many).unwrap();
        assert_eq!(counted(200_000).whole, 300);
        assert_eq!(counted(10_000).cut, 300);
        let tight = counted(4_000);
        assert!(tight.cut > 0 && tight.bare > 0 && tight.left_out == 0, "{tight:?}");
        assert!(counted(1_000).left_out > 0);
        // Two of one name have longer handles, as in the gateway.
        let twins = ["n", "m"].map(|namespace| skill(namespace, "twin", "Listed", &"word ".repeat(4)));
        let exact = (0..200).find(|tokens| listed(Some(*tokens), &twins) == status(2, 0, 0, 0));
        let apart = [
            skill("n", "twin", "Listed", &"word ".repeat(4)),
            skill("n", "m-twin", "Listed", &"word ".repeat(4)),
        ];
        let shorter = (0..200).find(|tokens| listed(Some(*tokens), &apart) == status(2, 0, 0, 0));
        assert!(exact.unwrap() > shorter.unwrap() - 1, "{exact:?} {shorter:?}");
    }
}
