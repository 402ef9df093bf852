//! The two servers under measurement, as processes of their own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server process; killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The floor proxy.
#[derive(Debug)]
pub(crate) struct Floor {
    /// Base URL.
    pub url: String,
    /// Process id.
    pub pid: u32,
    _server: Server,
}

/// `knack dev` with 100 skills.
#[derive(Debug)]
pub(crate) struct Knack {
    /// Base URL.
    pub url: String,
    /// Process id.
    pub pid: u32,
    _server: Server,
}

/// What the gateway's saved turn store holds while it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredTurns {
    /// Nothing: histories are not hashed.
    Empty,
    /// As much as a sidecar's store holds (4 MiB).
    Full,
}

/// Skills of the catalog.
const SKILLS: usize = 100;

fn beside(name: &str) -> PathBuf {
    // target/release/deps/gateway-… -> target/release
    let own = std::env::current_exe().expect("this program has a path");
    let folder = own
        .parent()
        .and_then(Path::parent)
        .expect("a bench stands in target/release/deps");
    let path = folder.join(name);
    assert!(
        path.is_file(),
        "{} is missing: run `make bench`, which builds it",
        path.display()
    );
    path
}

async fn wait_for_port(file: &Path) -> String {
    for _ in 0..12_000 {
        if let Ok(text) = std::fs::read_to_string(file)
            && text.ends_with('\n')
        {
            return format!("http://127.0.0.1:{}", text.trim());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the server did not start within two minutes");
}

impl Floor {
    /// Starts it with the system text that it has to add.
    pub(crate) async fn start(upstream: &str, system: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (text, port) = (folder.path().join("system.txt"), folder.path().join("port"));
        std::fs::write(&text, system).expect("a writable folder");
        let child = Command::new(beside("floor_proxy"))
            .arg(upstream)
            .arg(&text)
            .arg(&port)
            .spawn()
            .expect("the floor starts");
        let (pid, url) = (child.id(), wait_for_port(&port).await);
        Self {
            url,
            pid,
            _server: Server { child, _folder: folder },
        }
    }
}

impl Knack {
    /// Starts it with its skills and uploads in a folder of its own. Code is not run in these rows, so no sandbox is started.
    pub(crate) async fn start(upstream: &str, records: StoredTurns) -> Self {
        Self::start_on(upstream, records, None).await
    }

    /// As [`Knack::start`], with the uploads of this folder.
    pub(crate) async fn start_on(upstream: &str, records: StoredTurns, registry: Option<&Path>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let own = folder.path().join("registry");
        let (skills, port) = (folder.path().join("skills"), folder.path().join("port"));
        for n in 0..SKILLS {
            let skill = skills.join(format!("skill-{n:03}"));
            std::fs::create_dir_all(skill.join("scripts")).expect("a writable folder");
            let text = format!(
                "---\nname: skill-{n:03}\ndescription: Handles matter number {n} of the office. Use when somebody asks for matter {n}.\n---\n# Matter {n}\n\n{}\n",
                "Do this, then that, and write the result down.\n".repeat(40)
            );
            std::fs::write(skill.join("SKILL.md"), text).expect("a writable folder");
            std::fs::write(skill.join("scripts/run.py"), "print('done')\n").expect("a writable folder");
        }
        let mut command = Command::new(beside("knack"));
        command
            .arg("dev")
            .arg(&skills)
            .args([
                "--listen",
                "127.0.0.1:0",
                "--no-local-executor",
                "--upstream",
                upstream,
                "--print-port-file",
            ])
            .arg(&port)
            .arg("--registry")
            .arg(registry.unwrap_or(&own));
        if records == StoredTurns::Full {
            command.args(["--record-store-mib", "4"]);
        }
        let child = command
            .stdout(Stdio::null())
            .current_dir(folder.path())
            .spawn()
            .expect("knack starts");
        let (pid, url) = (child.id(), wait_for_port(&port).await);
        Self {
            url,
            pid,
            _server: Server { child, _folder: folder },
        }
    }
}
