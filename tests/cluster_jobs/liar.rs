//! The image of a compromised runner (`crates/runner/examples/liar.rs`): static, and alone in its image.

use std::path::Path;
use std::process::Command;

use cluster_support::Cluster;

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
    let output = build.current_dir(root).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{build:?}: {errors}");
    let program = target.join(&host).join("runner/examples/liar");
    cluster.image_of_program("liar", &program, "/knack/knack-runner")
}
