//! The Skills APIs over a store that does not do what it is asked, and what is left in it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response};
use knack_registry::fixture::wait;
use knack_registry::{
    ApiRequest, BadArchive, Draft, Files, FolderStore, Mode, Owner, Page, Paged, Reader, Registry, SkillEntry, Store,
    StoreError, VERSIONS_MAX, route,
};
use serde_json::{Value, json};

/// A folder with a switch for each way in which a cluster fails.
#[derive(Debug)]
struct Failing {
    folder: FolderStore,
    /// No call is answered in time.
    away: AtomicBool,
    /// No content is read in time.
    content_away: AtomicBool,
    /// What is listed is not there any more when it is read.
    content_gone: AtomicBool,
    /// Nothing more is kept.
    full: AtomicBool,
    /// Lists know no place behind an item.
    no_place: AtomicBool,
}

impl Failing {
    fn up(&self) -> Result<(), StoreError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("away".to_owned()));
        }
        Ok(())
    }

    fn room(&self) -> Result<(), StoreError> {
        self.up()?;
        if self.full.load(Ordering::SeqCst) {
            return Err(StoreError::Full("full".to_owned()));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Failing {
    async fn create(&self, owner: &Owner, title: Option<String>, draft: Draft) -> Result<SkillEntry, StoreError> {
        self.room()?;
        self.folder.create(owner, title, draft).await
    }

    async fn would_keep(&self, owner: &Owner, id: Option<&str>, draft: &Draft) -> Result<(), StoreError> {
        self.room()?;
        self.folder.would_keep(owner, id, draft).await
    }

    async fn add_version(
        &self,
        owner: &Owner,
        id: &str,
        draft: Draft,
        default: bool,
    ) -> Result<SkillEntry, StoreError> {
        let versions = self.folder.get(owner, id).await?.versions.len();
        if versions < VERSIONS_MAX {
            self.room()?;
        }
        self.folder.add_version(owner, id, draft, default).await
    }

    async fn add_in_turn(&self, owner: &Owner, id: &str, draft: Draft) -> Result<SkillEntry, StoreError> {
        self.room()?;
        self.folder.add_in_turn(owner, id, draft).await
    }

    async fn get(&self, owner: &Owner, id: &str) -> Result<SkillEntry, StoreError> {
        self.up()?;
        self.folder.get(owner, id).await
    }

    async fn find(&self, owner: &Owner, name: &str) -> Result<Option<SkillEntry>, StoreError> {
        self.up()?;
        self.folder.find(owner, name).await
    }

    async fn list(&self, owner: &Owner, page: &Page) -> Result<Paged<SkillEntry>, StoreError> {
        self.up()?;
        if self.no_place.load(Ordering::SeqCst) && page.after.is_some() {
            return Err(StoreError::NotFound);
        }
        self.folder.list(owner, page).await
    }

    async fn set_default(&self, owner: &Owner, id: &str, number: u32) -> Result<SkillEntry, StoreError> {
        self.up()?;
        self.folder.set_default(owner, id, number).await
    }

    async fn set_mode(&self, owner: &Owner, id: &str, mode: Mode) -> Result<SkillEntry, StoreError> {
        self.up()?;
        self.folder.set_mode(owner, id, mode).await
    }

    async fn delete(&self, owner: &Owner, id: &str) -> Result<SkillEntry, StoreError> {
        self.up()?;
        self.folder.delete(owner, id).await
    }

    async fn delete_version(&self, owner: &Owner, id: &str, number: u32) -> Result<SkillEntry, StoreError> {
        self.up()?;
        self.folder.delete_version(owner, id, number).await
    }

    async fn content(&self, owner: &Owner, id: &str, number: u32) -> Result<Files, StoreError> {
        self.up()?;
        if self.content_away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("too much at once".to_owned()));
        }
        if self.content_gone.load(Ordering::SeqCst) {
            return Err(StoreError::NotFound);
        }
        self.folder.content(owner, id, number).await
    }
}

/// The APIs over such a store, and a caller.
struct Asked {
    store: Arc<Failing>,
    registry: Registry,
    _folder: tempfile::TempDir,
}

impl Asked {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Failing {
            folder: FolderStore::open(folder.path()).unwrap().store,
            away: AtomicBool::default(),
            content_away: AtomicBool::default(),
            content_gone: AtomicBool::default(),
            full: AtomicBool::default(),
            no_place: AtomicBool::default(),
        });
        let no_archives = |_: &[u8]| {
            Err(BadArchive {
                message: "none here".to_owned(),
                too_large: false,
            })
        };
        let reader = Arc::new(Reader::new(no_archives));
        Self {
            registry: Registry::new(Arc::clone(&store) as Arc<_>, &reader),
            store,
            _folder: folder,
        }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&'static str, &str)], body: &str) -> Response<Bytes> {
        let (path, query) = path
            .split_once('?')
            .map_or((path, None), |(path, query)| (path, Some(query)));
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let call = route(&method, path, query, &headers).unwrap();
        let asked = ApiRequest {
            query: query.map(str::to_owned),
            headers,
            body: Bytes::copy_from_slice(body.as_bytes()),
            request_id: "req_1".to_owned(),
        };
        self.registry.answer(Some(&owner()), call, &asked, &[]).await
    }

    async fn json(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        read(&self.send(method, path, &[], &body).await)
    }
}

fn read(answer: &Response<Bytes>) -> (u16, Value) {
    let body = serde_json::from_slice(answer.body()).unwrap_or_default();
    (answer.status().as_u16(), body)
}

fn owner() -> Owner {
    Owner::from([1; 32])
}

fn document(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\nSay a word.\n")
}

const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=B");

/// A form with one file and these fields.
fn form(name: &str, fields: &[(&str, &str)]) -> String {
    let mut body = format!(
        "--B\r\ncontent-disposition: form-data; name=\"files[]\"; filename=\"{name}/SKILL.md\"\r\n\r\n{}\r\n",
        document(name, "Says a word. Use when asked for it.")
    );
    for (name, text) in fields {
        body += &format!("--B\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n");
    }
    body + "--B--\r\n"
}

#[test]
fn a_list_of_agent_flow_lacks_nothing_that_could_not_be_read_in_time() {
    wait(async {
        let asked = Asked::new();
        for name in ["one", "two"] {
            let body = json!({"name": name, "content": document(name, "d")});
            assert_eq!(asked.json("POST", "/api/v1/skills", &body).await.0, 201);
        }
        let (status, list) = asked.json("GET", "/api/v1/skills", &Value::Null).await;
        assert_eq!((status, &list["total"]), (200, &json!(2)), "{list}");
        asked.store.content_away.store(true, Ordering::SeqCst);
        let (status, reported) = asked.json("GET", "/api/v1/skills", &Value::Null).await;
        assert_eq!(
            (status, &reported["detail"]["message"]),
            (503, &json!("too much at once"))
        );
        asked.store.content_away.store(false, Ordering::SeqCst);
        asked.store.content_gone.store(true, Ordering::SeqCst);
        let (status, list) = asked.json("GET", "/api/v1/skills", &Value::Null).await;
        assert_eq!(
            (status, &list["skills"]),
            (200, &json!([])),
            "deleted meanwhile: {list}"
        );
    });
}

#[test]
fn every_503_says_when_to_ask_again() {
    wait(async {
        let asked = Asked::new();
        asked.store.away.store(true, Ordering::SeqCst);
        let install = json!({"name": "word", "version": "1.0.0", "description": "d", "schema": {}, "handlerCode": document("word", "d")});
        let content = json!({"name": "word", "content": document("word", "d")}).to_string();
        let upload = form("word", &[]);
        let default = json!({"default_version": "1"}).to_string();
        for (method, path, body) in [
            ("GET", "/v1/skills", ""),
            ("POST", "/v1/skills", &upload),
            ("GET", "/v1/skills/skill_knack_1", ""),
            ("POST", "/v1/skills/skill_knack_1", &default),
            ("GET", "/v1/skills/skill_knack_1/versions", ""),
            ("GET", "/v1/skills/skill_knack_1/content", ""),
            ("DELETE", "/v1/skills/skill_knack_1", ""),
            ("GET", "/v1/skills?custom_llm_provider=litellm_proxy", ""),
            (
                "GET",
                "/v1/skills/litellm_skill_0199a7c4-a3cd-7d53-a0f6-f0c1f9a2b3c4",
                "",
            ),
            ("GET", "/api/v1/skills", ""),
            ("POST", "/api/v1/skills", &content),
            ("GET", "/api/v1/skills/word", ""),
            ("GET", "/api/skills", ""),
            ("GET", "/api/skills/word", ""),
            ("POST", "/api/skills/install", &install.to_string()),
            ("POST", "/api/skills/executions", "{}"),
        ] {
            for version in [None, Some(("anthropic-version", "2023-06-01"))] {
                if version.is_some() && (body == default || path.ends_with("/content")) {
                    continue;
                }
                let headers: Vec<_> = [FORM].into_iter().chain(version).collect();
                let answer = asked.send(method, path, &headers, body).await;
                assert_eq!(answer.status(), 503, "{method} {path}: {:?}", answer.body());
                let after = answer.headers().get("retry-after").map(|after| after.to_str().unwrap());
                assert!(
                    after.is_some_and(|after| after.parse::<u64>().unwrap() > 0),
                    "{method} {path}"
                );
            }
        }
    });
}

#[test]
fn a_list_that_begins_nowhere_is_a_wrong_parameter() {
    wait(async {
        let asked = Asked::new();
        asked.store.no_place.store(true, Ordering::SeqCst);
        let (status, reported) = asked.json("GET", "/v1/skills?after=skill_knack_x", &Value::Null).await;
        assert_eq!(
            (status, &reported["error"]["param"]),
            (400, &json!("after")),
            "{reported}"
        );
        let anthropic = [("anthropic-version", "2023-06-01")];
        let answer = asked
            .send("GET", "/v1/skills?page=page_skill_knack_x", &anthropic, "")
            .await;
        let (status, reported) = read(&answer);
        assert_eq!(status, 400, "{reported}");
        assert!(
            reported["error"]["message"].as_str().unwrap().starts_with("page: "),
            "{reported}"
        );
    });
}

#[test]
fn a_provider_that_only_the_form_of_a_create_names_is_refused() {
    wait(async {
        let asked = Asked::new();
        for (provider, expected) in [("anthropic", 400), ("litellm_proxy", 200), ("", 200)] {
            let name = format!("word-{expected}-{}", provider.len());
            let body = form(&name, &[("custom_llm_provider", provider)]);
            let (status, reported) = read(&asked.send("POST", "/v1/skills", &[FORM], &body).await);
            assert_eq!(status, expected, "{provider}: {reported}");
            if expected == 400 {
                assert_eq!(reported["error"]["param"], "custom_llm_provider");
                assert!(
                    reported["error"]["message"].as_str().unwrap().contains("query"),
                    "{reported}"
                );
            }
        }
    });
}

/// As where a skill is created or updated; what another API has stored under such a name is there nevertheless.
#[test]
fn a_name_that_is_not_legal_in_agent_flow_is_refused_by_its_field_in_every_call() {
    wait(async {
        let asked = Asked::new();
        let inputs = json!({"inputs": {}});
        for (name, message) in [
            ("BAD", "Skill name must be lowercase"),
            ("a--b", "Skill name cannot contain consecutive hyphens"),
            ("-a", "Skill name cannot start or end with a hyphen"),
        ] {
            let path = format!("/api/v1/skills/{name}");
            for (method, path, body) in [
                ("GET", path.clone(), &Value::Null),
                ("DELETE", path.clone(), &Value::Null),
                ("PUT", path.clone(), &json!({"content": document("word", "d")})),
                ("POST", format!("{path}/run"), &inputs),
            ] {
                let (status, reported) = asked.json(method, &path, body).await;
                assert_eq!(
                    (status, &reported["detail"]["field"], &reported["detail"]["message"]),
                    (400, &json!("name"), &json!(message)),
                    "{method} {path}: {reported}"
                );
            }
        }
        assert_eq!(asked.json("GET", "/api/v1/skills/word", &Value::Null).await.0, 404);
        let stored = knack_registry::fixture::draft("a--b", Files::new());
        asked.store.folder.create(&owner(), None, stored).await.unwrap();
        let answer = asked.send("DELETE", "/api/v1/skills/a--b", &[], "").await;
        assert_eq!(answer.status(), 204);
    });
}

/// Agent Flow's skills have no versions, so the oldest one makes room: with the new one, not before it.
#[test]
fn an_update_without_room_for_its_version_loses_none() {
    wait(async {
        let asked = Asked::new();
        let body = json!({"name": "word", "content": document("word", "d")});
        assert_eq!(asked.json("POST", "/api/v1/skills", &body).await.0, 201);
        let update = async |number: usize| {
            let body = json!({"content": document("word", &format!("number {number}"))});
            asked.json("PUT", "/api/v1/skills/word", &body).await
        };
        for number in 2..=VERSIONS_MAX {
            assert_eq!(update(number).await.0, 200);
        }
        let numbers = async || {
            let entry = asked.store.folder.find(&owner(), "word").await.unwrap().unwrap();
            let numbers: Vec<u32> = entry.versions.iter().map(|version| version.number).collect();
            (numbers.len(), numbers[0], entry.default)
        };
        let most = u32::try_from(VERSIONS_MAX).unwrap();
        assert_eq!(numbers().await, (VERSIONS_MAX, 1, Some(most)));
        asked.store.full.store(true, Ordering::SeqCst);
        let (status, reported) = update(VERSIONS_MAX + 1).await;
        assert_eq!(status, 507, "{reported}");
        assert_eq!(numbers().await, (VERSIONS_MAX, 1, Some(most)));
        asked.store.full.store(false, Ordering::SeqCst);
        let (status, reported) = update(VERSIONS_MAX + 1).await;
        assert_eq!(
            (status, &reported["description"]),
            (200, &json!("number 101")),
            "{reported}"
        );
        assert_eq!(numbers().await, (VERSIONS_MAX, 2, Some(most + 1)));
    });
}

/// An entry is read at the next start within a bound, so none is written beyond it.
#[test]
fn what_was_confirmed_is_there_after_a_restart_however_long_its_descriptions_are() {
    wait(async {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::open(folder.path()).unwrap().store;
        let text = "d".repeat(60 << 10);
        let draft = |name: &str, description: &str| Draft {
            description: description.to_owned(),
            ..knack_registry::fixture::draft(name, Files::new())
        };
        let entry = store.create(&owner(), None, draft("word", &text)).await.unwrap();
        let mut confirmed = 1;
        let refused = loop {
            match store.add_version(&owner(), &entry.id, draft("word", &text), true).await {
                Ok(_) if confirmed < VERSIONS_MAX => confirmed += 1,
                done => break done,
            }
        };
        assert!(matches!(refused, Err(StoreError::Full(_))), "{confirmed}: {refused:?}");
        let whole = store.create(&owner(), None, draft("long", &"d".repeat(2 << 20))).await;
        assert!(matches!(whole, Err(StoreError::Full(_))), "{whole:?}");
        drop(store);
        let opened = FolderStore::open(folder.path()).unwrap();
        assert_eq!(opened.broken, Vec::<String>::new());
        let there = opened.store.get(&owner(), &entry.id).await.unwrap();
        assert_eq!(there.versions.len(), confirmed);
        // One that an earlier build has written is there, and shrinks.
        drop(opened);
        let path = folder.path().join("skills").join(&entry.id).join("skill.json");
        let mut stored: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        stored["versions"][0]["description"] = "d".repeat(2 << 20).into();
        std::fs::write(&path, stored.to_string()).unwrap();
        let opened = FolderStore::open(folder.path()).unwrap();
        assert_eq!(opened.broken, Vec::<String>::new());
        for number in [2, 1] {
            opened.store.delete_version(&owner(), &entry.id, number).await.unwrap();
        }
        opened
            .store
            .add_version(&owner(), &entry.id, draft("word", "d"), true)
            .await
            .unwrap();
    });
}

/// What the store would refuse is refused before anybody relies on a preview.
#[test]
fn a_dry_run_is_refused_where_the_store_would_keep_nothing() {
    wait(async {
        let asked = Asked::new();
        asked.store.full.store(true, Ordering::SeqCst);
        let mut body = json!({"name": "word", "version": "1.0.0", "description": "d", "schema": {}, "handlerCode": document("word", "d")});
        let refused = asked.json("POST", "/api/skills/install", &body).await;
        assert!(refused.0 >= 400, "{}", refused.1);
        body["dryRun"] = true.into();
        assert_eq!(asked.json("POST", "/api/skills/install", &body).await, refused);
        asked.store.full.store(false, Ordering::SeqCst);
        assert_eq!(asked.json("POST", "/api/skills/install", &body).await.0, 200);
    });
}

/// Each of them finds the skill without this version before one has installed it.
#[test]
fn of_two_installs_of_one_version_at_once_one_is_refused() {
    wait(async {
        let asked = Asked::new();
        let install = |version: &str| {
            let body = json!({"name": "word", "version": version, "description": "d", "schema": {}, "handlerCode": document("word", "d")});
            let asked = &asked;
            async move { asked.json("POST", "/api/skills/install", &body).await }
        };
        for version in ["1.0.0", "1.0.1"] {
            let answers = futures::future::join_all((0..6).map(|_| install(version))).await;
            let installed = answers.iter().filter(|(status, _)| *status == 200).count();
            let refused = answers.iter().filter(|(status, _)| *status == 409).count();
            assert_eq!((installed, refused), (1, 5), "{version}: {answers:?}");
        }
        let entry = asked.store.find(&owner(), "word").await.unwrap().unwrap();
        let versions: Vec<_> = entry
            .versions
            .iter()
            .map(|version| version.version.as_deref())
            .collect();
        assert_eq!(versions, [Some("1.0.0"), Some("1.0.1")]);
    });
}
