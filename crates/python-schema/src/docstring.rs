//! Google-style docstrings: the descriptions of parameters.

use std::collections::BTreeMap;

/// Headings that begin the section of parameters.
const HEADINGS: [&str; 3] = ["Args:", "Arguments:", "Parameters:"];

/// Reads the descriptions of parameters.
///
/// The section begins at one of the headings and ends at the next line that is one word and a colon. Its first line
/// sets the indent; a line at that indent with a colon begins a parameter (a type in parentheses is dropped), deeper
/// lines go on with its description. Source: the docstring rule of Tukuy's schema inference.
pub fn parameter_descriptions(docstring: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut current: Option<(String, Vec<&str>)> = None;
    let (mut inside, mut indent): (bool, Option<usize>) = (false, None);
    for line in docstring.lines() {
        let words = line.trim();
        if HEADINGS.contains(&words) {
            (inside, indent) = (true, None);
            continue;
        }
        if !inside || words.is_empty() {
            continue;
        }
        if is_heading(words) {
            break;
        }
        let depth = line.len() - line.trim_start().len();
        let level = *indent.get_or_insert(depth);
        match (words.split_once(':'), depth == level) {
            (Some((name, description)), true) => {
                store(&mut found, current.take());
                current = Some((parameter_name(name), vec![description.trim()]));
            }
            _ if depth > level => {
                if let Some((_, lines)) = &mut current {
                    lines.push(words);
                }
            }
            _ => {}
        }
    }
    store(&mut found, current);
    found
}

/// One word with a colon, such as `Returns:`; a list item is no heading.
fn is_heading(words: &str) -> bool {
    words.ends_with(':') && !words.contains(' ') && !words.starts_with('-')
}

/// The name without a type in parentheses, with or without a space before them.
fn parameter_name(text: &str) -> String {
    text.split('(').next().unwrap_or_default().trim().to_owned()
}

fn store(found: &mut BTreeMap<String, String>, parameter: Option<(String, Vec<&str>)>) {
    if let Some((name, lines)) = parameter {
        found.insert(name, lines.join(" ").trim().to_owned());
    }
}

/// Removes the common indent of all lines but the first, and blank lines at both ends.
pub(super) fn dedent(docstring: &str) -> String {
    let expanded = docstring.replace('\t', "        ");
    let mut lines = expanded.lines();
    let first = lines.next().unwrap_or_default().trim_start();
    let rest: Vec<&str> = lines.collect();
    let margin = rest
        .iter()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.len() - line.trim_start_matches(' ').len())
        .min()
        .unwrap_or(0);
    let mut out: Vec<&str> = vec![first];
    out.extend(rest.iter().map(|line| line.get(margin..).unwrap_or_default()));
    while out.last().is_some_and(|line| line.trim().is_empty()) {
        out.pop();
    }
    let blank = out.iter().take_while(|line| line.trim().is_empty()).count();
    out[blank..].join("\n")
}
