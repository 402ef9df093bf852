//! Images without a registry: the same bytes from the same programs, no shell, and Containerfiles that build.
#![expect(
    clippy::unwrap_used,
    reason = "a test program: a failure is a panic, and helpers are tests too"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster_support::skip;

/// What a sandbox image may weigh, in bytes, uncompressed.
const SANDBOX_PYTHON_BYTES: u64 = 60_000_000;

const IMAGES: [&str; 4] = ["knack", "sandbox-python", "sandbox-node", "runner"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Runs a program and returns what it printed; panics with its errors.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn build(words: &[&str], folder: &Path) {
    run(Command::new(root().join("images/build.sh"))
        .args(["--debug", words[0]])
        .arg(folder)
        .args(&words[1..]));
}

/// The names in the layers of an archive.
fn names(archive: &Path) -> Vec<String> {
    let script = "import io, json, sys, tarfile
outer = tarfile.open(sys.argv[1])
blob = lambda digest: outer.extractfile('blobs/sha256/' + digest.split(':')[1]).read()
index = json.load(outer.extractfile('index.json'))
for layer in json.loads(blob(index['manifests'][0]['digest']))['layers']:
    for entry in tarfile.open(fileobj=io.BytesIO(blob(layer['digest']))):
        print(entry.name, '%o' % entry.mode, entry.mtime, entry.uid)";
    run(Command::new("/usr/bin/python3").args(["-c", script]).arg(archive))
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_same_programs_give_the_same_bytes_and_no_shell() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    for place in [&first, &second] {
        build(
            &["--output", "knack", "sandbox-python", "sandbox-node", "runner"],
            place,
        );
    }
    for image in IMAGES {
        let file = format!("{image}.tar");
        let bytes = fs::read(first.join(&file)).unwrap();
        assert!(
            bytes == fs::read(second.join(&file)).unwrap(),
            "{image} differs between two builds"
        );
        for line in names(&first.join(&file)) {
            let path = line.split(' ').next().unwrap();
            let name = path.rsplit('/').next().unwrap();
            assert!(
                !["sh", "bash", "dash", "busybox", "perl", "env", "curl", "wget", "nc"].contains(&name),
                "{image} holds {path}"
            );
            assert!(line.ends_with(" 0 0"), "{image}: owner or time of {line}");
        }
    }
    let entries = names(&first.join("sandbox-python.tar"));
    // `/tmp` is a link to a folder of the run.
    for expected in ["work 1777 0 0", "tmp 777 0 0", "knack/knack-runner 755 0 0"] {
        assert!(entries.iter().any(|entry| entry == expected), "no {expected}");
    }
    // As child processes of a run call it.
    let is_python = |entry: &String| entry.starts_with("usr/bin/python ");
    assert!(entries.iter().any(is_python), "no usr/bin/python");
    let size = fs::metadata(first.join("sandbox-python.tar")).unwrap().len();
    println!("figure sandbox_python_bytes {size}");
    assert!(size <= SANDBOX_PYTHON_BYTES, "sandbox-python has {size} bytes");
}

#[test]
fn containerfiles_build_with_buildah() {
    const TEST: &str = "containerfiles_build_with_buildah";
    let root_user = run(Command::new("id").arg("-u")).trim() == "0";
    if !root_user || Command::new("buildah").arg("--version").output().is_err() {
        return skip(TEST, "it needs root and buildah (tools/setup.sh cluster)");
    }
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots");
    build(
        &["--roots", "knack", "knack-gateway", "sandbox-python", "runner"],
        &roots,
    );
    let own = folder.path().join("own/packages/mine");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("__init__.py"), "word = 'of my own'\n").unwrap();
    // Its own store, so that nothing of a person's images is touched.
    let buildah = |words: &[&str]| {
        let mut command = Command::new("buildah");
        command
            .arg("--root")
            .arg(folder.path().join("store"))
            .arg("--runroot")
            .arg(folder.path().join("run"))
            .args(["--storage-driver", "vfs"])
            .args(words);
        run(&mut command).trim().to_owned()
    };
    let bud = |image: &str, context: &Path| {
        let file = root().join(format!("images/{image}.Containerfile"));
        let words = ["bud", "--quiet", "--isolation", "chroot", "--tag", image, "--file"];
        let places = [file.to_str().unwrap(), context.to_str().unwrap()];
        buildah(&[&words[..], &places].concat());
    };
    for image in ["runner", "knack", "knack-gateway", "sandbox-python"] {
        bud(image, &roots);
    }
    bud("own-packages", &folder.path().join("own"));
    let run = ["run", "--isolation", "chroot", "--user", "65532"];
    let python = ["--", "/usr/bin/python3", "-I", "-c", "import mine; print(mine.word)"];
    let container = buildah(&["from", "localhost/own-packages"]);
    assert_eq!(
        buildah(&[&run[..], &[container.as_str()], &python].concat()),
        "of my own"
    );
    for image in ["knack", "knack-gateway"] {
        let container = buildah(&["from", &format!("localhost/{image}")]);
        let version = ["--", &format!("/usr/bin/{image}"), "--version"];
        let said = buildah(&[&run[..], &[container.as_str()], &version].concat());
        assert!(said.starts_with(&format!("{image} ")), "{said}");
    }
}
