//! Calls about files.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use jiff::SignedDuration;
use knack_registry::{Dialect, parameters};

use super::files_caller::FilesCaller;
use super::files_request::FilesRequest;
use super::objects::{FileInfo, NewFile};
use super::page::{Page, limit, order};
use super::refusal::FilesRefusal;
use super::route::FilesCall;
use super::{UserFiles, containers, form, shapes};
use crate::callers::caller;
use crate::http_server::fault::{body_fault, fault};
use crate::state::Gateway;
use crate::telemetry::log::FILES_API;
use crate::telemetry::own_request::OwnRequest;

/// Items of a page of Anthropic's that does not say, and at most.
const ANTHROPIC_LIMITS: (usize, usize) = (20, 1000);
/// Items of a page of OpenAI's that does not say, and at most.
const OPENAI_LIMITS: (usize, usize) = (10_000, 10_000);
/// Ids that a list of Anthropic's may name.
const IDS_MAX: usize = 100;
/// Shortest time that an upload may ask to be kept, seconds, as both vendors have it.
const EXPIRES_MIN_SECONDS: i64 = 3600;
/// Longest time that an upload may ask for, seconds: Anthropic's 90 days. It is cut to the bound.
const EXPIRES_MAX_SECONDS: i64 = 7_776_000;
/// The purposes of OpenAI's uploads that this gateway serves: to be read by programs. The others are for the provider.
const PURPOSES: [&str; 2] = ["user_data", "assistants"];
/// The message about files that other replicas would not know to be removed.
const NO_DELETE: &str = "Files made by skills can be read, not deleted; they expire by themselves.";

/// Serves a call.
pub async fn serve(gateway: Arc<Gateway>, call: (Dialect, FilesCall), request: Request) -> Response {
    let own = OwnRequest::begin(&gateway, FILES_API, &request);
    let response = answer(&gateway, call, request).await;
    own.answered(response)
}

async fn answer(gateway: &Gateway, (dialect, call): (Dialect, FilesCall), request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let secret = gateway.secret.current();
    let caller = caller::identify(&secret, &parts.headers, &parts.uri);
    let counted = caller::counted_beside(&caller, &secret, &parts).bucket();
    let read = gateway.requests.read(&counted, &parts.headers, body).await;
    // Its part of the budget is held until the answer is there.
    let held = match read {
        Ok(held) => held,
        Err(error) => return fault(&body_fault(error), shapes::format(dialect)),
    };
    let asked = FilesRequest {
        gateway,
        dialect,
        who: FilesCaller::new(caller, counted, caller::unchecked_address(&parts)),
        parts,
        body: held.bytes.clone(),
    };
    asked
        .answer(call)
        .await
        .unwrap_or_else(|refusal| shapes::refused(dialect, &refusal))
}

impl FilesRequest<'_> {
    async fn answer(&self, call: FilesCall) -> Result<Response, FilesRefusal> {
        match call {
            FilesCall::File(id) => {
                let file = self.gateway.own_file(&self.who, &id).await?;
                Ok(Json(shapes::file(self.dialect, &file.info)).into_response())
            }
            FilesCall::Content(id) => {
                let file = self.gateway.own_file(&self.who, &id).await?;
                let held = self.gateway.hold_content(&self.who, file.info.size)?;
                let bytes = self.gateway.content_of(&self.who, &file).await?;
                Ok(shapes::content(&file.info.mime, bytes, held))
            }
            FilesCall::DeleteFile(id) => self.delete(&id).await,
            FilesCall::NotAllowed(methods) => Err(FilesRefusal::NotAllowed(
                "This path does not support this method.",
                methods,
            )),
            FilesCall::Unknown => Err(FilesRefusal::NoSuchPath),
            call => match &self.gateway.user_files {
                Some(store) => match call {
                    FilesCall::Upload => self.upload(store).await,
                    FilesCall::Files => self.list(store).await,
                    call => containers::answer(self, store, call).await,
                },
                None => Err(FilesRefusal::Failed),
            },
        }
    }

    async fn delete(&self, id: &str) -> Result<Response, FilesRefusal> {
        let bucket = self.who.bucket();
        let gateway = self.gateway;
        let deleted = || Ok(Json(shapes::deleted_file(self.dialect, id)).into_response());
        let made = gateway.files.find(&bucket, id);
        if made.is_none()
            && let Some(store) = &gateway.user_files
        {
            match store.delete_file(&self.who, id).await {
                Ok(()) => return deleted(),
                Err(FilesRefusal::Missing(..)) if gateway.replicas.is_some() => {}
                Err(refusal) => return Err(refusal),
            }
        }
        if gateway.replicas.is_some() {
            gateway.own_file(&self.who, id).await?;
            return Err(FilesRefusal::NotAllowed(NO_DELETE, "GET, HEAD"));
        }
        let made = made.ok_or_else(|| FilesRefusal::Missing("File", id.to_owned()))?;
        gateway.files.delete(&bucket, id);
        if let Some(store) = &gateway.user_files {
            store.note_gone(&self.who, id, made.made_at).await?;
        }
        deleted()
    }

    async fn upload(&self, store: &UserFiles) -> Result<Response, FilesRefusal> {
        let form = form::read(&self.parts.headers, self.body.clone()).await?;
        let (purpose, lasts) = match self.dialect {
            Dialect::OpenAi => (purpose(&form.fields)?, openai_expiry(&form.fields)?),
            Dialect::Anthropic { .. } => {
                let seconds = form.fields.get("expires_in_seconds");
                let lasts = seconds.map(|text| seconds_of("expires_in_seconds", text)).transpose()?;
                (PURPOSES[0].to_owned(), lasts)
            }
        };
        let file = NewFile {
            name: form.file.name,
            mime: form.file.mime,
            purpose,
            lasts,
        };
        let info = store.add_file(&self.who, file, form.file.bytes).await?;
        Ok(Json(shapes::file(self.dialect, &info)).into_response())
    }

    /// The caller's uploads, and the files that its runs made, unless other replicas have made some too: a list that depends on
    /// which one is asked has no pages.
    async fn list(&self, store: &UserFiles) -> Result<Response, FilesRefusal> {
        let asked = match self.dialect {
            Dialect::OpenAi => openai_list(self.parts.uri.query())?,
            Dialect::Anthropic { beta } => anthropic_list(self.parts.uri.query(), beta)?,
        };
        let bucket = self.who.bucket();
        let (mut all, gone) = store.files(&self.who, asked.page.places()).await?;
        if self.gateway.replicas.is_none() {
            all.extend(self.gateway.files.all(&bucket).into_iter().map(FileInfo::from));
        }
        all.retain(|file| {
            asked.ids.as_ref().is_none_or(|ids| ids.contains(&file.id))
                && asked.purpose.as_ref().is_none_or(|purpose| *purpose == file.purpose)
        });
        let key = |file: &FileInfo| (file.created, file.id.clone());
        let page = asked.page.of(all, key, &gone)?;
        Ok(Json(shapes::files(self.dialect, &page)).into_response())
    }
}

/// The parameters of a list of files.
struct Listing {
    page: Page,
    purpose: Option<String>,
    ids: Option<Vec<String>>,
}

fn openai_list(query: Option<&str>) -> Result<Listing, FilesRefusal> {
    let (default, most) = OPENAI_LIMITS;
    let (mut page, mut purpose) = (Page::first(default), None);
    for (key, value) in parameters(query) {
        match key.as_str() {
            "limit" => page.limit = limit(&value, &(1..=most))?,
            "order" => page.newest_first = order(&value)?,
            "after" => page.after = Some(value),
            "purpose" => purpose = Some(value),
            _ => {}
        }
    }
    Ok(Listing {
        page,
        purpose,
        ids: None,
    })
}

fn anthropic_list(query: Option<&str>, beta: bool) -> Result<Listing, FilesRefusal> {
    let (default, most) = ANTHROPIC_LIMITS;
    let (mut page, mut ids) = (Page::first(default), Vec::new());
    page.after_name = if beta { "after_id" } else { "page" };
    for (key, value) in parameters(query) {
        match key.as_str() {
            "limit" => page.limit = limit(&value, &(1..=most))?,
            "page" if !beta => page.after = Some(value),
            "after_id" if beta => page.after = Some(value),
            "before_id" if beta => page.before = Some(value),
            "ids[]" | "ids" if !beta => ids.push(value),
            "scope_id" => {
                let text = "scope_id: files of this gateway have no scope; omit it";
                return Err(FilesRefusal::Invalid("scope_id", text.to_owned()));
            }
            _ => {}
        }
    }
    if page.after.is_some() && (page.before.is_some() || !ids.is_empty()) {
        let text = "set only one of page, ids[], after_id and before_id";
        return Err(FilesRefusal::Invalid("page", text.to_owned()));
    }
    if ids.len() > IDS_MAX {
        return Err(FilesRefusal::Invalid("ids", format!("ids: at most {IDS_MAX}")));
    }
    let ids = (!ids.is_empty()).then_some(ids);
    if ids.is_some() {
        page.limit = IDS_MAX;
    }
    Ok(Listing {
        page,
        purpose: None,
        ids,
    })
}

fn purpose(fields: &BTreeMap<String, String>) -> Result<String, FilesRefusal> {
    let Some(purpose) = fields.get("purpose") else {
        let text = "the part purpose is missing; set it to user_data or assistants";
        return Err(FilesRefusal::Invalid("purpose", text.to_owned()));
    };
    if !PURPOSES.contains(&purpose.as_str()) {
        let text = format!(
            "files that are uploaded here are inputs of runs, with the purpose user_data or assistants; a file for {purpose:?} \
             is for the provider, so upload it there"
        );
        return Err(FilesRefusal::Invalid("purpose", text));
    }
    Ok(purpose.clone())
}

fn openai_expiry(fields: &BTreeMap<String, String>) -> Result<Option<SignedDuration>, FilesRefusal> {
    let (anchor, seconds) = (
        fields.get("expires_after[anchor]"),
        fields.get("expires_after[seconds]"),
    );
    if anchor.is_none() && seconds.is_none() {
        return Ok(None);
    }
    if anchor.is_none_or(|anchor| anchor != "created_at") {
        let text = "expires_after: anchor must be created_at";
        return Err(FilesRefusal::Invalid("expires_after", text.to_owned()));
    }
    seconds_of("expires_after", seconds.map_or("", String::as_str)).map(Some)
}

fn seconds_of(field: &'static str, text: &str) -> Result<SignedDuration, FilesRefusal> {
    let seconds: Option<i64> = text.trim().parse().ok();
    let seconds = seconds.filter(|seconds| (EXPIRES_MIN_SECONDS..=EXPIRES_MAX_SECONDS).contains(seconds));
    seconds.map(SignedDuration::from_secs).ok_or_else(|| {
        let text = format!("{field}: seconds must be from {EXPIRES_MIN_SECONDS} to {EXPIRES_MAX_SECONDS}");
        FilesRefusal::Invalid(field, text)
    })
}
