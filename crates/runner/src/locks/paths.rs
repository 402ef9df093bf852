//! The Landlock rules of a run.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::ABI_SCOPES;
use crate::protocol::LandlockState;

/// The paths that the run may access.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathRules {
    /// Read files and list directories.
    pub(crate) read: Vec<PathBuf>,
    /// Read and execute.
    pub(crate) execute: Vec<PathBuf>,
    /// Read, write, create and remove; no execute, no devices, no sockets.
    pub(crate) write: Vec<PathBuf>,
}

/// The rights that the runner asks for, with an ABI of at most this number.
///
/// Those of ABI 6 (Linux 6.12) are all: ABI 7 and 8 add no right. ABI 9 adds one for unix sockets, which are out of reach
/// here already (no `socket`, no `connect`), and asking for it would report every kernel of today as partially enforced.
const fn asked(newest: u32) -> Option<ABI> {
    match newest {
        0 => None,
        1 => Some(ABI::V1),
        2 => Some(ABI::V2),
        3 => Some(ABI::V3),
        4 => Some(ABI::V4),
        5 => Some(ABI::V5),
        _ => Some(ABI::V6),
    }
}

/// Opens every path and builds the ruleset; paths that do not exist are passed over. `None` where no Landlock is to be
/// used.
///
/// Runs in the parent, which can report an error in full.
pub(crate) fn prepare(rules: &PathRules, newest: u32) -> Result<Option<RulesetCreated>, String> {
    let Some(abi) = asked(newest) else { return Ok(None) };
    let execute = AccessFs::from_read(abi);
    let read = execute & !BitFlags::from(AccessFs::Execute);
    let not_for_runs =
        AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::IoctlDev;
    let write = AccessFs::from_all(abi) & !not_for_runs;
    let build = || -> Result<RulesetCreated, RulesetError> {
        let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(abi))?;
        // An empty set of rights is an error of its own.
        if !AccessNet::from_all(abi).is_empty() {
            ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
        }
        if !Scope::from_all(abi).is_empty() {
            ruleset = ruleset.scope(Scope::from_all(abi))?;
        }
        ruleset
            .create()?
            .add_rules(path_beneath_rules(&rules.read, read))?
            .add_rules(path_beneath_rules(&rules.execute, execute))?
            .add_rules(path_beneath_rules(&rules.write, write))
    };
    build().map(Some).map_err(|error| format!("Landlock rules: {error}"))
}

/// The state of Landlock in a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LandlockReached {
    /// How much of what was asked for holds.
    pub(crate) state: LandlockState,
    /// The ABI in use; 0: none.
    pub(crate) abi: u32,
}

impl LandlockReached {
    /// No Landlock.
    pub(super) const NONE: Self = Self {
        state: LandlockState::NotEnforced,
        abi: 0,
    };

    /// The state that `restrict_self` reached, with an ABI of at most `newest`.
    pub(super) fn of(status: &RestrictionStatus, newest: u32) -> Self {
        let abi = match status.landlock {
            LandlockStatus::Available { effective_abi, .. } => (effective_abi as u32).min(newest),
            LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
        };
        let state = match status.ruleset {
            // With an older ABI less was asked for, so "fully" is not all.
            RulesetStatus::FullyEnforced if abi < ABI_SCOPES => LandlockState::PartiallyEnforced,
            RulesetStatus::FullyEnforced => LandlockState::FullyEnforced,
            RulesetStatus::PartiallyEnforced => LandlockState::PartiallyEnforced,
            RulesetStatus::NotEnforced => LandlockState::NotEnforced,
        };
        Self { state, abi }
    }
}
