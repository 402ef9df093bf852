//! Paths of what the provider keeps, and their queries.

use http::{Method, Uri};
use knack_wire::Format;
use percent_encoding::percent_decode_str;

/// Most elements of a page that the APIs give.
const PAGE: usize = 100;
/// Elements of a page where the client names no limit, as the APIs have it.
const DEFAULT_LIMIT: usize = 20;

/// A request about answers that the provider stores.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StoredRequest {
    /// The list of Chat completions.
    List,
    /// One answer, or what belongs to it.
    One(AnswerPath),
}

/// The parts of a path around the id of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AnswerPath {
    pub(super) format: Format,
    pub(super) before: String,
    pub(super) id: String,
    pub(super) behind: String,
    pub(super) query: Query,
}

/// The pairs of a query, as written but for [`normal`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl StoredRequest {
    /// `None`: it asks for nothing that is kept under an id.
    pub(super) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let is_list = normal(uri.path()).trim_end_matches('/').ends_with("/chat/completions");
        if method == Method::GET && is_list {
            return Some(Self::List);
        }
        AnswerPath::of(uri).map(Self::One)
    }
}

impl AnswerPath {
    fn of(uri: &Uri) -> Option<Self> {
        let path = normal(uri.path());
        let behind = |part: &str| path.rfind(part).map(|at| at + part.len());
        let (format, at) = match (behind("/chat/completions/"), behind("/responses/")) {
            (Some(at), _) => (Format::Chat, at),
            (None, Some(at)) => (Format::Responses, at),
            (None, None) => return None,
        };
        let (before, rest) = path.split_at(at);
        let (id, behind) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let id = percent_decode_str(id).decode_utf8().ok()?;
        // Providers form their ids in many ways; the saved turn says whether there is an answer of this one.
        is_plain(&id).then(|| Self {
            format,
            before: before.to_owned(),
            id: id.into_owned(),
            behind: behind.to_owned(),
            query: Query::of(uri),
        })
    }

    /// This path for another answer, with a query (from its `?` on); `None` if the id cannot be part of a path.
    pub(super) fn with(&self, id: &str, query: &str) -> Option<String> {
        is_plain(id).then(|| format!("{}{id}{}{query}", self.before, self.behind))
    }

    pub(super) fn asks_for_stream(&self) -> bool {
        let asked = self.query.get("stream").map(str::to_ascii_lowercase);
        asked.is_some_and(|value| !matches!(&*value, "" | "0" | "false"))
    }
}

impl Query {
    pub(super) fn of(uri: &Uri) -> Self {
        let query = normal(uri.query().unwrap_or_default());
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let pair = self.0.iter().find(|(own, _)| own == name);
        pair.map(|(_, value)| value.as_str())
    }

    /// Most elements of a page.
    pub(super) fn limit(&self) -> usize {
        let asked = self.get("limit").and_then(|limit| limit.parse().ok());
        asked.unwrap_or(DEFAULT_LIMIT).clamp(1, PAGE)
    }

    /// The query with these pairs instead of the ones of the same names.
    fn with(&self, pairs: &[(&str, &str)]) -> Self {
        let is_kept = |name: &str| pairs.iter().all(|(other, _)| *other != name);
        let kept = self.0.iter().filter(|(name, _)| is_kept(name)).cloned();
        let more = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self(kept.chain(more).collect())
    }

    /// The text of the query of what is behind an element.
    pub(super) fn behind(&self, element: &str) -> Option<String> {
        is_plain(element).then(|| self.with(&[("after", element)]).text())
    }

    /// The query of all elements, oldest first: that of their first page.
    pub(super) fn all(&self) -> Self {
        self.with(&[("order", "asc")]).first_page()
    }

    /// The query of the first page, of the most elements.
    pub(super) fn first_page(&self) -> Self {
        let limit = PAGE.to_string();
        let mut first = self.with(&[("limit", limit.as_str())]);
        first.0.retain(|(name, _)| name != "after");
        first
    }

    /// The text of the query behind its mark; empty without pairs.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            text.push(if text.is_empty() { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            text.push_str(value);
        }
        text
    }

    /// The text of the query of the page behind an element, of the most elements.
    pub(super) fn page_after(&self, element: &str) -> Option<String> {
        let limit = PAGE.to_string();
        self.with(&[("limit", limit.as_str())]).behind(element)
    }
}

/// A part of a URL in the form in which letters, digits and the marks of ids are themselves: encoded ones are equal to them (RFC 3986,
/// 6.2.2.2), and providers read both.
fn normal(part: &str) -> String {
    let mut pieces = part.split('%');
    let mut normal = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok());
        match code.filter(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(byte)) {
            Some(byte) => {
                normal.push(char::from(byte));
                normal.push_str(&piece[2..]);
            }
            None => normal.extend(["%", piece]),
        }
    }
    normal
}

/// Whether an id is what it is in a URL, too. LiteLLM's end in the padding of Base64.
fn is_plain(id: &str) -> bool {
    !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.=".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_path(uri: &'static str) -> Option<AnswerPath> {
        AnswerPath::of(&Uri::from_static(uri))
    }

    #[test]
    fn a_path_names_an_answer_or_none() {
        let found = answer_path("/gw/v1/responses/resp_1/input_items?limit=3").unwrap();
        assert_eq!(
            (found.format, &*found.before, &*found.id, &*found.behind),
            (Format::Responses, "/gw/v1/responses/", "resp_1", "/input_items")
        );
        assert_eq!(
            found.with("resp_2", "").as_deref(),
            Some("/gw/v1/responses/resp_2/input_items")
        );
        assert_eq!(found.with("resp_2/../x", ""), None);
        let found = answer_path("/v1/responses/resp_1?a=b").unwrap();
        assert_eq!(
            found.with("resp_2", &found.query.text()).as_deref(),
            Some("/v1/responses/resp_2?a=b")
        );
        // Ids of xAI, and of LiteLLM.
        for id in ["ad5663da-63e6-86c6-e0be-ff15effa8357", "resp_bGl0ZWxsbTpjdXN0b20="] {
            let uri: Uri = format!("/v1/responses/{id}").parse().unwrap();
            let found = AnswerPath::of(&uri).unwrap();
            assert_eq!((found.id.as_str(), found.with(id, "")), (id, Some(uri.to_string())));
        }
        let found = answer_path("/v1/chat/completions/chatcmpl-1/messages").unwrap();
        assert_eq!(
            (found.format, &*found.before, &*found.id, &*found.behind),
            (Format::Chat, "/v1/chat/completions/", "chatcmpl-1", "/messages")
        );
        for other in [
            "/v1/responses",
            "/v1/responses/",
            "/v1/models",
            "/v1/chat/completions/",
            "/v1/chat/completions/a%2Fb",
            // Items of a conversation are the provider's.
            "/v1/conversations/conv_1/items",
            "/v1/conversations/conv_1/items/fc_1",
        ] {
            assert_eq!(answer_path(other), None);
        }
    }

    #[test]
    fn encoded_letters_are_letters() {
        for uri in [
            "/v1/responses/resp%5F1/input_items?str%65am=%74rue",
            "/v1/respons%65s/%72esp_1/input%5fitems?stream=true",
        ] {
            let found = answer_path(uri).unwrap();
            assert_eq!((&*found.id, &*found.behind), ("resp_1", "/input_items"), "{uri}");
            assert!(found.asks_for_stream(), "{uri}");
            let path = found.with("resp_2", &found.query.text());
            assert_eq!(path.as_deref(), Some("/v1/responses/resp_2/input_items?stream=true"));
        }
        let padded = answer_path("/v1/responses/resp_bGl0%3D?include%5B%5D=a%2Fb&x=%").unwrap();
        assert_eq!(
            (&*padded.id, &*padded.query.text()),
            ("resp_bGl0=", "?include%5B%5D=a%2Fb&x=%")
        );
        for other in [
            "/v1/responses/resp%255F1",
            "/v1/responses/a%2F..%2Fb",
            "/v1/responses/%ff",
            "/v1/responses/%",
        ] {
            assert_eq!(answer_path(other), None, "{other}");
        }
        assert_eq!(normal("%é%2"), "%é%2");
    }

    #[test]
    fn only_a_get_asks_for_the_list() {
        let asked = |method: &Method| StoredRequest::of(method, &Uri::from_static("/v1/chat/completions?limit=2"));
        assert_eq!(
            (asked(&Method::GET), asked(&Method::POST)),
            (Some(StoredRequest::List), None)
        );
    }

    #[test]
    fn the_next_page_keeps_the_order_and_what_else_was_asked() {
        let found = answer_path("/v1/responses/resp_1/input_items?order=asc&after=a&limit=2&include[]=x").unwrap();
        assert_eq!(
            found.query.page_after("item_9").as_deref(),
            Some("?order=asc&include[]=x&limit=100&after=item_9")
        );
        assert_eq!((found.query.limit(), found.query.page_after("a&b")), (2, None));
        assert_eq!(
            (found.query.behind("b").as_deref(), found.query.all().text()),
            (
                Some("?order=asc&limit=2&include[]=x&after=b"),
                "?include[]=x&order=asc&limit=100".to_owned()
            )
        );
        assert_eq!(found.query.first_page().text(), "?order=asc&include[]=x&limit=100");
        for (query, limit) in [
            ("?limit=0", 1),
            ("?limit=1000", PAGE),
            ("?limit=x", DEFAULT_LIMIT),
            ("", 20),
        ] {
            let uri = format!("/v1/chat/completions{query}").parse().unwrap();
            assert_eq!(Query::of(&uri).limit(), limit, "{query}");
        }
    }

    #[test]
    fn a_stream_is_asked_for_by_its_word() {
        for (query, asked) in [
            ("/v1/responses/resp_1?stream=true", true),
            ("/v1/responses/resp_1?starting_after=4&stream=1", true),
            ("/v1/responses/resp_1?stream=false", false),
            ("/v1/responses/resp_1", false),
        ] {
            assert_eq!(answer_path(query).unwrap().asks_for_stream(), asked, "{query}");
        }
    }
}
