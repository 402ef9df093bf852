//! Values that a person gives to a skill by its name: no caller gets them by uploading a skill of that name.

use knack_registry::{Files, zipped};
use knack_skill::model::SkillFile;
use serde_json::{Value, json};

use super::{Served, form};

const SCRIPT: &str = "turns:\n  - rounds:\n      - reply: {text: hi}\n";
/// The value of every flag here.
const SECRET: &str = "granted-4711";
/// The value as the tools print it: as it is, the history would replace it.
const PRINTED: &str = "1174-detnarg";
/// Callers with skills of their own.
const KEYS: [&str; 2] = ["one", "two"];

const NOW: &str = "import os\nprint(os.environ.get('TOKEN', 'nothing')[::-1])\n";

fn document(name: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Tells the {name}.\ntools:\n  - name: now\n    description: d\n    command: [python3, now.py]\n    \
         env: [TOKEN]\n---\nx\n"
    )
}

/// Uploads a skill; its id.
async fn upload(served: &Served, name: &str, files: &[(&str, &str)], key: &str) -> String {
    let files = files.iter().map(|(path, text)| {
        let file = SkillFile {
            bytes: text.as_bytes().into(),
            executable: false,
        };
        ((*path).to_owned(), file)
    });
    let zip = zipped(name, &files.collect::<Files>()).unwrap();
    let body = form(&[], Some(("skill.zip", &zip)));
    let (status, created) = served.send_form("/v1/skills", body, key).await;
    assert_eq!(status, 200, "{created}");
    created["id"].as_str().unwrap().to_owned()
}

/// The output of a tool.
async fn run(served: &Served, member: &str, skill: &str, input: Value, key: &str) -> String {
    let body = json!({member: skill, "input": input});
    let (status, done) = served.call("POST", "/api/skills/executions", &body, key).await;
    assert_eq!(
        (status, &done["execution"]["status"]),
        (200, &json!("success")),
        "{done}"
    );
    done["execution"]["output"].to_string()
}

#[tokio::test]
async fn a_value_that_is_granted_by_a_bare_name_reaches_no_upload_of_that_name() {
    let weather = document("weather");
    let files = [
        ("skills/weather/SKILL.md", weather.as_str()),
        ("skills/weather/now.py", NOW),
    ];
    let granted = [
        "--allow-env",
        "weather:TOKEN",
        "--allow-env",
        "uploads/rainy:TOKEN",
        "--allow-env",
        "snowy:TOKEN",
    ];
    let served = Served::with(SCRIPT, &files, &granted, &[("TOKEN", SECRET)]).await;
    assert!(
        served
            .program
            .greeting
            .iter()
            .any(|line| line.contains("--allow-env snowy:TOKEN: no skill snowy is found here")),
        "{:?}",
        served.program.greeting
    );
    let of_file = run(&served, "skillName", "weather", json!({}), "three").await;
    assert!(of_file.contains(PRINTED), "{of_file}");
    for key in KEYS {
        for (name, is_given) in [("weather", false), ("snowy", false), ("rainy", true)] {
            let text = document(name);
            let id = upload(&served, name, &[("SKILL.md", &text), ("now.py", NOW)], key).await;
            let said = run(&served, "skillId", &id, json!({}), key).await;
            assert_eq!(said.contains(PRINTED), is_given, "{name} of {key}: {said}");
        }
    }
    // Of the one from files nothing has changed.
    let of_file = run(&served, "skillName", "weather", json!({}), "three").await;
    assert!(of_file.contains(PRINTED), "{of_file}");
}

#[tokio::test]
async fn a_value_that_is_set_by_a_bare_name_reaches_no_upload_of_that_name() {
    let files = ["SKILL.md", "quote.py", "python-tools.lock"].map(|name| {
        let path = format!("{}/examples/skills/price-quote/{name}", env!("CARGO_MANIFEST_DIR"));
        (name, std::fs::read_to_string(path).unwrap())
    });
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    for (word, is_given) in [
        ("price-quote.signingKey=KEY", false),
        ("uploads/price-quote.signingKey=KEY", true),
    ] {
        let served = Served::with(SCRIPT, &[], &["--set-env", word], &[("KEY", SECRET)]).await;
        for key in KEYS {
            let id = upload(&served, "price-quote", &files, key).await;
            let items = json!({"items": [{"name": "Desk", "price": 1}]});
            let said = run(&served, "skillId", &id, items, key).await;
            assert!(said.contains("Desk"), "{said}");
            assert_eq!(said.contains("signature"), is_given, "{word} of {key}: {said}");
        }
    }
}
