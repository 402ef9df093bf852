//! Byte code of an environment's modules: runs cannot write, so what is not compiled here is compiled in every run.

use std::path::Path;
use std::time::Duration;

use knack_packages::State;
use tokio::process::Command;

use super::build_error::BuildError;
use super::child::{self, Bound};
use super::python::BaseInterpreter;

/// Nothing is imported for it. Tests of packages are left out: they are a third of the modules of numpy, and skills do not
/// run them. Hashes instead of times, unchecked: environments do not change, and equal files give equal byte code.
/// A machine without semaphores gets one process.
const COMPILE: &str = "import compileall,py_compile,re,sys
rest=dict(quiet=2,rx=re.compile(r'/tests?/'),invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
try:compileall.compile_dir('lib',workers=int(sys.argv[1]),**rest)
except OSError:compileall.compile_dir('lib',**rest)";

/// Processes at once: more gain nothing below a thousand modules.
const MAX_PROCESSES: usize = 8;

/// Compiles what is below `lib` of a prefix. What is no valid Python stays as it is.
///
/// Errors: the interpreter dies, the time is over, or the bound is passed.
pub(super) async fn compile(
    base: &BaseInterpreter,
    prefix: &Path,
    time: Duration,
    bound: Bound<'_>,
) -> Result<(), BuildError> {
    let processes = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new(&base.executable);
    command
        .args(["-I", "-S", "-c", COMPILE])
        .arg(processes.min(MAX_PROCESSES).to_string())
        // Paths relative to the prefix: the pattern for tests must not meet the folder of the store.
        .current_dir(prefix)
        .env_clear();
    let ended = child::run(command, "the compiler of Python", State::PackagesOff, time, bound).await?;
    if ended.is_success {
        return Ok(());
    }
    let last = ended
        .stderr
        .trim_end()
        .lines()
        .last()
        .unwrap_or("it was ended")
        .to_owned();
    Err(BuildError::new(
        State::Failed,
        format!("the modules of the packages cannot be compiled: {last}"),
    ))
}
