//! Environments of packages: what building one costs beside a bare `uv`, and what a warm run pays for one that is there.
//!
//! ```text
//! environment_build_ratio             a build over `uv pip install` of the same requirements, each with an empty cache of its own
//! warm_with_packages_above_warm_ms    a warm run of a skill with that environment, less one of a skill without
//! ```
//!
//! Wheels come from the index that uv's own configuration names; with `--once` from one on loopback.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark program"
)]

#[expect(dead_code, reason = "the tests ask for more of it")]
#[path = "../tests/packages/index.rs"]
mod index;
#[path = "support/once.rs"]
mod once;
#[path = "support/report.rs"]
mod report;
#[path = "../tests/support/runner.rs"]
#[expect(dead_code, reason = "tests use more of it")]
mod runner;
#[path = "../tests/packages/sandbox_user.rs"]
mod sandbox_user;
#[path = "support/statistics.rs"]
mod statistics;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use knack::packages::{BaseInterpreter, BuildError, BuildLimits, Builder, BuiltEnvironment, Store, Uv};
use knack_execution::environments::{EnvironmentState, Environments};
use knack_execution::local::{LocalExecutor, LocalSettings};
use knack_execution::{Executor as _, Exit, SkillMount, StartKind};
use knack_packages::{Declaration, Rules, State, declare};
use knack_skill::model::{Skill, SkillFile, SkillRef};
use knack_skill::problem::Profile;
use knack_skill::{LoadInput, SpecOverrides};
use report::{Budget, Measured, Report};
use sandbox_user::{open_folder, sandbox_user};
use tokio_util::sync::CancellationToken;

/// The four of slack-gif-creator: 260 MB in 1,700 files.
const REQUIREMENTS: &str = "pillow>=10.0.0\nimageio>=2.31.0\nimageio-ffmpeg>=0.4.9\nnumpy>=1.24.0\n";

/// Pairs of builds.
const BUILDS: usize = 5;

/// Pairs of warm runs.
const RUNS: usize = 40;

/// Time between runs, in which the next sandbox starts.
const PAUSE: Duration = Duration::from_millis(150);

/// The longest one.
const MAX_PAUSE: Duration = Duration::from_secs(10);

const BUILD: Budget<'_> = Budget {
    name: "environment_build_ratio",
    limit: 1.5,
};

const WARM: Budget<'_> = Budget {
    name: "warm_with_packages_above_warm_ms",
    limit: 1.0,
};

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.unwrap().block_on(bench())
}

async fn bench() -> ExitCode {
    let mut report = Report::default();
    let bench = BuildBench::new().await;
    report.steady([BUILD], async || [builds(&bench).await]).await;
    let built = bench.build("kept").await;
    // A second skill with the same lock.
    let began = Instant::now();
    let again = bench.build("kept").await;
    assert!(!again.is_new, "one lock was built twice");
    let ms = began.elapsed().as_secs_f64() * 1000.0;
    Report::note(&format!("environment of a second skill: {ms:.1} ms"));
    report.steady([WARM], async || [warm(&built).await]).await;
    report.finish()
}

/// Where environments are made, and the requirements.
struct BuildBench {
    folder: tempfile::TempDir,
    base: BaseInterpreter,
    declared: Declaration,
    variables: Vec<(OsString, OsString)>,
    _index: Option<index::Index>,
}

impl BuildBench {
    async fn new() -> Self {
        let folder = open_folder("knack-bench-");
        let mut variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let (mut requirements, mut served) = (REQUIREMENTS, None);
        if once::is_once() {
            let wheel = index::wheel("good", "1.0", "", &[("good.py", "VALUE = 7\n")]);
            let index = index::Index::serve(vec![wheel]).await;
            variables.push(("UV_DEFAULT_INDEX".into(), index.url.clone().into()));
            (requirements, served) = ("good\n", Some(index));
        }
        std::fs::write(folder.path().join("requirements.txt"), requirements).unwrap();
        let base = BaseInterpreter::of(Path::new("/usr/bin/python3"), sandbox_user())
            .await
            .unwrap();
        let files = [("requirements.txt".to_owned(), file(requirements))];
        Self {
            folder,
            base,
            declared: declare(&files.into(), None),
            variables,
            _index: served,
        }
    }

    /// An environment in a store of a name.
    async fn build(&self, store: &str) -> BuiltEnvironment {
        let store = Store::open(&self.folder.path().join(store), sandbox_user()).unwrap();
        let uv = Uv::new(uv_path().into(), self.variables.iter().cloned());
        let no_node = Err(BuildError::new(State::PackagesOff, "no packages of Node here"));
        let builder = Builder::new(
            store,
            self.base.clone(),
            uv,
            no_node,
            BuildLimits::default(),
            Rules::default(),
        );
        builder.environment(&self.declared, &|_| {}).await.unwrap()
    }

    /// What a person would do: seconds. `more` is an option of the installation.
    fn bare(&self, number: usize, more: Option<&str>) -> f64 {
        let at = |what: &str| self.folder.path().join(format!("bare-{number}-{what}"));
        let began = Instant::now();
        let ended = Command::new(uv_path())
            .args(["pip", "install", "--quiet", "--only-binary", ":all:", "--requirements"])
            .arg(self.folder.path().join("requirements.txt"))
            .args(more)
            .arg("--python")
            .arg(&self.base.executable)
            .arg("--prefix")
            .arg(at("prefix"))
            .arg("--cache-dir")
            .arg(at("cache"))
            .env_clear()
            .envs(self.variables.iter().cloned())
            .status();
        assert!(ended.unwrap().success());
        let seconds = began.elapsed().as_secs_f64();
        std::fs::remove_dir_all(at("prefix")).unwrap();
        std::fs::remove_dir_all(at("cache")).unwrap();
        seconds
    }
}

impl Drop for BuildBench {
    fn drop(&mut self) {
        // Environments are read-only; those that are left of a bench go with the folder otherwise.
        let _ = Store::open(&self.folder.path().join("kept"), sandbox_user()).map(|store| store.prune(Duration::ZERO));
    }
}

async fn builds(bench: &BuildBench) -> Measured {
    let pairs = if once::is_once() { 1 } else { BUILDS };
    let (mut ratios, mut of_compiled, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..pairs {
        let bare = bench.bare(number, None);
        let compiled = bench.bare(number, Some("--compile-bytecode"));
        let began = Instant::now();
        let built = bench.build("timed").await;
        seconds.push(began.elapsed().as_secs_f64());
        ratios.push(seconds[number] / bare);
        of_compiled.push(seconds[number] / compiled);
        assert!(built.is_new);
        drop(built);
        let store = Store::open(&bench.folder.path().join("timed"), sandbox_user()).unwrap();
        store.prune(Duration::ZERO).unwrap();
    }
    let (seconds, of_compiled) = (statistics::measured(seconds), statistics::measured(of_compiled));
    Report::note(&format!(
        "environment_build_s {:.2}, {:.2} of uv with --compile-bytecode",
        seconds.value, of_compiled.value
    ));
    statistics::measured(ratios)
}

async fn warm(built: &BuiltEnvironment) -> Measured {
    let (with, without) = (skill("with"), skill("without"));
    let environments = Environments::default();
    environments.set(&with.digest, EnvironmentState::Ready(Arc::clone(&built.environment)));
    environments.set(&without.digest, EnvironmentState::Base);
    let settings = LocalSettings {
        warm: 1,
        environments,
        ..runner::settings()
    };
    let executor = LocalExecutor::open(settings).await.unwrap();
    let pairs = if once::is_once() { 1 } else { RUNS };
    let mut differences = Vec::new();
    let mut number = 0;
    // A busy machine takes longer for the next sandbox: each pair that finds none waits longer.
    let mut pause = PAUSE;
    while differences.len() < pairs {
        number += 1;
        assert!(number < 100 * RUNS, "no warm starts with packages");
        let mut times = [None, None];
        for (time, skill) in times.iter_mut().zip([&with, &without]) {
            tokio::time::sleep(pause).await;
            *time = run(&executor, skill, number).await;
        }
        if let [Some(with), Some(without)] = times {
            differences.push(with - without);
        } else {
            pause = (pause + PAUSE).min(MAX_PAUSE);
        }
    }
    // Of a difference near zero a relative spread says nothing.
    let spread = 0.0;
    Measured {
        spread,
        ..statistics::measured(differences)
    }
}

/// Milliseconds of a run, if it was a warm one.
async fn run(executor: &LocalExecutor, skill: &Arc<Skill>, number: usize) -> Option<f64> {
    let mut request = runner::python(&format!("{}-{number}", skill.id.name), "print(6 * 7)");
    request.skill = Some(skill.id.clone());
    request.mounts = vec![SkillMount {
        name: skill.id.name.clone(),
        skill: Arc::clone(skill),
    }];
    let began = Instant::now();
    let result = executor.execute(request, CancellationToken::new()).await.unwrap();
    let time = began.elapsed().as_secs_f64() * 1000.0;
    assert_eq!((result.exit, result.stdout.text()), (Exit::Code(0), "42\n".into()));
    (result.timings.start == StartKind::Warm).then_some(time)
}

fn skill(name: &str) -> Arc<Skill> {
    let document = format!("---\nname: {name}\ndescription: d\n---\nBody");
    let loaded = knack_skill::load(LoadInput {
        id: SkillRef {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        },
        files: [("SKILL.md".to_owned(), file(&document))].into(),
        overrides: SpecOverrides::default(),
        profile: Profile::Load,
    });
    Arc::new(loaded.skill.unwrap())
}

fn file(text: &str) -> SkillFile {
    SkillFile {
        bytes: text.as_bytes().into(),
        executable: false,
    }
}

fn uv_path() -> String {
    std::env::var("KNACK_UV").unwrap_or_else(|_| panic!("KNACK_UV names no uv; tools/uv.sh prints one"))
}
