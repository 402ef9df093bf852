//! Adapters of `injection.json`: the APIs that keep skills, asked as a program asks them, and who sees what is kept.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use knack_registry::{
    ApiRequest, BadArchive, CATALOG_FILES, Catalog, Catalogs, Files, FolderStore, Owner, Reader, Registry, Row, Unpack,
    Web, WebError, resolve, route,
};
use knack_skill::fixture::mk_empty_skill;
use knack_skill::model::{ActivationMode, Skill};
use serde_json::{Value, json};

use super::omniroute::{OwnedRow, items, seen, text};
use crate::registry::{Compare, Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("injection", "update", update),
    Op::new("injection", "delete", delete),
    Op::new("injection", "install", install).compared(Compare::Named),
    Op::new("injection", "visible_skills", visible_skills),
    Op::new("injection", "resolve", resolve_visible),
    Op::new("injection", "litellm_record", litellm_record).compared(Compare::Named),
    Op::new("injection", "marketplace_install", marketplace_install).compared(Compare::Named),
    Op::new("injection", "skillssh_url", skillssh_url),
    Op::new("injection", "skillssh_limit", skillssh_limit),
    Op::new("injection", "active_provider", active_provider),
];

/// A skill that can act, for cases that name none.
const DOCUMENT: &str = "---\nname: echo\ndescription: d\n---\nEcho.\n";
/// No case uploads an archive.
pub(crate) const UNPACK: Unpack = |_| -> Result<Files, BadArchive> {
    Err(BadArchive {
        message: "no archives here".to_owned(),
        too_large: false,
    })
};
/// Who owns the skills from files.
const SYSTEM: &str = "system";
const RECORDS: &str = "/v1/skills?custom_llm_provider=litellm_proxy";
/// Read where an API takes forms.
const FORM: &str = "multipart/form-data; boundary=knack";
const BOUNDARY: &str = "knack";

/// The APIs over an empty folder.
pub(crate) struct Api {
    runtime: tokio::runtime::Runtime,
    registry: Registry,
    web: Arc<Document>,
    /// Skills from files, which everybody sees.
    shared: Vec<Arc<Skill>>,
    _folder: tempfile::TempDir,
}

impl Api {
    pub(crate) fn start() -> Result<Self, Failure> {
        Self::with_catalog(Catalog::default())
    }

    fn with_catalog(active: Catalog) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::of_adapter(error.to_string());
        let folder = tempfile::tempdir().map_err(failed)?;
        let store = FolderStore::open(folder.path()).map_err(failed)?.store;
        let web = Arc::<Document>::default();
        let catalogs = Catalogs {
            active,
            api: active.api().unwrap_or_default().to_owned(),
            files: CATALOG_FILES.to_owned(),
            has_key: false,
            web: Arc::clone(&web) as Arc<dyn Web>,
        };
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .map_err(failed)?,
            registry: Registry::new(Arc::new(store), &Arc::new(Reader::new(UNPACK))).with_catalogs(catalogs),
            web,
            shared: Vec::new(),
            _folder: folder,
        })
    }

    /// Status and body of an answer.
    pub(crate) fn send(
        &self,
        owner: Option<&Owner>,
        method: &Method,
        address: &str,
        body: String,
    ) -> Result<(u16, Value), Failure> {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(FORM));
        let call = route(method, path, Some(query), &headers);
        let call = call.ok_or_else(|| Failure::of_adapter(format!("{address} goes to a provider")))?;
        let asked = ApiRequest {
            query: Some(query.to_owned()),
            headers,
            body: Bytes::from(body),
            request_id: "req_1".to_owned(),
        };
        let answer = self
            .runtime
            .block_on(self.registry.answer(owner, call, &asked, &self.shared));
        let body = serde_json::from_slice(answer.body()).unwrap_or_default();
        Ok((answer.status().as_u16(), body))
    }

    /// The answer to the caller of most cases: its members, and its status where that is an error.
    fn ask(&self, method: &Method, address: &str, body: &Value) -> Outcome {
        self.ask_as(Some(&owner()), method, address, body.to_string())
    }

    fn ask_as(&self, owner: Option<&Owner>, method: &Method, address: &str, body: String) -> Outcome {
        let (status, mut body) = self.send(owner, method, address, body)?;
        if status >= 400 {
            body["http"] = status.into();
        }
        Ok(body)
    }

    /// The address that is fetched last.
    fn fetched(&self) -> Option<String> {
        self.web.0.lock().ok()?.last().cloned()
    }

    /// The path of a skill that can act.
    fn echo(&self) -> Result<String, Failure> {
        let schema = json!({"input": {}, "output": {}});
        let body = json!({"name": "echo", "description": "d", "schema": schema, "handlerCode": DOCUMENT});
        Ok(path(&self.ask(&Method::POST, "/api/skills/install", &body)?))
    }
}

fn path(installed: &Value) -> String {
    format!("/api/skills/{}", text(installed, "id"))
}

/// The caller of most cases.
pub(crate) fn owner() -> Owner {
    Owner::from([1; 32])
}

fn update(input: &Value) -> Outcome {
    let api = Api::start()?;
    let row = if input["before"].is_null() && input["patch"] != json!({}) {
        // Nothing is stored.
        "/api/skills/missing".to_owned()
    } else {
        api.echo()?
    };
    if let Some(mode) = input["before"]["mode"].as_str() {
        api.ask(&Method::PUT, &row, &json!({"mode": mode}))?;
    }
    let done = api.ask(&Method::PUT, &row, &input["patch"])?;
    if done.get("http").is_some() {
        return Ok(done);
    }
    let row = api.ask(&Method::GET, &row, &Value::Null)?;
    Ok(json!({"enabled": row["enabled"], "mode": row["mode"]}))
}

fn delete(input: &Value) -> Outcome {
    let api = Api::start()?;
    api.ask(
        &Method::DELETE,
        &format!("/api/skills/{}", text(input, "id")),
        &Value::Null,
    )
}

fn install(input: &Value) -> Outcome {
    let api = Api::start()?;
    let mut body = input["body"].clone();
    if let Some(program) = body["handlerCode"].as_str().and_then(program_for) {
        body["handlerCode"] = program.into();
    }
    let done = api.ask(&Method::POST, "/api/skills/install", &body)?;
    if done.get("http").is_some() {
        return Ok(done);
    }
    api.ask(&Method::GET, &path(&done), &Value::Null)
}

/// A program of the same length for the name of a handler, or for nothing that can act: here those are refused
/// (docs/design/dialects.md#registry-records-and-versions), and the cases are about the other members and about lengths.
fn program_for(code: &str) -> Option<String> {
    const PROGRAM: &str = "def handler(**values):\n    return values\n#";
    let length = code.chars().count();
    let acts = code.starts_with("---") || code.contains("def handler(");
    (!acts && (1..=HANDLER_MAX).contains(&length))
        .then(|| format!("{PROGRAM}{}", "x".repeat(length.saturating_sub(PROGRAM.len()))))
}

/// Characters of a `handlerCode` that OmniRoute takes.
const HANDLER_MAX: usize = 50_000;

/// The caller of a key.
fn owner_of(key: &str) -> Owner {
    let mut hash = [0; 32];
    for (at, byte) in hash.iter_mut().zip(key.bytes()) {
        *at = byte;
    }
    Owner::from(hash)
}

/// The APIs with what is stored: of everybody from files, of a key installed by it.
fn with_stored(input: &Value) -> Result<Api, Failure> {
    let mut api = Api::start()?;
    for stored in items(input, "stored") {
        let (of, name, version) = (text(stored, "owner"), text(stored, "name"), text(stored, "version"));
        if of == SYSTEM {
            let version = Some(version.to_owned());
            let skill = mk_empty_skill(name, ActivationMode::Always);
            api.shared.push(Arc::new(Skill { version, ..skill }));
            continue;
        }
        let schema = json!({"input": {}, "output": {}});
        let document = format!("---\nname: {name}\ndescription: d\n---\nText.\n");
        let body = json!({
            "name": name, "version": version, "description": "d", "schema": schema, "handlerCode": document,
        });
        let owner = owner_of(of);
        let made = api.ask_as(Some(&owner), &Method::POST, "/api/skills/install", body.to_string())?;
        if made.get("http").is_some() {
            return Err(Failure::of_adapter(made.to_string()));
        }
    }
    Ok(api)
}

/// Without a caller there is nothing to see.
fn caller_of(input: &Value) -> Result<Owner, Failure> {
    let key = text(input, "apiKeyId");
    if key.is_empty() {
        let refused = Api::start()?.ask_as(None, &Method::GET, "/api/skills", String::new())?;
        return Err(Failure::new(refused["error"].to_string()).with("http", refused["http"].clone()));
    }
    Ok(owner_of(key))
}

/// A row as cases write it.
fn shown(row: &Value, key: &str) -> String {
    let owner = match text(row, "apiKeyId") {
        SYSTEM => SYSTEM,
        _ => key,
    };
    format!("{owner}/{}@{}", text(row, "name"), text(row, "version"))
}

/// The rows that are stored, where one belongs to a catalog: no route shows skills of a catalog that nobody has installed, so that
/// the rule about them is one of rows. As cases write a row.
fn rows_of_catalogs(input: &Value) -> Option<Vec<Row<String>>> {
    let stored = items(input, "stored");
    if !stored.iter().any(|row| catalog(text(row, "owner")).is_ok()) {
        return None;
    }
    let row = |stored: &Value| {
        let [owner, name, version] = ["owner", "name", "version"].map(|key| text(stored, key));
        OwnedRow {
            owner: owner.to_owned(),
            row: Row {
                name: name.to_owned(),
                version: stored["version"].as_str().map(str::to_owned),
                item: format!("{owner}/{name}@{version}"),
            },
        }
    };
    Some(seen(stored.iter().map(row).collect(), text(input, "apiKeyId")))
}

fn visible_skills(input: &Value) -> Outcome {
    let (owner, key) = (caller_of(input)?, text(input, "apiKeyId"));
    if let Some(rows) = rows_of_catalogs(input) {
        return Ok(rows.into_iter().map(|row| row.item).collect());
    }
    let list = with_stored(input)?.ask_as(Some(&owner), &Method::GET, "/api/skills?limit=100", String::new())?;
    Ok(items(&list, "data").iter().map(|row| shown(row, key)).collect())
}

fn resolve_visible(input: &Value) -> Outcome {
    let (owner, key) = (caller_of(input)?, text(input, "apiKeyId"));
    if let Some(rows) = rows_of_catalogs(input) {
        let found = resolve(&rows, text(input, "identifier"));
        return Ok(found.map_or(Value::Null, |row| row.item.clone().into()));
    }
    let address = format!("/api/skills/{}", text(input, "identifier"));
    let found = with_stored(input)?.ask_as(Some(&owner), &Method::GET, &address, String::new())?;
    match found["http"].as_u64() {
        None => Ok(shown(&found, key).into()),
        Some(404) => Ok(Value::Null),
        Some(_) => Err(Failure::new(found["error"].to_string())),
    }
}

/// Catalogs whose every address is this SKILL.md; the addresses are noted.
#[derive(Debug, Default)]
struct Document(Mutex<Vec<String>>);

#[async_trait::async_trait]
impl Web for Document {
    async fn get(&self, url: &str) -> Result<Bytes, WebError> {
        self.0
            .lock()
            .map_err(|error| WebError::Failed(error.to_string()))?
            .push(url.to_owned());
        Ok(Bytes::from_static(DOCUMENT.as_bytes()))
    }
}

fn catalog(word: &str) -> Result<Catalog, Failure> {
    Catalog::of_word(word).ok_or_else(|| Failure::new(format!("{word} is no catalog")))
}

/// Asks for an install from a catalog.
fn install_from(api: &Api, from: Catalog, (source, skill_id): (&str, &str)) -> Outcome {
    let (path, mut body) = match from {
        Catalog::SkillsMp => ("marketplace", json!({"skillMdContent": DOCUMENT})),
        Catalog::SkillsSh => ("skillssh", json!({"source": source, "skillId": skill_id})),
        Catalog::Index => return Err(Failure::new("OmniRoute has no index")),
    };
    body["name"] = "echo".into();
    body["description"] = "d".into();
    api.ask(&Method::POST, &format!("/api/skills/{path}/install"), &body)
}

/// An install from a catalog, as its row shows it.
fn marketplace_install(input: &Value) -> Outcome {
    let api = Api::with_catalog(catalog(text(input, "active_provider"))?)?;
    let done = install_from(&api, catalog(text(input, "from"))?, ("acme/skills", "echo"))?;
    if done.get("http").is_some() {
        return Ok(done);
    }
    api.ask(&Method::GET, &path(&done), &Value::Null)
}

/// The address that an install fetches.
fn skillssh_url(input: &Value) -> Outcome {
    let api = Api::with_catalog(Catalog::SkillsSh)?;
    let done = install_from(&api, Catalog::SkillsSh, (text(input, "source"), text(input, "skillId")))?;
    match api.fetched() {
        Some(url) => Ok(url.into()),
        None => Err(Failure::new(done["error"].to_string()).with("field", done["details"][0]["field"].clone())),
    }
}

/// The limit that a search asks skills.sh for.
fn skillssh_limit(input: &Value) -> Outcome {
    let api = Api::with_catalog(Catalog::SkillsSh)?;
    let query = text(input, "query").trim_start_matches('?');
    api.ask(&Method::GET, &format!("/api/skills/skillssh?q=x&{query}"), &Value::Null)?;
    let fetched = api.fetched();
    let limit = fetched
        .as_deref()
        .and_then(|url| url.rsplit_once("&limit=")?.1.parse::<u64>().ok());
    limit
        .map(Value::from)
        .ok_or_else(|| Failure::new("nothing is asked for"))
}

/// The one catalog that skills are installed from.
fn active_provider(input: &Value) -> Outcome {
    let setting = input["setting"].as_str();
    let api = Api::with_catalog(setting.map_or_else(|| Ok(Catalog::default()), catalog)?)?;
    let mut active = Vec::new();
    for from in [Catalog::SkillsMp, Catalog::SkillsSh] {
        let done = install_from(&api, from, ("acme/skills", "echo"))?;
        if done.get("http").is_none() {
            active.push(from.word());
        }
    }
    match active[..] {
        [one] => Ok(one.into()),
        _ => Err(Failure::new(format!("installs are from {active:?}"))),
    }
}

/// The behaviour of records, which cases tell in words: who stored them, who asks, for what.
fn litellm_record(input: &Value) -> Outcome {
    let api = Api::start()?;
    let caller = match input["caller"].as_str() {
        Some(words) if words.contains("no identity") => None,
        Some(name) => Some(owner_of(name)),
        None => Some(owner()),
    };
    if let Some(fields) = input.get("create") {
        return api.ask_as(caller.as_ref(), &Method::POST, RECORDS, form(fields, "echo"));
    }
    if input.get("list").is_some() {
        return records_listed(&api, input);
    }
    let stored_by = input["stored"]["created_by"].as_str().map_or_else(owner, owner_of);
    let created = api.ask_as(Some(&stored_by), &Method::POST, RECORDS, form(&input["stored"], "echo"))?;
    let id = text(&created, "id");
    let asked = |method: &Method, word: &str| {
        let id = if word == "missing" { "litellm_skill_missing" } else { id };
        api.ask_as(
            caller.as_ref(),
            method,
            &format!("/v1/skills/{id}"),
            Value::Null.to_string(),
        )
    };
    if let Some(word) = input["get"].as_str() {
        // Without a stored record every id is one that is missing.
        let word = if input.get("stored").is_some() { word } else { "missing" };
        return asked(&Method::GET, word);
    }
    if let Some(word) = input["delete"].as_str() {
        let mut gone = asked(&Method::DELETE, word)?;
        if gone["id"] == id {
            // As cases write it.
            gone["id"] = word_of_id(word).into();
        }
        return Ok(gone);
    }
    if input.get("cache").is_some() {
        // Nothing is cached: what is deleted is gone for the next read.
        asked(&Method::GET, "id")?;
        asked(&Method::DELETE, "id")?;
        let after = asked(&Method::GET, "id")?;
        return Ok(json!({"cached": after["http"] != 404, "http": after["http"]}));
    }
    Err(Failure::of_adapter(
        "a behaviour of records that this adapter does not know",
    ))
}

/// The id of a record as cases write it in answers.
fn word_of_id(word: &str) -> &str {
    if word == "id" { "<id>" } else { word }
}

/// The form that creates a record with these fields.
fn form(fields: &Value, title: &str) -> String {
    let title = fields["display_title"].as_str().unwrap_or(title);
    let instructions = fields["instructions"].as_str().unwrap_or("Echo.");
    let mut parts = vec![
        ("display_title", title.to_owned()),
        ("instructions", instructions.to_owned()),
    ];
    parts.extend(
        fields["description"]
            .as_str()
            .map(|text| ("description", text.to_owned())),
    );
    parts.extend(
        fields["metadata"]
            .as_object()
            .map(|_| ("metadata", fields["metadata"].to_string())),
    );
    let mut form = String::new();
    for (name, value) in parts {
        let _ = write!(
            form,
            "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        );
    }
    form + "--" + BOUNDARY + "--\r\n"
}

/// A list of the records that are stored, or of more than a page has: how many it shows, in which order.
fn records_listed(api: &Api, input: &Value) -> Outcome {
    const MORE_THAN_A_PAGE: u64 = 25;
    for number in 0..input["stored"].as_u64().unwrap_or(MORE_THAN_A_PAGE) {
        let made = api.ask_as(
            Some(&owner()),
            &Method::POST,
            RECORDS,
            form(&Value::Null, &format!("echo {number}")),
        )?;
        if made.get("http").is_some() {
            return Err(Failure::of_adapter(made.to_string()));
        }
    }
    let mut address = RECORDS.to_owned();
    for name in ["limit", "offset"] {
        if let Some(value) = input["list"][name].as_u64() {
            let _ = write!(address, "&{name}={value}");
        }
    }
    let list = api.ask(&Method::GET, &address, &Value::Null)?;
    let number = |row: &Value| {
        text(row, "display_title")
            .trim_start_matches("echo ")
            .parse::<u64>()
            .ok()
    };
    let newest_first = items(&list, "data").is_sorted_by(|a, b| number(a) > number(b));
    let shown = items(&list, "data").len();
    Ok(json!({
        "default_limit": shown, "count": shown, "has_more": list["has_more"],
        "order": if newest_first { "newest first" } else { "another" }, "data": list["data"],
    }))
}
