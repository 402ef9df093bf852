//! What is attacked: a network with a peer, a victim with dummy secrets, files outside.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::column::WITHOUT_LANDLOCK;
use crate::table;

/// The uid of the victim, of the first control and of the bare host's knack.
pub(crate) const UID: u32 = 65532;

/// From the blocks for documentation (RFC 5737, RFC 3849): never routed anywhere.
const PEER_V4: &str = "203.0.113.1";
const PEER_V6: &str = "2001:db8::1";

const ABSTRACT: &str = "knack-attack-victim";

/// Python of the controls: one that every uid can reach.
const PYTHON: &str = "/usr/bin/python3";

/// Most controls wait for a process to start; the machine may have two cores.
const CONTROLS_AT_ONCE: usize = 3;

/// Columns and whose knack runs them. Those of older kernels have no mounts of their own either, which would hide what
/// Landlock and the syscall filter do: neither is there on every kernel that has Landlock.
pub(crate) const COLUMNS: [(&str, u32); 9] = [
    ("bare-host", UID),
    ("host-cgroup", 0),
    ("no-mounts", UID),
    ("abi-6-no-mounts", UID),
    ("abi-5-no-mounts", UID),
    ("abi-4-no-mounts", UID),
    ("abi-3-no-mounts", UID),
    ("abi-2-no-mounts", UID),
    ("abi-1-no-mounts", UID),
];

/// Whether a column's runner takes less of the kernel than there is; its name then says what.
pub(crate) fn plays_another_kernel(column: &str) -> bool {
    column.contains("no-mounts")
}

/// The names of all kernels that are played.
pub(crate) fn kernels() -> impl Iterator<Item = &'static str> {
    let columns = COLUMNS.into_iter().map(|(column, _)| column);
    columns
        .filter(|column| plays_another_kernel(column))
        .chain([WITHOUT_LANDLOCK])
}

/// What this machine does not have for the suite, in one line.
pub(crate) fn missing() -> Option<String> {
    let id = Command::new("id").arg("-u").output().ok()?;
    if id.stdout.trim_ascii() != b"0" {
        return Some("they need root, to make network and PID namespaces; run: sudo -E make test".to_owned());
    }
    let tools = [
        ("ip", "iproute2"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("setpriv", "util-linux"),
    ];
    for (tool, package) in tools {
        let found = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
            .iter()
            .any(|dir| Path::new(dir).join(tool).exists());
        if !found {
            return Some(format!("{tool} is missing; run: apt-get install {package}"));
        }
    }
    if !Path::new(PYTHON).exists() {
        return Some(format!("{PYTHON} is missing; run: apt-get install python3"));
    }
    let probe = Command::new("unshare")
        .args(["--net", "--pid", "--fork", "--mount", "true"])
        .status();
    match probe {
        Ok(status) if status.success() => None,
        _ => Some("namespaces cannot be made here (a container without CAP_SYS_ADMIN?)".to_owned()),
    }
}

#[expect(
    clippy::zombie_processes,
    reason = "this is the PID 1 of a namespace of its own: the peer ends with it"
)]
/// Runs inside the namespaces, as their PID 1: builds the targets, runs the columns, compares.
pub(crate) fn main(directory: &Path) -> ExitCode {
    let peer = network(directory);
    files(directory);
    let (_victim, pid, address) = victim(directory);
    let targets = json!({
        "v4": PEER_V4, "v6": PEER_V6, "peer": peer.id(), "victim": pid, "victim_address": address,
        "unix_path": directory.join("open/victim.sock"), "unix_abstract": ABSTRACT, "outside": directory.join("open"),
        "link_source": directory.join("open/own-file"), "readable": "/usr/local/sbin/own-tool",
        "token": "/run/secrets/token", "setuid_id": "/usr/local/sbin/knack-id", "mounted": "/run/mounted",
    });
    fs::write(directory.join("world.json"), targets.to_string()).unwrap();
    let controls = controls(directory, &targets);
    let mut failed = false;
    let columns = std::thread::scope(|scope| {
        COLUMNS
            .map(|(column, uid)| scope.spawn(move || run_column(directory, column, uid)))
            .map(|column| column.join().unwrap())
    });
    for ((column, _), cells) in COLUMNS.into_iter().zip(columns) {
        match cells {
            Err(reason) => println!("SKIPPED test attacks::{column}: {reason}"),
            Ok(cells) => failed |= !table::compare(column, &controls, &cells),
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn sh(script: &str) {
    let status = Command::new("sh").args(["-ec", script]).status().unwrap();
    assert!(status.success(), "{script}");
}

/// A veth pair: our end here, the other in the peer's own network namespace.
fn network(directory: &Path) -> Child {
    let mut peer = Command::new("unshare")
        .args(["--net", PYTHON])
        .arg(directory.join("targets.py"))
        .arg("peer")
        .env("KNACK_V4", PEER_V4)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = peer.id();
    // The peer has its namespace once it differs from Knack's; `unshare` execs, so the pid stays.
    let ours = fs::read_link("/proc/self/ns/net").unwrap();
    while fs::read_link(format!("/proc/{pid}/ns/net")).unwrap() == ours {
        std::thread::yield_now();
    }
    sh(&format!(
        "ip link set lo up
         echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range
         ip link add knack0 type veth peer name knack1 netns {pid}
         ip addr add 203.0.113.2/24 dev knack0
         ip -6 addr add 2001:db8::2/64 dev knack0 nodad
         ip link set knack0 up
         nsenter --net=/proc/{pid}/ns/net sh -ec '
           ip link set lo up
           ip addr add {PEER_V4}/24 dev knack1
           ip addr add 169.254.169.254/32 dev knack1
           ip -6 addr add {PEER_V6}/64 dev knack1 nodad
           ip link set knack1 up'
         ip route add default via {PEER_V4}
         ip -6 route add default via {PEER_V6}"
    ));
    let mut stdin = peer.stdin.take().unwrap();
    writeln!(stdin, "go").unwrap();
    let mut line = String::new();
    BufReader::new(peer.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    peer
}

/// Files and mounts; all mounts are in our own mount namespace.
fn files(directory: &Path) {
    let open = directory.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for (name, mode, owner) in [("open-file", 0o666, 0), ("own-file", 0o666, UID)] {
        let path = open.join(name);
        fs::write(&path, "outside").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
    }
    let root_only = directory.join("root-only");
    fs::write(&root_only, "dummy root file").unwrap();
    fs::set_permissions(&root_only, fs::Permissions::from_mode(0o600)).unwrap();
    let resolver = directory.join("resolv.conf");
    fs::write(
        &resolver,
        format!("nameserver {PEER_V4}\noptions timeout:2 attempts:1\n"),
    )
    .unwrap();
    sh(&format!(
        "mount --bind {} /etc/resolv.conf
         mount -t tmpfs -o mode=755 none /run
         mkdir -m 755 /run/secrets /run/mounted
         mount -t tmpfs -o mode=755 none /run/mounted
         echo dummy-token > /run/secrets/token
         chmod 644 /run/secrets/token
         mount -t tmpfs -o mode=755 none /usr/local/sbin
         cp /usr/bin/id /usr/local/sbin/knack-id
         chmod 4755 /usr/local/sbin/knack-id
         echo own > /usr/local/sbin/own-tool
         chown {UID}:{UID} /usr/local/sbin/own-tool
         mount -t tmpfs -o mode=1777 none /dev/shm
         mkdir {places}
         mount -t tmpfs -o mode=755 none {places}
         mkdir -p /mnt",
        resolver.display(),
        places = directory.join("places").display()
    ));
}

fn victim(directory: &Path) -> (Child, u32, u64) {
    let mut child = setpriv(UID)
        .args([PYTHON])
        .arg(directory.join("targets.py"))
        .arg("victim")
        .arg(directory.join("open/victim.sock"))
        .arg(ABSTRACT)
        .env_clear()
        .env("VICTIM_SECRET", "dummy-secret")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let mut words = line.split_whitespace();
    let pid = words.next().unwrap().parse().unwrap();
    let address = words.next().unwrap().parse().unwrap();
    (child, pid, address)
}

fn setpriv(uid: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args([
        format!("--reuid={uid}"),
        format!("--regid={uid}"),
        "--clear-groups".to_owned(),
    ]);
    command
}

/// Names of all attacks, or of a part of them.
pub(crate) fn names(directory: &Path, which: &str) -> Vec<String> {
    let output = Command::new(PYTHON)
        .arg(directory.join("attacks.py"))
        .arg(which)
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Each attack unlocked: the uid that opened it, or the errno that root got.
fn controls(directory: &Path, targets: &Value) -> BTreeMap<String, table::Control> {
    // A link cannot leave its file system, and the controls' places are on one of their own.
    let mut targets = targets.clone();
    let link_source = directory.join("places/own-file");
    fs::write(&link_source, "outside").unwrap();
    chown(&link_source, Some(UID), Some(UID)).unwrap();
    targets["link_source"] = json!(link_source);
    let run = |name: &str, uid: u32| {
        // A fresh place for each, since attacks leave files behind.
        let place = directory.join(format!("places/{name}-{uid}"));
        fs::create_dir(&place).unwrap();
        chown(&place, Some(uid), Some(uid)).unwrap();
        let mut command = setpriv(uid);
        let inner = [PYTHON, "-I", "-X", "utf8"];
        let script = directory.join("attacks.py");
        command.args(["sh", "-c", "exec 7<\"$1\"; shift; exec timeout -k 1 30 \"$@\"", "sh"]);
        command
            .arg(descriptor_7(directory, uid))
            .args(inner)
            .arg(script)
            .arg("--control")
            .arg(name);
        command
            .env_clear()
            .env("KNACK_TARGETS", targets.to_string())
            .env("KNACK_DUMMY_SECRET", "dummy");
        let output = command.current_dir(&place).stderr(Stdio::null()).output().unwrap();
        fs::remove_dir_all(&place).unwrap();
        outcome(&output)
    };
    let control = |name: &str| match run(name, UID) {
        opened if opened == "OPEN" => table::Control::OpenTo("uid 65532"),
        _ => match run(name, 0) {
            opened if opened == "OPEN" => table::Control::OpenTo("root"),
            closed => table::Control::ClosedByKernel(closed),
        },
    };
    let queue = Mutex::new(names(directory, "--list"));
    let controls = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..CONTROLS_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(name) = queue.lock().unwrap().pop() else { break };
                    let control = control(&name);
                    controls.lock().unwrap().insert(name, control);
                }
            });
        }
    });
    controls.into_inner().unwrap()
}

/// A uid other than root cannot open the root-only file itself: it inherits a file it can open, which shows the same.
fn descriptor_7(directory: &Path, uid: u32) -> PathBuf {
    if uid == 0 {
        return directory.join("root-only");
    }
    let path = directory.join("dummy-for-all");
    fs::write(&path, "dummy file").unwrap();
    path
}

fn outcome(output: &Output) -> String {
    table::outcome_of(&String::from_utf8_lossy(&output.stdout)).unwrap_or_else(|| format!("{}", output.status))
}

/// Runs the column in a process of its own and reads its cells. An error is a reason to skip; a failure panics.
#[expect(
    clippy::unwrap_in_result,
    reason = "a column that fails must not look like one that is skipped"
)]
fn run_column(directory: &Path, column: &str, uid: u32) -> Result<BTreeMap<String, String>, String> {
    let suite = directory.join("suite");
    let mut command = setpriv(uid);
    // The directory's name is unique on this host; pids here are those of our own namespace.
    let name = directory.file_name().unwrap().to_string_lossy();
    let cgroup = (column == "host-cgroup").then(|| Cgroup::new(&name)).transpose()?;
    let enter = cgroup.as_ref().map(Cgroup::enter).unwrap_or_default();
    // Descriptor 7 and the secret must not reach the runs, though knack itself inherits both.
    command.args(["sh", "-c", &format!("{enter} exec 7<\"$1\"; shift; exec \"$@\""), "sh"]);
    command
        .arg(descriptor_7(directory, uid))
        .arg(suite)
        .arg("--column")
        .arg(column)
        .arg(directory);
    command
        .env_clear()
        .env("KNACK_DUMMY_SECRET", "dummy")
        .env("PATH", "/usr/bin:/bin");
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "column {column}: {} {text}", output.status);
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap())
}

/// A cgroup of the test; removed when dropped, after everything in it has ended.
struct Cgroup {
    directories: Vec<PathBuf>,
}

/// Hierarchy, process limit file, memory limit file: cgroup v2, or the two hierarchies of v1.
type Limit = (PathBuf, &'static str, &'static str);

impl Cgroup {
    fn new(name: &str) -> Result<Self, String> {
        let root = Path::new("/sys/fs/cgroup");
        let limits: Vec<Limit> = if root.join("cgroup.controllers").exists() {
            // Where another manager owns the root this fails, and so does the next step, which reports it.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+pids +memory");
            vec![
                (root.join(name), "pids.max", "512"),
                (root.join(name), "memory.max", "1073741824"),
            ]
        } else {
            vec![
                (root.join("pids").join(name), "pids.max", "512"),
                (root.join("memory").join(name), "memory.limit_in_bytes", "1073741824"),
            ]
        };
        let mut cgroup = Self {
            directories: Vec::new(),
        };
        for (directory, file, value) in limits {
            if !directory.exists() {
                fs::create_dir(&directory).map_err(|error| format!("no cgroup can be made here ({error})"))?;
                cgroup.directories.push(directory.clone());
            }
            fs::write(directory.join(file), value).map_err(|error| format!("{file} cannot be set ({error})"))?;
        }
        Ok(cgroup)
    }

    /// Shell words that enter it.
    fn enter(&self) -> String {
        self.directories
            .iter()
            .map(|directory| format!("echo $$ > {}/cgroup.procs; ", directory.display()))
            .collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for directory in &self.directories {
            // The last process may not be reaped yet.
            for _ in 0..100 {
                if fs::remove_dir(directory).is_ok() {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }
}
