//! From a declaration to an environment.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use knack_execution::environments::Environment;
use knack_packages::given::broken;
use knack_packages::key::Key;
use knack_packages::node::{NodeLock, NodeRequirements};
use knack_packages::{Declaration, Finding, Lock, Rules, State};
use sha2::{Digest as _, Sha256};

use super::build_error::BuildError;
use super::bytecode;
use super::child::Bound;
use super::layout;
use super::limits::BuildLimits;
use super::lock::{LockTarget, check_size, choose};
use super::node::{self, NpmIndex};
use super::python::BaseInterpreter;
use super::store::{EnvironmentInfo, Store};
use super::uv::Uv;
use super::work_folder::WorkFolder;

/// Room for what `uv` writes besides the environment while it installs: lists of the index, metadata.
const WORK_FILES: u64 = 5_000;

/// The folder of a build, and the lock of who builds alone. Where a build is given up, the folder goes with the last work in it, and
/// the lock after that.
#[derive(Debug)]
struct Stage {
    path: PathBuf,
    _alone: File,
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Files that remain are removed by the next build of the same environment, or by a prune.
        let _ = layout::remove(&self.path);
    }
}

/// Makes environments on one interpreter, in one store.
#[derive(Debug)]
pub struct Builder {
    store: Store,
    base: BaseInterpreter,
    /// An error where there is no `uv`: environments that are present already need none.
    uv: Result<Uv, BuildError>,
    /// An error where the index of packages of Node cannot be used: environments that are present already need none.
    npm: Result<NpmIndex, BuildError>,
    limits: BuildLimits,
    rules: Rules,
    /// Whether npm may be run, which no lock confines.
    chooses_node: bool,
}

/// An environment, and its description.
#[derive(Debug, Clone)]
pub struct BuiltEnvironment {
    /// For runs.
    pub environment: Arc<Environment>,
    /// For people.
    pub about: EnvironmentInfo,
    /// Whether it was made now.
    pub is_new: bool,
}

impl Builder {
    /// A builder.
    pub const fn new(
        store: Store,
        base: BaseInterpreter,
        uv: Result<Uv, BuildError>,
        npm: Result<NpmIndex, BuildError>,
        limits: BuildLimits,
        rules: Rules,
    ) -> Self {
        Self {
            store,
            base,
            uv,
            npm,
            limits,
            rules,
            chooses_node: false,
        }
    }

    /// A builder that runs npm for declarations without a lock: of skills that a person names, never of what is uploaded. Without
    /// this such a declaration is refused, unless versions for it were chosen before.
    #[must_use]
    pub const fn choosing_node(mut self) -> Self {
        self.chooses_node = true;
        self
    }

    /// The environment of a declaration: the one that is there, else a new one. `log` gets lines of progress.
    ///
    /// Nothing of a package is executed. Two builders of one key, in this process or another, make one environment.
    pub async fn environment(
        &self,
        declared: &Declaration,
        log: &(dyn Fn(&str) + Sync),
    ) -> Result<BuiltEnvironment, BuildError> {
        self.check(declared)?;
        self.check_node(declared)?;
        let lock = self.lock(declared, log).await?;
        check_size(&lock, &self.limits)?;
        let node = self.node_lock(declared, log).await?;
        let key = Key::of(&lock, node.as_ref(), &self.base.platform());
        if let Some(built) = self.take(&key, false).await? {
            return Ok(built);
        }
        // A builder that is ended leaves its lock to the next one.
        let wait = 2 * self.limits.time;
        let alone = self.store.build_alone(&key, wait).await?;
        // Another builder may have made it meanwhile.
        if let Some(built) = self.take(&key, false).await? {
            return Ok(built);
        }
        log("installing");
        self.build(&key, &lock, node.as_ref(), alone).await?;
        let built = self.take(&key, true).await?;
        built.ok_or_else(|| {
            BuildError::new(
                State::Failed,
                "the environment was removed while it was made; try again",
            )
        })
    }

    /// The environment of a declaration, if it is there; nothing is installed and nothing is asked for.
    pub async fn present(&self, declared: &Declaration) -> Result<Option<BuiltEnvironment>, BuildError> {
        self.check(declared)?;
        self.check_node(declared)?;
        let known = self.known_lock(declared).zip(self.known_node_lock(declared));
        let Some((lock, node)) = known else { return Ok(None) };
        self.take(&Key::of(&lock, node.as_ref(), &self.base.platform()), false)
            .await
    }

    fn check(&self, declared: &Declaration) -> Result<(), BuildError> {
        if let Some(finding) = declared.findings.iter().find(|finding| finding.is_error()) {
            return Err(BuildError::new(State::Refused, Finding::to_string(finding)));
        }
        let python = Some(self.base.version.as_str());
        if let Some(broken) = broken(&self.rules, declared, python) {
            return Err(BuildError::new(broken.state(), broken.text));
        }
        declared
            .python_refused(&self.base.version, &self.base.platform().architecture)
            .map_or(Ok(()), |why| Err(BuildError::new(State::Refused, why)))
    }

    /// Whether there is a lock of packages of Node, or one may be made.
    fn check_node(&self, declared: &Declaration) -> Result<(), BuildError> {
        match &declared.open_node {
            Some(open) if !self.chooses_node && self.known_node_lock(declared).is_none() => Err(BuildError::new(
                State::Refused,
                format!(
                    "packages of Node are declared in {} without package-lock.json, and npm is not run for it here; write the lock \
                     with knack skill lock, or let npm choose once with knack skill packages --build, and start again",
                    open.source
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The skill's lock, else the one that was chosen before, else one that is chosen now.
    async fn lock(&self, declared: &Declaration, log: &(dyn Fn(&str) + Sync)) -> Result<Lock, BuildError> {
        if let Some(lock) = self.known_lock(declared) {
            return Ok(lock);
        }
        let uv = self.uv.as_ref().map_err(Clone::clone)?;
        log("choosing versions");
        let folder = WorkFolder::below(&self.store)?;
        let (constraints, exclude_newer) = (
            self.rules.constraints_text(),
            self.rules.exclude_newer(declared.exclude_newer.as_deref()),
        );
        let wanted = LockTarget {
            declared,
            constraints: &constraints,
            exclude_newer: exclude_newer.as_deref(),
            universal: false,
        };
        let lock = choose(uv, &self.base, wanted, folder.path(), &self.limits, log).await?;
        let kept = self.store.keep_chosen(&self.declaration_hash(declared), lock.text());
        kept.map_err(|error| BuildError::of_disk("the chosen versions", &error))?;
        Ok(lock)
    }

    fn known_lock(&self, declared: &Declaration) -> Option<Lock> {
        if let Some(lock) = &declared.lock {
            return Some(lock.clone());
        }
        if !declared.may_require(&self.base.version, &self.base.platform().architecture) {
            return Some(Lock::empty());
        }
        let text = self.store.chosen(&self.declaration_hash(declared))?;
        Lock::read_or_empty("chosen", &text).ok()
    }

    /// The lock of packages of Node: the skill's, else the one that was chosen before, else one that npm chooses now, where it may.
    async fn node_lock(
        &self,
        declared: &Declaration,
        log: &(dyn Fn(&str) + Sync),
    ) -> Result<Option<NodeLock>, BuildError> {
        if let Some(known) = self.known_node_lock(declared) {
            return Ok(known);
        }
        let Some(open) = &declared.open_node else {
            return Ok(None);
        };
        let index = self.npm.as_ref().map_err(Clone::clone)?;
        log("choosing versions of packages of Node");
        let text = node::chosen_by_npm(open, &self.store, &self.limits, index).await?;
        let lock = NodeLock::read(text.as_bytes())
            .map_err(|_| BuildError::new(State::Failed, "npm made a lock that cannot be used"))?;
        let kept = self.store.keep_chosen(&node_hash(open), &text);
        kept.map_err(|error| BuildError::of_disk("the chosen versions", &error))?;
        Ok(Some(lock))
    }

    /// `None`: versions are still to be chosen.
    #[expect(clippy::option_option, reason = "whether it is known, and whether there is one")]
    fn known_node_lock(&self, declared: &Declaration) -> Option<Option<NodeLock>> {
        let Some(open) = &declared.open_node else {
            return Some(declared.node.as_ref().map(|node| node.lock.clone()));
        };
        let text = self.store.chosen(&node_hash(open))?;
        NodeLock::read(&text).ok().map(Some)
    }

    /// Versions are chosen for a platform and a version of Python.
    fn declaration_hash(&self, declared: &Declaration) -> String {
        let mut hash = Sha256::new();
        let platform = format!("{:?} {}", self.base.platform(), self.base.version);
        let mut parts = vec![platform, declared.requirements_text()];
        // Without rules the versions that were chosen before there were any still count.
        parts.extend(Some(self.rules.choice_text()).filter(|text| !text.is_empty()));
        parts.extend(declared.choice_text());
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        knack_skill::digest::hex(&hash.finalize())
    }

    async fn take(&self, key: &Key, is_new: bool) -> Result<Option<BuiltEnvironment>, BuildError> {
        let (store, key) = (self.store.clone(), key.clone());
        let taken = blocking(move || {
            store
                .take(&key)
                .map_err(|error| BuildError::of_disk("the store", &error))
        })
        .await?;
        Ok(taken.map(|(environment, about)| BuiltEnvironment {
            environment: Arc::new(environment),
            about,
            is_new,
        }))
    }

    /// Builds the environment in a temporary folder and renames it to its final path.
    async fn build(&self, key: &Key, lock: &Lock, node: Option<&NodeLock>, alone: File) -> Result<(), BuildError> {
        let (store, wanted) = (self.store.clone(), key.clone());
        let stage = blocking(move || {
            let path = store.stage(&wanted);
            let path = path.map_err(|error| BuildError::of_disk("the store", &error))?;
            Ok(Arc::new(Stage { path, _alone: alone }))
        })
        .await?;
        let built = self.build_in(&stage, key, lock, node).await;
        let cleaned = blocking(move || {
            let removed = layout::remove(&stage.path);
            removed.map_err(|error| BuildError::of_disk("the store", &error))
        })
        .await;
        built.and(cleaned)
    }

    async fn build_in(
        &self,
        staged: &Arc<Stage>,
        key: &Key,
        lock: &Lock,
        node: Option<&NodeLock>,
    ) -> Result<(), BuildError> {
        let stage = staged.path.as_path();
        let prefix = stage.join("prefix");
        std::fs::create_dir(&prefix).map_err(|error| BuildError::of_disk("the store", &error))?;
        if !lock.packages().is_empty() {
            self.install(stage, &prefix, lock).await?;
        }
        let node = match node {
            Some(node) => self.install_node(stage, &prefix, node).await?,
            None => Vec::new(),
        };
        let (store, key, base, limits) = (self.store.clone(), key.clone(), self.base.clone(), self.limits);
        let text = lock.text().to_owned();
        let staged = Arc::clone(staged);
        blocking(move || {
            // A signal drops the future, not what has been started here.
            let _staged = staged;
            let size = layout::finish(&prefix, &store.home(&key), &base, &limits)?;
            let packages =
                layout::installed(&prefix, &base).map_err(|error| BuildError::of_disk("the environment", &error))?;
            let about = EnvironmentInfo {
                key: key.as_str().to_owned(),
                python: base.version.clone(),
                bytes: size.bytes,
                files: size.files,
                packages,
                node,
            };
            std::fs::write(prefix.join(knack_packages::lock::LOCK_FILE), text)
                .and_then(|()| store.publish(&key, &prefix, &about))
                .map_err(|error| BuildError::of_disk("the store", &error))
        })
        .await
    }

    async fn install_node(
        &self,
        stage: &Path,
        prefix: &Path,
        lock: &NodeLock,
    ) -> Result<Vec<(String, String)>, BuildError> {
        let index = self.npm.as_ref().map_err(Clone::clone)?;
        let platform = self.base.platform();
        let machine = node::Machine::of(&platform.architecture, &platform.libc);
        node::install(index, lock, machine, (&stage.join("node"), prefix), &self.limits).await
    }

    async fn install(&self, stage: &Path, prefix: &Path, lock: &Lock) -> Result<(), BuildError> {
        let uv = self.uv.as_ref().map_err(Clone::clone)?;
        let file = stage.join("lock.txt");
        std::fs::write(&file, lock.text()).map_err(|error| BuildError::of_disk("the store", &error))?;
        let words = [
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "--no-deps",
            "--only-binary",
            ":all:",
            // The cache is removed with the folder, so each file has one name in the end.
            "--link-mode",
            "hardlink",
        ];
        let mut arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        for (name, value) in [
            ("--python", self.base.executable.as_path()),
            ("--prefix", prefix),
            ("--cache-dir", &stage.join("uv")),
            ("--requirements", &file),
        ] {
            arguments.extend([name.into(), value.as_os_str().to_owned()]);
        }
        let bound = Bound {
            folder: stage,
            bytes: self.limits.bytes,
            files: self.limits.files + WORK_FILES,
        };
        uv.run(&arguments, stage, self.limits.time, bound).await?;
        bytecode::compile(&self.base, prefix, self.limits.time, bound).await
    }
}

/// A lock of npm is for every platform.
fn node_hash(open: &NodeRequirements) -> String {
    let text = node::package_json(open).to_string();
    knack_skill::digest::hex(&Sha256::digest(format!("node {text}")))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BuildError> + Send + 'static,
) -> Result<T, BuildError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(BuildError::new(State::Failed, "the process is shutting down")))
}
