//! What contents of skills take of the process's memory.

use super::*;
use crate::hub::artifacts::{ArtifactError, Content};

/// Eight contents of these tests, and one in the cache.
const BUDGET: usize = 8 << 10;
/// What one of them takes.
const ONE: usize = 1 << 10;

impl Cluster {
    async fn content(&self, namespace: &str) -> Result<Arc<Content>, ArtifactError> {
        let skill = self.shared.read(|world| world.skills.get(namespace, "s").cloned());
        let wanted = InService::of(&skill.unwrap()).unwrap();
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
    assert_eq!(memory.held_bytes(), 2 * ONE);
    assert!(read.starts_with(b"---\nname: s"));
    drop(mounted);
    assert_eq!(memory.held_bytes(), ONE, "what is being sent");
    drop(read);
    assert_eq!(memory.held_bytes(), 0, "the cache has let go of it");
    let kept = cluster.content("a").await.unwrap();
    let same = cluster.content("a").await.unwrap();
    assert!(Arc::ptr_eq(&kept, &same), "one content for all who use it");
    assert_eq!(memory.held_bytes(), ONE);
}

#[tokio::test]
async fn content_without_room_is_told_to_come_again() {
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
