//! `package.json`: the names under `dependencies`.

use serde_json::Value;

use crate::finding::{Finding, FindingKind};
use crate::requirements_txt::text_of;

/// Names of the dependencies. Development dependencies are none.
///
/// Errors: a file that cannot be read.
pub fn read(file: &str, bytes: &[u8]) -> Result<Vec<String>, Finding> {
    let wrong = |text: String| {
        Finding::new(
            FindingKind::Metadata,
            file,
            0,
            text,
            "see the documentation of package.json",
        )
    };
    let text = text_of(file, bytes)?;
    let value: Value =
        serde_json::from_str(text).map_err(|error| wrong(format!("the file is not valid JSON: {error}")))?;
    match value.get("dependencies") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(members)) if members.len() > crate::MAX_PACKAGES => {
            let text = format!("{} dependencies, more than {}", members.len(), crate::MAX_PACKAGES);
            Err(Finding::new(
                FindingKind::TooMany,
                file,
                0,
                text,
                "declare what the scripts import",
            ))
        }
        Some(Value::Object(members)) => Ok(members.keys().cloned().collect()),
        Some(_) => Err(wrong("dependencies is not a mapping".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_named() {
        let read = |text: &str| read("package.json", text.as_bytes()).map_err(|finding| finding.kind);
        assert_eq!(
            read("{\"dependencies\": {\"docx\": \"^9\"}, \"devDependencies\": {\"x\": \"1\"}}"),
            Ok(vec!["docx".to_owned()])
        );
        assert_eq!(read("{}"), Ok(Vec::new()));
        assert_eq!(read("{"), Err(FindingKind::Metadata));
        assert_eq!(read("{\"dependencies\": []}"), Err(FindingKind::Metadata));
    }
}
