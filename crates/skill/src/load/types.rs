//! What goes into a load and what comes out.

use std::collections::BTreeMap;

use crate::functions::Function;
use crate::model::{ActivationMode, AskedPackages, Input, SandboxRequest, Skill, SkillFile, SkillRef};
use crate::problem::{Problem, Profile};
use crate::tools::ToolDeclaration;

/// One skill as it came.
#[derive(Debug, Clone)]
pub struct LoadInput {
    /// Identity; the name of a bare folder is its directory's name.
    pub id: SkillRef,
    /// Every file by path relative to the folder, `/` separated.
    pub files: BTreeMap<String, SkillFile>,
    /// What a manifest sets.
    pub overrides: SpecOverrides,
    /// What is demanded.
    pub profile: Profile,
}

/// What a Skill manifest's spec sets over the frontmatter; `None` leaves it to the frontmatter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpecOverrides {
    /// Must equal the frontmatter's version if both are set.
    pub version: Option<String>,
    /// Activation mode.
    pub activation: Option<ActivationMode>,
    /// Activation tags.
    pub tags: Option<Vec<String>>,
    /// Tools; they replace the frontmatter's.
    pub tools: Option<Vec<ToolDeclaration>>,
    /// Inputs; they replace the frontmatter's.
    pub inputs: Option<Vec<Input>>,
    /// Ids of other systems; they replace the frontmatter's.
    pub ids: Option<Vec<String>>,
    /// Sandbox requests; each member that is set wins.
    pub sandbox: Option<SandboxRequest>,
    /// Packages; they replace every declaration in the files.
    pub packages: Option<AskedPackages>,
}

/// A load's result.
#[derive(Debug, Clone)]
pub struct LoadResult {
    /// The skill, unless a problem is an error.
    pub skill: Option<Skill>,
    /// Errors first, then warnings, each in order of the file.
    pub problems: Vec<Problem>,
    /// The functions of each Python file whose functions are declared tools.
    pub functions: BTreeMap<String, Vec<Function>>,
}
