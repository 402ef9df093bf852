//! What a model reads of a run that ended at a lock of the sandbox: the errors of the programs name a call, not the rule.

/// Lines before the end of an error that say what it was. A traceback of Python repeats the file's name on every second one.
const LINES: usize = 60;

const NETWORK: &str = "Runs have no network, not even localhost.";
const EXECUTE: &str =
    "Runs cannot execute files of the working directory; give them to an interpreter, such as python3 or node.";
const SEMAPHORES: &str = "Runs have no /dev/shm, which semaphores, pools and shared memory of multiprocessing need; use threads or \
                          subprocess.";

/// Follows the result of a run that ended because of a lock of the sandbox; `None` for every other run.
pub fn refused_by_sandbox(stderr: &str) -> Option<&'static str> {
    let text = stderr.trim_end();
    let last = text.lines().next_back()?;
    if last.starts_with("Node.js v") {
        return of_node(text);
    }
    of_shell(last).or_else(|| of_python(text, last))
}

/// The error of a program of Python, by its last line and the files of its traceback.
fn of_python(text: &str, last: &str) -> Option<&'static str> {
    let raised_in = |file: &str| {
        let mut frames = text.lines().rev().take(LINES);
        frames.any(|line| line.trim_start().starts_with("File \"") && line.contains(file))
    };
    if last.starts_with([' ', '\t']) {
        return None;
    }
    // A socket is refused with EPERM; what cannot be opened is EACCES, also in a program with a socket.
    let is_of_socket = ["[Errno 1] ", "[Errno -2] ", "[Errno -3] "];
    if is_of_socket.iter().any(|errno| last.contains(errno)) && raised_in("/socket.py\"") {
        return Some(NETWORK);
    }
    let is_closed = ["PermissionError: [Errno 13] ", "OSError: [Errno 30] "];
    if is_closed.iter().any(|error| last.starts_with(error))
        && (raised_in("/multiprocessing/synchronize.py\"") || raised_in("/multiprocessing/shared_memory.py\""))
    {
        return Some(SEMAPHORES);
    }
    if let Some(path) = last.strip_prefix("PermissionError: [Errno 13] Permission denied") {
        let path = path.trim_start_matches(": '");
        if raised_in("/subprocess.py\"") && (!path.starts_with('/') || path.contains("/work/")) {
            return Some(EXECUTE);
        }
    }
    None
}

/// The error of a program of Node, which has it before the stack and its own version after that.
fn of_node(text: &str) -> Option<&'static str> {
    const SOCKET: [&str; 6] = [
        "Error: listen E",
        "Error: connect EPERM",
        "Error: connect EACCES",
        "Error: getaddrinfo E",
        "Error: bind EPERM",
        "Error: send EPERM",
    ];
    text.lines().rev().take(LINES).find_map(|line| {
        if SOCKET.iter().any(|error| line.contains(error)) && !line.contains("EADDR") {
            return Some(NETWORK);
        }
        let spawned = line.split_once("Error: spawn ")?.1.strip_suffix(" EACCES")?;
        (!spawned.starts_with('/') || spawned.contains("/work/")).then_some(EXECUTE)
    })
}

/// `sh: 1: ./tool: Permission denied`, `bash: line 1: ./tool: Permission denied`.
fn of_shell(last: &str) -> Option<&'static str> {
    let (before, path) = last.strip_suffix(": Permission denied")?.rsplit_once(": ")?;
    let shell = before.split(':').next()?;
    let is_shell = ["sh", "bash", "dash"].contains(&shell.rsplit('/').next()?);
    (is_shell && (path.starts_with("./") || path.contains("/work/"))).then_some(EXECUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traceback(frames: &[&str], last: &str) -> String {
        let frames: String = frames
            .iter()
            .map(|file| format!("  File \"{file}\", line 1, in x\n    y()\n"))
            .collect();
        format!("Traceback (most recent call last):\n{frames}{last}\n")
    }

    #[test]
    fn errors_at_a_lock_of_the_sandbox_say_what_runs_do_not_have() {
        let socket = "/usr/lib/python3.11/socket.py";
        let subprocess = "/usr/lib/python3.11/subprocess.py";
        let python = |frames: &[&str], last: &str, message| (traceback(frames, last), message);
        let node = |error: &str, message| {
            let text =
                format!("node:events:497\n      throw er;\n\n{error}\n    at x (node:net:1:1)\n\nNode.js v20.19.2\n");
            (text, message)
        };
        let not_permitted = "PermissionError: [Errno 1] Operation not permitted";
        let denied = |path: &str| format!("PermissionError: [Errno 13] Permission denied: '{path}'");
        for (stderr, message) in [
            python(&["<string>", socket], not_permitted, Some(NETWORK)),
            python(
                &["<string>", "/usr/lib/python3.11/urllib/request.py", socket],
                "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
                Some(NETWORK),
            ),
            python(&["/usr/lib/python3.11/asyncio/runners.py"], not_permitted, None),
            python(&["<string>", socket], &denied("/etc/shadow"), None),
            python(&[socket], "ConnectionError: mine", None),
            python(&["<string>", subprocess], &denied("./tool"), Some(EXECUTE)),
            python(
                &[subprocess],
                &denied("/tmp/knack-sandbox-0/block-0/run-1/work/tool"),
                Some(EXECUTE),
            ),
            python(&[subprocess], &denied("/opt/tool"), None),
            python(&["<string>"], &denied("./data.csv"), None),
            python(
                &["/usr/lib/python3.11/multiprocessing/synchronize.py"],
                "PermissionError: [Errno 13] Permission denied",
                Some(SEMAPHORES),
            ),
            python(
                &["/usr/lib/python3.11/multiprocessing/synchronize.py"],
                "OSError: [Errno 30] Read-only file system",
                Some(SEMAPHORES),
            ),
            python(&["<string>"], "OSError: [Errno 30] Read-only file system: '/x'", None),
            python(
                &["/usr/lib/python3.11/multiprocessing/shared_memory.py"],
                &denied("/psm_1"),
                Some(SEMAPHORES),
            ),
            node(
                "Error: listen EPERM: operation not permitted 0.0.0.0:8080",
                Some(NETWORK),
            ),
            node(
                "TypeError: fetch failed\n  [cause]: Error: connect EPERM 127.0.0.1:80",
                Some(NETWORK),
            ),
            node("Error: getaddrinfo EAI_AGAIN localhost", Some(NETWORK)),
            node("Error: spawn ./node_modules/.bin/x EACCES", Some(EXECUTE)),
            node("Error: spawn /opt/x EACCES", None),
            node("Error: EACCES: permission denied, open '/etc/shadow'", None),
            ("sh: 1: ./tool: Permission denied\n".to_owned(), Some(EXECUTE)),
            (
                "/bin/bash: line 1: ./tool: Permission denied\n".to_owned(),
                Some(EXECUTE),
            ),
            ("cat: ./tool: Permission denied\n".to_owned(), None),
            ("Error: listen EPERM\nwent on\n".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(refused_by_sandbox(&stderr), message, "{stderr}");
        }
    }
}
