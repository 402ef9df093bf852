//! Which pods the pool holds, how many of each, and what each may run. Pure.
//!
//! A pod's kind is what cannot be changed after its start: its interpreter, its environment, its image, and the packages of
//! that. Pods of the runtime's own image without granted values and packages are made from the beginning; the others are made
//! once a run has had one, and only for a while.

use std::time::Duration;

use knack_execution::{ExecutionRequest, Language, Program};
use knack_packages::environment::EnvironmentImage;

use super::pod_requirements::PodRequirements;
use crate::jobs::resolved_runtime::{EnvGrant, ResolvedRuntime};

/// How long after the last run with a set of values, an environment or a named image pods are kept ready for it: a pause in a conversation. Each holds a
/// Secret's values, so none is kept without use.
pub(super) const USED_LATELY: Duration = Duration::from_mins(5);
/// How long a pod with granted values may be kept: its values were read at its start, and a replaced Secret has to
/// reach runs as soon as it reaches mounted volumes (a kubelet checks each minute or two).
const GRANTED_MAX_IDLE: Duration = Duration::from_mins(2);

/// The properties in which the pods of the pool differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::jobs) struct PodKind {
    /// The interpreter that is started; none for declared tools, which start their own.
    pub(in crate::jobs) language: Option<Language>,
    /// Values from Secrets.
    pub(in crate::jobs) env: Vec<EnvGrant>,
    /// The environment of packages, and the image that has it.
    pub(in crate::jobs) packages: Option<EnvironmentImage>,
    /// An image that the runtime names, other than its own; of packages it is that of the environment.
    pub(in crate::jobs) image: Option<String>,
}

impl PodKind {
    /// A pod without granted values and packages.
    pub(in crate::jobs) const fn plain(language: Option<Language>) -> Self {
        Self {
            language,
            env: Vec::new(),
            packages: None,
            image: None,
        }
    }

    /// The kind of the pod that is wanted. An image that the runtime does not name makes no kind: such a pod goes cold.
    pub(in crate::jobs) fn of(requirements: &PodRequirements, resolved: &ResolvedRuntime) -> Self {
        let is_named = requirements.packages.is_none()
            && requirements.image != resolved.image
            && resolved.images.contains(&requirements.image);
        Self {
            language: requirements.language,
            env: requirements.env.clone(),
            packages: requirements.packages.clone(),
            image: is_named.then(|| requirements.image.clone()),
        }
    }

    /// Whether its pods are made once a run has had one, and kept ready for a while: they carry granted values or packages, or
    /// have an image that only some skills ask for.
    pub(super) fn is_on_demand(&self) -> bool {
        self.is_granted() || self.packages.is_some() || self.image.is_some()
    }

    /// The image of its pods.
    pub(in crate::jobs) fn image<'a>(&'a self, resolved: &'a ResolvedRuntime) -> &'a str {
        let of_packages = self.packages.as_ref().map(|packages| &packages.image);
        of_packages.or(self.image.as_ref()).unwrap_or(&resolved.image)
    }

    /// Whether its pods carry granted values.
    pub(super) fn is_granted(&self) -> bool {
        !self.env.is_empty()
    }

    /// Whether the runtime still names its image and grants everything that its pods carry, to any skill.
    pub(super) fn is_allowed(&self, resolved: &ResolvedRuntime) -> bool {
        let is_named = self.image.as_ref().is_none_or(|image| resolved.images.contains(image));
        is_named
            && self.env.iter().all(|held| {
                let is_same = |grant: &&EnvGrant| {
                    (&grant.name, &grant.secret, &grant.key) == (&held.name, &held.secret, &held.key)
                };
                resolved
                    .env
                    .iter()
                    .filter(is_same)
                    .any(|grant| !grant.skills.is_empty())
            })
    }

    /// How long one of its pods may be kept unused.
    pub(in crate::jobs) fn max_idle(&self, resolved: &ResolvedRuntime) -> Duration {
        if self.is_granted() {
            resolved.max_idle.min(GRANTED_MAX_IDLE)
        } else {
            resolved.max_idle
        }
    }
}

/// Pods held ready for each of some sets of granted values, environments and named images, of which the one used last comes first. `all`:
/// for all of them together.
pub(in crate::jobs) fn shares(replicas: usize, all: usize, sets: usize) -> Vec<usize> {
    // As many for one as for the other, so that two tools that take turns do not move pods to and fro.
    let each = all.checked_div(sets).unwrap_or_default().min(replicas);
    (0..sets).map(|rank| each.max(usize::from(rank < all))).collect()
}

impl PodRequirements {
    /// The pod that the runtime's pool holds.
    pub(in crate::jobs) fn of_pool(resolved: &ResolvedRuntime, kind: &PodKind) -> Self {
        Self {
            image: kind.image(resolved).to_owned(),
            resources: resolved.resources.clone(),
            env: kind.env.clone(),
            packages: kind.packages.clone(),
            language: kind.language,
        }
    }
}

/// Whether a pod that carries granted values may run a request: only a declared tool that asks for each of them, with exactly the
/// command line that its arguments make.
pub(in crate::jobs) fn may_run(env: &[EnvGrant], execution: &ExecutionRequest) -> bool {
    let Some(tool) = execution.tool.as_deref() else {
        return env.is_empty();
    };
    let is_declared = matches!(&execution.program, Program::Command { argv } if *argv == tool.argv);
    env.is_empty() || (is_declared && env.iter().all(|grant| tool.env.contains(&grant.name)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knack_skill::call::ToolRun;
    use knack_skill::model::SkillRef;
    use knack_skill::risk::Risk;

    use super::*;
    use crate::jobs::pods::spec::tests::resolved;
    use knack_execution::ExecutionId;

    fn grant(name: &str, secret: &str, skills: &[&str]) -> EnvGrant {
        EnvGrant {
            name: name.to_owned(),
            secret: secret.to_owned(),
            key: "key".to_owned(),
            skills: skills.iter().map(|skill| (*skill).to_owned()).collect(),
        }
    }

    #[test]
    fn pods_with_values_are_few_and_shared_evenly() {
        for (replicas, environments, sets, expected) in [
            (0, 4, 3, vec![0, 0, 0]),
            (2, 4, 0, vec![]),
            (1, 4, 1, vec![1]),
            (1, 4, 2, vec![1, 1]),
            (1, 4, 4, vec![1, 1, 1, 1]),
            (1, 2, 2, vec![1, 1]),
            (2, 4, 1, vec![2]),
            (2, 4, 2, vec![2, 2]),
            (2, 4, 3, vec![1, 1, 1]),
            (4, 4, 3, vec![2, 2, 2]),
            (10, 4, 4, vec![5, 5, 5, 5]),
            (2, 16, 16, vec![1; 16]),
            (2, 16, 3, vec![2, 2, 2]),
            (10, 16, 16, vec![1; 16]),
        ] {
            let resolved = ResolvedRuntime {
                warm_replicas: replicas,
                warm_environments: environments,
                ..resolved()
            };
            let all = resolved.most_on_demand();
            let found = shares(replicas, all, sets);
            assert_eq!(found, expected, "{replicas} for {sets} of {environments}");
            assert!(found.iter().sum::<usize>() <= all);
        }
        let none = ResolvedRuntime {
            warm_environments: 0,
            ..resolved()
        };
        assert_eq!(none.most_on_demand(), 0);
    }

    #[test]
    fn a_pod_whose_grant_was_taken_back_or_moved_is_of_no_use() {
        let held = PodKind {
            env: vec![grant("API_KEY", "weather", &[])],
            ..PodKind::default()
        };
        for (grants, is_allowed) in [
            (vec![grant("API_KEY", "weather", &["team/a"])], true),
            (
                vec![grant("API_KEY", "weather", &["team/b"]), grant("B", "b", &[])],
                true,
            ),
            (vec![grant("API_KEY", "weather", &[])], false),
            (vec![grant("API_KEY", "other", &["team/a"])], false),
            (vec![grant("OTHER", "weather", &["team/a"])], false),
            (vec![], false),
        ] {
            let resolved = ResolvedRuntime {
                env: grants,
                ..resolved()
            };
            assert_eq!(held.is_allowed(&resolved), is_allowed, "{:?}", resolved.env);
            assert!(PodKind::plain(Some(Language::Python)).is_allowed(&resolved));
        }
    }

    #[test]
    fn a_pod_with_values_is_kept_for_minutes() {
        let resolved = ResolvedRuntime {
            max_idle: Duration::from_mins(30),
            ..resolved()
        };
        let granted = PodKind {
            env: vec![grant("A", "a", &[])],
            ..PodKind::default()
        };
        assert_eq!(granted.max_idle(&resolved), GRANTED_MAX_IDLE);
        assert_eq!(PodKind::default().max_idle(&resolved), resolved.max_idle);
        let packages = PodKind {
            packages: Some(EnvironmentImage {
                image: "r.io/environments@sha256:1".to_owned(),
                home: "/opt/knack/packages/env-1".to_owned(),
            }),
            ..PodKind::default()
        };
        assert_eq!(packages.max_idle(&resolved), resolved.max_idle);
        assert!(packages.is_on_demand() && !packages.is_granted() && packages.is_allowed(&resolved));
        let requirements = PodRequirements::of_pool(&resolved, &packages);
        assert_eq!(requirements.image, "r.io/environments@sha256:1");
        assert_eq!(PodKind::of(&requirements, &resolved), packages);
    }

    #[test]
    fn a_named_image_has_pods_of_its_own_while_the_runtime_names_it() {
        let (office, other) = ("r.io/office@sha256:1", "r.io/other@sha256:1");
        let resolved = ResolvedRuntime {
            images: vec![office.to_owned()],
            ..resolved()
        };
        let requirements = |image: &str| PodRequirements {
            image: image.to_owned(),
            ..PodRequirements::of_pool(&resolved, &PodKind::plain(Some(Language::Python)))
        };
        for (image, is_pooled, is_on_demand) in [
            (&*resolved.image, true, false),
            (office, true, true),
            (other, false, false),
        ] {
            let requirements = requirements(image);
            let kind = PodKind::of(&requirements, &resolved);
            assert_eq!(
                requirements == PodRequirements::of_pool(&resolved, &kind),
                is_pooled,
                "{image}"
            );
            assert_eq!(kind.is_on_demand(), is_on_demand, "{image}");
            assert!(kind.is_allowed(&resolved) && kind.max_idle(&resolved) == resolved.max_idle);
        }
        let kind = PodKind::of(&requirements(office), &resolved);
        let renamed = ResolvedRuntime {
            images: vec![other.to_owned()],
            ..resolved.clone()
        };
        assert!(!kind.is_allowed(&renamed));
        // It is the runtime's own by now.
        let own = ResolvedRuntime {
            image: office.to_owned(),
            ..resolved.clone()
        };
        assert!(!PodKind::of(&requirements(office), &own).is_on_demand());
    }

    #[test]
    fn what_carries_values_runs_the_declared_tool_that_asks_for_them_and_nothing_else() {
        let argv = |words: &[&str]| Program::Command {
            argv: words.iter().map(|word| (*word).to_owned()).collect(),
        };
        let tool = |env: &[&str]| ToolRun {
            skill: SkillRef {
                namespace: "team".to_owned(),
                name: "weather".to_owned(),
            },
            tool: "fetch".to_owned(),
            arguments: serde_json::Map::new(),
            argv: vec!["python3".to_owned(), "fetch.py".to_owned()],
            env: env.iter().map(|name| (*name).to_owned()).collect(),
            is_open: false,
            risk: Risk::Safe,
            config: Vec::new(),
        };
        let declared = || argv(&["python3", "fetch.py"]);
        let code = Program::Code {
            language: Language::Python,
            source: "import os; print(os.environ)".to_owned(),
        };
        let values = [grant("API_KEY", "weather", &[])];
        for (what, env, program, tool, expected) in [
            ("the tool", &values[..], declared(), Some(tool(&["API_KEY"])), true),
            (
                "a tool of more names",
                &values[..],
                declared(),
                Some(tool(&["A", "API_KEY"])),
                true,
            ),
            (
                "a tool that does not ask",
                &values[..],
                declared(),
                Some(tool(&[])),
                false,
            ),
            (
                "a tool of another name",
                &values[..],
                declared(),
                Some(tool(&["B"])),
                false,
            ),
            (
                "another command line",
                &values[..],
                argv(&["python3", "-c", "1"]),
                Some(tool(&["API_KEY"])),
                false,
            ),
            (
                "code under a tool's name",
                &values[..],
                code.clone(),
                Some(tool(&["API_KEY"])),
                false,
            ),
            ("code", &values[..], code.clone(), None, false),
            ("a command", &values[..], declared(), None, false),
            ("code without values", &[], code, None, true),
            ("a command without values", &[], declared(), None, true),
            ("a tool without values", &[], declared(), Some(tool(&["API_KEY"])), true),
        ] {
            let id = ExecutionId::new(Duration::from_secs(1), "test", 0, what);
            let execution = ExecutionRequest {
                tool: tool.map(Arc::new),
                ..ExecutionRequest::new(id, "caller", program)
            };
            assert_eq!(may_run(env, &execution), expected, "{what}");
        }
    }
}
