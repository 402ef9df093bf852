//! The versions of an uploaded skill that pins choose beside the default one: each becomes a revision of the skill's own object, so
//! that a runtime's verdict, and what a hub reads, depend on that object alone.

use std::sync::Arc;

use knack_api::skill::{Activation, Source};
use knack_api::skill_status::{EarlierRevision, STATUS_CHOSEN_MAX};
use knack_api::{ActivationWord, Skill, SkillStatus};
use kube::ResourceExt as _;
use tracing::warn;

use super::deliver::{Undelivered, deliver};
use super::judge::{JUDGE, judge};
use super::outline::Outline;
use super::resolve::{ResolvedSource, Unresolved, kept_files, verdict as source_verdict};
use super::status::{content, replaced};
use crate::controller::conditions::Verdict;
use crate::controller::context::Context;
use crate::controller::error::ControllerError;
use crate::controller::events;
use crate::registry::{KeptVersion, kept_versions};
use crate::selection::{chosen_versions, in_artifact, wanted_version};

/// Puts into `status.earlier` the versions of an uploaded skill that pins choose. What pins do not choose any more, or the registry
/// does not keep, is then a revision like others before the newest one. A version that cannot be delivered is left out, and an
/// Event says why, once for each cause.
pub(super) async fn add_chosen(
    context: &Context,
    watched: &Skill,
    outline: &Outline,
    status: &mut SkillStatus,
) -> Result<(), ControllerError> {
    let runtimes = context.cluster_state.runtimes();
    let labels = context.cluster_state.namespace_labels();
    let wanted = runtimes.iter().filter_map(|runtime| {
        let runtime = runtime.0.as_ref().ok()?;
        let (namespace, name) = (runtime.namespace().unwrap_or_default(), runtime.name_any());
        wanted_version(runtime, &context.scope(&labels, None, &namespace, &name), watched)
    });
    let wanted: Vec<&str> = wanted.collect();
    // An entry of many versions is read only where it counts.
    let kept = if wanted.is_empty() {
        Vec::new()
    } else {
        kept_versions(watched)
    };
    let chosen = choose(&kept, wanted);
    let is_judged = outline.before().judged_by.as_deref() == Some(JUDGE);
    // It is unknown which versions a runtime chooses that cannot be decoded.
    let mut reported = outline.before().runtimes.iter();
    let is_complete = !reported.any(|known| {
        context
            .cluster_state
            .is_undecoded_runtime(&known.namespace, &known.name)
    });
    unmark(&mut status.earlier, &chosen, is_judged, is_complete);
    let numbers: Vec<u32> = chosen.iter().map(|version| version.number).collect();
    context.memory.undelivered.forget_unchosen(outline.uid(), &numbers);
    for version in chosen {
        let is_there = |earlier: &EarlierRevision| earlier.upload_version == Some(version.number);
        if status.earlier.iter().any(is_there) {
            continue;
        }
        match made(context, watched, version).await? {
            Ok(revision) => {
                context.memory.undelivered.forget(outline.uid(), version.number);
                // The same content and settings may be known as a revision before the newest one.
                status.earlier.retain(|known| known.revision != revision.revision);
                status.earlier.push(revision);
            }
            Err(verdict) => report(context, outline, version, verdict).await,
        }
    }
    Ok(())
}

/// The versions that requirements choose.
fn choose<'a>(kept: &'a [KeptVersion], wanted: Vec<&str>) -> Vec<&'a KeptVersion> {
    let texts = kept
        .iter()
        .map(|version| version.version.as_deref().unwrap_or_default());
    let texts: Vec<&str> = texts.collect();
    let default = kept.iter().position(|version| version.is_default);
    let places = chosen_versions(&texts, default, wanted).into_iter();
    places.filter_map(|place| kept.get(place)).collect()
}

/// Makes revisions of versions that are not chosen any more revisions like others, and forgets those that are to be made again: an
/// activation was set over what the version asks for, or another version of the checks made them. Without a complete list of what is
/// chosen the others stay what they are, as far as there is room.
fn unmark(earlier: &mut Vec<EarlierRevision>, chosen: &[&KeptVersion], is_judged: bool, is_complete: bool) {
    let of = |known: &EarlierRevision| {
        let number = known.upload_version?;
        chosen.iter().find(|version| version.number == number)
    };
    earlier.retain(|known| {
        let Some(version) = of(known) else { return true };
        let activation: Option<ActivationWord> = version.activation.map(Into::into);
        is_judged && (activation.is_none() || activation == known.activation)
    });
    let mut room = if is_complete {
        0
    } else {
        STATUS_CHOSEN_MAX.saturating_sub(chosen.len())
    };
    for known in earlier.iter_mut().filter(|known| known.upload_version.is_some()) {
        if of(known).is_none() {
            match room.checked_sub(1) {
                Some(left) => room = left,
                None => known.upload_version = None,
            }
        }
    }
}

/// The object as it would be if a version were the default one. Ids with a version are those of other objects.
fn as_default(watched: &Skill, version: &KeptVersion) -> Skill {
    let mut skill = watched.clone();
    skill.spec.source = Source {
        upload: Some(version.source.clone()),
        ..Source::default()
    };
    skill.spec.version.clone_from(&version.version);
    skill.spec.activation = version.activation.map(|mode| Activation {
        mode: Some(mode.into()),
        tags: None,
    });
    if let Some(ids) = &mut skill.spec.ids {
        ids.retain(|id| !id.contains(':'));
    }
    skill
}

/// The revision of a version, with its ConfigMaps; or why there is none.
async fn made(
    context: &Context,
    watched: &Skill,
    version: &KeptVersion,
) -> Result<Result<EarlierRevision, Verdict>, ControllerError> {
    let namespace = watched.namespace().unwrap_or_default();
    // The room is held until the version is delivered.
    let ResolvedSource { files, room: _room } = match kept_files(context, &namespace, &version.source).await {
        Ok(resolved) => resolved,
        Err(Unresolved::Source(error)) => return Ok(Err(source_verdict(&error))),
        Err(Unresolved::Api(error)) => return Err(error),
    };
    let outline = Arc::new(Outline::of(&as_default(watched, version)));
    let name = format!("version {} of {}", version.number, watched.name_any());
    // Validation is CPU-bound, as for the default version.
    let judged = tokio::task::spawn_blocking(move || judge(outline, files))
        .await
        .map_err(|error| ControllerError::Stopped(format!("judging {name}: {error}")))?;
    let validated = match judged {
        Ok(validated) => validated,
        Err(verdict) => return Ok(Err(verdict)),
    };
    let delivery = match deliver(context, &validated).await {
        Ok(delivery) => delivery,
        Err(Undelivered::Verdict(verdict)) => return Ok(Err(verdict)),
        Err(Undelivered::Api(error)) => return Err(error),
    };
    if !delivery.replaced.is_empty() {
        let (outline, event) = (validated.outline(), replaced(&delivery.replaced));
        warn!(skill = outline.name(), namespace = outline.namespace(), message = %event.message, "ConfigMaps of a Skill were replaced");
        events::publish(&context.recorder, &outline.reference(), &event).await;
    }
    Ok(Ok(revision_of(&content(&validated, delivery.config_maps), version)))
}

/// A version as one of the revisions of a status, from the status that it would have as the default one.
fn revision_of(made: &SkillStatus, version: &KeptVersion) -> EarlierRevision {
    EarlierRevision {
        upload_version: Some(version.number),
        ..in_artifact(made).unwrap_or_default()
    }
}

/// Says why a version is not served where a pin chooses it.
async fn report(context: &Context, outline: &Outline, version: &KeptVersion, mut verdict: Verdict) {
    verdict.message = format!(
        "version {} of the upload, which a pin of a SkillRuntime chooses, is not served: {}",
        version.version.as_deref().unwrap_or_default(),
        verdict.message
    );
    // Every reconcile gets here, and the cause lasts until somebody corrects it.
    if !context
        .memory
        .undelivered
        .first_report(outline.uid(), version.number, &verdict.message)
    {
        return;
    }
    warn!(skill = outline.name(), namespace = outline.namespace(), message = %verdict.message, "a version of a Skill is not served");
    events::publish(&context.recorder, &outline.reference(), &verdict).await;
}

#[cfg(test)]
mod tests {
    use knack_api::skill::UploadSource;
    use knack_skill::model::ActivationMode;
    use serde_json::json;

    use super::*;

    fn version(number: u32, text: Option<&str>, activation: Option<ActivationMode>) -> KeptVersion {
        KeptVersion {
            number,
            version: text.map(str::to_owned),
            source: UploadSource {
                digest: format!("d{number}"),
                config_maps: vec![format!("word-upload-{number}")],
            },
            activation,
            is_default: number == 2,
        }
    }

    #[test]
    fn requirements_choose_among_the_versions_of_a_record() {
        let kept = [
            version(1, Some("1.0.0"), None),
            version(2, Some("2.0.0"), None),
            version(3, None, None),
            version(5, Some("1.1.0"), None),
        ];
        let chosen: Vec<u32> = choose(&kept, vec!["^1", "^2", "1.0.0"])
            .iter()
            .map(|version| version.number)
            .collect();
        assert_eq!(chosen, [5, 1]);
        assert!(choose(&[], vec!["^1"]).is_empty());
    }

    #[test]
    fn what_is_not_chosen_any_more_is_a_revision_like_others_and_what_changed_is_made_again() {
        let earlier: Vec<EarlierRevision> = serde_json::from_value(json!([
            {"revision": "held", "digest": "h"},
            {"revision": "one", "digest": "d1", "activation": "Listed", "uploadVersion": 1},
            {"revision": "gone", "digest": "d9", "uploadVersion": 9},
        ]))
        .unwrap();
        let auto = Some(ActivationMode::Auto);
        for (what, one, is_judged, is_complete, expected) in [
            ("chosen", None, true, true, "held- one1 gone-"),
            ("a mode was set", auto, true, true, "held- gone-"),
            ("other checks", None, false, true, "held- gone-"),
            ("a runtime cannot be decoded", None, true, false, "held- one1 gone9"),
        ] {
            let one = version(1, Some("1.0.0"), one);
            let mut known = earlier.clone();
            unmark(&mut known, &[&one], is_judged, is_complete);
            let shown = known.iter().map(|known| {
                let number = known
                    .upload_version
                    .map_or_else(|| "-".to_owned(), |number| number.to_string());
                format!("{}{number}", known.revision)
            });
            assert_eq!(shown.collect::<Vec<_>>().join(" "), expected, "{what}");
        }
    }

    #[test]
    fn a_version_is_made_as_the_default_one_would_be_without_the_ids_of_versions() {
        let skill: Skill = serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "word", "namespace": "n", "uid": "u"},
            "spec": {
                "source": {"upload": {"digest": "d2", "configMaps": ["word-upload-2"]}}, "version": "2.0.0",
                "ids": ["skill_knack_1", "litellm_skill_1", "skill_knack_1:2", "skill_knack_1:latest"],
            },
        }))
        .unwrap();
        let made = as_default(&skill, &version(1, Some("1.0.0"), Some(ActivationMode::Auto)));
        let expected = json!({
            "source": {"upload": {"digest": "d1", "configMaps": ["word-upload-1"]}}, "version": "1.0.0",
            "activation": {"mode": "Auto"}, "ids": ["skill_knack_1", "litellm_skill_1"],
        });
        assert_eq!(serde_json::to_value(&made.spec).unwrap(), expected);
        assert_eq!(made.metadata, skill.metadata);
        let bare = as_default(&skill, &version(3, None, None)).spec;
        assert_eq!((bare.version, bare.activation), (None, None));
    }
}
