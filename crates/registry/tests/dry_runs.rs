//! `"dryRun": true` of an install: what it answers, and that nothing is kept.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method};
use knack_registry::fixture::wait;
use knack_registry::{
    ApiRequest, BadArchive, Catalog, Catalogs, FolderStore, Owner, Reader, Registry, Web, WebError, route,
};
use serde_json::{Value, json};

const INSTALL: &str = "/api/skills/install";
const FROM_CATALOG: &str = "/api/skills/skillssh/install";

/// The site of a catalog: texts by address.
#[derive(Debug, Default)]
struct Site(Mutex<BTreeMap<String, String>>);

impl Site {
    fn says(&self, text: &str) {
        let document = format!("---\nname: word\ndescription: Says a word.\n---\n{text}\n");
        self.serves("word", document);
    }

    fn serves(&self, skill: &str, document: String) {
        let address = format!("http://files/acme/skills/main/skills/{skill}/SKILL.md");
        self.0.lock().unwrap().insert(address, document);
    }
}

#[async_trait]
impl Web for Site {
    async fn get(&self, url: &str) -> Result<Bytes, WebError> {
        let found = self.0.lock().unwrap().get(url).cloned();
        found.map(Bytes::from).ok_or(WebError::NotFound)
    }
}

struct Asked {
    registry: Registry,
    site: Arc<Site>,
    folder: tempfile::TempDir,
}

impl Asked {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(FolderStore::open(folder.path()).unwrap().store);
        let no_archives = |_: &[u8]| {
            Err(BadArchive {
                message: "none here".to_owned(),
                too_large: false,
            })
        };
        let site = Arc::new(Site::default());
        let catalogs = Catalogs {
            active: Catalog::SkillsSh,
            api: "http://api".to_owned(),
            files: "http://files".to_owned(),
            has_key: false,
            web: Arc::clone(&site) as Arc<_>,
        };
        Self {
            registry: Registry::new(store, &Arc::new(Reader::new(no_archives))).with_catalogs(catalogs),
            site,
            folder,
        }
    }

    async fn send(&self, method: &Method, path: &str, body: &Value) -> (u16, Value) {
        let headers = HeaderMap::new();
        let call = route(method, path, None, &headers).unwrap();
        let asked = ApiRequest {
            query: None,
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

    async fn install(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(&Method::POST, path, body).await
    }

    /// A dry run, before and after which the registry is the same: as its list, and as the files of its folder.
    async fn dry(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut body = body.clone();
        body["dryRun"] = true.into();
        let before = self.kept().await;
        let answer = self.install(path, &body).await;
        assert_eq!(self.kept().await, before, "{body}");
        answer
    }

    async fn kept(&self) -> (Value, BTreeMap<String, Vec<u8>>) {
        let list = self.send(&Method::GET, "/api/skills", &Value::Null).await.1;
        let mut files = BTreeMap::new();
        read(self.folder.path(), &mut files);
        (list, files)
    }
}

fn read(folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, files);
        } else {
            files.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
}

fn word(version: &str) -> Value {
    json!({"name": "word", "description": "d", "source": "acme/skills", "skillId": "word", "version": version})
}

#[test]
fn a_dry_run_shows_what_an_update_from_a_catalog_changes_for_a_model() {
    wait(async {
        let asked = Asked::new();
        asked.site.says("The word is plover.");
        let (status, new) = asked.dry(FROM_CATALOG, &word("1.0.0")).await;
        assert_eq!(
            (status, &new["change"], &new["id"]),
            (200, &json!("create"), &Value::Null),
            "{new}"
        );
        assert_eq!(new["version"], json!({"from": null, "to": "1.0.0"}));
        assert_eq!(new["mode"], json!({"from": null, "to": "auto"}));
        assert_eq!(
            new["files"],
            json!({"added": ["SKILL.md"], "changed": [], "removed": []})
        );
        assert_eq!(new["tokens"]["loaded"]["from"], 0);
        let diff = new["diff"].as_str().unwrap();
        assert!(diff.contains("+The word is plover."), "{diff}");

        let (status, installed) = asked.install(FROM_CATALOG, &word("1.0.0")).await;
        assert_eq!(status, 200, "{installed}");
        asked.site.says("The word is plover.\nSay it twice.");
        let (status, update) = asked.dry(FROM_CATALOG, &word("1.1.0")).await;
        assert_eq!(
            (status, &update["change"], &update["id"]),
            (200, &json!("update"), &installed["id"]),
            "{update}"
        );
        assert_eq!(update["version"], json!({"from": "1.0.0", "to": "1.1.0"}));
        assert_eq!(update["digest"]["from"], new["digest"]["to"]);
        assert_ne!(update["digest"]["from"], update["digest"]["to"]);
        assert_eq!(
            update["files"],
            json!({"added": [], "changed": ["SKILL.md"], "removed": []})
        );
        assert_eq!(update["tokens"]["loaded"]["from"], new["tokens"]["loaded"]["to"]);
        assert!(
            update["tokens"]["loaded"]["to"].as_u64() > update["tokens"]["loaded"]["from"].as_u64(),
            "{update}"
        );
        let diff = update["diff"].as_str().unwrap();
        assert!(
            diff.contains("+Say it twice.") && !diff.contains("+The word is plover."),
            "{diff}"
        );

        // What the dry run showed is what the install keeps.
        let (status, done) = asked.install(FROM_CATALOG, &word("1.1.0")).await;
        assert_eq!((status, &done["id"]), (200, &installed["id"]), "{done}");
        let (_, same) = asked.dry(FROM_CATALOG, &word("1.2.0")).await;
        let digest = &update["digest"]["to"];
        assert_eq!(
            (&same["digest"]["from"], &same["digest"]["to"]),
            (digest, digest),
            "{same}"
        );
        assert_eq!(same["files"]["changed"], json!([]), "{same}");
    });
}

#[test]
fn an_install_with_the_digest_of_its_dry_run_keeps_what_was_reviewed_or_nothing() {
    wait(async {
        let asked = Asked::new();
        asked.site.says("The word is plover.");
        let (_, reviewed) = asked.dry(FROM_CATALOG, &word("1.0.0")).await;
        let mut body = word("1.0.0");
        body["digest"] = reviewed["digest"]["to"].clone();
        asked.site.says("The word is dunlin.");
        let before = asked.kept().await;
        let (status, refused) = asked.install(FROM_CATALOG, &body).await;
        let said = refused["error"].as_str().unwrap();
        assert_eq!(status, 409, "{said}");
        assert!(
            said.starts_with("the catalog now has different files for word, with digest "),
            "{said}"
        );
        assert_eq!(asked.kept().await, before);
        assert_eq!(asked.dry(FROM_CATALOG, &body).await.0, 409);
        asked.site.says("The word is plover.");
        let (status, installed) = asked.install(FROM_CATALOG, &body).await;
        assert_eq!(status, 200, "{installed}");
        let (_, same) = asked.dry(FROM_CATALOG, &word("1.1.0")).await;
        assert_eq!(same["digest"]["from"], body["digest"], "{same}");
    });
}

/// Authors of a catalog change a file and leave its version as it is, which whoever installs it cannot change.
#[test]
fn a_file_that_changed_under_its_own_version_is_shown_and_installed() {
    wait(async {
        let asked = Asked::new();
        let says = |text: &str| {
            let document = format!("---\nname: word\ndescription: Says a word.\nversion: 1.0.0\n---\n{text}\n");
            asked.site.serves("word", document);
        };
        let bare = json!({"name": "word", "description": "d", "source": "acme/skills", "skillId": "word"});
        says("The word is plover.");
        assert_eq!(asked.install(FROM_CATALOG, &bare).await.0, 200);
        assert_eq!(asked.dry(FROM_CATALOG, &bare).await.0, 409, "the same files");
        says("The word is dunlin.");
        let (status, shown) = asked.dry(FROM_CATALOG, &bare).await;
        assert_eq!(status, 200, "{shown}");
        assert_eq!(shown["version"], json!({"from": "1.0.0", "to": "1.0.0"}));
        assert!(
            shown["diff"].as_str().unwrap().contains("+The word is dunlin."),
            "{shown}"
        );
        let (status, done) = asked.install(FROM_CATALOG, &bare).await;
        assert_eq!(status, 200, "{done}");
        let (_, row) = asked.send(&Method::GET, "/api/skills/word", &Value::Null).await;
        assert_eq!((&row["id"], &row["version"]), (&done["id"], &json!("1.0.0")), "{row}");
        assert!(row["handler"].as_str().unwrap().contains("dunlin"), "{row}");
        assert_eq!(asked.install(FROM_CATALOG, &bare).await.0, 409, "the same files");
        assert_eq!(
            asked.install(FROM_CATALOG, &word("1.0.1")).await.0,
            400,
            "its SKILL.md says 1.0.0"
        );
        // Where the request gives the version, it gives another one to other files.
        asked.site.says("The word is avocet.");
        assert_eq!(asked.dry(FROM_CATALOG, &bare).await.0, 409);
    });
}

#[test]
fn a_dry_run_of_code_shows_its_tool_and_the_files_that_come_and_go() {
    wait(async {
        let asked = Asked::new();
        let document = "---\nname: word\ndescription: Says a word.\n---\nSay it.\n";
        let install = |version: &str, code: &str| json!({"name": "word", "version": version, "description": "Says a word.", "schema": {}, "handlerCode": code});
        let first = install("1.0.0", "def handler():\n    return 1\n");
        let (status, new) = asked.dry(INSTALL, &first).await;
        assert_eq!((status, &new["mode"]["to"]), (200, &json!("on")), "{new}");
        assert!(new["tokens"]["everyRequest"]["to"].as_u64() > Some(0), "{new}");
        assert!(
            new["diff"].as_str().unwrap().contains("tools in every request: 0 -> "),
            "{new}"
        );
        assert_eq!(asked.install(INSTALL, &first).await.0, 200);
        let (status, update) = asked.dry(INSTALL, &install("2.0.0", document)).await;
        assert_eq!(
            (status, &update["files"]["changed"]),
            (200, &json!(["SKILL.md"])),
            "{update}"
        );
        let removed = update["files"]["removed"].as_array().unwrap();
        assert!(removed.contains(&json!("handler.py")), "{update}");
    });
}

#[test]
fn a_dry_run_has_the_errors_of_the_install() {
    wait(async {
        let asked = Asked::new();
        asked.site.says("The word is plover.");
        asked.site.serves("page", "<html>sign in</html>".to_owned());
        assert_eq!(asked.install(FROM_CATALOG, &word("1.0.0")).await.0, 200);
        let with = |member: &str, value: Value| {
            let mut body = word("1.1.0");
            body[member] = value;
            body
        };
        for (path, body, status) in [
            (FROM_CATALOG, word("1.0.0"), 409),
            (FROM_CATALOG, with("skillId", json!("page")), 400),
            (FROM_CATALOG, with("skillId", json!("gone")), 404),
            (FROM_CATALOG, with("version", json!("1")), 400),
            (FROM_CATALOG, with("tags", json!([])), 400),
            (INSTALL, json!({"name": "x"}), 400),
            ("/api/skills/marketplace/install", word("1.1.0"), 409),
            ("/api/skills/index/install", json!({"name": "word"}), 409),
        ] {
            let dry = asked.dry(path, &body).await;
            assert_eq!(dry.0, status, "{body}: {}", dry.1);
            assert_eq!(asked.install(path, &body).await, dry, "{body}");
        }
        let (status, reported) = asked.install(FROM_CATALOG, &with("dryRun", json!("yes"))).await;
        assert_eq!(
            (status, &reported["details"][0]["field"]),
            (400, &json!("dryRun")),
            "{reported}"
        );
        let (status, reported) = asked.install(FROM_CATALOG, &with("dryRun", json!(false))).await;
        assert_eq!((status, &reported["success"]), (200, &json!(true)), "{reported}");
        assert!(reported["dryRun"].is_null(), "{reported}");
    });
}

/// The lines of two documents of the largest size have nothing in common: it ends, and the answer has its bound.
#[test]
fn a_dry_run_of_the_largest_documents_ends_and_is_cut() {
    wait(async {
        let asked = Asked::new();
        let lines = |word: &str| (0..60_000).map(|line| format!("{word}{line}\n")).collect::<String>();
        asked.site.says(&lines("a"));
        let (status, done) = asked.install(FROM_CATALOG, &word("1.0.0")).await;
        assert_eq!(status, 200, "{done}");
        asked.site.says(&lines("b"));
        let (status, update) = asked.dry(FROM_CATALOG, &word("1.1.0")).await;
        assert_eq!((status, &update["diffTruncated"]), (200, &json!(true)));
        assert_eq!(update["diff"].as_str().unwrap().len(), 256 << 10);
    });
}
