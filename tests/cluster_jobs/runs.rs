//! What a run gets and gives, cold and warm.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use knack::jobs::{Event, RunnerSource};
use knack_execution::{
    ExecutionError, ExecutionRequest, ExecutionResult, ExecutionStatus, Executor as _, Exit, InputFile, Program,
    StartKind,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, eventually, fresh_id, python, run_with_events, within};

#[test]
fn a_cold_run_gives_output_files_and_a_record() {
    cluster_support::run("a_cold_run_gives_output_files_and_a_record", async |cluster| {
        let fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 0}})).await;
        let executor = fixture.owner().await;
        let request =
            python("import sys; print('hello'); print('err', file=sys.stderr); open('a.txt','w').write('x'*9)");
        let id = request.id;
        let began = Instant::now();
        let (result, events) = within(60, run_with_events(&executor, request)).await;
        println!("cold: {:?}", began.elapsed());
        let result = result.unwrap();
        assert_eq!((result.exit, result.timings.start), (Exit::Code(0), StartKind::Cold));
        assert_eq!(
            (result.stdout.text(), result.stderr.text()),
            ("hello\n".into(), "err\n".into())
        );
        assert_eq!(
            result
                .files
                .iter()
                .map(|file| (file.path.as_str(), file.bytes.len()))
                .collect::<Vec<_>>(),
            [("a.txt", 9)]
        );
        assert!(result.locks.seccomp, "{:?}", result.locks);
        let steps: Vec<String> = events
            .iter()
            .map(|event| match event {
                Event::Placed { start, .. } => start.as_str().to_owned(),
                Event::Progress(step) => step.clone(),
                Event::Started => "started".to_owned(),
                Event::Output { .. } => "output".to_owned(),
            })
            .collect();
        assert_eq!(steps[..5], ["cold", "created", "bound", "running", "started"]);
        let record = executor.get("team/app/uid", id).await.unwrap();
        assert_eq!(record.status, ExecutionStatus::Success);
        eventually(20, "the Job has its record", async || {
            let jobs = cluster.kubectl(&[
                "get",
                "jobs",
                "-n",
                &fixture.namespace,
                "-l",
                &format!("knack.dev/execution={id},knack.dev/skill=tested"),
                "-o",
                "jsonpath={.items[*].metadata.annotations.knack\\.dev/result}",
            ]);
            jobs.contains(r#""status":"success""#)
        })
        .await;
        executor.shutdown().await;
    });
}

/// Scripts name paths below /tmp whatever TMPDIR says. What is there is the run's alone, counts as its files, and is no result.
#[test]
fn tmp_is_a_folder_of_the_run_alone() {
    cluster_support::run("tmp_is_a_folder_of_the_run_alone", async |cluster| {
        let fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 0}})).await;
        let executor = fixture.owner().await;
        let source = "import os, tempfile\nprint(os.listdir('/tmp'), os.path.samefile('/tmp', tempfile.gettempdir()))\n\
                      open('/tmp/x', 'w').write('#!/bin/true')\nos.chmod('/tmp/x', 0o755)\n\
                      try: os.execv('/tmp/x', ['x'])\nexcept OSError as error: print(error.errno)";
        for _ in 0..2 {
            let result = within(60, executor.execute(python(source), CancellationToken::new()))
                .await
                .unwrap();
            assert_eq!(
                (result.stdout.text(), result.stderr.text(), result.files.len()),
                ("[] True\n13\n".into(), String::new().into(), 0)
            );
        }
        executor.shutdown().await;
    });
}

/// Only where the runtime says so: pools of processes need semaphores.
#[test]
fn shared_memory_is_there_where_the_runtime_says_so() {
    cluster_support::run("shared_memory_is_there_where_the_runtime_says_so", async |cluster| {
        let source = "import multiprocessing\ntry: multiprocessing.Semaphore(); print('made')\n\
                      except OSError as error: print(error.errno)\n\
                      try: open('/dev/shm/x', 'w'); print('written')\nexcept OSError as error: print(error.errno)";
        for (sandbox, expected) in [
            (json!({}), "13\n13\n"),
            (json!({"sharedMemory": true}), "made\nwritten\n"),
        ] {
            let spec = json!({"warmPool": {"replicas": 0}, "sandbox": sandbox});
            let fixture = Fixture::new(cluster, spec).await;
            let executor = fixture.owner().await;
            let result = within(60, executor.execute(python(source), CancellationToken::new()))
                .await
                .unwrap();
            assert_eq!(result.stdout.text(), expected, "{}", result.stderr.text());
            executor.shutdown().await;
        }
    });
}

/// What wheels for Linux do not bring: the libraries that PEP 600 has with the system, of those that a sandbox has a use for.
#[test]
fn the_libraries_that_wheels_expect_of_a_system_are_there() {
    cluster_support::run(
        "the_libraries_that_wheels_expect_of_a_system_are_there",
        async |cluster| {
            let fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 0}})).await;
            let executor = fixture.owner().await;
            let program = python(
                "import ctypes\nfor name in ['libstdc++.so.6', 'libgcc_s.so.1', 'libm.so.6', 'libz.so.1', 'libexpat.so.1']:\n    ctypes.CDLL(name)\nprint('all')",
            );
            let result = within(60, executor.execute(program, CancellationToken::new()))
                .await
                .unwrap();
            assert_eq!(
                (result.stdout.text(), result.stderr.text()),
                ("all\n".into(), String::new().into())
            );
            executor.shutdown().await;
        },
    );
}

#[test]
fn a_warm_run_takes_a_ready_pod_and_no_pod_is_used_twice() {
    cluster_support::run(
        "a_warm_run_takes_a_ready_pod_and_no_pod_is_used_twice",
        async |cluster| {
            let fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 2}})).await;
            let executor = fixture.owner().await;
            let (mut times, mut pods) = (Vec::new(), BTreeSet::new());
            for round in 0..10 {
                eventually(60, "two pods stand", async || executor.counts().ready == 2).await;
                let began = Instant::now();
                let program = python("import os; print(os.uname().nodename)");
                let result = within(60, executor.execute(program, CancellationToken::new()))
                    .await
                    .unwrap();
                times.push(began.elapsed());
                assert_eq!(
                    (result.exit, result.timings.start),
                    (Exit::Code(0), StartKind::Warm),
                    "{round}"
                );
                // A pod's host name is its own name.
                let pod = result.stdout.text().into_owned();
                assert!(
                    pods.insert(pod.clone()),
                    "round {round} ran in the pod of an earlier one: {pod}"
                );
            }
            times.sort();
            println!("warm: p50 {:?} all {times:?}", times[times.len() / 2]);
            executor.shutdown().await;
            fixture.no_pod_runs().await;
        },
    );
}

#[test]
fn an_id_runs_once_and_is_the_callers_own() {
    cluster_support::run("an_id_runs_once_and_is_the_callers_own", async |cluster| {
        let fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 0}})).await;
        let executor = fixture.owner().await;
        let request = python("import uuid; print(uuid.uuid4())");
        let (first, second) = tokio::join!(
            executor.execute(request.clone(), CancellationToken::new()),
            executor.execute(request.clone(), CancellationToken::new()),
        );
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first.stdout, second.stdout);
        let again = executor
            .execute(request.clone(), CancellationToken::new())
            .await
            .unwrap();
        assert_eq!(first.stdout, again.stdout);
        assert_eq!(
            executor.get("other/app/uid", request.id).await.unwrap_err(),
            ExecutionError::NotFound
        );
        assert_eq!(
            executor.cancel("other/app/uid", request.id).await.unwrap_err(),
            ExecutionError::NotFound
        );
        assert_eq!(
            executor.get("team/app/uid", fresh_id()).await.unwrap_err(),
            ExecutionError::NotFound
        );
        executor.shutdown().await;
    });
}

#[test]
fn a_cancelled_run_ends_and_says_so() {
    cluster_support::run("a_cancelled_run_ends_and_says_so", async |cluster| {
        let fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 1}})).await;
        let executor = fixture.owner().await;
        eventually(60, "a pod stands", async || executor.counts().ready == 1).await;
        let mut request = python("import time; time.sleep(110)");
        request.limits.timeout = Duration::from_mins(2);
        let id = request.id;
        let running = executor.execute(request, CancellationToken::new());
        let cancel = async {
            eventually(10, "it runs", async || {
                executor
                    .get("team/app/uid", id)
                    .await
                    .is_ok_and(|record| record.status == ExecutionStatus::Running)
            })
            .await;
            let began = Instant::now();
            executor.cancel("team/app/uid", id).await.unwrap();
            began
        };
        let (outcome, began) = tokio::join!(running, cancel);
        assert_eq!(outcome.unwrap_err(), ExecutionError::Cancelled);
        // At once on an idle machine; and on any other long before the program would have ended.
        assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
        executor.shutdown().await;
    });
}

/// An image without the runner: it comes by an image volume.
#[test]
fn a_foreign_image_gets_the_runner_by_an_image_volume() {
    cluster_support::run("a_foreign_image_gets_the_runner_by_an_image_volume", async |cluster| {
        let mut fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 0}})).await;
        fixture.resolved.image = cluster.image("busybox");
        fixture.resolved.runner = RunnerSource::ImageVolume {
            image: cluster.image("runner"),
        };
        let executor = fixture.owner().await;
        let argv = ["/bin/busybox", "sh", "-c", "echo from afar > a.txt; cat a.txt"].map(str::to_owned);
        let request = ExecutionRequest {
            program: Program::Command { argv: argv.into() },
            ..python("")
        };
        let result = within(60, executor.execute(request, CancellationToken::new()))
            .await
            .unwrap();
        assert_eq!(
            (result.exit, result.stdout.text()),
            (Exit::Code(0), "from afar\n".into())
        );
        assert_eq!(result.files.len(), 1);
        assert!(result.locks.seccomp, "{:?}", result.locks);
        executor.shutdown().await;
    });
}

/// Writes what it is given to both streams, and tries to write it to the stream of PID 1, which is the journal.
const FORGER: &str = r#"
import os, sys
forged = open("forged").read()
sys.stdout.write(forged)
sys.stderr.write(forged)
sys.stdout.flush()
for path in ["/proc/1/fd/1", f"/proc/{os.getppid()}/fd/1"]:
    try:
        open(path, "w").write(forged)
        print("opened", path)
    except OSError:
        pass
sys.exit(7)
"#;

/// What a program writes is its output, whatever it looks like: in the answer, in the journal that a new owner reads, and
/// in a journal that is not sealed.
#[test]
fn frames_that_a_program_forges_are_its_output() {
    cluster_support::run("frames_that_a_program_forges_are_its_output", async |cluster| {
        let kinds = [
            "claimed", "ready", "started", "output", "file", "sealed", "rejected", "result",
        ];
        let frame = |kind| json!({"type": kind, "nonce": "", "id": "x", "exit": {"type": "code", "code": 0}});
        let forged: String = kinds.iter().map(|kind| format!("{}\n", frame(kind))).collect();
        for logs in ["Sealed", "Plain"] {
            let spec = json!({"warmPool": {"replicas": 0}, "sandbox": {"logs": logs}});
            let fixture = Fixture::new(cluster, spec).await;
            let executor = fixture.owner().await;
            let mut request = python(FORGER);
            request.inputs = vec![InputFile {
                path: "forged".to_owned(),
                bytes: forged.clone().into(),
            }];
            let check = |result: &ExecutionResult| {
                assert_eq!(result.exit, Exit::Code(7), "{logs}");
                assert_eq!(result.stdout.text(), forged, "{logs}");
                assert_eq!(result.stderr.text(), forged, "{logs}");
                assert!(result.files.is_empty() && result.file_errors.is_empty(), "{logs}");
            };
            let first = within(60, executor.execute(request.clone(), CancellationToken::new())).await;
            check(&first.unwrap());
            executor.shutdown().await;
            let next = fixture.replica("next").await;
            within(30, next.wait_until_owner()).await;
            let again = within(60, next.execute(request, CancellationToken::new())).await;
            check(&again.unwrap());
            next.shutdown().await;
        }
    });
}
