//! Which requests are for the registry, and in which dialect. Pure.

use http::{HeaderMap, Method};

use crate::agent_flow::AgentFlow;
use crate::base_path::{behind_namespace, longest_base, namespace_place};
use crate::litellm::{ARCHIVE, LITELLM_PREFIX, LiteLlm, PROVIDER, PROXY, QUERY};
use crate::methods::allowed_methods;
use crate::model::ID_PREFIX;
use crate::omniroute::OmniRoute;
use crate::query::parameters;

/// The shapes that an API speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Anthropic's: with the header `anthropic-version`.
    Anthropic {
        /// The API's older shapes are asked for.
        beta: bool,
    },
    /// OpenAI's.
    OpenAi,
}

impl Dialect {
    /// The dialect of a request on a path that both vendors have. `beta`: the word in `anthropic-beta` that asks for the older
    /// shapes of its API.
    pub fn of(headers: &HeaderMap, beta: &str) -> Self {
        if !headers.contains_key("anthropic-version") {
            return Self::OpenAi;
        }
        let betas = headers.get_all("anthropic-beta").iter();
        let mut betas = betas.filter_map(|value| value.to_str().ok());
        Self::Anthropic {
            beta: betas.any(|value| value.split(',').any(|word| word.trim() == beta)),
        }
    }
}

/// The request, with the words of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the APIs")]
pub enum Operation {
    Create,
    List,
    Get(String),
    SetDefault(String),
    Delete(String),
    Content(String),
    CreateVersion(String),
    ListVersions(String),
    GetVersion {
        id: String,
        version: String,
    },
    DeleteVersion {
        id: String,
        version: String,
    },
    VersionContent {
        id: String,
        version: String,
    },
    /// A path of the API with a method that it does not have: its methods.
    NotAllowed(&'static str),
    /// A path that the API does not have.
    Unknown,
}

/// A request for the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiCall {
    /// One of a vendor's Skills API.
    Vendor(Dialect, Operation),
    /// One of Agent Flow's API.
    AgentFlow(AgentFlow),
    /// One of OmniRoute's.
    OmniRoute(OmniRoute),
    /// One of LiteLLM's, about its own entries.
    LiteLlm(LiteLlm),
}

/// The word in `anthropic-beta` that asks for the older shapes.
pub const BETA: &str = "skills-2025-10-02";

/// The segment of a path with which every API begins.
const WORD: &str = "skills";

/// The words of other APIs: what follows them is a name, and no list.
const OTHER_APIS: [&str; 2] = ["models", ".well-known"];

/// Where an API begins in a path: the last place where it may, since a namespace, a base path and an id may be the word, too.
fn beginning(segments: &[&str]) -> Option<usize> {
    let before = |at: usize| at.checked_sub(1).and_then(|at| segments.get(at).copied());
    let name = namespace_place(segments);
    let words = || {
        (0..segments.len())
            .rev()
            .filter(move |at| segments.get(*at) == Some(&WORD) && name != Some(*at))
    };
    let placed = words().find(|at| {
        let is_behind_name = name.is_some_and(|name| name + 1 == *at);
        !is_behind_name && matches!(before(*at), None | Some("v1" | "api"))
    });
    placed.or_else(|| {
        let base = longest_base(segments, &OTHER_APIS);
        let is_ours = |id: &&str| id.starts_with(ID_PREFIX) || id.starts_with(LITELLM_PREFIX);
        let names_ours = |at: &usize| segments.get(at + 1).is_some_and(is_ours);
        let mut bases = words().filter(|at| *at <= base);
        let named = bases.clone().find(names_ours);
        named.or_else(|| bases.find(|at| at + 1 == segments.len()))
    })
}

/// The call that a request makes; `None`: it is not for the registry and goes to the provider, as do all requests
/// about ids of the provider, its own skills (`source=anthropic`) and what names another provider.
pub fn route(method: &Method, path: &str, query: Option<&str>, headers: &HeaderMap) -> Option<ApiCall> {
    // Most paths are those of model calls.
    if !path.split('/').any(|segment| segment == WORD) {
        return None;
    }
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let at = beginning(&segments)?;
    // What a HEAD asks for is that of a GET; the server sends no body.
    let get = Method::GET;
    let method = if *method == Method::HEAD { &get } else { method };
    let (before, rest) = (behind_namespace(segments.get(..at)?), segments.get(at + 1..)?);
    if before.ends_with(&["api", "v1"]) {
        return Some(ApiCall::AgentFlow(AgentFlow::of(method, rest)));
    }
    if before.ends_with(&["api"]) {
        return Some(ApiCall::OmniRoute(OmniRoute::of(method, rest)));
    }
    let foreign = |(key, value): (String, String)| {
        !value.is_empty() && (key == PROVIDER || (key == "source" && value != "custom"))
    };
    let is_archive = matches!(rest, [id, ARCHIVE] if id.starts_with(ID_PREFIX)) && !parameters(query).any(foreign);
    let is_entry = is_archive || rest.first().is_some_and(|id| id.starts_with(LITELLM_PREFIX));
    if is_entry || parameters(query).any(|(key, value)| key == PROVIDER && value == PROXY) {
        return Some(ApiCall::LiteLlm(LiteLlm::of(method, rest)));
    }
    if parameters(query).any(foreign) || rest.first().is_some_and(|id| !id.starts_with(ID_PREFIX)) {
        return None;
    }
    // No other API searches.
    if *method == Method::GET && rest.is_empty() && parameters(query).any(|(key, _)| key == QUERY) {
        return Some(ApiCall::LiteLlm(LiteLlm::List));
    }
    let dialect = Dialect::of(headers, BETA);
    let operation = Operation::of(method.as_str(), rest, dialect == Dialect::OpenAi).unwrap_or_else(|| {
        let has = |method: &str| Operation::of(method, rest, dialect == Dialect::OpenAi).is_some();
        allowed_methods(has).map_or(Operation::Unknown, Operation::NotAllowed)
    });
    Some(ApiCall::Vendor(dialect, operation))
}

impl Operation {
    /// What a method does to what follows `/v1/skills`; `None`: the API does not have it.
    fn of(method: &str, rest: &[&str], is_openai: bool) -> Option<Self> {
        let text = |text: &&str| (*text).to_owned();
        Some(match (method, rest) {
            ("POST", []) => Self::Create,
            ("GET", []) => Self::List,
            ("GET", [id]) => Self::Get(text(id)),
            ("POST", [id]) if is_openai => Self::SetDefault(text(id)),
            ("DELETE", [id]) => Self::Delete(text(id)),
            ("GET", [id, "content"]) if is_openai => Self::Content(text(id)),
            ("POST", [id, "versions"]) => Self::CreateVersion(text(id)),
            ("GET", [id, "versions"]) => Self::ListVersions(text(id)),
            ("GET", [id, "versions", version]) => Self::GetVersion {
                id: text(id),
                version: text(version),
            },
            ("DELETE", [id, "versions", version]) => Self::DeleteVersion {
                id: text(id),
                version: text(version),
            },
            ("GET", [id, "versions", version, "content"]) => Self::VersionContent {
                id: text(id),
                version: text(version),
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn found(method: &str, path: &str, query: &str, headers: &[(&'static str, &'static str)]) -> Option<ApiCall> {
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        route(
            &Method::from_bytes(method.as_bytes()).unwrap(),
            path,
            Some(query),
            &headers,
        )
    }

    fn version_content(version: &str) -> Operation {
        Operation::VersionContent {
            id: "skill_knack_1".to_owned(),
            version: version.to_owned(),
        }
    }

    fn get_version(version: &str) -> Operation {
        Operation::GetVersion {
            id: "skill_knack_1".to_owned(),
            version: version.to_owned(),
        }
    }

    #[test]
    fn the_header_decides_between_the_dialects_and_the_id_between_here_and_the_provider() {
        let (version, beta) = (
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "a, skills-2025-10-02"),
        );
        let ga = Dialect::Anthropic { beta: false };
        let id = || "skill_knack_1".to_owned();
        for (method, path, query, headers, expected) in [
            ("POST", "/v1/skills", "", vec![version], Some((ga, Operation::Create))),
            (
                "POST",
                "/v1/skills",
                "beta=true",
                vec![version, beta],
                Some((Dialect::Anthropic { beta: true }, Operation::Create)),
            ),
            (
                "POST",
                "/v1/skills",
                "",
                vec![],
                Some((Dialect::OpenAi, Operation::Create)),
            ),
            (
                "GET",
                "/skills",
                "limit=1",
                vec![],
                Some((Dialect::OpenAi, Operation::List)),
            ),
            ("GET", "/gw/v1/skills/", "", vec![version], Some((ga, Operation::List))),
            (
                "GET",
                "/v1/skills/skill_knack_1",
                "",
                vec![version],
                Some((ga, Operation::Get(id()))),
            ),
            (
                "POST",
                "/v1/skills/skill_knack_1",
                "",
                vec![version],
                Some((ga, Operation::NotAllowed("DELETE, GET, HEAD"))),
            ),
            (
                "POST",
                "/v1/skills/skill_knack_1",
                "",
                vec![],
                Some((Dialect::OpenAi, Operation::SetDefault(id()))),
            ),
            (
                "GET",
                "/v1/skills/skill_knack_1/versions/latest/content",
                "",
                vec![version],
                Some((ga, version_content("latest"))),
            ),
            (
                "POST",
                "/namespaces/skills/v1/skills",
                "",
                vec![],
                Some((Dialect::OpenAi, Operation::Create)),
            ),
            (
                "GET",
                "/skills/v1/skills/skill_knack_1/versions/skills",
                "",
                vec![],
                Some((Dialect::OpenAi, get_version("skills"))),
            ),
            ("GET", "/v1/skills/skill_01A", "", vec![version], None),
            ("DELETE", "/v1/skills/skill_01A/versions/1", "", vec![], None),
            ("GET", "/v1/skills", "source=anthropic", vec![version], None),
            (
                "POST",
                "/v1/skills",
                "custom_llm_provider=anthropic",
                vec![version],
                None,
            ),
            ("GET", "/v1/files", "", vec![], None),
            ("GET", "/v1/models/skills", "", vec![], None),
        ] {
            let expected = expected.map(|(dialect, operation)| ApiCall::Vendor(dialect, operation));
            let call = found(method, path, query, &headers);
            assert_eq!(call, expected, "{method} {path} {query}");
        }
    }

    #[test]
    fn methods_are_those_of_the_path_and_a_base_path_needs_no_v1() {
        let version = ("anthropic-version", "2023-06-01");
        let ga = Dialect::Anthropic { beta: false };
        let id = || "skill_knack_1".to_owned();
        for (method, path, query, headers, expected) in [
            (
                "PUT",
                "/v1/skills",
                "",
                vec![],
                Some((Dialect::OpenAi, Operation::NotAllowed("GET, HEAD, POST"))),
            ),
            (
                "GET",
                "/v1/skills/skill_knack_1/content",
                "",
                vec![version],
                Some((ga, Operation::Unknown)),
            ),
            (
                "GET",
                "/v1/skills/skill_knack_1/other",
                "",
                vec![],
                Some((Dialect::OpenAi, Operation::Unknown)),
            ),
            ("HEAD", "/v1/skills", "", vec![version], Some((ga, Operation::List))),
            // A base path without `v1`.
            (
                "POST",
                "/gw/skills",
                "",
                vec![],
                Some((Dialect::OpenAi, Operation::Create)),
            ),
            (
                "GET",
                "/gw/skills/skill_knack_1",
                "",
                vec![],
                Some((Dialect::OpenAi, Operation::Get(id()))),
            ),
            (
                "GET",
                "/gw/skills/skill_knack_1/versions/skills",
                "",
                vec![],
                Some((Dialect::OpenAi, get_version("skills"))),
            ),
            ("GET", "/gw/skills/skill_01A", "", vec![], None),
            ("GET", "/gw/models/skills", "", vec![], None),
            ("GET", "/v1/files/skills", "", vec![], None),
            ("GET", "/v1beta/models/skills", "", vec![], None),
            ("GET", "/.well-known/skills", "", vec![], None),
            // An empty parameter names nobody.
            (
                "GET",
                "/v1/skills",
                "source=&custom_llm_provider=",
                vec![version],
                Some((ga, Operation::List)),
            ),
        ] {
            let expected = expected.map(|(dialect, operation)| ApiCall::Vendor(dialect, operation));
            let call = found(method, path, query, &headers);
            assert_eq!(call, expected, "{method} {path} {query}");
        }
    }

    #[test]
    fn the_name_of_a_namespace_may_be_a_word_of_an_api() {
        for (path, expected) in [
            ("/namespaces/skills", None),
            ("/namespaces/team/skills", Some(Operation::List)),
            ("/namespaces/skills/skills", Some(Operation::List)),
            ("/namespaces/models/skills", Some(Operation::List)),
            ("/namespaces/api/v1/skills", Some(Operation::List)),
            (
                "/namespaces/api/skills/skill_knack_1",
                Some(Operation::Get("skill_knack_1".to_owned())),
            ),
        ] {
            let expected = expected.map(|operation| ApiCall::Vendor(Dialect::OpenAi, operation));
            assert_eq!(found("GET", path, "", &[]), expected, "{path}");
        }
    }

    #[test]
    fn agent_flow_has_a_path_of_its_own() {
        for (method, path, expected) in [
            ("POST", "/api/v1/skills", AgentFlow::Create),
            ("GET", "/gw/api/v1/skills/", AgentFlow::List),
            ("GET", "/namespaces/skills/api/v1/skills", AgentFlow::List),
            ("GET", "/api/v1/skills/skills", AgentFlow::Get("skills".to_owned())),
            ("PUT", "/api/v1/skills/a", AgentFlow::Update("a".to_owned())),
            ("GET", "/api/v1/skills/%61%2Db", AgentFlow::Get("a-b".to_owned())),
            ("DELETE", "/api/v1/skills/a%2Fb", AgentFlow::Delete("a/b".to_owned())),
            ("POST", "/api/v1/skills/a/run", AgentFlow::Run("a".to_owned())),
            ("GET", "/api/v1/skills/a/run", AgentFlow::Unknown),
            ("PATCH", "/api/v1/skills/a", AgentFlow::Unknown),
        ] {
            let call = found(method, path, "", &[("anthropic-version", "1")]);
            assert_eq!(call, Some(ApiCall::AgentFlow(expected)), "{method} {path}");
        }
    }

    #[test]
    fn entries_of_litellm_and_rows_of_omniroute_are_distinguished_from_the_vendors() {
        let version = ("anthropic-version", "2023-06-01");
        let entry = || "litellm_skill_1".to_owned();
        for (method, path, query, expected) in [
            (
                "POST",
                "/v1/skills",
                "custom_llm_provider=litellm_proxy",
                ApiCall::LiteLlm(LiteLlm::Create),
            ),
            (
                "GET",
                "/skills",
                "limit=1&custom_llm_provider=litellm_proxy",
                ApiCall::LiteLlm(LiteLlm::List),
            ),
            (
                "GET",
                "/v1/skills/litellm_skill_1",
                "",
                ApiCall::LiteLlm(LiteLlm::Get(entry())),
            ),
            (
                "DELETE",
                "/v1/skills/litellm_skill_1",
                "custom_llm_provider=anthropic",
                ApiCall::LiteLlm(LiteLlm::Delete(entry())),
            ),
            (
                "POST",
                "/v1/skills/litellm_skill_1/versions",
                "",
                ApiCall::LiteLlm(LiteLlm::Unknown),
            ),
            (
                "PUT",
                "/gw/skills/litellm_skill_1",
                "",
                ApiCall::LiteLlm(LiteLlm::NotAllowed("DELETE, GET, HEAD")),
            ),
            (
                "PUT",
                "/v1/skills/skill_knack_1/archive",
                "",
                ApiCall::LiteLlm(LiteLlm::NotAllowed("GET, HEAD")),
            ),
            (
                "GET",
                "/v1/skills/litellm_skill_1/archive",
                "",
                ApiCall::LiteLlm(LiteLlm::Archive(entry())),
            ),
            (
                "GET",
                "/v1/skills/skill_knack_1/archive",
                "",
                ApiCall::LiteLlm(LiteLlm::Archive("skill_knack_1".to_owned())),
            ),
            ("GET", "/v1/skills", "query=x&top_k=3", ApiCall::LiteLlm(LiteLlm::List)),
            ("GET", "/api/skills", "q=x", ApiCall::OmniRoute(OmniRoute::List)),
            (
                "GET",
                "/skills/api/skills/skills",
                "",
                ApiCall::OmniRoute(OmniRoute::Get("skills".to_owned())),
            ),
            (
                "POST",
                "/gw/api/skills/install/",
                "",
                ApiCall::OmniRoute(OmniRoute::Install),
            ),
        ] {
            assert_eq!(
                found(method, path, query, &[version]),
                Some(expected),
                "{method} {path}?{query}"
            );
        }
    }
}
