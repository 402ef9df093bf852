//! Entries of `tools` that name a Python file: each of its functions becomes a declared tool.

use std::collections::{BTreeMap, HashSet};

use super::reading::Fields;
use crate::config;
use crate::finding::MAX_ENTRIES;
use crate::functions::{Function, FunctionLock, LOCK_FILE, ReadFunctions, command};
use crate::inputs::shortened;
use crate::model::{CallForm, SkillFile};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::schema_problem;
use crate::tools::ToolDeclaration;

/// What to do about declarations that are not there.
const LOCK: &str = "run `knack skill lock` on the skill's folder, and keep the file that it writes";

/// Where declarations of functions come from.
pub(super) struct FunctionSource<'a> {
    /// The files of the skill.
    pub(super) files: &'a BTreeMap<String, SkillFile>,
    /// Reads a file's text; `None`: the lock has what somebody else read.
    pub(super) read: Option<ReadFunctions>,
    /// Whether a manifest names the files, and no frontmatter.
    pub(super) from_spec: bool,
}

/// The functions of each file that an entry names.
pub(super) type Functions = BTreeMap<String, Vec<Function>>;

impl Fields<'_> {
    /// Puts the functions of Python files in place of the entries that name the files; each entry comes with its place
    /// in the list. What is wrong with one of them is an error in both profiles: a tool that is missing without a word
    /// would not be found.
    pub(super) fn expand(
        &mut self,
        declared: Vec<(usize, ToolDeclaration)>,
        source: &FunctionSource<'_>,
    ) -> (Vec<ToolDeclaration>, Functions) {
        let plain = declared.iter().filter(|(_, tool)| tool.python.is_none());
        let mut names: HashSet<String> = plain.map(|(_, tool)| tool.name.clone()).collect();
        let (mut tools, mut read) = (Vec::new(), Functions::new());
        for (index, declared) in declared {
            let Some(path) = declared.python.clone() else {
                tools.push(declared);
                continue;
            };
            let of = if source.from_spec { "spec." } else { "" };
            let field = format!("{of}tools[{index}].python");
            let functions = match self.functions_of(&path, &field, source) {
                Ok(functions) => functions,
                Err(problem) => {
                    self.problems.push(problem.on(field));
                    continue;
                }
            };
            for function in functions.iter().take(MAX_ENTRIES) {
                if let Some(why) = schema_problem::problem(&function.input_schema) {
                    let message = format!(
                        "the schema of {} is not a valid JSON Schema for arguments: {why}",
                        shortened(&function.name)
                    );
                    let problem = error(ProblemKind::ToolInvalid, message, "correct its input_schema");
                    self.problems
                        .push(problem.in_file(&path).on(format!("{field}.{}", function.function)));
                    continue;
                }
                self.check_config(&path, &format!("{field}.{}", function.function), function);
                if names.insert(function.name.clone()) {
                    tools.push(tool(&declared, &path, function));
                } else {
                    let message = format!("a second tool has the name {:?}", shortened(&function.name));
                    let problem = error(ProblemKind::ToolRepeated, message, "rename one of the two");
                    self.problems
                        .push(problem.in_file(&path).on(format!("{field}.{}", function.function)));
                }
            }
            read.insert(path, functions);
        }
        (tools, read)
    }

    /// Reports what of the configuration parameters of a function cannot be given or is not honoured.
    fn check_config(&mut self, path: &str, field: &str, function: &Function) {
        let name = shortened(&function.function);
        let mut report = |severity, message, help: &str, member: &str| {
            let problem = Problem::new(severity, ProblemKind::ToolInvalid, message, help).in_file(path);
            self.problems.push(problem.on(format!("{field}.config{member}")));
        };
        if let Some(why) = config::refusal(&function.config) {
            report(
                Severity::Error,
                format!("{name} {why}"),
                "correct its config_params",
                "",
            );
            return;
        }
        for param in &function.config {
            for (number, note) in config::notes(param).into_iter().enumerate() {
                let message = format!("{name}: config parameter {}: {note}", param.name);
                let help = "correct its declaration, if that is not meant";
                report(Severity::Warning, message, help, &format!(".{}[{number}]", param.name));
            }
        }
    }

    fn functions_of(&mut self, path: &str, field: &str, source: &FunctionSource<'_>) -> Result<Vec<Function>, Problem> {
        let document = self.document;
        let here = |problem: Problem| {
            if source.from_spec {
                return problem;
            }
            problem.in_file(document.file.as_str()).at_line(document.line_of(field))
        };
        let Some(file) = source.files.get(path) else {
            let message = format!("{} is not a file of the skill", shortened(path));
            let help = "add the file or correct the path";
            return Err(here(error(ProblemKind::ToolFileMissing, message, help)));
        };
        let functions = match source.read {
            Some(read) => self.read_text(path, field, (file, source.files), read)?,
            None => locked(path, file, source.files)?,
        };
        if functions.is_empty() {
            let message = format!("{path} declares no function");
            let help = "give each parameter of a function a type, or put @skill over it";
            return Err(here(error(ProblemKind::ToolInvalid, message, help)));
        }
        Ok(functions)
    }

    /// Reads the text. A problem is reported with its line; an error leaves no function of the file.
    fn read_text(
        &mut self,
        path: &str,
        field: &str,
        (file, files): (&SkillFile, &BTreeMap<String, SkillFile>),
        read: ReadFunctions,
    ) -> Result<Vec<Function>, Problem> {
        let Ok(text) = std::str::from_utf8(&file.bytes) else {
            let problem = error(ProblemKind::NotUtf8, "it is not UTF-8 text", "save the file as UTF-8");
            return Err(problem.in_file(path));
        };
        let found = read(text);
        let lock = in_lock(path, file, files);
        if lock.is_some_and(|locked| locked.as_ref() != Ok(&found.functions)) {
            let message =
                format!("its declarations of the functions of {path} are out of date; a cluster refuses the skill");
            let problem = Problem::new(Severity::Warning, ProblemKind::ToolInvalid, message, LOCK);
            self.problems.push(problem.in_file(LOCK_FILE).on(field));
        }
        let mut refused = None;
        for (number, report) in found.problems.into_iter().enumerate() {
            let problem = Problem::new(report.severity, ProblemKind::ToolInvalid, report.message, report.help)
                .in_file(path)
                .at_line(report.line);
            if refused.is_none() && problem.is_error() {
                refused = Some(problem);
            } else {
                self.problems.push(problem.on(format!("{field}[{number}]")));
            }
        }
        refused.map_or(Ok(found.functions), Err)
    }
}

/// The tool of a function of an entry's file.
fn tool(entry: &ToolDeclaration, path: &str, function: &Function) -> ToolDeclaration {
    ToolDeclaration {
        name: function.name.clone(),
        description: function.description.clone(),
        command: command(path, &function.function),
        input_schema: Some(function.input_schema.clone()),
        env: entry.env.clone(),
        hidden: entry.hidden || function.hidden,
        call: CallForm::Function {
            retryable: function.retryable,
        },
        risk: Some(function.risk),
        config: function.config.clone(),
        ..ToolDeclaration::default()
    }
}

/// The locked result of an earlier reading.
fn locked(path: &str, file: &SkillFile, files: &BTreeMap<String, SkillFile>) -> Result<Vec<Function>, Problem> {
    if let Some(functions) = in_lock(path, file, files) {
        return functions.map_err(|why| error(ProblemKind::ToolInvalid, why, LOCK).in_file(LOCK_FILE));
    }
    let message =
        format!("the skill has no {LOCK_FILE}, which declares the functions of {path}: Python is not read here");
    Err(error(ProblemKind::ToolFileMissing, message, LOCK))
}

/// What the lock has of a file; `None`: there is no lock.
fn in_lock(path: &str, file: &SkillFile, files: &BTreeMap<String, SkillFile>) -> Option<Result<Vec<Function>, String>> {
    let lock = files.get(LOCK_FILE)?;
    Some(FunctionLock::read(&lock.bytes).and_then(|lock| lock.functions(path, file)))
}

fn error(kind: ProblemKind, message: impl Into<String>, help: &str) -> Problem {
    Problem::new(Severity::Error, kind, message, help)
}
