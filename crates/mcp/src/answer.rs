//! The outcome of a call, as MCP content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use knack_wire::CallOutcome;
use knack_wire::drive::GeneratedFile;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// Bytes of the files that one result carries. Hosts put results into a model's context, and refuse those of more than about
/// a MiB, which these are as base64 with the text beside them. The text names every file with its URL, carried or not.
const CARRIED_MAX_BYTES: usize = 700 << 10;

/// Images that hosts show and models see; other images are files.
const SHOWN: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The text first, as a model reads it, then the files. `url` is where one is read later.
pub(crate) fn result(outcome: CallOutcome, url: impl Fn(&str) -> String) -> CallToolResult {
    let mut content = vec![ContentBlock::text(outcome.text)];
    let mut room = CARRIED_MAX_BYTES;
    for file in &outcome.files {
        if let Some(left) = room.checked_sub(file.bytes.len()) {
            room = left;
            content.push(block(file, &url));
        }
    }
    if outcome.is_error {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    }
}

fn block(file: &GeneratedFile, url: impl Fn(&str) -> String) -> ContentBlock {
    let data = STANDARD.encode(&file.bytes);
    if SHOWN.contains(&file.media_type.as_str()) {
        ContentBlock::image(data, file.media_type.clone())
    } else {
        let resource = ResourceContents::blob(data, url(&file.name));
        ContentBlock::resource(resource.with_mime_type(file.media_type.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str, media_type: &str, bytes: usize) -> GeneratedFile {
        GeneratedFile {
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            bytes: vec![b'x'; bytes].into(),
        }
    }

    #[test]
    fn files_are_carried_within_the_bound_each_in_its_form() {
        let outcome = CallOutcome {
            text: "done".to_owned(),
            is_error: true,
            files: vec![
                made("a.png", "image/png", 10),
                made("large.bin", "application/octet-stream", CARRIED_MAX_BYTES),
                made("b.svg", "image/svg+xml", CARRIED_MAX_BYTES - 10),
                made("c.txt", "text/plain", 1),
            ],
            ..CallOutcome::default()
        };
        let result = result(outcome, |name| format!("http://h/{name}"));
        assert_eq!(result.is_error, Some(true));
        let kinds = result.content.iter().map(|block| match block {
            ContentBlock::Text(text) => text.text.clone(),
            ContentBlock::Image(image) => image.mime_type.clone(),
            ContentBlock::Resource(file) => match &file.resource {
                ResourceContents::BlobResourceContents { uri, mime_type, .. } => format!("{uri} {mime_type:?}"),
                other => format!("{other:?}"),
            },
            other => format!("{other:?}"),
        });
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            ["done", "image/png", "http://h/b.svg Some(\"image/svg+xml\")"]
        );
    }
}
