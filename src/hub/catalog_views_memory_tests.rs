//! What contents of skills take of the process's memory.

use super::*;
use crate::hub::artifacts::{ArtifactError, Content};

/// Eight contents of these tests, and one in the cache.
const BUDGET: usize = 8 << 10;
/// What one of them takes.
const ONE: usize = 1 << 10;
/// The part of summaries, which one of them fills.
const SUMMARIES: usize = BUDGET / 4;

impl Cluster {
    async fn content(&self, namespace: &str) -> Result<Arc<Content>, ArtifactError> {
        let skill = self
            .shared
            .read(|cluster_state| cluster_state.skills.get(namespace, "s").cloned());
        let wanted = ServedRevision::of(&skill.unwrap()).unwrap();
        self.artifacts.content(&wanted.skill, &wanted.digest).await
    }
}

#[tokio::test]
async fn content_counts_until_its_last_user_is_done_with_it() {
    let memory = MemoryBudget::new(BUDGET);
    let cluster = Cluster::within(&memory).await;
    for namespace in ["a", "b"] {
        cluster.apply(namespace, namespace, json!({})).await;
    }
    // A slow reader of one, and a run of the other, which has no room in the cache.
    let read = cluster.content("a").await.unwrap().file("SKILL.md").unwrap();
    let mounted = cluster.content("b").await.unwrap().share();
    assert!(mounted.is_some());
    assert_eq!(memory.held_bytes(), SUMMARIES + 2 * ONE);
    assert!(read.starts_with(b"---\nname: s"));
    drop(mounted);
    assert_eq!(memory.held_bytes(), SUMMARIES + ONE, "what is being sent");
    let same = cluster.content("a").await.unwrap();
    drop(read);
    assert_eq!(
        memory.held_bytes(),
        SUMMARIES + ONE,
        "the cache keeps what was in use when another one came"
    );
    let kept = cluster.content("a").await.unwrap();
    assert!(Arc::ptr_eq(&kept, &same), "one content for all who use it");
    drop((kept, same));
    let other = cluster.content("b").await.unwrap();
    assert_eq!(
        memory.held_bytes(),
        SUMMARIES + ONE,
        "the cache has let go of what nobody uses"
    );
    drop(other);
    assert_eq!(memory.held_bytes(), SUMMARIES + ONE);
}

#[tokio::test]
async fn content_that_many_ask_for_at_once_is_read_once() {
    let memory = MemoryBudget::new(BUDGET);
    let cluster = Cluster::within(&memory).await;
    for namespace in ["a", "b"] {
        cluster.apply(namespace, namespace, json!({})).await;
    }
    cluster.silent.send_replace(true);
    let asked = futures::future::join_all((0..20).map(|_| cluster.content("a")));
    let answer = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        // And what it takes while it is read: a quarter of the memory.
        assert!(
            memory.held_bytes() <= SUMMARIES + BUDGET / 4 + ONE,
            "one of them has taken room"
        );
        cluster.silent.send_replace(false);
    };
    let (all, ()) = futures::future::join(asked, answer).await;
    let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
    assert_eq!(memory.held_bytes(), SUMMARIES + ONE);
}

#[tokio::test]
async fn content_without_room_is_refused_with_a_retry() {
    let memory = MemoryBudget::new(BUDGET);
    let cluster = Cluster::within(&memory).await;
    for namespace in ["a", "b"] {
        cluster.apply(namespace, namespace, json!({})).await;
    }
    let used = cluster.content("a").await.unwrap();
    let others = memory.try_take(memory.free_bytes()).unwrap();
    let refused = cluster.content("b").await.unwrap_err();
    assert!(
        matches!(refused, ArtifactError::NoRoom(over) if !over.is_final()),
        "{refused}"
    );
    drop(others);
    assert!(cluster.content("b").await.is_ok());
    drop(used);
}

#[tokio::test]
async fn content_that_is_read_for_the_first_time_has_its_memory_before_it_arrives() {
    let memory = MemoryBudget::new(BUDGET);
    let cluster = Cluster::within(&memory).await;
    cluster.silent.send_replace(true);
    let skills: Vec<Skill> = (0..40)
        .map(|number| cluster.deliver(&format!("n{number}"), &number.to_string(), &json!({})))
        .collect();
    for skill in &skills {
        cluster.take(Event::Apply(skill.clone()));
    }
    // A quarter is for reads, and one of these ConfigMaps could have more: they are read one after another.
    while memory.held_bytes() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        assert_eq!(memory.held_bytes(), BUDGET / 4);
    }
    cluster.silent.send_replace(false);
    for skill in &skills {
        cluster.is_read(skill).await;
    }
    assert_eq!(memory.held_bytes(), SUMMARIES + ONE, "what is kept");
}

#[tokio::test]
async fn content_that_finds_no_memory_for_its_first_reading_is_read_later() {
    let memory = MemoryBudget::new(BUDGET);
    let cluster = Cluster::within(&memory).await;
    let requests = memory.try_take(BUDGET).unwrap();
    let skill = cluster.deliver("a", "text", &json!({}));
    cluster.take(Event::Apply(skill.clone()));
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    assert!(
        cluster.artifacts.summary(&skill, None).is_none(),
        "nothing is read without room"
    );
    assert!(cluster.artifacts.is_being_read(&reference(&skill)));
    drop(requests);
    cluster.is_read(&skill).await;
}
