//! What became of a write whose call failed. The API server may have done it all the same: the answer of a commit gets lost,
//! and a repeat, which kube makes by itself after a 504, is refused for the write that it repeats.

use knack_api::Skill;
use kube::ResourceExt as _;

use super::failure::{is_missing, is_refusal};
use super::objects::UploadedSkill;
use super::registry_object::RegistryObject;
use super::skills::Skills;
use crate::api_call::CallError;

/// What became of the write of a Skill.
pub(super) enum WriteOutcome {
    /// It was done; the object as it is now.
    Done(Box<Skill>),
    /// It was refused, and the object, if there is one, does not show it: what was made for it can be deleted.
    Refused(CallError, Option<Box<RegistryObject>>),
    /// It may still be done: what was made for it must stay. The sweep deletes it if no entry comes to name it.
    Unknown(CallError),
}

impl WriteOutcome {
    /// Reads the object again. `is_mine` says whether an entry shows the write.
    pub(super) async fn of(
        skills: &Skills,
        name: &str,
        error: CallError,
        is_mine: impl FnOnce(&UploadedSkill) -> bool,
    ) -> Self {
        let there = match skills.get(name).await {
            Ok(there) => Some(there),
            Err(missing) if is_missing(&missing) => None,
            Err(unread) => {
                tracing::warn!(error = %unread, "could not determine whether the skill was written");
                return Self::Unknown(error);
            }
        };
        match there {
            Some(there) if UploadedSkill::of(&there).is_some_and(|uploaded| is_mine(&uploaded)) => {
                Self::Done(Box::new(there))
            }
            there if is_refusal(&error) => {
                Self::Refused(error, there.as_ref().and_then(RegistryObject::of).map(Box::new))
            }
            _ => Self::Unknown(error),
        }
    }
}

/// Whether an object is not there any more, or another one has its name.
pub(super) async fn is_gone(skills: &Skills, object: &Skill) -> bool {
    match skills.get(&object.name_any()).await {
        Ok(there) => there.uid() != object.uid(),
        Err(error) => is_missing(&error),
    }
}
