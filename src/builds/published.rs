//! What this process writes: the ConfigMap of statuses for controller and hub, and the Role that says what the hub may run.
//!
//! Both may hold a megabyte, so that no reconcile reads them: watches report what others change.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use knack_packages::EnvironmentStatuses;
use knack_vocabulary::{
    CONFIG_MAP_PACKAGES, FIELD_MANAGER_PACKAGES, GROUP, RESOURCE_ENVIRONMENTS, ROLE_ENVIRONMENTS, VERB_USE,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::admitted_image::AdmittedImages;
use crate::api_call::{CallError, call};
use crate::environments::{PACKAGES_WAIT, follow_one};
use crate::tasks::Tasks;

/// The lines of the ConfigMap.
pub(super) type Lines = BTreeMap<String, String>;

/// The rules of the Role.
pub(super) type Rules = Vec<PolicyRule>;

/// What the ConfigMap says: a line for each status, and one for each image that the hub may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PublishedStatuses {
    /// The statuses of environments.
    pub(super) statuses: EnvironmentStatuses,
    /// The images that the hub may run.
    pub(super) admitted: AdmittedImages,
}

impl PublishedStatuses {
    /// Reads what an earlier process wrote; lines that cannot be read are skipped.
    pub(super) fn read(lines: Option<&Lines>) -> Self {
        let images = lines.into_iter().flatten();
        let images = images.filter_map(|(line, value)| Some((line.parse().ok()?, value.parse().ok()?)));
        Self {
            statuses: EnvironmentStatuses::read(lines.into_iter().flatten()),
            admitted: images.collect(),
        }
    }

    fn lines(&self) -> Lines {
        let images = self.admitted.iter();
        let mut lines = self.statuses.lines();
        lines.extend(images.map(|(image, admission)| (image.to_string(), admission.to_string())));
        lines
    }
}

/// The rules of the Role: the hub may `use` these images. A rule without names would be one for all of them, so without an
/// image there is none.
pub(super) fn rules(images: &AdmittedImages) -> Rules {
    let mut names: Vec<String> = images.keys().map(ToString::to_string).collect();
    if names.is_empty() {
        return Vec::new();
    }
    // In the order of the ConfigMap's lines, which is not that of namespaces and names.
    names.sort();
    vec![PolicyRule {
        api_groups: Some(vec![GROUP.to_owned()]),
        resources: Some(vec![RESOURCE_ENVIRONMENTS.to_owned()]),
        resource_names: Some(names),
        verbs: vec![VERB_USE.to_owned()],
        ..PolicyRule::default()
    }]
}

/// What stands of an object. The inner `None`: there is no such object; the outer one: it was not listed yet.
pub(super) type Known<T> = Option<Arc<Option<T>>>;

/// What stands of an object, once it was listed.
#[derive(Debug)]
struct Standing<T>(watch::Sender<Known<T>>);

impl<T> Default for Standing<T> {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl<T: PartialEq> Standing<T> {
    /// What stands. `None`: it was not listed yet.
    fn get(&self) -> Known<T> {
        self.0.borrow().clone()
    }

    /// Takes what the watch delivers, and wakes who waits for changes if it is new.
    fn set(&self, now: Option<T>) {
        self.0.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&now);
            if is_new {
                *known = Some(Arc::new(now));
            }
            is_new
        });
    }

    /// Takes the answer to a write of this process, which the watch delivers a moment later.
    fn wrote(&self, now: T) {
        self.0.send_if_modified(|known| {
            *known = Some(Arc::new(Some(now)));
            false
        });
    }

    /// Follows what others change.
    fn changes(&self) -> watch::Receiver<Known<T>> {
        self.0.subscribe()
    }
}

/// An object, and what stands of it.
#[derive(Debug)]
struct Written<K, T> {
    api: Api<K>,
    standing: Arc<Standing<T>>,
}

/// The two objects.
#[derive(Debug)]
pub(super) struct Published {
    statuses: Written<ConfigMap, Lines>,
    role: Written<Role, Rules>,
}

impl Published {
    /// What is published in the namespace of the release.
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        Self {
            statuses: Written {
                api: Api::namespaced(client.clone(), namespace),
                standing: Arc::default(),
            },
            role: Written {
                api: Api::namespaced(client.clone(), namespace),
                standing: Arc::default(),
            },
        }
    }

    /// Starts to follow them.
    pub(super) fn follow(&self, watches: &mut Tasks) {
        let (api, standing) = (self.statuses.api.clone(), Arc::clone(&self.statuses.standing));
        let take = move |found: Option<ConfigMap>| standing.set(found.map(|found| found.data.unwrap_or_default()));
        watches.spawn(
            "watch of the statuses",
            follow_one(api, CONFIG_MAP_PACKAGES, PACKAGES_WAIT, take),
        );
        let (api, standing) = (self.role.api.clone(), Arc::clone(&self.role.standing));
        let take = move |found: Option<Role>| standing.set(found.map(|found| found.rules.unwrap_or_default()));
        watches.spawn(
            "watch of the Role",
            follow_one(api, ROLE_ENVIRONMENTS, PACKAGES_WAIT, take),
        );
    }

    /// Follows what others change of them.
    pub(super) fn changes(&self) -> (watch::Receiver<Known<Lines>>, watch::Receiver<Known<Rules>>) {
        (self.statuses.standing.changes(), self.role.standing.changes())
    }

    /// The lines that the ConfigMap has. `None`: they were not listed yet.
    pub(super) fn lines(&self) -> Known<Lines> {
        self.statuses.standing.get()
    }

    /// The rules that the Role has. `None`: they were not listed yet.
    pub(super) fn rules(&self) -> Known<Rules> {
        self.role.standing.get()
    }

    /// Lets the hub run these images, unless the Role is so already.
    pub(super) async fn admit(&self, images: &AdmittedImages) -> Result<(), CallError> {
        let rules = rules(images);
        if is_standing(&self.role.standing, &rules) {
            return Ok(());
        }
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": ROLE_ENVIRONMENTS},
            "rules": rules,
        });
        let applied = apply(&self.role.api, "Role", &object).await?;
        self.role.standing.wrote(applied.rules.unwrap_or_default());
        Ok(())
    }

    /// Writes the statuses for controller and hub, unless they are already written.
    pub(super) async fn write_statuses(&self, statuses: &PublishedStatuses) -> Result<(), CallError> {
        let lines = statuses.lines();
        if is_standing(&self.statuses.standing, &lines) {
            return Ok(());
        }
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP_PACKAGES},
            "data": lines,
        });
        let mut written = apply(&self.statuses.api, "ConfigMap", &object).await?;
        // An apply leaves what others have added, which would count as statuses.
        let added = written.data.iter().flatten();
        let removals: BTreeMap<&String, Option<String>> = added
            .filter(|(key, _)| !lines.contains_key(*key))
            .map(|(key, _)| (key, None))
            .collect();
        if !removals.is_empty() {
            let object = Patch::Merge(json!({"data": removals}));
            let what = || format!("patch ConfigMap {CONFIG_MAP_PACKAGES}");
            let manager = PatchParams {
                field_manager: Some(FIELD_MANAGER_PACKAGES.to_owned()),
                ..PatchParams::default()
            };
            let patched = self.statuses.api.patch(CONFIG_MAP_PACKAGES, &manager, &object);
            written = call(what, patched).await?;
        }
        self.statuses.standing.wrote(written.data.unwrap_or_default());
        Ok(())
    }

    /// Sets what the watches of a cluster would list.
    #[cfg(test)]
    pub(super) fn set_listed(&self, lines: Option<Lines>, rules: Option<Rules>) {
        self.statuses.standing.set(lines);
        self.role.standing.set(rules);
    }
}

fn is_standing<T: PartialEq>(standing: &Standing<T>, wanted: &T) -> bool {
    standing.get().as_deref().and_then(Option::as_ref) == Some(wanted)
}

/// Applies an object as given and overwrites changes by others.
async fn apply<K>(api: &Api<K>, kind: &str, object: &Value) -> Result<K, CallError>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let manager = PatchParams::apply(FIELD_MANAGER_PACKAGES).force();
    let object = Patch::Apply(object);
    let applied = api.patch(name, &manager, &object);
    call(|| format!("apply {kind} {name}"), applied).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_config_map_are_read_as_they_are_written() {
        let key = "0123456789abcdef0123456789abcdef";
        let lines = Lines::from(
            [
                (key, r#"{"state":"NoWheel","message":"m","since":1,"used":2}"#),
                ("a-b_main_0", "mark"),
                ("a_main_0", "mark 17"),
            ]
            .map(|(line, value)| (line.to_owned(), value.to_owned())),
        );
        let read = PublishedStatuses::read(Some(&lines));
        assert_eq!((read.statuses.0.len(), read.admitted.len()), (1, 2));
        assert_eq!(read.lines(), lines);
        let mut with_others = lines.clone();
        with_others.extend([("n_x".to_owned(), "{}".to_owned()), ("0123".to_owned(), String::new())]);
        assert_eq!(PublishedStatuses::read(Some(&with_others)), read);
        assert_eq!(PublishedStatuses::read(None), PublishedStatuses::default());
    }

    #[test]
    fn the_role_names_every_image_in_the_order_of_their_lines_and_never_all_of_them() {
        let image = |name: &str| (name.parse().unwrap(), "".parse().unwrap());
        assert_eq!(rules(&AdmittedImages::new()), []);
        let names = ["a-b_main_x", "a_main_x", "b_main_x"];
        let rules = rules(&names.map(image).into());
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].resource_names, Some(names.map(str::to_owned).to_vec()));
    }

    #[test]
    fn what_others_change_wakes_and_what_was_written_here_does_not() {
        let standing = Standing::<u8>::default();
        let mut changes = standing.changes();
        let mut woken = || {
            let is_woken = changes.has_changed().unwrap();
            changes.mark_unchanged();
            is_woken
        };
        assert_eq!(standing.get(), None, "not listed");
        standing.set(None);
        assert!(woken() && standing.get().as_deref() == Some(&None));
        standing.wrote(7);
        assert!(!woken() && standing.get().as_deref() == Some(&Some(7)));
        standing.set(Some(7));
        assert!(!woken(), "the watch delivers it");
        standing.set(Some(8));
        assert!(woken() && standing.get().as_deref() == Some(&Some(8)));
        standing.set(None);
        assert!(woken() && standing.get().as_deref() == Some(&None), "deleted");
    }
}
