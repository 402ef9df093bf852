//! Limits that the process of the executor has itself.

use knack_execution::local::{LocalExecutor, LocalSettings};

use super::run;
use super::runner::{self, python};

/// A runner that begins with these limits of the shell, soft and hard.
fn runner_with_limits(folder: &std::path::Path, limits: &str) -> LocalSettings {
    let script = folder.join("runner");
    let program = runner::binary();
    std::fs::write(
        &script,
        format!("#!/bin/sh\n{limits}\nexec {} \"$@\"\n", program.display()),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    LocalSettings {
        warm: 0,
        search: runner::settings().search,
        ..LocalSettings::new(script)
    }
}

/// Limits that this process has already may be tighter than those of a run: then they hold, without a right to raise them.
#[tokio::test]
async fn tighter_limits_of_the_machine_hold_in_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let settings = runner_with_limits(folder.path(), "ulimit -n 64; ulimit -f 1000; ulimit -t 20");
    let executor = LocalExecutor::open(settings)
        .await
        .unwrap_or_else(|missing| panic!("{missing}"));
    let source =
        "from resource import *\nprint(*(getrlimit(kind) for kind in (RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_CPU)))";
    let result = run(&executor, python("1", source)).await;
    assert_eq!(
        result.stdout.text(),
        "(64, 64) (512000, 512000) (20, 20)\n",
        "{}",
        result.stderr.text()
    );
}

/// Whichever descriptor is the first one too many, the error says which limit to raise.
#[tokio::test]
async fn too_few_open_files_name_the_limit_to_raise() {
    let folder = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for files in 8..=24 {
        let settings = runner_with_limits(folder.path(), &format!("ulimit -n {files}"));
        if let Err(missing) = LocalExecutor::open(settings).await {
            let missing = missing.to_string();
            assert!(
                missing.contains("ulimit -H -n") && !missing.contains("Landlock"),
                "{files} open files: {missing}"
            );
            refused += 1;
        }
    }
    assert!(refused > 0, "8 open files were enough");
}
