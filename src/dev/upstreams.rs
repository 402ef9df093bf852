//! Which providers `knack dev` asks, and with which keys.

use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::Args;
use http::HeaderValue;
use knack_gateway::catalog::RuntimeSettings;
use knack_gateway::providers::base_url::BaseUrl;
use knack_gateway::providers::provider::Api;
use knack_gateway::providers::upstream::ProviderEndpoint;
use knack_mock_provider::{MockServer, Script};

/// The addresses of providers.
#[derive(Debug, Default, Args)]
pub(super) struct UpstreamArgs {
    /// Provider for every API: a base URL, `mock` (a scripted model), or `mock=SCRIPT.yaml`
    #[arg(long, env = "KNACK_UPSTREAM")]
    upstream: Option<String>,
    /// Base URL for the OpenAI API
    #[arg(long, env = "KNACK_UPSTREAM_OPENAI")]
    upstream_openai: Option<String>,
    /// Base URL for the Anthropic API
    #[arg(long, env = "KNACK_UPSTREAM_ANTHROPIC")]
    upstream_anthropic: Option<String>,
    /// Base URL for the Gemini API
    #[arg(long, env = "KNACK_UPSTREAM_GEMINI")]
    upstream_gemini: Option<String>,
    /// APIs whose upstream is another gateway of Knack, such as the one of a cluster: the header x-knack-via says that
    /// skills are injected here, so it injects none
    #[arg(
        long,
        value_name = "APIS",
        env = "KNACK_UPSTREAM_KNACK",
        value_enum,
        value_delimiter = ','
    )]
    pub(super) upstream_knack: Vec<Api>,
}

impl UpstreamArgs {
    /// The scripted model, if `--upstream` asks for it.
    pub(super) async fn start_mock(&self) -> anyhow::Result<Option<MockServer>> {
        let script = match self.upstream.as_deref() {
            Some("mock") => Script::built_in(),
            Some(word) => match word.strip_prefix("mock=") {
                Some(path) => {
                    let text = tokio::fs::read_to_string(path)
                        .await
                        .with_context(|| format!("--upstream {word}: the script cannot be read"))?;
                    Script::parse(&text).map_err(|error| anyhow::anyhow!("--upstream {word}: {error}"))?
                }
                None => return Ok(None),
            },
            None => return Ok(None),
        };
        let mock = knack_mock_provider::spawn(script).await;
        mock.map(Some).context("the scripted model cannot listen on loopback")
    }

    /// Addresses by API: its own flag, then `--upstream`, then the SkillRuntime, then the public one. An API without any of
    /// the former and without a key is left out. `variable` reads the environment.
    pub(super) fn bases(
        &self,
        runtime: &RuntimeSettings,
        mock: Option<String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<BTreeMap<Api, ProviderEndpoint>> {
        let is_mock = mock.is_some();
        let all = mock.or_else(|| self.upstream.clone());
        let mut bases = BTreeMap::new();
        for (api, flag) in [
            (Api::OpenAi, &self.upstream_openai),
            (Api::Anthropic, &self.upstream_anthropic),
            (Api::Gemini, &self.upstream_gemini),
        ] {
            let key = own_key(api, &variable)?;
            anyhow::ensure!(
                !(is_mock && flag.is_none() && self.upstream_knack.contains(&api)),
                "--upstream-knack {0}: the upstream of {0} is the scripted model, which is no gateway of Knack; leave the flag out, or name the gateway by --upstream-{0}",
                api.as_str()
            );
            let url = flag
                .clone()
                .or_else(|| all.clone())
                .or_else(|| runtime.upstreams.get(api.as_str()).cloned());
            if url.is_none() && key.is_none() {
                continue;
            }
            let url = url.unwrap_or_else(|| api.default_url().to_owned());
            let url = BaseUrl::parse(&url).map_err(|error| {
                let (api, example) = (api.as_str(), api.default_url());
                anyhow::anyhow!("upstream {api}: the configured address is {error}; write for example {example}")
            })?;
            bases.insert(api, ProviderEndpoint { url, key });
        }
        Ok(bases)
    }
}

/// The operator's own key, from the environment of knack and from nowhere else; it is sent instead of the client's.
fn own_key(api: Api, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<HeaderValue>> {
    let name = format!("KNACK_UPSTREAM_{}_KEY", api.as_str().to_uppercase());
    let key = variable(&name)
        .filter(|key| !key.is_empty())
        .map(|key| HeaderValue::from_str(&key))
        .transpose();
    key.with_context(|| format!("{name} cannot be a header value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_alone_goes_to_the_public_address_of_its_api() {
        let variable = |name: &str| (name == "KNACK_UPSTREAM_ANTHROPIC_KEY").then(|| "sk-own".to_owned());
        let runtime = RuntimeSettings::default();
        let bases = UpstreamArgs::default().bases(&runtime, None, variable).unwrap();
        let public = ProviderEndpoint {
            url: BaseUrl::parse(Api::Anthropic.default_url()).unwrap(),
            key: Some(HeaderValue::from_static("sk-own")),
        };
        assert_eq!(bases, BTreeMap::from([(Api::Anthropic, public)]));
    }

    #[test]
    fn the_scripted_model_is_no_gateway_and_another_address_may_be_one() {
        let arguments = |openai: Option<&str>| UpstreamArgs {
            upstream: Some("mock".to_owned()),
            upstream_openai: openai.map(str::to_owned),
            upstream_knack: vec![Api::OpenAi],
            ..UpstreamArgs::default()
        };
        let bases = |openai| {
            let mock = Some("http://127.0.0.1:1".to_owned());
            arguments(openai).bases(&RuntimeSettings::default(), mock, |_| None)
        };
        let error = bases(None).unwrap_err().to_string();
        assert!(error.contains("--upstream-knack openai"), "{error}");
        assert!(bases(Some("http://127.0.0.1:2")).is_ok());
    }

    /// Basic authentication would go with every path, also with those that callers may not use a key for.
    #[test]
    fn an_address_with_a_password_ends_the_start_and_is_not_repeated() {
        let runtime = RuntimeSettings::default();
        for (flag, all) in [
            (Some("http://name:word@host/v1"), None),
            (None, Some("https://name:word@host")),
        ] {
            let arguments = UpstreamArgs {
                upstream: all.map(str::to_owned),
                upstream_openai: flag.map(str::to_owned),
                ..UpstreamArgs::default()
            };
            let error = arguments.bases(&runtime, None, |_| None).unwrap_err().to_string();
            assert!(
                error.contains("upstream openai") && error.contains("a user name or a password"),
                "{error}"
            );
            assert!(!error.contains("word@") && !error.contains("host"), "{error}");
        }
    }
}
