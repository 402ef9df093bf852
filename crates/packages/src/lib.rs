//! Packages of skills, as values: declarations of a skill, imports of its scripts, and keys of environments.
//!
//! ```text
//! files of a skill ─▶ declare ─▶ Declaration (source, requirements, lock) ─▶ a builder: lock, install, key
//!                        └─▶ refusals: what cannot be declared, with file and line
//! scripts ─▶ imports ─▶ findings: imported, but neither standard, nor of the skill, nor declared
//! ```
//!
//! Nothing here reads a clock, a file or a network; nothing of a package or of a skill is executed.

mod declaration;
pub mod declare;
mod declared_lock;
pub mod environment;
pub mod finding;
pub mod findings;
#[cfg(test)]
mod fixture;
mod frontmatter;
pub mod given;
pub mod imports;
pub mod key;
pub mod lock;
pub mod marker;
mod moment;
pub mod name;
pub mod node;
mod other_locks;
pub mod programs;
mod provider;
pub mod pylock;
pub mod requirement;
pub mod requirements_txt;
pub mod rules;
pub mod script;
pub mod standard;
pub mod state;
mod uv_lock;
mod version;
pub mod version_clause;

pub use declaration::{Declaration, Source};
pub use declare::{declare, stated};
pub use environment::{EnvironmentKey, EnvironmentStatus, EnvironmentStatuses, Request};
pub use finding::{Finding, FindingKind};
pub use findings::findings;
pub use lock::Lock;
pub use node::NodeDeclaration;
pub use requirement::Requirement;
pub use rules::Rules;
pub use state::State;

/// Requirements of one skill, packages of one environment. Both are limits of what a person reviews; the largest public
/// skill declares ten and resolves to forty.
pub const MAX_PACKAGES: usize = 200;
