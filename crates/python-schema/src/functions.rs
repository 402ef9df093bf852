//! Functions of Python files as tools of a skill, read from their text: what the load of a skill asks of a reader.

use knack_skill::config::ConfigParam;
use knack_skill::functions::{Function, FunctionProblem, FunctionsRead};
use knack_skill::problem::Severity;
use knack_skill::risk::Risk;

use super::declaration::ToolDeclaration;
use super::generate::generate;
use super::problem::{SchemaProblem, Severity as Bad};
use super::risk::RiskLevel;

/// Reads the declarations of the functions in a Python file; the text is never run.
pub fn read_functions(text: &str) -> FunctionsRead {
    let report = generate(text);
    let mut problems: Vec<FunctionProblem> = report.problems.iter().map(problem).collect();
    problems.extend(report.tools.iter().filter_map(nested));
    problems.extend(report.tools.iter().filter_map(offline));
    problems.extend(report.tools.iter().flat_map(unreadable));
    problems.extend(report.tools.iter().filter_map(unread));
    FunctionsRead {
        functions: report.tools.iter().map(function).collect(),
        problems,
    }
}

fn function(tool: &ToolDeclaration) -> Function {
    Function {
        function: tool.function.clone(),
        name: tool.name.clone(),
        description: tool.description_or_default().to_owned(),
        input_schema: tool.parameters(),
        risk: risk(tool.risk_level),
        retryable: tool.flags.idempotent,
        hidden: tool.hidden,
        config: tool.config_params.iter().filter_map(config).collect(),
    }
}

/// A parameter as a lock has it: without what only a form shows.
fn config(param: &super::config::ConfigParam) -> Option<ConfigParam> {
    serde_json::from_value(param.to_value()).ok()
}

/// A parameter whose members have other types than a lock has: it would be lost without a word.
fn unreadable(tool: &ToolDeclaration) -> Vec<FunctionProblem> {
    let params = tool.config_params.iter().map(super::config::ConfigParam::to_value);
    let problems = params.filter_map(|param| {
        let error = serde_json::from_value::<ConfigParam>(param.clone()).err()?;
        let message = format!("{}: config parameter {}: {error}", tool.function, param["name"]);
        Some(problem_of(
            Severity::Error,
            tool.line,
            message,
            "correct its declaration",
        ))
    });
    problems.collect()
}

/// Parameters that nothing reads: a function gets their values by its context.
fn unread(tool: &ToolDeclaration) -> Option<FunctionProblem> {
    (!tool.config_params.is_empty() && !tool.takes_context).then(|| {
        let message = format!(
            "{} declares config_params and takes no context, so nothing reads them",
            tool.function
        );
        let help = "add a parameter `context: SkillContext`; their values are in context.config";
        problem_of(Severity::Warning, tool.line, message, help)
    })
}

/// The level in the words of a skill. A declaration has resolved `Auto`.
const fn risk(level: RiskLevel) -> Risk {
    match level {
        RiskLevel::Auto | RiskLevel::Safe => Risk::Safe,
        RiskLevel::Moderate => Risk::Moderate,
        RiskLevel::Dangerous => Risk::Dangerous,
        RiskLevel::Critical => Risk::Critical,
    }
}

fn problem(problem: &SchemaProblem) -> FunctionProblem {
    let severity = match problem.severity {
        Bad::Error => Severity::Error,
        Bad::Warning => Severity::Warning,
    };
    let message = match &problem.function {
        Some(function) => format!("{function}: {}", problem.message),
        None => problem.message.clone(),
    };
    problem_of(severity, problem.line, message, &problem.help)
}

/// Reports a function that cannot be called by itself.
fn nested(tool: &ToolDeclaration) -> Option<FunctionProblem> {
    tool.is_nested.then(|| {
        let why = "is inside of another function or a class, so nothing can call it";
        let message = format!("{} {why}", tool.function);
        problem_of(Severity::Error, tool.line, message, "move it to the top of the file")
    })
}

/// Reports a function that requires the network, which runs do not have.
fn offline(tool: &ToolDeclaration) -> Option<FunctionProblem> {
    tool.flags.requires_network.then(|| {
        let message = format!("{} requires the network, which runs do not have", tool.function);
        let help = "take what it needs as arguments or files, or remove requires_network if it works without";
        problem_of(Severity::Warning, tool.line, message, help)
    })
}

fn problem_of(severity: Severity, line: usize, message: String, help: &str) -> FunctionProblem {
    FunctionProblem {
        severity,
        line: u32::try_from(line).unwrap_or(u32::MAX),
        message,
        help: help.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_what_the_schema_command_declares() {
        let text = "@skill(idempotent=True)\ndef add(a: int, b: int = 1) -> int:\n    '''Adds two numbers.'''\n\
            @skill(name='say', hidden=True)\ndef f(): pass\n";
        let read = read_functions(text);
        assert_eq!(read.problems, []);
        let tools = generate(text).tools;
        for (function, tool) in read.functions.iter().zip(&tools) {
            let declared = tool.anthropic_tool();
            assert_eq!(declared["name"], *function.name);
            assert_eq!(declared["description"], *function.description);
            assert_eq!(declared["input_schema"], function.input_schema);
        }
        let seen: Vec<_> = read
            .functions
            .iter()
            .map(|one| (one.function.as_str(), one.name.as_str(), one.retryable, one.hidden))
            .collect();
        assert_eq!(seen, [("add", "add", true, false), ("f", "say", false, true)]);
    }

    #[test]
    fn the_risk_of_a_function_is_the_declared_one_or_that_of_its_flags() {
        for (keywords, expected) in [
            ("", Risk::Safe),
            ("idempotent=True", Risk::Safe),
            ("requires_filesystem=True", Risk::Safe),
            ("side_effects=True", Risk::Moderate),
            ("side_effects=True, requires_filesystem=True", Risk::Dangerous),
            ("side_effects=True, requires_network=True", Risk::Dangerous),
            ("side_effects=True, risk_level=RiskLevel.SAFE", Risk::Safe),
            ("risk_level='critical'", Risk::Critical),
        ] {
            let read = read_functions(&format!("@skill({keywords})\ndef f(a: int): pass\n"));
            assert_eq!(read.functions[0].risk, expected, "{keywords}");
            let warned = read
                .problems
                .iter()
                .any(|problem| problem.message.contains("runs do not have"));
            assert_eq!(warned, keywords.contains("network"), "{:?}", read.problems);
        }
        assert_eq!(read_functions("def f(a: int): pass\n").functions[0].risk, Risk::Safe);
    }

    #[test]
    fn what_no_call_can_reach_is_an_error_with_its_line() {
        for (text, line, expected) in [
            (
                "def f():\n  @skill\n  def g(x): pass\n",
                3,
                "inside of another function",
            ),
            ("@skill\ndef g(x: int:\n  pass\n", 2, "Python cannot read"),
        ] {
            let read = read_functions(text);
            let problem = &read.problems[0];
            assert_eq!(problem.severity, Severity::Error, "{text}");
            assert!(problem.message.contains(expected), "{}", problem.message);
            assert!(problem.line.abs_diff(line) <= 1, "{text}: {}", problem.line);
        }
    }
}
