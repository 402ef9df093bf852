//! Programs run as if they had been started by hand.

use std::collections::BTreeMap;

use knack_runner::protocol::{Area, Cwd, Exit, Interpreter, LandlockState, Language, Limits, Program, Run};

use crate::skip::skip;
use crate::support::{RunReport, Runner, code, python, run_command, run_python};

#[test]
fn python_code_runs_as_main() {
    let report = run_python(
        "import sys, os\nprint(__name__, sys.argv, sys.stdin.read() == '', os.getcwd() == os.environ['KNACK_WORK_DIR'])\n",
    );
    assert_eq!(report.out(), "__main__ ['-c'] True True\n");
    assert_eq!((report.err().as_str(), report.exit()), ("", &Exit::Code { code: 0 }));
    let locks = report.result().locks.unwrap();
    assert!(
        locks.seccomp && locks.landlock == LandlockState::FullyEnforced && locks.landlock_abi >= 6,
        "{locks:?}"
    );
    assert_eq!(report.ready[0].locks, Some(locks));
}

#[test]
fn tracebacks_show_the_code_and_nothing_of_ours() {
    let report = run_python("def f(x):\n    return 1 / x\n\nprint('a')\nf(0)\n");
    assert_eq!(report.exit(), &Exit::Code { code: 1 });
    assert_eq!(report.out(), "a\n");
    assert_eq!(
        report.err(),
        "Traceback (most recent call last):\n  File \"<code>\", line 5, in <module>\n    f(0)\n  File \"<code>\", line 2, in f\n    return 1 / x\n           ~~^~~\nZeroDivisionError: division by zero\n"
    );
    let report = run_python("x = (\n");
    assert!(
        report.err().starts_with("  File \"<code>\", line 1\n    x = (\n"),
        "{}",
        report.err()
    );
    assert_eq!(report.exit(), &Exit::Code { code: 1 });
}

#[test]
fn exit_codes_and_signals_are_reported() {
    for (source, exit) in [
        ("import sys; sys.exit(7)", Exit::Code { code: 7 }),
        ("import sys; sys.exit('text')", Exit::Code { code: 1 }),
        ("import os; os._exit(255)", Exit::Code { code: 255 }),
        ("import os; os.abort()", Exit::Signal { signal: 6 }),
        ("import os; os.kill(os.getpid(), 9)", Exit::Signal { signal: 9 }),
        ("import ctypes; ctypes.string_at(0)", Exit::Signal { signal: 11 }),
    ] {
        assert_eq!(run_python(source).exit(), &exit, "{source}");
    }
}

/// What is tried, the program, its stdout and its exit code. Each leaves `text` in the file `f`.
const ENDINGS: &[(&str, &str, &str, i32)] = &[
    ("an open text file", "f = open('f', 'w')\nf.write('text')", "", 0),
    (
        "layers of an open file",
        "import io\nraw = open('f', 'wb', buffering=0)\nb = io.BufferedWriter(raw)\nt = io.TextIOWrapper(b)\nt.write('te')\nt.flush()\nt.write('xt')",
        "",
        0,
    ),
    (
        "an open gzip file",
        "import gzip\nx = gzip.open('g', 'wb')\nx.write(b'1')\nopen('f', 'w').write('text')",
        "",
        0,
    ),
    (
        "the file of a program that fails",
        "f = open('f', 'w')\nf.write('text')\n1 / 0",
        "",
        1,
    ),
    (
        "exit callbacks, last first",
        "import atexit\natexit.register(print, 'a')\natexit.register(print, 'b')\nopen('f', 'w').write('text')",
        "b\na\n",
        0,
    ),
    (
        "a callback that fails",
        "import atexit\natexit.register(lambda: 1 / 0)\nf = open('f', 'w')\nf.write('text')",
        "",
        0,
    ),
    (
        "__del__ of a global",
        "class A:\n    def __del__(self): print('del')\na = A()\nopen('f', 'w').write('text')",
        "del\n",
        0,
    ),
    (
        "__del__ without a collector",
        "class A:\n    __slots__ = ()\n    def __del__(self): print('del')\na = A()\nopen('f', 'w').write('text')",
        "del\n",
        0,
    ),
    (
        "a thread that works on",
        "import threading, time\ndef late():\n    time.sleep(0.2)\n    f.write('text')\nf = open('f', 'w')\nthreading.Thread(target=late).start()",
        "",
        0,
    ),
    (
        "a daemon thread",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nf = open('f', 'w')\nf.write('text')",
        "",
        0,
    ),
    (
        "a temporary directory",
        "import tempfile\nd = tempfile.TemporaryDirectory(dir='.')\nopen(d.name + '/x', 'w').write('x')\nopen('f', 'w').write('text')",
        "",
        0,
    ),
    (
        "a transaction",
        "import sqlite3\nc = sqlite3.connect('d.sqlite')\nc.execute('create table t (x)')\nc.execute('insert into t values (1)')\nf = open('f', 'w')\nf.write('text')",
        "",
        0,
    ),
    (
        "a forked child",
        "import os\nif os.fork():\n    os.wait()\n    print('parent')\nelse:\n    print('child')\n    f = open('f', 'w')\n    f.write('text')",
        "child\nparent\n",
        0,
    ),
    (
        "another stdout",
        "import io, sys\nsys.stdout = io.TextIOWrapper(open('f', 'wb'))\nprint('text', end='')",
        "",
        0,
    ),
    (
        "sys.exit",
        "import sys\nf = open('f', 'w')\nf.write('text')\nsys.exit(4)",
        "",
        4,
    ),
];

#[test]
fn the_end_of_a_program_is_that_of_the_interpreter() {
    for (name, source, out, code) in ENDINGS.iter().copied() {
        let report = run_python(source);
        assert_eq!(
            (report.out().as_str(), report.exit()),
            (out, &Exit::Code { code }),
            "{name}: {}",
            report.err()
        );
        assert_eq!(report.files.get("f").map(Vec::as_slice), Some(&b"text"[..]), "{name}");
        let others: Vec<_> = report
            .files
            .keys()
            .filter(|path| !["f", "g", "d.sqlite"].contains(&path.as_str()))
            .collect();
        assert!(others.is_empty(), "{name}: {others:?}");
        // Header, one byte, checksum and length: a file that was not closed has neither.
        assert!(report.files.get("g").is_none_or(|bytes| bytes.len() > 20), "{name}");
    }
}

#[test]
fn the_standard_library_works() {
    let report = run_python(
        r#"
import asyncio, subprocess, threading, sqlite3, tempfile, shutil, os, socket, concurrent.futures
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
async def main():
    process = await asyncio.create_subprocess_exec("echo", "async", stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()
print(asyncio.run(main()))
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(lambda x: x * x, range(10))))
db = sqlite3.connect("test.db"); db.execute("create table t(a)"); db.execute("insert into t values (1)"); db.commit()
print(db.execute("select * from t").fetchall())
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x"); file.flush()
    shutil.copy2(file.name, "copy")
os.makedirs("a/b"); os.rename("copy", "a/b/copy"); shutil.copytree("a", "c"); shutil.rmtree("a")
a, b = socket.socketpair(); a.send(b"pair"); print(b.recv(9).decode())
from multiprocessing import Process, Pipe
def work(pipe): pipe.send("forked")
here, there = Pipe()
process = Process(target=work, args=(there,)); process.start(); print(here.recv()); process.join()
"#,
    );
    assert_eq!(report.err(), "");
    assert_eq!(report.out(), "child\nasync\n285\n[(1,)]\npair\nforked\n");
    assert_eq!(report.files.keys().collect::<Vec<_>>(), ["c/b/copy", "test.db"]);
}

#[test]
fn skills_are_readable_and_their_scripts_run() {
    let mut runner = Runner::boot();
    let start = runner.start_frame(python());
    runner.start(start);
    runner.stage(Area::Skills, "tool/data.txt", b"from the skill", false);
    runner.stage(
        Area::Skills,
        "tool/lib/helper.py",
        b"def word():\n    return 'imported'\n",
        false,
    );
    runner.stage(Area::Skills, "tool/run.sh", b"#!/bin/sh\necho script $1\n", true);
    runner.stage(Area::Work, "in/input.txt", b"staged", false);
    runner.run_frame(Run {
        id: "x".to_owned(),
        context: String::new(),
        program: Program::Code {
            language: Language::Python,
            source: r#"
import sys, subprocess, os
print(open("skills/tool/data.txt").read(), sys.argv[1:], open("in/input.txt").read(), os.environ["GREETING"])
import helper; print(helper.word())
print(subprocess.run(["skills/tool/run.sh", "ok"], capture_output=True, text=True).stdout.strip())
for attempt in (lambda: open("skills/tool/new", "w"), lambda: open("skills/tool/data.txt", "a"), lambda: os.remove("skills/tool/data.txt")):
    try: attempt(); print("OPEN")
    except OSError as error: print(type(error).__name__)
open("in/input.txt", "a").write("!")
"#
            .to_owned(),
            arguments: vec!["one".to_owned(), "two words".to_owned()],
        },
        cwd: Cwd::Work,
        environment: BTreeMap::from([
            ("GREETING".to_owned(), "hallo = ü".to_owned()),
            ("PYTHONPATH".to_owned(), "skills/tool/lib".to_owned()),
        ]),
        limits: Limits::default(),
        require_landlock: 0,
    });
    let report = runner.finish();
    assert_eq!(report.err(), "");
    let expected = "from the skill ['one', 'two words'] staged hallo = ü\nimported\nscript ok\nPermissionError\nPermissionError\nPermissionError\n";
    assert_eq!(report.out(), expected);
    assert_eq!(
        report.files,
        BTreeMap::from([("in/input.txt".to_owned(), b"staged!".to_vec())])
    );
}

#[test]
fn commands_run_without_a_shell() {
    let report = run_command(&["echo", "$HOME;", "a b"]);
    assert_eq!(
        (report.out().as_str(), report.exit()),
        ("$HOME; a b\n", &Exit::Code { code: 0 })
    );
    let report = run_command(&["no-such-command"]);
    assert_eq!(
        report.exit(),
        &Exit::NotStarted {
            reason: "command not found: no-such-command".to_owned(),
            of_program: Some(true),
        }
    );
    let report = run_command(&["env"]);
    let names: Vec<String> = report
        .out()
        .lines()
        .map(|line| line.split('=').next().unwrap().to_owned())
        .collect();
    assert!(
        names
            .iter()
            .all(|name| ["PATH", "LANG", "HOME", "TMPDIR", "KNACK_WORK_DIR"].contains(&name.as_str())),
        "{names:?}"
    );
}

#[test]
fn a_declared_tool_runs_in_its_skill_folder() {
    for folder in ["tool", "team/tool"] {
        let report = runs_in(folder, folder);
        let end = format!("/skills/{folder}");
        assert!(report.out().trim_end().ends_with(&end), "{}", report.out());
        assert!(report.err().contains("ermission denied"), "{}", report.err());
        assert_eq!(report.files["out.txt"], b"made\n");
    }
    for (folder, cwd) in [
        ("tool", "../tool"),
        ("tool", "tool/"),
        ("tool", "/tool"),
        ("a/b/tool", "a/b/tool"),
    ] {
        let report = runs_in(folder, cwd);
        let Exit::NotStarted { reason, .. } = report.exit() else {
            panic!("{cwd}: {:?}", report.exit());
        };
        assert!(reason.contains("no files of the skill"), "{cwd}: {reason}");
    }
}

/// Runs a program of the skill in `folder` there.
fn runs_in(folder: &str, cwd: &str) -> RunReport {
    let script = b"#!/bin/sh\npwd; echo made > \"$KNACK_WORK_DIR/out.txt\"; touch here\n";
    runs_script(folder, cwd, script, true)
}

fn runs_script(folder: &str, cwd: &str, script: &[u8], executable: bool) -> RunReport {
    let mut runner = Runner::boot();
    let start = runner.start_frame(None);
    runner.start(start);
    runner.stage(Area::Skills, &format!("{folder}/scripts/t.sh"), script, executable);
    runner.run_frame(Run {
        id: "x".to_owned(),
        context: String::new(),
        program: Program::Command {
            argv: vec!["scripts/t.sh".to_owned()],
        },
        cwd: Cwd::Skill(cwd.to_owned()),
        environment: BTreeMap::new(),
        limits: Limits::default(),
        require_landlock: 0,
    });
    runner.finish()
}

#[test]
fn a_file_that_is_no_program_says_why_and_what_to_do() {
    let line = "name its interpreter before it in the command)";
    for (script, executable, expected, end) in [
        (
            &b"#!/bin/sh\npwd\n"[..],
            false,
            "it is not executable (set its execute bit (chmod +x), or ",
            line,
        ),
        (
            b"pwd\n",
            true,
            "it has no line #! with an interpreter, and is no program for Linux (begin it with a line such as \
             #!/usr/bin/env python3, or ",
            line,
        ),
        (
            b"#!/bin/sh\r\npwd\r\n",
            true,
            "its first line ends with CR LF, so that \"/bin/sh\\r\" is looked for (save it with the line ends of Unix ",
            "(LF))",
        ),
        // An exec of env works.
        (
            b"#!/usr/bin/env sh\r\npwd\r\n",
            true,
            "its first line ends with CR LF, so that \"sh\\r\" is looked for (save it with the line ends of Unix ",
            "(LF))",
        ),
        (
            b"#!/usr/bin/no-such-shell -e\npwd\n",
            true,
            "its first line names /usr/bin/no-such-shell, which is not in the sandbox (name an interpreter that is ",
            "there)",
        ),
    ] {
        let report = runs_script("tool", "tool", script, executable);
        assert_eq!(
            report.exit(),
            &Exit::NotStarted {
                reason: format!("cannot execute scripts/t.sh: {expected}{end}"),
                of_program: Some(true),
            }
        );
    }
}

#[test]
fn a_program_of_the_work_directory_is_refused_with_the_reason() {
    for argv in ["tools/t.sh", "./tools/t.sh"] {
        let mut runner = Runner::boot();
        let start = runner.start_frame(None);
        runner.start(start);
        runner.stage(Area::Work, "tools/t.sh", b"#!/bin/sh\ntrue\n", true);
        runner.run(Program::Command {
            argv: vec![argv.to_owned()],
        });
        let report = runner.finish();
        let Exit::NotStarted { reason, of_program } = report.exit() else {
            panic!("{:?}", report.exit())
        };
        assert!(
            reason.ends_with("files of the working directory cannot be executed, give it to an interpreter"),
            "{reason}"
        );
        assert_eq!(*of_program, Some(true));
    }
}

/// Interpreters, shells and package managers take modules and settings from the home directory.
#[test]
fn the_home_is_empty_apart_from_the_work_directory_and_no_result() {
    let report = run_python(
        "import os\nhome = os.path.expanduser('~')\nprint(os.listdir(home), home == os.getcwd(), os.path.relpath(home))\n\
         open(home + '/cache', 'w').write('x')\nopen('out.txt', 'w').write('made')\n",
    );
    assert_eq!((report.out().as_str(), report.err().as_str()), ("[] False .home\n", ""));
    assert_eq!(report.files.keys().collect::<Vec<_>>(), ["out.txt"]);
    for path in [
        ".home/.bashrc",
        ".home/.local/lib/python3.11/site-packages/usercustomize.py",
        ".tmp/x",
    ] {
        let mut runner = Runner::boot();
        let start = runner.start_frame(None);
        runner.start(start);
        runner.stage(Area::Work, path, b"x", false);
        runner.run(Program::Command {
            argv: vec!["true".to_owned()],
        });
        let report = runner.finish();
        let Exit::NotStarted { reason, .. } = report.exit() else {
            panic!("{path} was staged: {:?}", report.exit());
        };
        assert!(reason.contains("is empty when a run begins"), "{reason}");
    }
}

#[test]
fn node_runs_where_it_exists() {
    let path = "/usr/bin/node";
    if !std::path::Path::new(path).exists() {
        return skip("node_runs_where_it_exists", &format!("there is no {path}"));
    }
    let run = |source: &str| {
        let mut runner = Runner::boot();
        let start = runner.start_frame(Some(Interpreter {
            language: Language::Node,
            path: path.to_owned(),
        }));
        runner.start(start);
        runner.run(Program::Code {
            language: Language::Node,
            source: source.to_owned(),
            arguments: vec!["arg".to_owned()],
        });
        runner.finish()
    };
    let report = run(
        "const fs = require('fs'); fs.writeFileSync('o.txt', 'made'); console.log(process.argv.slice(2), require.main === module, fs.readFileSync(0, 'utf8') === '');",
    );
    assert_eq!(
        (report.err().as_str(), report.out().as_str()),
        ("", "[ 'arg' ] true true\n")
    );
    assert_eq!(report.files["o.txt"], b"made");
    let report =
        run("import fs from 'node:fs';\nconst x = await Promise.resolve(5);\nconsole.log(x, typeof fs.readFileSync);");
    assert_eq!((report.err().as_str(), report.out().as_str()), ("", "5 function\n"));
    let report = run("function f() { throw new Error('bad'); }\nf();");
    assert_eq!(report.exit(), &Exit::Code { code: 1 });
    assert!(
        report.err().contains("<code>:1") && report.err().contains("Error: bad"),
        "{}",
        report.err()
    );
    let report = run("process.exit(3)");
    assert_eq!(report.exit(), &Exit::Code { code: 3 });
    let report = run(
        "const { Worker } = require('worker_threads'); new Worker('require(\"worker_threads\").parentPort.postMessage(1)', {eval: true}).on('message', m => console.log('worker', m)); setTimeout(() => console.log('timer'), 30); require('child_process').exec('echo child', (e, out) => console.log(String(e), out.trim()));",
    );
    let mut lines: Vec<String> = report.out().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["null child", "timer", "worker 1"], "{}", report.err());
}

#[test]
fn code_needs_its_interpreter() {
    let mut runner = Runner::boot();
    let start = runner.start_frame(None);
    runner.start(start);
    runner.run(code("print(1)"));
    assert_eq!(
        runner.finish().exit(),
        &Exit::NotStarted {
            reason: "no interpreter for python was started".to_owned(),
            of_program: Some(false),
        }
    );
}
