//! Skills named by ids of `LiteLLM`, from the request to the generated file, and templates whose inputs are missing.

use std::sync::Arc;
use std::time::Duration;

use knack_execution::Executor;
use serde_json::{Value, json};

use super::observed::Observed;
use super::support::{Start, start};

const ID: &str = "litellm_skill_6e0b9a52-6a3e-4d83-b0a5-8b8c6b1f1c77";
const BALL: &str = "---\nname: ball\ndescription: Draws a ball.\nactivation: OnRequest\nmetadata:\n  skill_id: litellm_skill_6e0b9a52-6a3e-4d83-b0a5-8b8c6b1f1c77\n---\n# Ball\n\nImport ball and call draw().\n";
const CODE: &str = r#"
turns:
  - user: template
    rounds:
      - reply: {text: ok}
  - rounds:
      - reply: {calls: [{tool: litellm_code_execution, arguments: {code: "import ball; ball.draw()"}}]}
      - expect: {result: {contains: "Generated file: ball.gif"}}
        reply: {text: Drawn.}
"#;

fn skills() -> Vec<(&'static str, &'static str)> {
    vec![
        ("ball/SKILL.md", BALL),
        (
            "ball/ball.py",
            "def draw():\n    open('ball.gif', 'wb').write(b'GIF89a')\n    print('done')\n",
        ),
        (
            "sum/SKILL.md",
            "---\nname: sum\ndescription: Sums up an article.\nactivation: OnRequest\ninputs:\n  - {name: article, required: true}\n  - {name: style, required: true}\n---\nSum up {{article}} in a {{style}} way.\n",
        ),
    ]
}

fn chat(text: &str, id: Option<&str>) -> Value {
    let mut body = json!({"model": "gpt-x", "messages": [{"role": "user", "content": text}]});
    if let Some(id) = id {
        body["container"] = json!({"skills": [{"type": "custom", "skill_id": id}]});
    }
    body
}

#[tokio::test]
async fn a_real_litellm_id_runs_the_skill_that_carries_it_and_returns_its_files() {
    let observed = Observed::new().await;
    let knack = start(Start {
        skills: skills(),
        script: CODE.to_owned(),
        executor: Arc::clone(&observed) as Arc<dyn Executor>,
        ..Start::default()
    })
    .await;
    for id in [ID.to_owned(), format!("litellm:{ID}")] {
        let answer = knack.send(knack.chat(&chat("draw", Some(&id)))).await;
        assert_eq!(
            (answer.status, answer.said().as_str()),
            (200, "Drawn."),
            "{}",
            answer.text
        );
        let file = &answer.json()["_litellm_generated_files"][0];
        assert_eq!(
            (&file["name"], &file["size"]),
            (&json!("ball.gif"), &json!(6)),
            "{}",
            answer.text
        );
        let sent = knack.upstream();
        assert_eq!(sent.get("container"), None, "{sent}");
        let tools: Vec<&str> = sent["tools"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|tool| tool["function"]["name"].as_str())
            .collect();
        let own = ID.replace('-', "_");
        assert_eq!(tools, [own.as_str(), "litellm_code_execution"]);
        let system = sent["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains("## Skill: ball\n\n# Ball"), "{system}");
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    // The dialect's own limit, which the default ceiling of a runtime lets through.
    let limits: Vec<Duration> = observed
        .requests()
        .iter()
        .map(|request| request.limits.timeout)
        .collect();
    assert_eq!(limits, [Duration::from_mins(2); 2]);
    for id in ["litellm_skill_0", "litellm:skill_abc", "litellm:sum/x"] {
        let answer = knack.send(knack.chat(&chat("draw", Some(id)))).await;
        assert_eq!(answer.status, 404);
        assert!(
            answer.json()["error"]["message"].as_str().unwrap().contains(id),
            "{}",
            answer.text
        );
    }
}

#[tokio::test]
async fn a_template_without_its_required_inputs_asks_for_them_and_the_console_says_so() {
    let knack = start(Start {
        skills: skills(),
        script: CODE.to_owned(),
        ..Start::default()
    })
    .await;
    let header = || knack.chat(&chat("template", None)).header("x-knack-skills", "sum");
    let mention = || knack.chat(&chat("@sum template text", None));
    for request in [header(), mention(), knack.chat(&chat("template", Some("sum")))] {
        let answer = knack.send(request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let sent = knack.upstream();
        let system = sent["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains("\n- style (required)"), "{system}");
        assert!(!system.contains("Sum up "), "{system}");
        assert_eq!(sent["tools"][0]["function"]["name"], "load_skill");
    }
    knack
        .told("skill sum: asks the model for its required inputs: article, style")
        .await;
    knack
        .told("skill sum: asks the model for its required inputs: style")
        .await;
}
