//! `knack skill schema`: tool declarations from Python functions.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use knack_python_schema::{SchemaProblem, Severity, ToolDeclaration, generate};
use knack_skill::tree::MAX_FOLDER_BYTES;
use serde_json::{Value, json};

use crate::cli::terminal;
use crate::regular_file;

/// Arguments of `knack skill schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Python file with functions under @skill or @tool, or with types; it is read, never run
    file: PathBuf,
    /// The form of each declaration
    #[arg(long, value_enum, default_value_t)]
    format: DeclarationForm,
    /// Exit with 1 for warnings too
    #[arg(long)]
    strict: bool,
}

/// The form of a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum DeclarationForm {
    /// All information of the decorator and the function.
    #[default]
    Full,
    /// A tool of OpenAI's Chat Completions.
    Openai,
    /// A tool of Anthropic's Messages.
    Anthropic,
}

/// Prints a JSON list with one declaration per function; problems go to standard error. Exit code 1 if something
/// could not be declared.
pub fn schema(args: &SchemaArgs) -> anyhow::Result<ExitCode> {
    let shown = args.file.display();
    let read = regular_file::read(&args.file, MAX_FOLDER_BYTES as u64);
    let bytes = read.with_context(|| format!("{shown} cannot be read"))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .split(|byte| *byte == b'\n')
            .count();
        anyhow::anyhow!("{shown}: line {line} is not UTF-8; save the file as UTF-8")
    })?;
    let report = generate(&text);
    for problem in &report.problems {
        terminal::note(&format!("{shown}: {problem}"));
    }
    if report.tools.is_empty() && report.problems.is_empty() {
        terminal::note(&format!(
            "{shown}: no function is declared; put @skill or @tool over each one that a model may call, or give a type to each \
             of its parameters"
        ));
    }
    let tools: Vec<Value> = report.tools.iter().map(|tool| form(tool, args.format)).collect();
    terminal::line(&format!("{:#}", json!(tools)));
    let failed = |problem: &SchemaProblem| args.strict || problem.severity == Severity::Error;
    Ok(if report.problems.iter().any(failed) || report.tools.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn form(tool: &ToolDeclaration, form: DeclarationForm) -> Value {
    match form {
        DeclarationForm::Full => tool.to_value(),
        DeclarationForm::Openai => tool.openai_tool(),
        DeclarationForm::Anthropic => tool.anthropic_tool(),
    }
}
