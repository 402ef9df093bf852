//! The Landlock rules of a run.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};

use crate::protocol::{LandlockState, Locks};

/// The rights the runner asks for: those of ABI 6 (Linux 6.12).
///
/// ABI 7 and 8 add no right. ABI 9 adds one for unix sockets, which are out of reach here already (no `socket`, no
/// `connect`), and asking for it would report every kernel of today as partially enforced.
const ASKED: ABI = ABI::V6;

/// What the run may touch.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathRules {
    /// Read files and list directories.
    pub(crate) read: Vec<PathBuf>,
    /// Read and execute.
    pub(crate) execute: Vec<PathBuf>,
    /// Read, write, create and remove; no execute, no devices, no sockets.
    pub(crate) write: Vec<PathBuf>,
}

/// Opens every path and builds the ruleset; paths that do not exist are passed over.
///
/// Runs in the parent, where an error can be told plainly.
pub(crate) fn prepare(rules: &PathRules) -> Result<RulesetCreated, String> {
    let execute = AccessFs::from_read(ASKED);
    let read = execute & !BitFlags::from(AccessFs::Execute);
    let not_for_runs =
        AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::IoctlDev;
    let write = AccessFs::from_all(ASKED) & !not_for_runs;
    let build = || -> Result<RulesetCreated, landlock::RulesetError> {
        Ruleset::default()
            .handle_access(AccessFs::from_all(ASKED))?
            .handle_access(AccessNet::from_all(ASKED))?
            .scope(Scope::from_all(ASKED))?
            .create()?
            .add_rules(path_beneath_rules(&rules.read, read))?
            .add_rules(path_beneath_rules(&rules.execute, execute))?
            .add_rules(path_beneath_rules(&rules.write, write))
    };
    build().map_err(|error| format!("Landlock rules: {error}"))
}

/// Tells what `restrict_self` reached.
pub(crate) fn report(status: &RestrictionStatus) -> Locks {
    let landlock_abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
    };
    let landlock = match status.ruleset {
        RulesetStatus::FullyEnforced => LandlockState::FullyEnforced,
        RulesetStatus::PartiallyEnforced => LandlockState::PartiallyEnforced,
        RulesetStatus::NotEnforced => LandlockState::NotEnforced,
    };
    Locks {
        seccomp: true,
        landlock,
        landlock_abi,
    }
}
