//! Files that gateways keep at the registry.

use http::StatusCode;
use serde_json::{Value, json};

use super::installation::Installation;
use super::requests::{Dialect, Program, Sent};

const PATH: &str = "/knack/v1/files";
/// Hashes of two clients of a gateway.
const CLIENTS: [&str; 2] = ["11", "22"];

/// What a gateway asks for a client: what it is told, and the content of that.
async fn ask(gateway: &Program, client: &str, op: Value, content: &[u8]) -> (Value, Vec<u8>) {
    let mut body = json!({"caller": client.repeat(32), "op": op}).to_string().into_bytes();
    body.push(b'\n');
    body.extend_from_slice(content);
    let answer = gateway
        .send(Dialect::OpenAi, "POST", PATH, Some(Sent::Bytes(body)))
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let end = answer.body.iter().position(|byte| *byte == b'\n').unwrap();
    let line = serde_json::from_slice(&answer.body[..end]).unwrap();
    (line, answer.body[end + 1..].to_vec())
}

/// Ids of a client's uploads.
async fn listed(gateway: &Program, client: &str) -> Vec<String> {
    let (line, _) = ask(gateway, client, json!({"files": []}), b"").await;
    let all = line["done"]["files"][0].as_array().unwrap();
    all.iter().map(|file| file["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn files_that_gateways_keep_are_of_their_account_and_outlive_the_registry() {
    let test = "files_that_gateways_keep_are_of_their_account_and_outlive_the_registry";
    cluster_support::run(test, async |cluster| {
        let mut installation = Installation::start(cluster).await;
        let team = installation.client_of("team", "default").await;
        let stranger = installation.client_of("team", "stranger").await;
        let new = json!({"add_file": {"name": "a.txt", "mime": "text/plain", "purpose": "user_data", "lasts": null}});
        let (line, _) = ask(&team, CLIENTS[0], new.clone(), b"text\nmore").await;
        let id = line["done"]["file"]["id"].as_str().unwrap().to_owned();
        assert_eq!(line["done"]["file"]["size"], 9, "{line}");
        let container =
            json!({"add_container": {"id": "cntr_knack_a", "name": "a", "idle": null, "memory_limit": null}});
        ask(&team, CLIENTS[0], container, b"").await;
        let copy = json!({"copy_to_container": ["cntr_knack_a", id]});
        let (copied, _) = ask(&team, CLIENTS[0], copy, b"").await;
        let inside = copied["done"]["container_file"]["id"].as_str().unwrap().to_owned();

        // Whoever is not this client of this account.
        for (gateway, client) in [(&team, CLIENTS[1]), (&stranger, CLIENTS[0])] {
            assert_eq!(listed(gateway, client).await, [""; 0]);
            for op in [
                json!({"file_content": id}),
                json!({"delete_file": id}),
                json!({"copy_to_container": ["cntr_knack_a", id]}),
                json!({"container_file_content": ["cntr_knack_a", inside]}),
            ] {
                let (line, content) = ask(gateway, client, op.clone(), b"").await;
                let missing = line["refused"].as_object().is_some_and(|refused| refused.len() == 1);
                assert!(missing && content.is_empty(), "{op}: {line}");
            }
        }
        // Nobody, and a token for another audience.
        let other = installation.token("team", "default", "knack-gateway").await;
        for token in ["", other.as_str()] {
            let body = Some(Sent::Bytes(b"{}\n".to_vec()));
            let refused = team.with_token(token).send(Dialect::OpenAi, "POST", PATH, body).await;
            assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{}", refused.text());
        }

        installation.kill_registry();
        installation.start_registry().await;
        assert_eq!(listed(&team, CLIENTS[0]).await, [id.as_str()]);
        let (_, content) = ask(&team, CLIENTS[0], json!({"file_content": id}), b"").await;
        assert_eq!(content, b"text\nmore");
        let op = json!({"container_file_content": ["cntr_knack_a", inside]});
        assert_eq!(ask(&team, CLIENTS[0], op, b"").await.1, b"text\nmore");
        let metrics = installation.metrics().await;
        for line in [
            "\nknack_registry_files_uploads 1\n",
            "\nknack_registry_files_containers 1\n",
            "\nknack_registry_files_bytes 18\n",
        ] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
    });
}
