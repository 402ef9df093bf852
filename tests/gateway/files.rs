//! The user's files go in; generated files come out in the client's own way.

use serde_json::json;

use super::support::with_sandbox;
use super::talk::{Format, ROWS, Talk};

const SCRIPT: &str = r#"
turns:
  - user: attached
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "import os\nprint(sorted(os.listdir('inputs')), len(open('inputs/' + sorted(os.listdir('inputs'))[0], 'rb').read()))"}}]}
      - reply: {text: "{{results}}"}
  - user: shown
    rounds:
      - reply: {text: Running it., calls: [{tool: run_code, arguments: {code: "print('shown output')\nopen('a.png','wb').write(b'x')"}}]}
      - reply: {text: Done.}
"#;

#[tokio::test]
async fn inline_images_and_documents_are_staged_as_inputs() {
    let knack = with_sandbox(SCRIPT).await;
    let data = "aGVsbG8=";
    let url = format!("data:image/png;base64,{data}");
    for row in ROWS {
        let mut talk = Talk::plain(row, "");
        let text = "see what I attached";
        talk.history[0] = match row.0 {
            Format::Chat => json!({"role": "user", "content": [{"type": "text", "text": text},
                {"type": "image_url", "image_url": {"url": url}}]}),
            Format::Messages => json!({"role": "user", "content": [{"type": "text", "text": text},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]}),
            Format::Responses => json!({"role": "user", "content": [{"type": "input_text", "text": text},
                {"type": "input_image", "detail": "auto", "image_url": url}]}),
            Format::Gemini => json!({"role": "user", "parts": [{"text": text},
                {"inlineData": {"mimeType": "image/png", "data": data}}]}),
        };
        let said = talk.hear(&knack).await.text;
        assert!(said.contains(".png'] 5"), "{row:?}: {said}");
    }
}

/// Google's Python SDK writes the alphabet for URLs; others leave the padding out, or write lines.
#[tokio::test]
async fn attachments_are_staged_in_every_form_of_base64() {
    let knack = with_sandbox(SCRIPT).await;
    let text = "see what I attached";
    let gemini = |data: &str| json!({"role": "user", "parts": [{"text": text}, {"inlineData": {"mimeType": "image/png", "data": data}}]});
    let file = |data: &str| {
        json!({"role": "user", "content": [{"type": "input_text", "text": text},
            {"type": "input_file", "filename": "a.png", "file_data": data}]})
    };
    let audio = json!({"role": "user", "content": [{"type": "input_text", "text": text},
        {"type": "input_audio", "input_audio": {"data": "+//+YWE=", "format": "wav"}}]});
    for (format, message, name) in [
        (Format::Gemini, gemini("-__-YWE="), ".png"),
        (Format::Gemini, gemini("-__-YWE"), ".png"),
        (Format::Responses, file("+//+\r\nYWE="), ".png"),
        (Format::Responses, file("DATA:image/png; BASE64, +//+YWE"), ".png"),
        (Format::Responses, audio, ".wav"),
    ] {
        let mut talk = Talk::plain((format, false), "");
        talk.history[0] = message.clone();
        let said = talk.hear(&knack).await.text;
        assert!(said.contains(&format!("{name}'] 5")), "{message}: {said}");
    }
}

#[tokio::test]
async fn a_client_that_asked_for_code_execution_sees_the_run_in_the_native_form_and_reads_its_file() {
    let knack = with_sandbox(SCRIPT).await;
    let tool = json!([{"type": "code_execution_20250825", "name": "code_execution"}]);
    let body = json!({"model": "claude-x", "max_tokens": 1000, "messages": [{"role": "user", "content": "shown please"}], "tools": tool});
    let answer = knack.send(knack.messages(&body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let content = answer.json()["content"].as_array().unwrap().clone();
    let use_block = content
        .iter()
        .find(|block| block["type"] == "server_tool_use")
        .unwrap_or_else(|| panic!("{}", answer.text));
    assert!(use_block["id"].as_str().unwrap().starts_with("srvtoolu_knack_"));
    let result = content
        .iter()
        .find(|block| block["type"] == "bash_code_execution_tool_result")
        .unwrap();
    assert_eq!(result["content"]["stdout"], "shown output\n");
    let file = result["content"]["content"][0]["file_id"].as_str().unwrap().to_owned();
    let get = |path: String, key: &'static str| {
        let request = super::support::client()
            .get(format!("{}{path}", knack.url))
            .header("x-api-key", key)
            .header("anthropic-version", "2023-06-01");
        knack.send(request)
    };
    assert_eq!(
        get(format!("/v1/files/{file}"), "key-a").await.json()["filename"],
        "a.png"
    );
    assert_eq!(get(format!("/v1/files/{file}/content"), "key-a").await.text, "x");
    assert_eq!(get(format!("/v1/files/{file}/content"), "key-b").await.status, 404);
}
