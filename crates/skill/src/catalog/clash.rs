//! What skills ask for and do not get.

use std::fmt;

use crate::model::SkillRef;
use crate::risk::Risk;

/// One clash and how it was settled. Nothing is dropped silently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clash {
    /// Several namespaces have a skill of this name: models see `namespace/name` for each except the one that gets the
    /// bare name.
    Name {
        /// The name.
        name: String,
        /// The skills that have it, sorted by namespace.
        skills: Vec<SkillRef>,
    },
    /// A skill was given twice; the first is served.
    Twice(SkillRef),
    /// Several skills carry this id, or one carries what is the name of another: the id names none of them.
    Id {
        /// The id.
        id: String,
        /// The skills that carry it, sorted by name, then namespace.
        skills: Vec<SkillRef>,
    },
    /// A tool's wire name was taken by another or by a generic tool, so it got a hashed one.
    Tool {
        /// The skill that had to yield.
        skill: SkillRef,
        /// The name of its tool.
        tool: String,
        /// The name that the model sees instead.
        wire_name: String,
    },
    /// A tool's risk is above the runtime's limit, so it is neither offered nor run.
    Risk {
        /// The skill.
        skill: SkillRef,
        /// The name of its tool.
        tool: String,
        /// The tool's level.
        risk: Risk,
        /// The limit.
        max_risk: Risk,
    },
    /// Values of a tool's configuration are missing or do not fit, so it is neither offered nor run.
    Config {
        /// The skill.
        skill: SkillRef,
        /// The name of its tool.
        tool: String,
        /// What is missing or does not fit, without values.
        why: String,
    },
    /// Values are given that none of the skill's tools declares.
    ConfigUnknown {
        /// The skill.
        skill: SkillRef,
        /// The names of the values.
        names: Vec<String>,
    },
    /// Secrets are given in plain text.
    ConfigPlain {
        /// The skill.
        skill: SkillRef,
        /// The names of the values.
        names: Vec<String>,
    },
    /// Values are in Secrets, which there are only on a cluster: the calls of tools that need them fail.
    ConfigElsewhere {
        /// The skill.
        skill: SkillRef,
        /// The names of the values.
        names: Vec<String>,
    },
}

fn all(skills: &[SkillRef]) -> String {
    skills.iter().map(SkillRef::to_string).collect::<Vec<_>>().join(", ")
}

/// Says how the values of Secrets are given without a cluster.
fn elsewhere(skill: &str, names: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = names.first().map_or("", String::as_str);
    write!(
        f,
        "the configuration {} of skill {skill} is taken from Secrets, which exist only on a cluster: calls that need it fail; give it with --set-env {skill}.{name}=VARIABLE, or --set",
        names.join(", ")
    )
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name, skills } => {
                write!(f, "several skills are named \"{name}\": models see {}", all(skills))
            }
            Self::Id { id, skills } => write!(
                f,
                "the id \"{id}\" of {} is taken by another skill; requests cannot name a skill by it",
                all(skills)
            ),
            Self::Twice(skill) => {
                write!(
                    f,
                    "skill {skill} is defined twice; the first one is served; remove the other"
                )
            }
            Self::Tool { skill, tool, wire_name } => write!(
                f,
                "tool \"{tool}\" of skill {skill} is called {wire_name}, because its plain name is taken or too long"
            ),
            Self::Config { skill, tool, why } => write!(
                f,
                "tool \"{tool}\" of skill {skill} is not offered: in its configuration, {why}; give values in config of the skill's pin, or with --set"
            ),
            Self::ConfigUnknown { skill, names } => write!(
                f,
                "no tool of skill {skill} declares the configuration {}; it has no effect, correct its name",
                names.join(", ")
            ),
            Self::ConfigPlain { skill, names } => write!(
                f,
                "the configuration {} of skill {skill} is a secret and is given in plain text; \
                 give it by valueFrom.secretKeyRef on a cluster, and with --set-env here",
                names.join(", ")
            ),
            Self::ConfigElsewhere { skill, names } => elsewhere(&skill.word(), names, f),
            Self::Risk {
                skill,
                tool,
                risk,
                max_risk,
            } => write!(
                f,
                "tool \"{tool}\" of skill {skill} is not offered: its risk is {}, and the runtime runs tools up to {}; \
                 raise spec.maxRisk, or leave the tool out",
                risk.as_str(),
                max_risk.as_str()
            ),
        }
    }
}
