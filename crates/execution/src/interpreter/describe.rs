//! Asking an interpreter where it is.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::Language;

/// Longest wait for the answer: a shim of a version manager takes up to a second on a cold disk; one that wants to
/// install something first never answers.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// An answer is well under this; a program that prints more is not an interpreter.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// `-I` keeps the environment and the current directory out of the answer. `sys.executable` is kept as it is: inside a
/// virtual environment it is the link that makes the environment work.
const PYTHON: &str = "import json,os,sys,sysconfig
p=sysconfig.get_paths()
print(json.dumps({'executable':sys.executable,'version':'%d.%d.%d'%sys.version_info[:3],
'prefixes':[sys.prefix,sys.base_prefix,sys.exec_prefix,sys.base_exec_prefix],
'libraries':[p['stdlib'],os.path.dirname(os.__file__)]+[d for d in sys.path if d],
'shared':[os.path.join(sysconfig.get_config_var('LIBDIR') or '',sysconfig.get_config_var('LDLIBRARY') or '')]}))";

const NODE: &str = "console.log(JSON.stringify({executable:process.execPath,version:process.versions.node,\
prefixes:[require('path').dirname(require('path').dirname(process.execPath))],libraries:[],shared:[]}))";

/// The description that an interpreter gives of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct InterpreterDescription {
    /// Absolute path of the binary.
    pub executable: PathBuf,
    /// Version, without a leading `v`.
    pub version: String,
    /// Roots of its trees; may repeat, may be as wide as `/usr`.
    pub prefixes: Vec<PathBuf>,
    /// Library directories and archives, existing ones only after [`ask`].
    pub libraries: Vec<PathBuf>,
    /// Shared objects outside the loader's own places, existing ones only after [`ask`].
    pub shared: Vec<PathBuf>,
}

/// Runs the candidate once. The error is one clause that says why it is no interpreter.
pub(super) async fn ask(language: Language, candidate: &Path) -> Result<InterpreterDescription, String> {
    let mut command = Command::new(candidate);
    match language {
        Language::Python => command.args(["-I", "-c", PYTHON]),
        Language::Node => command.args(["-e", NODE]),
    };
    // `-I` covers python; node and shims read these two.
    command.env_remove("NODE_OPTIONS").env_remove("NODE_PATH");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .map_err(|error| format!("it does not start ({error})"))?;
    let stdout = child.stdout.take().ok_or("it has no output")?;
    let read = async {
        let mut text = Vec::new();
        stdout.take(MAX_ANSWER_BYTES).read_to_end(&mut text).await.map(|_| text)
    };
    let text = tokio::time::timeout(ASK_TIMEOUT, read)
        .await
        .map_err(|_| format!("no answer within {} s", ASK_TIMEOUT.as_secs()))?
        .map_err(|error| format!("its output cannot be read ({error})"))?;
    let mut answer: InterpreterDescription =
        serde_json::from_slice(&text).map_err(|_| "its output is not the expected JSON".to_owned())?;
    if !answer.executable.is_absolute() || !answer.executable.is_file() {
        return Err("it does not report its own path".to_owned());
    }
    answer.libraries.retain(|path| path.is_absolute() && path.exists());
    answer.shared.retain(|path| path.is_absolute() && path.is_file());
    Ok(answer)
}
