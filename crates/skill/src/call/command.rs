//! `run_code`'s command line: words and quotes, no shell.

/// Words that only a shell interprets. As separate words they are refused, so that a model sees that there is no shell.
const SHELL_WORDS: [&str; 10] = ["|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"];

/// Splits a command line into program and arguments: blanks separate, quotes group, a backslash takes the next character as it is
/// (in double quotes before `"` and `\` only). Nothing is expanded.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                quoted = true;
                quote(c, &mut characters, word)?;
            }
            '\\' => {
                let next = characters.next().ok_or("the command ends in a backslash")?;
                word.get_or_insert_default().push(next);
                quoted = true;
            }
            c if c.is_whitespace() => end(&mut words, &mut word, &mut quoted)?,
            c => word.get_or_insert_default().push(c),
        }
    }
    end(&mut words, &mut word, &mut quoted)?;
    if words.first().is_none_or(String::is_empty) {
        return Err("the command is empty".to_owned());
    }
    Ok(words)
}

fn quote(mark: char, characters: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), String> {
    while let Some(c) = characters.next() {
        match c {
            c if c == mark => return Ok(()),
            '\\' if mark == '"' => match characters.next() {
                Some(next @ ('"' | '\\')) => word.push(next),
                Some(next) => word.extend(['\\', next]),
                None => break,
            },
            c => word.push(c),
        }
    }
    Err(format!("the command has an open {mark}"))
}

fn end(words: &mut Vec<String>, word: &mut Option<String>, quoted: &mut bool) -> Result<(), String> {
    let quoted = std::mem::take(quoted);
    let Some(word) = word.take() else { return Ok(()) };
    if !quoted && SHELL_WORDS.contains(&word.as_str()) {
        return Err(format!(
            "the command has \"{word}\", but no shell runs it; give one program and its arguments, or use code"
        ));
    }
    words.push(word);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn splits_at_blanks_and_groups_by_quotes() {
        for (line, words) in [
            ("python3 a.py in.csv", vec!["python3", "a.py", "in.csv"]),
            ("  a\t b\n", vec!["a", "b"]),
            ("a 'b c' \"d \\\" e\" f\\ g", vec!["a", "b c", "d \" e", "f g"]),
            ("a ''", vec!["a", ""]),
            ("a \"\\n\"", vec!["a", "\\n"]),
            ("echo '|' x|y", vec!["echo", "|", "x|y"]),
            ("a $HOME *", vec!["a", "$HOME", "*"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
    }

    #[test]
    fn refuses_what_only_a_shell_could_do_and_what_is_no_command() {
        for (line, why) in [
            ("a | b", "\"|\""),
            ("a > out.txt", "\">\""),
            ("a && b", "\"&&\""),
            ("", "empty"),
            ("'' a", "empty"),
            ("a 'b", "open '"),
            ("a \"b\\", "open \""),
            ("a \\", "backslash"),
        ] {
            let refused = split(line).unwrap_err();
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}
