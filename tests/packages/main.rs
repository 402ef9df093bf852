//! Environments of packages, built by a real `uv` from an index on loopback, and used by real runs.
//!
//! `KNACK_UV` names the program; `tools/uv.sh` installs it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside test functions"
)]

mod acceptance;
#[path = "../support/tar.rs"]
mod archives;
mod authorities;
mod bad_input;
mod build;
mod dev;
mod index;
mod lock;
mod node;
mod node_runs;
mod npm_index;
#[path = "../support/program.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod program;
#[path = "../support/runner.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod runner;
mod runs;
mod sandbox_user;
#[path = "../support/skip.rs"]
mod skip;
#[path = "../support/tls.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod tls;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use index::Index;
use knack::packages::{BaseInterpreter, BuildError, BuildLimits, Builder, BuiltEnvironment, NpmIndex, Store, Uv};
use knack_packages::{Declaration, Rules, declare};
use knack_skill::model::SkillFile;
use knack_trust::Roots;
use sandbox_user::{open_folder, sandbox_user};

/// The program, installed by the project's own tool if nothing names another.
fn uv_path() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(named) = std::env::var_os("KNACK_UV") {
            return PathBuf::from(named);
        }
        let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/uv.sh");
        let output = std::process::Command::new(tool).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
    .clone()
}

/// A store of its own, in a folder that the sandbox's user can enter, with a builder that knows one index.
struct BuilderFixture {
    folder: tempfile::TempDir,
    url: String,
    /// The index of Node packages; nothing listens there unless a test says so.
    npm: String,
    /// Authorities besides those of the system.
    roots: Roots,
}

impl BuilderFixture {
    fn new(url: &str) -> Self {
        let folder = open_folder("knack-packages-test-");
        Self {
            folder,
            url: url.to_owned(),
            npm: "http://127.0.0.1:9/".to_owned(),
            roots: Roots::default(),
        }
    }

    async fn with(files: Vec<(String, Vec<u8>)>) -> (Self, Index) {
        let index = Index::serve(files).await;
        (Self::new(&index.url), index)
    }

    fn store(&self) -> Store {
        Store::open(&self.folder.path().join("store"), sandbox_user()).unwrap()
    }

    async fn builder(&self, limits: BuildLimits) -> Builder {
        self.builder_under(limits, Rules::default()).await
    }

    async fn builder_under(&self, limits: BuildLimits, rules: Rules) -> Builder {
        let variables = [
            ("UV_DEFAULT_INDEX", self.url.as_str()),
            ("UV_HTTP_RETRIES", "0"),
            ("PATH", "/usr/bin:/bin"),
        ];
        let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        // No settings of the person who runs the tests.
        let home = [(OsString::from("HOME"), self.folder.path().as_os_str().to_owned())];
        let uv = Uv::new(uv_path(), variables.into_iter().chain(home)).unwrap();
        let uv = uv.trusting(&self.roots).unwrap();
        let base = BaseInterpreter::of(std::path::Path::new("/usr/bin/python3"), sandbox_user())
            .await
            .unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let npm = NpmIndex::of(
            [(OsString::from("npm_config_registry"), OsString::from(&self.npm))],
            &self.roots,
        );
        Builder::new(self.store(), base, Ok(uv), npm, limits, rules)
    }

    async fn build(&self, files: &[(&str, &str)]) -> Result<BuiltEnvironment, BuildError> {
        let builder = self.builder(BuildLimits::default()).await;
        builder.environment(&declared(files), &|_| {}).await
    }
}

impl Drop for BuilderFixture {
    fn drop(&mut self) {
        // Environments are read-only.
        let _ = self.store().prune(std::time::Duration::ZERO);
    }
}

/// A folder that the sandbox's user can enter, with these files.
fn open_folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = open_folder("knack-packages-test-");
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn skill_files(files: &[(&str, &str)]) -> BTreeMap<String, SkillFile> {
    let file = |text: &str| SkillFile {
        bytes: text.as_bytes().into(),
        executable: false,
    };
    files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), file(text)))
        .collect()
}

fn declared(files: &[(&str, &str)]) -> Declaration {
    declare(&skill_files(files), None)
}
