//! `knack skill lock`: what a skill has by its declarations, written down beside them: versions of packages with their
//! hashes, and the functions of Python files that are tools.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use knack_execution::interpreter::CodeUser;
use knack_gateway::catalog::SkillSource;
use knack_gateway::files::confined_folder::{ConfinedFolder, Readers};
use knack_packages::lock::LOCK_FILE;
use knack_packages::node::{self, NODE_LOCK_FILE};
use knack_packages::pylock::PYTHON_LOCK_FILE;
use knack_packages::rules::read_day;
use knack_packages::{Declaration, Finding, Rules, Source, declare};
use knack_skill::functions;
use knack_skill::problem::{Problem, Profile};
use knack_skill::tree;
use knack_trust::{CaArgs, Roots};

use super::find_sources::find_sources;
use super::stop::unless_stopped;
use super::terminal;
use crate::counted::counted;
use crate::dev::{discover, package_rules};
use crate::packages::{
    BaseInterpreter, BuildError, BuildLimits, Store, Uv, default_store, lock_for_all_platforms, lock_of_npm,
};

/// Arguments of `knack skill lock`.
#[derive(Debug, Args)]
pub struct LockArgs {
    /// The skill's folder
    path: PathBuf,
    /// Manifest files, or folders that hold them, with the SkillRuntime whose constraints the chosen versions meet
    #[arg(value_name = "MANIFEST")]
    manifests: Vec<PathBuf>,
    /// Choose among the files that the index got by the end of this day in UTC (2026-07-01), instead of the SkillRuntime's day
    #[arg(long, value_name = "DATE", value_parser = read_day)]
    exclude_newer: Option<String>,
    #[command(flatten)]
    ca: CaArgs,
}

/// The first line of a lock. It has no word of the skill: whoever is led to another file must not choose what is written there.
const HEADER: &str = "# Written by knack skill lock. Do not edit.\n";

/// Writes the locks beside the skill: of its functions, if it has any, and of its packages, if it declares any. Every
/// platform finds its files in the latter; a package without wheels is an error.
pub async fn lock(args: LockArgs) -> anyhow::Result<ExitCode> {
    let roots = args.ca.roots()?;
    let (source, mut rules) = read(&args).await?;
    if let Some(day) = &args.exclude_newer {
        rules = rules.excluding_newer(Some(day)).map_err(anyhow::Error::msg)?;
    }
    let has_functions = lock_functions(&args, &source).await?;
    let of_packages = async {
        let has_node = lock_node(&args, &source, &roots).await?;
        if let Some(declared) = packages(&args, &source, has_functions || has_node)? {
            lock_packages(&args, &declared, &rules, &roots).await?;
        }
        Ok(ExitCode::SUCCESS)
    };
    unless_stopped(of_packages).await
}

/// Writes what the functions of the skill's Python files declare; `false`: it has none.
async fn lock_functions(args: &LockArgs, source: &SkillSource) -> anyhow::Result<bool> {
    let mut unlocked = source.clone();
    unlocked.files.remove(functions::LOCK_FILE);
    let loaded = unlocked.load(Profile::Load);
    let problems: Vec<&Problem> = loaded
        .problems
        .iter()
        .filter(|problem| problem.field.contains(".python"))
        .collect();
    for problem in &problems {
        terminal::note(&problem.to_string());
    }
    if problems.iter().any(|problem| problem.is_error()) {
        bail!("{}: nothing was written; correct the errors above", args.path.display());
    }
    if loaded.functions.is_empty() {
        return Ok(false);
    }
    let lock = functions::FunctionLock::of(&loaded.functions, &source.files);
    let file = write(args, functions::LOCK_FILE, lock.text()).await?;
    let count: usize = loaded.functions.values().map(Vec::len).sum();
    terminal::line(&format!("{}: {count} functions", file.display()));
    Ok(true)
}

/// Writes what npm chooses for the skill's packages of Node; `false`: it declares none.
async fn lock_node(args: &LockArgs, source: &SkillSource, roots: &Roots) -> anyhow::Result<bool> {
    let requirements = node::requirements(&source.files, source.overrides.packages.as_ref()).map_err(|findings| {
        let problems: Vec<String> = findings.iter().map(Finding::to_string).collect();
        anyhow::anyhow!("{}", problems.join("\n"))
    })?;
    let Some(requirements) = requirements else {
        return Ok(false);
    };
    let names: Vec<&str> = requirements.dependencies.iter().map(|one| one.name.as_str()).collect();
    terminal::note(&format!("choosing versions for {}", names.join(", ")));
    let has_settings = std::env::home_dir().is_some_and(|home| home.join(".npmrc").is_file());
    if has_settings && std::env::var_os("KNACK_NPMRC").is_none() {
        terminal::note(
            "~/.npmrc is not read: NPM_CONFIG_REGISTRY names the index, and KNACK_NPMRC a file with credentials",
        );
    }
    let (text, count) = lock_of_npm(&requirements, &store()?, &BuildLimits::default(), roots).await?;
    let file = write(args, NODE_LOCK_FILE, text).await?;
    terminal::line(&format!("{}: {}", file.display(), counted(count, "package")));
    Ok(true)
}

/// The folder of environments, below which installers work.
fn store() -> Result<Store, BuildError> {
    // Nothing runs from it here, so no other user needs access.
    Store::open(&default_store()?, CodeUser::SameUser)
}

async fn lock_packages(args: &LockArgs, declared: &Declaration, rules: &Rules, roots: &Roots) -> anyhow::Result<()> {
    terminal::note(&format!("choosing versions for {}", declared.names().join(", ")));
    let uv = Uv::find()?.trusting(roots)?;
    let base = BaseInterpreter::of_host(CodeUser::SameUser).await?;
    let store = store()?;
    let limits = BuildLimits::default();
    let lock = lock_for_all_platforms(&uv, &base, &store, declared, rules, &limits, &terminal::note).await?;
    let file = write(args, LOCK_FILE, format!("{HEADER}{}", lock.text())).await?;
    terminal::line(&format!(
        "{}: {}",
        file.display(),
        counted(lock.packages().len(), "package")
    ));
    Ok(())
}

/// Writes a lock into the skill's folder, and gives its path. What is there may be somebody else's checkout, with links of theirs.
async fn write(args: &LockArgs, name: &'static str, text: String) -> anyhow::Result<PathBuf> {
    let folder = args.path.clone();
    let write = move || ConfinedFolder::named(&folder, Readers::Umask)?.write(name, text.as_bytes());
    tokio::task::spawn_blocking(write).await??;
    Ok(args.path.join(name))
}

/// The one skill of the folder, and what the SkillRuntime says of packages that is found there or among the manifests.
async fn read(args: &LockArgs) -> anyhow::Result<(SkillSource, Rules)> {
    if !args.path.is_dir() {
        bail!(
            "{}: not a folder; name the one that holds the SKILL.md",
            args.path.display()
        );
    }
    let found = find_sources(vec![args.path.clone()], discover).await?;
    let Ok([source]) = <[SkillSource; 1]>::try_from(found.skills) else {
        bail!(
            "{}: not the folder of one skill; name the one that holds the SKILL.md",
            args.path.display()
        );
    };
    let problems = tree::check(&source.files);
    for problem in &problems {
        terminal::note(&problem.to_string());
    }
    if problems.iter().any(Problem::is_error) {
        bail!("{}: nothing was written; correct the errors above", args.path.display());
    }
    let mut runtimes = found.runtimes;
    if !args.manifests.is_empty() {
        runtimes = find_sources(args.manifests.clone(), discover).await?.runtimes;
        if runtimes.is_empty() {
            bail!("the manifests contain no SkillRuntime to take constraints from");
        }
    }
    Ok((source, package_rules(&runtimes)?))
}

/// The declaration of Python packages without the skill's old lock; `None`: it declares none, but something else was locked.
fn packages(args: &LockArgs, source: &SkillSource, has_other: bool) -> anyhow::Result<Option<Declaration>> {
    let mut files = source.files.clone();
    for old in [LOCK_FILE, PYTHON_LOCK_FILE] {
        files.remove(old);
    }
    // It was written just now, or fits no declaration.
    files.remove(NODE_LOCK_FILE);
    let declared = declare(&files, source.overrides.packages.as_ref());
    let refused: Vec<String> = declared
        .findings
        .iter()
        .filter(|finding| finding.is_error())
        .map(Finding::to_string)
        .collect();
    if !refused.is_empty() {
        bail!("{}", refused.join("\n"));
    }
    let nothing = declared.python.is_empty();
    if nothing && has_other {
        return Ok(None);
    }
    match declared.source {
        Source::Inferred => bail!(
            "{}: nothing is declared, and the standard environment that its imports ask for has a lock of its own; \
             declare packages in requirements.txt or in the frontmatter first",
            args.path.display()
        ),
        Source::Standard => bail!(
            "{}: packages.standard asks for the standard environment, which has a lock of its own",
            args.path.display()
        ),
        _ if declared.python.is_empty() => bail!("{}: no packages are declared", args.path.display()),
        _ => Ok(Some(declared)),
    }
}
