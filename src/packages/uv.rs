//! `uv` as a bounded child process.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use knack_packages::State;
use knack_trust::Roots;
use knack_vocabulary::PROXIES;
use tempfile::TempPath;
use tokio::process::Command;

use super::build_error::BuildError;
use super::child::{self, Bound, ProgramOutput};

/// The file of authorities that it trusts in the place of its own.
const CERTIFICATES: &str = "SSL_CERT_FILE";
/// Folders of them.
const CERTIFICATE_FOLDERS: &str = "SSL_CERT_DIR";

/// The variables that it inherits besides [`PROXIES`]. Its settings for indexes are the person's own; those that choose an interpreter, build
/// from source or write elsewhere are not passed on.
const INHERITED: [&str; 27] = [
    "HOME",
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_HOME",
    "NETRC",
    CERTIFICATES,
    CERTIFICATE_FOLDERS,
    "SSL_CLIENT_CERT",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_STRATEGY",
    "UV_FIND_LINKS",
    "UV_NO_INDEX",
    "UV_KEYRING_PROVIDER",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "UV_INSECURE_HOST",
    "UV_OFFLINE",
    "UV_HTTP_TIMEOUT",
    "UV_HTTP_RETRIES",
    "UV_EXCLUDE_NEWER",
];

/// Credentials of named indexes: `UV_INDEX_<NAME>_USERNAME`, `_PASSWORD`.
const INDEX_PREFIX: &str = "UV_INDEX_";

/// The files with settings for which it searches the folder that it works in and all above it. It takes those of the project
/// whose `pyproject.toml` it meets first, else of the first `uv.toml`, and lays them over the person's own. Empty ones end the search.
const SETTINGS: [&str; 2] = ["pyproject.toml", "uv.toml"];

/// Lets tests and people name the program.
const UV_VARIABLE: &str = "KNACK_UV";

/// The program, with the variables that it is started with.
#[derive(Debug, Clone)]
pub struct Uv {
    path: PathBuf,
    environment: Vec<(OsString, OsString)>,
    /// The file that its environment names, which goes with the last of them.
    certificates: Option<Arc<TempPath>>,
}

impl Uv {
    /// `KNACK_UV`, else `uv` on `PATH`, with the settings of this process. Errors: there is none; the text says how to get
    /// it.
    pub fn find() -> Result<Self, BuildError> {
        let named = std::env::var_os(UV_VARIABLE).filter(|named| !named.is_empty());
        if let Some(named) = named.map(PathBuf::from) {
            if !named.is_absolute() {
                let text = format!("{UV_VARIABLE}: {} is not an absolute path", named.display());
                return Err(BuildError::new(State::PackagesOff, text));
            }
            return Self::new(named, std::env::vars_os());
        }
        Self::new(child::on_path("uv").unwrap_or_default(), std::env::vars_os())
    }

    /// This `uv`, which then trusts the system's authorities and these. As it is if there are none: it has authorities of its own.
    ///
    /// It takes one file, `SSL_CERT_FILE`, in the place of its own, so one with all of them is made. Errors: that cannot be
    /// written.
    pub fn trusting(mut self, roots: &Roots) -> Result<Self, BuildError> {
        let Some(text) = roots.with_system() else {
            return Ok(self);
        };
        let disk = |error: std::io::Error| BuildError::of_disk("a temporary file", &error);
        let mut file = tempfile::Builder::new()
            .prefix("knack-ca-")
            .suffix(".pem")
            .tempfile()
            .map_err(disk)?;
        file.write_all(text.as_bytes()).map_err(disk)?;
        // The folders of `SSL_CERT_DIR` are in it.
        self.environment
            .retain(|(name, _)| ![CERTIFICATES, CERTIFICATE_FOLDERS].iter().any(|known| name == *known));
        self.environment.push((CERTIFICATES.into(), file.path().into()));
        self.certificates = Some(Arc::new(file.into_temp_path()));
        Ok(self)
    }

    /// A program with those of the variables that concern it.
    pub fn new(path: PathBuf, variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, BuildError> {
        if path.is_absolute() && path.is_file() {
            let environment = environment(variables);
            return Ok(Self {
                path,
                environment,
                certificates: None,
            });
        }
        let text = "packages are installed by uv, which is not on PATH; get it with: pipx install uv \
                    (or https://docs.astral.sh/uv/getting-started/installation)";
        Err(BuildError::new(State::PackagesOff, text))
    }

    /// The path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it once, in a folder of its own, where its search for the settings of a project ends, and gives what it wrote.
    ///
    /// Errors: what its standard error says, the time is over, or the bound is passed. It is ended with all its children in
    /// every case.
    pub(super) async fn run(
        &self,
        arguments: &[OsString],
        cwd: &Path,
        time: Duration,
        bound: Bound<'_>,
    ) -> Result<ProgramOutput, BuildError> {
        for name in SETTINGS {
            let ends = std::fs::write(cwd.join(name), "");
            ends.map_err(|error| BuildError::of_disk("the folder of uv", &error))?;
        }
        let mut command = Command::new(&self.path);
        command
            .args(arguments)
            .current_dir(cwd)
            .env_clear()
            .envs(self.environment.iter().cloned());
        let ended = child::run(command, "uv", State::PackagesOff, time, bound).await?;
        if ended.is_success {
            Ok(ended)
        } else {
            Err(BuildError::of_uv(&ended.stderr))
        }
    }
}

fn environment(of: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let own = [
        // An interpreter is never downloaded: the environment is for the one that runs the skills.
        ("UV_PYTHON_DOWNLOADS", "never"),
        ("UV_NO_PROGRESS", "1"),
        ("NO_COLOR", "1"),
    ];
    let is_passed = |name: &OsStr| {
        let name = name.to_string_lossy();
        INHERITED.contains(&name.as_ref()) || PROXIES.contains(&name.as_ref()) || name.starts_with(INDEX_PREFIX)
    };
    let passed = of.filter(|(name, _)| is_passed(name));
    passed
        .chain(own.map(|(name, value)| (name.into(), value.into())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chooses_interpreters_or_builds_is_not_passed_on() {
        let given = [
            "HOME",
            "UV_INDEX_URL",
            "UV_INDEX_PRIVATE_PASSWORD",
            "UV_PYTHON",
            "UV_NO_BINARY",
            "UV_CONSTRAINT",
            "UV_CACHE_DIR",
            "VIRTUAL_ENV",
            "PYTHONPATH",
            "OPENAI_API_KEY",
        ];
        let passed = environment(given.into_iter().map(|name| (name.into(), "x".into())));
        let names: Vec<String> = passed
            .iter()
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            names,
            [
                "HOME",
                "UV_INDEX_URL",
                "UV_INDEX_PRIVATE_PASSWORD",
                "UV_PYTHON_DOWNLOADS",
                "UV_NO_PROGRESS",
                "NO_COLOR"
            ]
        );
    }

    #[tokio::test]
    async fn a_program_that_hangs_or_floods_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let run = |script: &str, time, bytes| {
            let uv = Uv::new("/bin/sh".into(), std::env::vars_os()).unwrap();
            let arguments: Vec<OsString> = vec!["-c".into(), script.into()];
            let path = folder.path().to_path_buf();
            async move {
                let bound = Bound {
                    folder: &path,
                    bytes,
                    files: 10,
                };
                uv.run(&arguments, &path, time, bound).await
            }
        };
        let long = Duration::from_mins(2);
        let hung = run("sleep 1000 & sleep 1000", Duration::from_millis(300), 1 << 20)
            .await
            .unwrap_err();
        assert_eq!(hung.state, State::TimedOut);
        let flood = run("head -c 3000000 /dev/zero > big; sleep 1000", long, 1 << 20)
            .await
            .unwrap_err();
        assert_eq!(flood.state, State::TooLarge, "{flood}");
        std::fs::remove_file(folder.path().join("big")).unwrap();
        let many = run("for i in $(seq 20); do : > f$i; done; sleep 1000", long, 1 << 20)
            .await
            .unwrap_err();
        assert!(many.text.contains("files"), "{many}");
        for number in 1..=20 {
            std::fs::remove_file(folder.path().join(format!("f{number}"))).unwrap();
        }
        assert_eq!(run("echo said", long, 1 << 20).await.unwrap().stdout, "said\n");
        let failed = run(
            "echo 'x was not found in the package registry' >&2; exit 1",
            long,
            1 << 20,
        )
        .await;
        assert_eq!(failed.unwrap_err().state, State::PackageNotFound);
    }
}
