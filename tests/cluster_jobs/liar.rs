//! The image of a compromised runner (`crates/runner/examples/liar.rs`): static, and alone in its image.

use std::path::Path;
use std::process::Command;

use cluster_support::Cluster;

const IMAGE: &str = "knack.local/liar:test";

/// Builds it and brings it into the cluster; gives its name.
pub(crate) fn image(cluster: &Cluster) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), |path| root.join(path));
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // As `make runner` builds the runner, so that both share what they depend on.
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "-p", "knack-runner", "--example", "liar"]);
    build
        .args(["--profile", "runner", "--target", &host])
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    succeed(build.current_dir(root));
    let folder = tempfile::tempdir().unwrap();
    let layer = folder.path().join("layer");
    std::fs::create_dir_all(layer.join("knack")).unwrap();
    let program = target.join(&host).join("runner/examples/liar");
    std::fs::copy(&program, layer.join("knack/knack-runner"))
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let archive = folder.path().join("liar.tar");
    let mut make = Command::new(root.join("images/archive.py"));
    make.args(["--name", IMAGE, "--entrypoint", "/knack/knack-runner", "--output"]);
    succeed(make.arg(&archive).arg(&layer));
    cluster.import(&[&archive]);
    IMAGE.to_owned()
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}
