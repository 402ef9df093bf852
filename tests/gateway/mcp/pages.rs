//! Lists of skills with as many files as a skill may have.

use serde_json::json;

use super::{Start, ask, request, send, start};

/// Files of each skill, with its SKILL.md.
const FILES: usize = 2_000;

/// Ten skills with so many files.
fn skills() -> Vec<(&'static str, &'static str)> {
    let leaked = |text: String| -> &'static str { text.leak() };
    let mut all = Vec::new();
    for number in 0..10 {
        let document = format!("---\nname: s{number}\ndescription: Counts words.\n---\nCounts.\n");
        all.push((leaked(format!("s{number}/SKILL.md")), leaked(document)));
        all.extend((1..FILES).map(|file| (leaked(format!("s{number}/{file}.txt")), "1")));
    }
    all
}

#[tokio::test]
async fn skills_of_many_files_come_in_pages_that_are_counted_before_they_are_made() {
    let knack = start(Start {
        skills: skills(),
        ..Start::default()
    })
    .await;
    let budget = knack.gateway.requests.process();
    // What is left has room for a request, and for no such list.
    let take_most = || budget.try_take(budget.free_bytes() - (1 << 20)).unwrap();
    let list = || request(&knack, "skills/list", &json!({}));
    let taken = take_most();
    let refused = send(list()).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    drop(taken);
    let (mut sent, mut pages, mut params) = (Vec::new(), 0, json!({}));
    loop {
        let answer = send(request(&knack, "skills/list", &params)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.text.len() < 2 << 20, "{}", answer.text.len());
        let result = answer.json()["result"].clone();
        for skill in result["skills"].as_array().unwrap() {
            assert_eq!(skill["resources"].as_array().unwrap().len(), FILES);
            sent.push(skill["uri"].as_str().unwrap().to_owned());
        }
        pages += 1;
        let Some(next) = result["nextCursor"].as_str() else {
            break;
        };
        params = json!({"cursor": next});
    }
    let expected: Vec<String> = (0..10).map(|number| format!("skill://s{number}/SKILL.md")).collect();
    assert_eq!(sent, expected);
    assert!(pages > 1, "{pages}");
    // The lists are there now, and each page of them is counted still.
    let taken = take_most();
    let refused = send(list()).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(ask(&knack, "tools/list", &json!({})).await["tools"].is_array());
    drop(taken);
    assert_eq!(send(list()).await.status, 200);
}
