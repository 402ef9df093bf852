//! Installs from an index of skills: what it must promise, and what is refused of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method};
use knack_registry::fixture::wait;
use knack_registry::{
    ApiRequest, BadArchive, Catalog, Catalogs, Files, FolderStore, Owner, Reader, Registry, Web, WebError, route,
};
use knack_skill::digest::sha256;
use knack_skill::model::SkillFile;
use serde_json::{Value, json};

const INDEX: &str = "http://site/team/index.json";
const INSTALL: &str = "/api/skills/index/install";

/// The site: texts by address.
#[derive(Debug, Default)]
struct Site(BTreeMap<String, String>);

impl Site {
    /// An index with a file for each of these: name, type, what is there, and what the digest is of.
    fn of(entries: &[(&str, &str, &str, &str)]) -> Self {
        let entry = |(name, kind, _, promised): &(&str, &str, &str, &str)| {
            json!({"name": name, "type": kind, "description": format!("About {name}."), "url": format!("files/{name}"),
                "digest": format!("sha256:{}", sha256(promised))})
        };
        let skills: Vec<Value> = entries.iter().map(entry).collect();
        let schema = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
        let mut site = Self::default();
        site.0.insert(
            INDEX.to_owned(),
            json!({"$schema": schema, "skills": skills}).to_string(),
        );
        for (name, _, text, _) in entries {
            site.0
                .insert(format!("http://site/team/files/{name}"), (*text).to_owned());
        }
        site
    }
}

#[async_trait]
impl Web for Site {
    async fn get(&self, url: &str) -> Result<Bytes, WebError> {
        let found = self.0.get(url).cloned();
        found.map(Bytes::from).ok_or(WebError::NotFound)
    }
}

/// An archive of this test: a path on each line, each with the document of the skill `box`.
fn unpack(bytes: &[u8]) -> Result<Files, BadArchive> {
    let text = String::from_utf8_lossy(bytes);
    let Some(paths) = text.strip_prefix("archive\n") else {
        return Err(BadArchive {
            message: "no archive".to_owned(),
            too_large: false,
        });
    };
    let file = SkillFile {
        bytes: document("box").into_bytes().into(),
        executable: false,
    };
    Ok(paths.lines().map(|path| (path.to_owned(), file.clone())).collect())
}

fn document(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Says a word.\n---\nSay it.\n")
}

struct Asked {
    registry: Registry,
    _folder: tempfile::TempDir,
}

impl Asked {
    fn of(site: Site) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(FolderStore::open(folder.path()).unwrap().store);
        let catalogs = Catalogs {
            active: Catalog::Index,
            api: INDEX.to_owned(),
            files: String::new(),
            has_key: false,
            web: Arc::new(site),
        };
        Self {
            registry: Registry::new(store, &Arc::new(Reader::new(unpack))).with_catalogs(catalogs),
            _folder: folder,
        }
    }

    async fn send(&self, method: &Method, path: &str, body: &Value) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let headers = HeaderMap::new();
        let call = route(method, path, Some(query), &headers).unwrap();
        let asked = ApiRequest {
            query: Some(query.to_owned()),
            headers,
            body: body.to_string().into(),
            request_id: "req_1".to_owned(),
        };
        let answer = self
            .registry
            .answer(Some(&Owner::from([1; 32])), call, &asked, &[])
            .await;
        let body = serde_json::from_slice(answer.body()).unwrap();
        (answer.status().as_u16(), body)
    }
}

fn site() -> Site {
    let (word, page, root, folder, other) = (
        document("word"),
        "<html>",
        "archive\nSKILL.md\nmore/SKILL.txt",
        "archive\nbox/SKILL.md\nbox/x",
        "archive\nelse/SKILL.md",
    );
    Site::of(&[
        ("word", "skill-md", &word, &word),
        ("root", "archive", root, root),
        ("box", "archive", folder, folder),
        ("lying", "skill-md", &word, "others"),
        ("page", "skill-md", page, page),
        ("other", "archive", other, other),
        ("broken", "archive", page, page),
        ("odd", "bundle", page, page),
        ("Two_Words", "skill-md", &word, &word),
    ])
}

#[test]
fn one_file_and_archives_of_both_shapes_are_installed_with_all_their_files() {
    wait(async {
        let asked = Asked::of(site());
        let (_, found) = asked
            .send(&Method::GET, "/api/skills/index?q=about+w", &Value::Null)
            .await;
        assert_eq!(found["skills"].as_array().map(Vec::len), Some(1), "{found}");
        let word = &found["skills"][0];
        assert_eq!(
            (&word["name"], &word["url"]),
            (&json!("word"), &json!("http://site/team/files/word"))
        );
        let reviewed = json!({"name": "word", "digest": word["digest"]});
        assert_eq!(asked.send(&Method::POST, INSTALL, &reviewed).await.0, 200);
        for (name, files) in [
            ("root", json!(["SKILL.md", "more/SKILL.txt"])),
            ("box", json!(["SKILL.md", "x"])),
        ] {
            let body = json!({"name": name, "dryRun": true});
            let (status, dry) = asked.send(&Method::POST, INSTALL, &body).await;
            assert_eq!((status, &dry["files"]["added"]), (200, &files), "{dry}");
            assert_eq!(
                (&dry["name"], &dry["mode"]["to"]),
                (&json!(name), &json!("auto")),
                "{dry}"
            );
            let (status, done) = asked.send(&Method::POST, INSTALL, &json!({"name": name})).await;
            assert_eq!(status, 200, "{done}");
        }
        let (_, list) = asked.send(&Method::GET, "/api/skills?source=index", &Value::Null).await;
        assert_eq!(list["total"], 3, "{list}");
    });
}

#[test]
fn what_is_not_as_the_index_promises_is_not_installed() {
    wait(async {
        let asked = Asked::of(site());
        let promised = format!("sha256:{}", "0".repeat(64));
        for (body, status, says) in [
            (json!({"name": "lying"}), 502, "nothing was installed"),
            (json!({"name": "page"}), 400, "the file of page"),
            (json!({"name": "other"}), 400, "\"else\""),
            (json!({"name": "broken"}), 400, "no archive"),
            (json!({"name": "odd"}), 400, "type"),
            (json!({"name": "missing"}), 404, "the index has no skill missing"),
            (json!({"name": "../word"}), 404, "the index has no skill"),
            (json!({"name": "Two_Words"}), 400, "Two_Words"),
            (json!({"name": "word", "digest": promised}), 409, "by now"),
            (json!({"name": "word", "version": "1"}), 400, "version"),
            (json!({"name": "word", "source": "a/b"}), 400, "source"),
            (json!({}), 400, "name"),
        ] {
            let (found, answer) = asked.send(&Method::POST, INSTALL, &body).await;
            let reported = answer["error"].as_str().unwrap_or_default();
            assert!(found == status && reported.contains(says), "{body}: {found} {answer}");
        }
        let (_, list) = asked.send(&Method::GET, "/api/skills", &Value::Null).await;
        assert_eq!(list["total"], 0, "{list}");
    });
}
