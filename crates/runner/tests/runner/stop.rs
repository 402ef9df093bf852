//! SIGTERM to a runner that is PID 1, as kubelet sends it to a pod that is to end.

use std::process::{Command, ExitStatus};

use knack_runner::protocol::{Exit, FromRunner};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{RunReport, Runner, WAITS, code, is_skipped, python};

/// A runner in a PID namespace of its own.
struct Pod {
    runner: Runner,
    /// The runner's process id outside of the namespace.
    pid: Pid,
}

impl Pod {
    fn start() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", env!("CARGO_BIN_EXE_knack-runner")]);
        let mut runner = Runner::boot_with(command);
        let start = runner.start_frame(python());
        runner.start(start);
        drop(runner.wait_ready());
        let path = format!("/proc/{0}/task/{0}/children", runner.pid());
        let children = std::fs::read_to_string(path).unwrap();
        let pid = Pid::from_raw(children.trim().parse().unwrap()).unwrap();
        Self { runner, pid }
    }

    fn terminate(&self) {
        kill_process(self.pid, Signal::TERM).unwrap();
    }

    /// The signal from a process inside the namespace, as `kubectl exec` could send it.
    fn terminate_from_inside(&self) {
        let status = Command::new("nsenter")
            .args(["--pid", "--target", &self.pid.as_raw_nonzero().to_string(), "--"])
            .args(["kill", "-TERM", "1"])
            .status()
            .unwrap();
        assert!(status.success());
    }

    fn run(&mut self, source: &str) -> RunReport {
        self.runner.run(code(source));
        let mut report = RunReport::default();
        self.runner
            .read_until(&mut report, |frame| matches!(frame, FromRunner::Output(_)));
        report
    }

    fn wait(&mut self) -> ExitStatus {
        let mut report = RunReport::default();
        self.runner.read_until(&mut report, |_| false);
        assert!(report.frames.is_empty(), "{:?}", report.frames);
        self.runner.wait()
    }
}

fn slow() -> String {
    format!("print('on', flush=True)\n{WAITS}print('done')")
}

const ENDLESS: &str = "import time\nprint('on', flush=True)\ntime.sleep(60)";

#[test]
fn a_pod_without_a_run_goes_at_once() {
    if is_skipped("a_pod_without_a_run_goes_at_once") {
        return;
    }
    let mut pod = Pod::start();
    pod.terminate();
    assert!(pod.wait().success());
}

#[test]
fn a_run_is_finished_before_its_pod_goes() {
    if is_skipped("a_run_is_finished_before_its_pod_goes") {
        return;
    }
    let mut pod = Pod::start();
    let mut report = pod.run(&slow());
    pod.terminate();
    pod.until_the_signal_is_taken();
    pod.runner.let_go();
    pod.runner.finish_into(&mut report);
    assert_eq!(
        (report.out().as_str(), report.exit()),
        ("on\ndone\n", &Exit::Code { code: 0 })
    );
}

#[test]
fn a_second_stop_does_not_wait() {
    if is_skipped("a_second_stop_does_not_wait") {
        return;
    }
    let mut pod = Pod::start();
    let mut report = pod.run(ENDLESS);
    pod.terminate();
    // The kernel keeps one signal of a kind: the second is a second one once the first was taken.
    pod.until_the_signal_is_taken();
    pod.terminate();
    pod.runner.finish_into(&mut report);
    assert_eq!(report.exit(), &Exit::Cancelled);
}

/// What runs inside can end neither its own pod nor its run that way.
#[test]
fn signals_from_inside_change_nothing() {
    if is_skipped("signals_from_inside_change_nothing") {
        return;
    }
    let mut pod = Pod::start();
    pod.terminate_from_inside();
    let mut report = pod.run(&slow());
    pod.terminate_from_inside();
    pod.terminate_from_inside();
    pod.until_the_signal_is_taken();
    pod.runner.let_go();
    pod.runner.finish_into(&mut report);
    assert_eq!(
        (report.out().as_str(), report.exit()),
        ("on\ndone\n", &Exit::Code { code: 0 })
    );
}

impl Pod {
    fn until_the_signal_is_taken(&self) {
        while self.is_signal_pending() {
            std::thread::yield_now();
        }
    }

    fn is_signal_pending(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid.as_raw_nonzero())).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
        u64::from_str_radix(pending.trim(), 16).unwrap() != 0
    }
}
