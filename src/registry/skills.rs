//! Calls about Skill objects of one namespace.

use std::collections::{BTreeMap, BTreeSet};

use knack_api::{Skill, SkillSpec};
use knack_vocabulary::{ANNOTATION_UPLOAD, ANNOTATION_UPLOADED_BY, LABEL_UPLOAD_OF};
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};

use super::content::post;
use super::failure::{FirstFailure, is_conflict, is_missing};
use super::objects::{NAMES_TRIED, Objects, UploadedSkill, label, owner, version_name, version_object, version_of};
use crate::api_call::{CallError, call};

/// How often the object of a version is written against writes of its status, of which a change brings one or two.
const WRITES_TRIED: u32 = 5;

/// What is written to the object of a version.
#[derive(Clone, Copy)]
enum VersionWrite<'a> {
    Spec(&'a SkillSpec),
    Delete,
}

/// The Skills of a namespace.
#[derive(Clone)]
pub(super) struct Skills {
    api: Api<Skill>,
    namespace: String,
}

impl Skills {
    pub(super) fn of(client: &Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
        }
    }

    fn what(&self, verb: &str, name: &str) -> String {
        format!("{verb} Skill {}/{name}", self.namespace)
    }

    /// One, as it is now.
    pub(super) async fn get(&self, name: &str) -> Result<Skill, CallError> {
        call(|| self.what("get", name), self.api.get(name)).await
    }

    /// The objects of the versions of a skill.
    pub(super) async fn versions(&self, name: &str) -> Result<Vec<Skill>, CallError> {
        let params = ListParams::default().labels(&format!("{LABEL_UPLOAD_OF}={name}"));
        let listed = call(|| self.what("list versions of", name), self.api.list(&params)).await?;
        // The skill itself is one of its versions, too.
        let others = listed.items.into_iter();
        Ok(others.filter(|object| version_of(&object.metadata).is_some()).collect())
    }

    /// Makes the object of a skill.
    pub(super) async fn create_main(&self, name: &str, objects: Objects, by: &str) -> Result<Skill, CallError> {
        let mut skill = Skill::new(name, objects.main);
        label(&mut skill.metadata, name, objects.number);
        skill.metadata.annotations = Some(BTreeMap::from([
            (ANNOTATION_UPLOAD.to_owned(), objects.annotation),
            (ANNOTATION_UPLOADED_BY.to_owned(), by.to_owned()),
        ]));
        call(|| self.what("create", name), self.api.create(&post(), &skill)).await
    }

    /// Writes a skill over the state that was read. Error 409: it has changed since.
    pub(super) async fn replace_main(&self, main: &Skill, objects: &Objects, by: &str) -> Result<Skill, CallError> {
        let mut skill = main.clone();
        skill.spec = objects.main.clone();
        label(&mut skill.metadata, &main.name_any(), objects.number);
        let annotations = skill.annotations_mut();
        annotations.insert(ANNOTATION_UPLOAD.to_owned(), objects.annotation.clone());
        annotations.insert(ANNOTATION_UPLOADED_BY.to_owned(), by.to_owned());
        self.replace(skill).await
    }

    async fn replace(&self, mut skill: Skill) -> Result<Skill, CallError> {
        skill.metadata.managed_fields = None;
        let name = skill.name_any();
        call(|| self.what("update", &name), self.api.replace(&name, &post(), &skill)).await
    }

    /// Deletes an object in the state that was read. Error 409: it has changed since.
    pub(super) async fn delete(&self, skill: &Skill) -> Result<(), CallError> {
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: skill.uid(),
            resource_version: skill.resource_version(),
        });
        let name = skill.name_any();
        call(|| self.what("delete", &name), self.api.delete(&name, &params)).await?;
        Ok(())
    }

    /// Before the commit: objects of versions that are not objects of their own yet. What an upload that never came to its
    /// commit has left under such a number is replaced.
    pub(super) async fn bring_before(
        &self,
        main: &Skill,
        before: &UploadedSkill,
        objects: &Objects,
        beside: &[Skill],
    ) -> Result<(), CallError> {
        for (number, spec) in &objects.versions {
            let was_version = before.entry.version(*number).is_some() && before.entry.default != Some(*number);
            if !was_version || !beside.iter().any(|object| is_version(object, main, *number)) {
                self.bring_one(main, *number, spec, beside).await?;
            }
        }
        Ok(())
    }

    /// Makes the other objects of a skill match its entry: creates the missing objects of its other versions, and deletes those of
    /// the rest for which `is_over` (by object and number) is true. Objects that another change has just created for its commit
    /// must stay. Error: the first of those that failed.
    pub(super) async fn bring(
        &self,
        main: &Skill,
        uploaded: &UploadedSkill,
        is_over: impl Fn(&Skill, Option<u32>) -> bool,
    ) -> Result<(), CallError> {
        // An entry that is too large was never written.
        let Ok(objects) = uploaded.objects() else { return Ok(()) };
        let beside = self.versions(&main.name_any()).await?;
        let mut failed = FirstFailure::default();
        for (number, spec) in &objects.versions {
            failed.note(self.bring_one(main, *number, spec, &beside).await);
        }
        let mut known = BTreeSet::new();
        for object in &beside {
            let number = version_of(&object.metadata).map(|(_, number)| number);
            let is_wanted = number.is_some_and(|number| objects.versions.contains_key(&number) && known.insert(number));
            if !is_wanted && is_owned(object, main) && is_over(object, number) {
                failed.note(self.write_version(object, VersionWrite::Delete).await);
            }
        }
        failed.done()
    }

    async fn bring_one(&self, main: &Skill, number: u32, spec: &SkillSpec, beside: &[Skill]) -> Result<(), CallError> {
        if let Some(there) = beside.iter().find(|object| is_version(object, main, number)) {
            if there.spec == *spec {
                return Ok(());
            }
            return self.write_version(there, VersionWrite::Spec(spec)).await;
        }
        let mut last = None;
        for attempt in 0..NAMES_TRIED {
            let name = version_name(&main.name_any(), number, attempt);
            let object = version_object(main, number, &name, spec.clone());
            match call(|| self.what("create", &name), self.api.create(&post(), &object)).await {
                Err(error) if is_conflict(&error) => match self.get(&name).await {
                    // Another writer has just made it.
                    Ok(there) if is_version(&there, main, number) => {
                        return self.write_version(&there, VersionWrite::Spec(spec)).await;
                    }
                    _ => last = Some(error),
                },
                done => return done.map(|_| ()),
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// Writes the object of a version, again if only its status has changed meanwhile: the controller writes that of each version
    /// whose ids another object has too, which is so in the middle of a change. If anything else has changed or the object is gone,
    /// another writer brings it to the same.
    async fn write_version(&self, read: &Skill, write: VersionWrite<'_>) -> Result<(), CallError> {
        let mut object = read.clone();
        let mut tried = 1;
        loop {
            let done = match write {
                VersionWrite::Spec(spec) => {
                    object.spec = spec.clone();
                    self.replace(object).await.map(|_| ())
                }
                VersionWrite::Delete => self.delete(&object).await,
            };
            let error = match done {
                Err(error) if is_missing(&error) => return Ok(()),
                Err(error) if is_conflict(&error) => error,
                done => return done,
            };
            object = match self.get(&read.name_any()).await {
                Err(error) if is_missing(&error) => return Ok(()),
                found => found?,
            };
            if !differs_in_status_only(&object, read) {
                return Ok(());
            }
            if tried == WRITES_TRIED {
                return Err(error);
            }
            tried += 1;
        }
    }
}

fn differs_in_status_only(now: &Skill, before: &Skill) -> bool {
    let (own, others) = (&now.metadata, &before.metadata);
    now.spec == before.spec
        && own.uid == others.uid
        && own.labels == others.labels
        && own.owner_references == others.owner_references
}

/// Whether an object is this version of this skill, and not of one of its name that was there before.
fn is_version(object: &Skill, main: &Skill, number: u32) -> bool {
    version_of(&object.metadata) == Some((main.name_any(), number)) && is_owned(object, main)
}

fn is_owned(object: &Skill, main: &Skill) -> bool {
    let owners = object.metadata.owner_references.iter().flatten();
    let uid = owner(main).uid;
    { owners }.any(|owner| owner.uid == uid)
}
