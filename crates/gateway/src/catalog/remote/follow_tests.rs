//! What is served while there is no memory for a change.

use bytes::Bytes;
use knack_hub_api::client::{Authorities, HubClientSettings, Token};
use knack_hub_api::fixture::{lines_of, runtime_line};
use knack_hub_api::{Overrides, SkillLine};
use knack_skill::model::SkillFile;
use knack_skill::tree;

use super::*;
use crate::catalog::remote::content::Tree;
use crate::catalog::remote::mirror::MirrorState;

const BUDGET_BYTES: usize = 1 << 20;

fn follower(budget: &MemoryBudget) -> Follower {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = HubClient::new(HubClientSettings {
        // Nothing is asked for: the contents are there.
        url: "https://127.0.0.1:1".to_owned(),
        authorities: Authorities::Pem(String::new()),
        token: Token::Fixed("t".to_owned()),
        address: None,
    })
    .unwrap();
    let empty = Snapshot::without_catalog(RuntimeSettings::default(), "not yet");
    Follower {
        mirror: Mirror::for_namespace(None),
        client,
        runtime: "n/default".parse().unwrap(),
        serving: Arc::new(Serving {
            live: LiveCatalog::fixed(empty),
            age: CatalogAge::starting(),
            on_change: Box::new(|_| {}),
        }),
        budget: budget.clone(),
        held: None,
        content: Content::new(Blobs::new(budget.clone())),
        sources: BTreeMap::new(),
        served: Vec::new(),
        is_short: false,
        last: LastGood::default(),
        saver: None,
        answered: true,
        first: watch::Sender::new(false),
        retry: None,
    }
}

impl Follower {
    /// The hub serves these skills from now on: name and text.
    async fn now(&mut self, skills: &[(&str, &str)]) {
        let mut lines = Vec::new();
        for (name, text) in skills {
            let text = format!("---\nname: {name}\ndescription: Does it.\n---\n{text}\n");
            let file = SkillFile {
                bytes: Arc::from(text.as_bytes()),
                executable: false,
            };
            let files = BTreeMap::from([(SKILL_MD.to_owned(), file)]);
            let digest = tree::digest(&files);
            lines.push(SkillLine {
                namespace: "n".to_owned(),
                name: (*name).to_owned(),
                uid: (*name).to_owned(),
                resource_version: "1".to_owned(),
                digest: digest.clone(),
                created: 0,
                overrides: Overrides::default(),
                upload: None,
                withheld_tools: Vec::new(),
            });
            if self.content.get(&digest).is_none() {
                self.content.put([(digest, Tree { files })]);
            }
        }
        self.mirror.restore(MirrorState {
            runtime: runtime_line(),
            skills: lines,
            gone: std::collections::VecDeque::new(),
        });
        self.rebuild().await;
    }

    /// Name and text of each skill that requests get.
    fn served(&self) -> Vec<(String, String)> {
        let snapshot = self.serving.live.current();
        assert_eq!(snapshot.absent, None);
        let skills = snapshot.skills.iter();
        skills
            .map(|skill| (skill.id.name.clone(), skill.body.trim().to_owned()))
            .collect()
    }
}

fn pairs(skills: &[(&str, &str)]) -> Vec<(String, String)> {
    let skills = skills.iter();
    skills
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

#[tokio::test]
async fn a_change_that_does_not_fit_now_waits_and_what_was_served_stays() {
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let mut follower = follower(&budget);
    follower
        .now(&[("a", "Old."), ("b", "Revoked soon."), ("c", "Same.")])
        .await;
    assert_eq!(follower.retry, None);
    let others = budget.try_take(budget.free_bytes()).unwrap();
    let long = "New. ".repeat(4 << 10);
    let new = [("a", long.trim()), ("c", "Same."), ("d", "Another.")];
    follower.now(&new).await;
    assert_eq!(follower.served(), pairs(&[("a", "Old."), ("c", "Same.")]));
    let first = follower.retry.expect("it is tried again");
    follower.now(&new).await;
    assert!(follower.retry.unwrap() > first, "less often, the longer it lasts");
    drop(others);
    follower.now(&new).await;
    assert_eq!(follower.served(), pairs(&new));
    assert_eq!(follower.retry, None);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_is_silent_is_given_up_also_while_something_is_missing() {
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let mut follower = follower(&budget);
    follower.now(&[("a", "Old.")]).await;
    let _others = budget.try_take(budget.free_bytes()).unwrap();
    follower.now(&[("a", &"New. ".repeat(4 << 10))]).await;
    assert!(follower.retry.is_some());
    let silence = futures::stream::pending::<std::io::Result<Bytes>>();
    let lines = lines_of(http::Response::new(reqwest::Body::wrap_stream(silence)));
    let read = tokio::time::timeout(Duration::from_mins(10), follower.read(lines)).await;
    let (error, was_served) = read.expect("each try would begin the silence anew");
    assert!(matches!(error, HubError::Broken(_)) && !was_served, "{error}");
}

#[tokio::test]
async fn a_catalog_that_never_fits_is_not_served_and_not_tried_again() {
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let mut follower = follower(&budget);
    follower.now(&[("a", "Old.")]).await;
    follower.now(&[("a", &"x".repeat(BUDGET_BYTES))]).await;
    let absent = follower.serving.live.current().absent.clone();
    assert_eq!((absent.as_deref(), follower.retry), (Some(NO_MEMORY), None));
}
