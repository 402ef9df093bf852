//! The base interpreter of environments.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use knack_execution::Language;
use knack_execution::interpreter::{ASK_TIMEOUT, CodeUser, Search, find, unreachable_part};
use knack_packages::State;
use knack_packages::key::Platform;
use serde::Deserialize;
use tokio::process::Command;

use super::build_error::BuildError;

/// `-I -S`: neither the environment nor site packages have a say. The base of a virtual environment is asked for, since an
/// environment on top of one would miss its packages anyway.
const QUESTION: &str = "import json,os,platform,sys,sysconfig
print(json.dumps({'executable':os.path.realpath(getattr(sys,'_base_executable',None) or sys.executable),
'version':'%d.%d.%d'%sys.version_info[:3],'directory':'python%d.%d'%sys.version_info[:2],
'abi':sysconfig.get_config_var('SOABI') or sys.implementation.cache_tag,
'libc':' '.join(platform.libc_ver()).strip() or 'unknown','architecture':platform.machine()}))";

/// A base interpreter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BaseInterpreter {
    /// Absolute path, links followed.
    pub executable: PathBuf,
    /// `3.11.2`.
    pub version: String,
    /// `python3.11`: the name of its library directory.
    pub directory: String,
    abi: String,
    libc: String,
    architecture: String,
}

impl BaseInterpreter {
    /// The interpreter that the local sandbox uses for skills.
    pub async fn of_host(reach: CodeUser) -> Result<Self, BuildError> {
        let found = find(&Search::of_host(reach)).await;
        let python = found
            .interpreters
            .iter()
            .find(|found| found.language == Language::Python);
        let Some(python) = python else {
            let text =
                "no python3 found that the sandbox can use; install one, on Debian with: apt-get install python3";
            return Err(BuildError::new(State::PackagesOff, text));
        };
        Self::of(&python.path, reach).await
    }

    /// Asks an interpreter for its base.
    pub async fn of(interpreter: &Path, reach: CodeUser) -> Result<Self, BuildError> {
        let off = |why: String| BuildError::new(State::PackagesOff, format!("{}: {why}", interpreter.display()));
        let mut command = Command::new(interpreter);
        command
            .args(["-I", "-S", "-c", QUESTION])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(ASK_TIMEOUT, command.output())
            .await
            .map_err(|_| off("it does not answer".to_owned()))?
            .map_err(|error| off(format!("it does not start ({error})")))?;
        let base: Self =
            serde_json::from_slice(&output.stdout).map_err(|_| off("it does not answer as CPython".to_owned()))?;
        if let Some(closed) = unreachable_part(&base.executable, reach) {
            return Err(off(format!(
                "its base {} is not accessible to the sandbox user",
                closed.display()
            )));
        }
        Ok(base)
    }

    /// The properties that decide about an environment for it.
    pub fn platform(&self) -> Platform {
        Platform {
            abi: self.abi.clone(),
            libc: self.libc.clone(),
            architecture: self.architecture.clone(),
            base: self.executable.to_string_lossy().into_owned(),
        }
    }
}
