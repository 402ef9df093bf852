//! Adapters of `injection.json`: the APIs that keep skills, asked as a program asks them, and who sees what is kept.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use knack_registry::{
    ApiRequest, BadArchive, CATALOG_FILES, Catalog, Catalogs, Files, FolderStore, Owner, Reader, Registry, Row, Unpack,
    Web, WebError, resolve, route, search_limit, visible,
};
use serde_json::{Value, json};

use super::omniroute::{items, text};
use crate::registry::{Compare, Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("injection", "update", update),
    Op::new("injection", "delete", delete),
    Op::new("injection", "install", install).compared(Compare::Named),
    Op::new("injection", "visible_skills", visible_skills),
    Op::new("injection", "resolve", resolve_visible),
    Op::new("injection", "litellm_record", litellm_record),
    Op::new("injection", "marketplace_install", marketplace_install),
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
const RECORDS: &str = "/v1/skills?custom_llm_provider=litellm_proxy";
/// Read where an API takes forms.
const FORM: &str = "multipart/form-data; boundary=knack";
const BOUNDARY: &str = "knack";

/// The APIs over an empty folder.
struct Api {
    runtime: tokio::runtime::Runtime,
    registry: Registry,
    _folder: tempfile::TempDir,
}

impl Api {
    fn start() -> Result<Self, Failure> {
        Self::with_catalog(Catalog::default())
    }

    fn with_catalog(active: Catalog) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::of_adapter(error.to_string());
        let folder = tempfile::tempdir().map_err(failed)?;
        let store = FolderStore::open(folder.path()).map_err(failed)?.store;
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread().build().map_err(failed)?,
            registry: Registry::new(Arc::new(store), &Arc::new(Reader::new(UNPACK))).with_catalogs(catalogs(active)),
            _folder: folder,
        })
    }

    /// Status and body of an answer.
    fn send(
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
        let asked = ApiRequest {
            call: call.ok_or_else(|| Failure::of_adapter(format!("{address} goes to a provider")))?,
            query: Some(query.to_owned()),
            headers,
            body: Bytes::from(body),
        };
        let answer = self.runtime.block_on(self.registry.answer(owner, asked, &[]));
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

    /// The path of a skill that can act.
    fn echo(&self) -> Result<String, Failure> {
        let schema = json!({"input": {}, "output": {}});
        let body = json!({"name": "echo", "schema": schema, "handlerCode": DOCUMENT});
        Ok(path(&self.ask(&Method::POST, "/api/skills/install", &body)?))
    }
}

fn path(installed: &Value) -> String {
    format!("/api/skills/{}", text(installed, "id"))
}

fn owner() -> Owner {
    Owner::from([1; 32])
}

fn update(input: &Value) -> Outcome {
    let api = Api::start()?;
    let row = api.echo()?;
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
    let done = api.ask(&Method::POST, "/api/skills/install", &input["body"])?;
    if done.get("http").is_some() {
        return Ok(done);
    }
    api.ask(&Method::GET, &path(&done), &Value::Null)
}

/// What the caller of a case sees.
fn seen(input: &Value) -> Result<Vec<Row<()>>, Failure> {
    let caller = text(input, "apiKeyId");
    if caller.is_empty() {
        // Refused before any skill is looked at.
        let refused = Api::start()?.ask_as(None, &Method::GET, "/api/skills", String::new())?;
        return Err(Failure::new(refused["error"].to_string()).with("http", refused["http"].clone()));
    }
    let row = |stored: &Value| Row {
        owner: text(stored, "owner").to_owned(),
        name: text(stored, "name").to_owned(),
        version: stored["version"].as_str().map(str::to_owned),
        item: (),
    };
    Ok(visible(items(input, "stored").iter().map(row).collect(), caller))
}

fn shown(row: &Row<()>) -> String {
    let version = row.version.as_deref().unwrap_or_default();
    format!("{}/{}@{version}", row.owner, row.name)
}

fn visible_skills(input: &Value) -> Outcome {
    Ok(seen(input)?.iter().map(shown).collect())
}

fn resolve_visible(input: &Value) -> Outcome {
    let seen = seen(input)?;
    Ok(json!(resolve(&seen, text(input, "identifier")).map(shown)))
}

/// Catalogs whose every address is this SKILL.md.
#[derive(Debug)]
struct Document;

#[async_trait::async_trait]
impl Web for Document {
    async fn get(&self, _: &str) -> Result<Bytes, WebError> {
        Ok(Bytes::from_static(DOCUMENT.as_bytes()))
    }
}

fn catalogs(active: Catalog) -> Catalogs {
    Catalogs {
        active,
        api: active.api().unwrap_or_default().to_owned(),
        files: CATALOG_FILES.to_owned(),
        has_key: false,
        web: Arc::new(Document),
    }
}

fn catalog(word: &str) -> Result<Catalog, Failure> {
    Catalog::of_word(word).ok_or_else(|| Failure::new(format!("{word} is no catalog")))
}

/// An install from a catalog, as its row shows it.
fn marketplace_install(input: &Value) -> Outcome {
    let api = Api::with_catalog(catalog(text(input, "active_provider"))?)?;
    let (path, mut body) = match catalog(text(input, "from"))? {
        Catalog::SkillsMp => ("marketplace", json!({"skillMdContent": DOCUMENT})),
        Catalog::SkillsSh => ("skillssh", json!({"source": "acme/skills", "skillId": "echo"})),
        Catalog::Index => return Err(Failure::new("OmniRoute has no index")),
    };
    body["name"] = "echo".into();
    body["description"] = "d".into();
    let done = api.ask(&Method::POST, &format!("/api/skills/{path}/install"), &body)?;
    if done.get("http").is_some() {
        return Ok(done);
    }
    api.ask(&Method::GET, &self::path(&done), &Value::Null)
}

fn skillssh_url(input: &Value) -> Outcome {
    let found = catalogs(Catalog::SkillsSh).skill_md(text(input, "source"), text(input, "skillId"));
    found
        .map(Value::from)
        .map_err(|(field, why)| Failure::new(why).with("field", field))
}

fn skillssh_limit(input: &Value) -> Outcome {
    Ok(search_limit(text(input, "query").strip_prefix('?')).into())
}

fn active_provider(input: &Value) -> Outcome {
    let setting = input["setting"].as_str();
    let active = setting.map_or_else(|| Ok(Catalog::default()), catalog)?;
    Ok(active.word().into())
}

/// The behaviour of records, which cases tell in words.
fn litellm_record(input: &Value) -> Outcome {
    let api = Api::start()?;
    let form = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"display_title\"\r\n\r\necho\r\n\
         --{BOUNDARY}\r\ncontent-disposition: form-data; name=\"instructions\"\r\n\r\nEcho.\r\n--{BOUNDARY}--\r\n"
    );
    if input.get("create").is_some() {
        let owner = Some(owner()).filter(|_| input.get("caller").is_none());
        return api.ask_as(owner.as_ref(), &Method::POST, RECORDS, form);
    }
    let created = api.ask_as(Some(&owner()), &Method::POST, RECORDS, form)?;
    let id = text(&created, "id");
    if let Some(missing) = input["get"].as_str() {
        return api.ask(
            &Method::GET,
            &format!("/v1/skills/litellm_skill_{missing}"),
            &Value::Null,
        );
    }
    if input.get("delete").is_some() {
        let mut gone = api.ask(&Method::DELETE, &format!("/v1/skills/{id}"), &Value::Null)?;
        if gone["id"] == id {
            // As cases write it.
            gone["id"] = "<id>".into();
        }
        return Ok(gone);
    }
    Err(Failure::of_adapter(
        "a behaviour of records that this adapter does not know",
    ))
}
