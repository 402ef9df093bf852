//! One column: every attack as an execution of the local sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use knack::execution::local::{LocalExecutor, LocalSettings};
use knack::execution::{
    ExecutionId, ExecutionRequest, ExecutionResult, Executor as _, Exit, Language, Limits, Program,
};
use tokio_util::sync::CancellationToken;

use crate::{table, world};

/// Prints the cells as one line of JSON.
pub(crate) fn main(_name: &str, directory: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let cells = runtime.block_on(cells(directory));
    println!("{}", serde_json::to_string(&cells).unwrap());
    ExitCode::SUCCESS
}

async fn cells(directory: &Path) -> BTreeMap<String, String> {
    let settings = LocalSettings::new(directory.join("knack-runner"));
    let executor = LocalExecutor::open(settings)
        .await
        .unwrap_or_else(|missing| panic!("{missing}"));
    let script = std::fs::read_to_string(directory.join("attacks.py")).unwrap();
    let world = std::fs::read_to_string(directory.join("world.json")).unwrap();
    let mut cells = BTreeMap::new();
    for name in world::names(directory) {
        // The same text as the control, told its attack by `sys.argv`.
        let source = format!("import sys\nsys.argv = ['attacks.py', {name:?}]\n{script}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let program = Program::Code {
            language: Language::Python,
            source,
        };
        let request = ExecutionRequest {
            env: [("KNACK_WORLD".to_owned(), world.clone())].into(),
            limits: Limits {
                timeout: time_limit(&name),
                max_output_bytes: 64 << 10,
                ..Limits::default()
            },
            ..ExecutionRequest::new(ExecutionId::new(now, "attacks", 0, &name), "attacks", program)
        };
        let cell = match executor.execute(request, CancellationToken::new()).await {
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

/// The burn takes 4 s unlocked; it must meet the limit first. All others are done sooner.
fn time_limit(name: &str) -> Duration {
    Duration::from_secs(if name == "cpu_burn" { 2 } else { 15 })
}
