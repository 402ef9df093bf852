//! One column: every attack as an execution of the local sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use knack_execution::local::{LocalExecutor, LocalSettings};
use knack_execution::{
    ExecutionError, ExecutionId, ExecutionRequest, ExecutionResult, Executor as _, Exit, Language, Limits, Program,
};
use tokio_util::sync::CancellationToken;

use crate::{table, targets};

/// What a kernel without Landlock is played by.
pub(crate) const WITHOUT_LANDLOCK: &str = "abi-0-no-mounts";

/// Prints the cells as one line of JSON.
pub(crate) fn main(name: &str, directory: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let cells = runtime.block_on(async {
        let column = Column::open(name, directory).await;
        if name.starts_with("abi-") {
            column.gentle_together().await
        } else {
            column.one_by_one().await
        }
    });
    println!("{}", serde_json::to_string(&cells).unwrap());
    ExitCode::SUCCESS
}

struct Column<'a> {
    directory: &'a Path,
    executor: LocalExecutor,
    script: String,
    targets: String,
    /// The newest Landlock ABI of the kernel that it plays; `None`: that of this one.
    abi: Option<u32>,
}

/// The settings of a column: its runner knows by its name which kernel it plays.
fn settings(column: &str, directory: &Path) -> LocalSettings {
    if !targets::plays_another_kernel(column) {
        return LocalSettings::new(directory.join("knack-runner"));
    }
    LocalSettings::new(directory.join(format!("runner-{column}")))
}

/// The ABI in the name of a column.
fn played_abi(column: &str) -> Option<u32> {
    let (abi, _) = column.strip_prefix("abi-")?.split_once('-')?;
    abi.parse().ok()
}

impl<'a> Column<'a> {
    async fn open(name: &str, directory: &'a Path) -> Self {
        if name == "no-mounts" {
            let refused = LocalExecutor::open(settings(WITHOUT_LANDLOCK, directory)).await;
            let missing = refused.expect_err("without Landlock no code may run").to_string();
            assert!(missing.contains("no Landlock"), "{missing}");
        }
        let executor = LocalExecutor::open(settings(name, directory))
            .await
            .unwrap_or_else(|missing| panic!("{missing}"));
        Self {
            directory,
            executor,
            script: std::fs::read_to_string(directory.join("attacks.py")).unwrap(),
            targets: std::fs::read_to_string(directory.join("world.json")).unwrap(),
            abi: played_abi(name),
        }
    }

    /// The same text as the control, with its attacks in `sys.argv`. Code gets no environment.
    async fn run(&self, words: &[&str], timeout: Duration) -> Result<ExecutionResult, ExecutionError> {
        let arguments = serde_json::to_string(&[&["attacks.py"], words].concat()).unwrap();
        let program = Program::Code {
            language: Language::Python,
            source: format!(
                "import os, sys\nos.environ['KNACK_TARGETS'] = {:?}\nsys.argv = {arguments}\n{}",
                self.targets, self.script
            ),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let request = ExecutionRequest {
            limits: Limits {
                timeout,
                max_output_bytes: 64 << 10,
                ..Limits::default()
            },
            ..ExecutionRequest::new(ExecutionId::new(now, "attacks", 0, &arguments), "attacks", program)
        };
        let result = self.executor.execute(request, CancellationToken::new()).await?;
        Ok((*result).clone())
    }

    /// Each attack in a sandbox of its own.
    async fn one_by_one(&self) -> BTreeMap<String, String> {
        let mut cells = BTreeMap::new();
        for name in targets::names(self.directory, "--list") {
            let cell = match self.run(&[&name], time_limit(&name)).await {
                Err(error) => format!("no result: {error}"),
                // A run that was ended for a limit, or counted over it at its end, was stopped, whatever it printed before.
                Ok(result) => match result.exit {
                    Exit::Signal(_) | Exit::Code(_) => told(&result),
                    limit => format!("{limit:?}"),
                },
            };
            cells.insert(name, cell);
        }
        cells
    }

    /// All but the bombs in one sandbox, each in a child.
    async fn gentle_together(&self) -> BTreeMap<String, String> {
        let bombs = targets::names(self.directory, "--bombs");
        let names = targets::names(self.directory, "--list");
        let gentle: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|name| !bombs.iter().any(|bomb| bomb == name))
            .collect();
        let words = [&["--each"], &gentle[..]].concat();
        let result = self.run(&words, Duration::from_mins(2)).await.unwrap();
        // A column that ran with another ABI would say nothing about its own.
        assert!(
            self.abi.is_none_or(|abi| abi == result.locks.landlock_abi),
            "{:?}",
            result.locks
        );
        let text = result.stdout.text();
        let cells: BTreeMap<String, String> = table::each(&text);
        assert_eq!(
            cells.len(),
            gentle.len(),
            "{:?} {text} {}",
            result.exit,
            result.stderr.text()
        );
        cells
    }
}

/// What the attack printed, or how it ended without a word.
fn told(result: &ExecutionResult) -> String {
    table::outcome_of(&result.stdout.text()).unwrap_or_else(|| match result.exit {
        Exit::Signal(signal) => format!("signal {signal}"),
        other => {
            let text = result.stderr.text();
            format!("{other:?}: {}", text.lines().last().unwrap_or_default())
        }
    })
}

/// The burn takes 10 s unlocked; it must meet the limit first, however late that is noticed. All others are done sooner than theirs.
fn time_limit(name: &str) -> Duration {
    Duration::from_secs(if name == "cpu_burn" { 2 } else { 30 })
}
