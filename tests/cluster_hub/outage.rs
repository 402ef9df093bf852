//! A gateway process while its hub is away.

use std::time::Duration;

use cluster_support::run;
use serde_json::{Value, json};

use super::support::{Process, SOON, World, free_port, listening};

/// A model that runs a skill's script by `run_code` when asked to, and says what came of it.
const SCRIPT: &str = r#"
turns:
  - user: {regex: 'run it'}
    rounds:
      - when: {results: 0}
        reply:
          calls:
            - tool: run_code
              arguments: {skill: steady, command: 'python3 skills/steady/scripts/run.py'}
      - when: {}
        reply: {text: "{{results}}"}
  - rounds:
      - when: {}
        reply: {text: "the model speaks"}
"#;

async fn chat(port: u16, text: &str, skills: Option<&str>) -> (u16, String) {
    let mut request = reqwest::Client::new()
        .post(format!("http://127.0.0.1:{port}/v1/chat/completions"))
        .header("authorization", "Bearer sk-mock")
        .timeout(SOON)
        .header("content-type", "application/json")
        .body(json!({"model": "gpt-x", "messages": [{"role": "user", "content": text}]}).to_string());
    if let Some(skills) = skills {
        request = request.header("x-knack-skills", skills);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.text().await.unwrap())
}

fn content(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap();
    body["choices"][0]["message"]["content"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Traffic flows and the last catalog serves while the hub is gone; a gateway that never had a catalog says so where a
/// skill is named; when the hub is back, code runs again.
#[test]
fn a_gateway_goes_on_without_its_hub() {
    run("a_gateway_goes_on_without_its_hub", async |cluster| {
        let mut world = World::start(cluster, 1, json!({})).await;
        let tenant = world.tenants[0].name().to_owned();
        let client = world.tenant(0).await;
        world.skill(&tenant, "steady", "print('steady ran')").await;
        world.served(&client, "steady").await;
        let (folder, authorities) = (world.folder.path().to_owned(), world.authorities_file());
        let (script, token) = (folder.join("script.yaml"), folder.join("token"));
        std::fs::write(&script, SCRIPT).unwrap();
        std::fs::write(&token, world.token(&tenant, "default", "knack").await).unwrap();
        let (model, port, late) = (free_port(), free_port(), free_port());
        let mock = [
            "mock",
            &format!("--listen=127.0.0.1:{model}"),
            &format!("--script={}", script.display()),
        ];
        let _mock = Process::start(cluster, &folder, "mock", &mock.map(str::to_owned));
        listening(model).await;
        let words = |port: u16| {
            vec![
                "gateway".to_owned(),
                format!("--listen=127.0.0.1:{port}"),
                format!("--hub={}", world.url()),
                format!("--hub-ca={}", authorities.display()),
                format!("--token-file={}", token.display()),
                format!("--runtime={}", world.runtime()),
                format!("--upstream-openai=http://127.0.0.1:{model}"),
                "--metrics-listen=127.0.0.1:0".to_owned(),
            ]
        };
        let (first_words, late_words) = (words(port), words(late));
        let _gateway = Process::start(cluster, &folder, "gateway", &first_words);
        listening(port).await;
        let (status, body) = chat(port, "run it", None).await;
        assert_eq!(status, 200, "{body}");
        assert!(content(&body).contains("steady ran"), "{body}");

        world.hub.kill();
        let (status, body) = chat(port, "hello", Some("steady")).await;
        assert_eq!((status, content(&body).as_str()), (200, "the model speaks"));
        let _late = Process::start(cluster, &folder, "late-gateway", &late_words);
        listening(late).await;
        let (status, body) = chat(late, "hello", None).await;
        assert_eq!((status, content(&body).as_str()), (200, "the model speaks"));
        let (status, body) = chat(late, "hello", Some("steady")).await;
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("no catalog") && !body.contains("127.0.0.1"), "{body}");

        // A call that is under way is asked again until the hub is back.
        let waiting = tokio::spawn(chat(port, "run it", None));
        world.restart_hub().await;
        let (status, body) = waiting.await.unwrap();
        assert_eq!(status, 200, "{body}");
        assert!(content(&body).contains("steady ran"), "{body}");
        tokio::time::timeout(SOON, async {
            while chat(late, "hello", Some("steady")).await.0 != 200 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        })
        .await
        .expect("the late gateway gets its catalog");
    });
}
