use super::*;

const MIB: usize = 1 << 20;

fn owner(account: &str, runtime: &str) -> ValueOwner {
    ValueOwner {
        account: account.to_owned(),
        runtime: runtime.parse().unwrap(),
    }
}

fn key(n: usize) -> KeptKey {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&n.to_be_bytes());
    KeptKey(key)
}

fn value(client: usize, keys: &[usize]) -> KeptValue {
    KeptValue {
        client: key(client),
        keys: keys.iter().map(|n| key(*n)).collect(),
        opening: Some(key(1000)),
        bytes: 1,
    }
}

/// A store with room for 8 MiB, in a process with 64 MiB.
fn store() -> (MemoryBudget, KeptStore) {
    let whole = MemoryBudget::new(64 * MIB);
    let store = KeptStore::new(&whole, Counter::default());
    (whole, store)
}

fn bytes(length: usize) -> Bytes {
    vec![7; length].into()
}

#[tokio::test(start_paused = true)]
async fn a_value_is_found_under_each_key_by_its_account_its_runtime_and_its_client_only() {
    let (_, store) = store();
    let mine = owner("team/app/u", "run/default");
    store.put(&mine, value(1, &[10, 11]), bytes(3)).unwrap();
    for at in [10, 11] {
        assert_eq!(store.get(&mine, &key(1), &key(at)), Some(bytes(3)));
    }
    for (strange, client, at) in [
        (owner("team/app/v", "run/default"), 1, 10),
        (owner("team/other/u", "run/default"), 1, 10),
        (owner("team/app/u", "run/other"), 1, 10),
        (mine.clone(), 2, 10),
        (mine.clone(), 1, 12),
    ] {
        assert_eq!(
            store.get(&strange, &key(client), &key(at)),
            None,
            "{strange:?} {client} {at}"
        );
        let (listed, _) = store.follow(&owner("team/app/v", "run/default"));
        assert_eq!(listed, [], "nobody else learns of it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_value_leaves_nothing_behind() {
    let (whole, store) = store();
    let mine = owner("a", "run/default");
    store.put(&mine, value(1, &[10, 11]), bytes(MIB)).unwrap();
    store.put(&mine, value(1, &[11]), bytes(1)).unwrap();
    assert_eq!(store.get(&mine, &key(1), &key(10)), None);
    assert_eq!(store.get(&mine, &key(1), &key(11)), Some(bytes(1)));
    assert_eq!(store.usage(), (1, 2 << 10));
    assert_eq!(whole.held_bytes(), 2 << 10);
}

#[tokio::test(start_paused = true)]
async fn the_bound_holds_and_the_least_recently_used_goes_first() {
    let (whole, store) = store();
    let mine = owner("a", "run/default");
    for n in 0..7 {
        store.put(&mine, value(1, &[n]), bytes(MIB)).unwrap();
    }
    assert!(store.get(&mine, &key(1), &key(0)).is_some());
    for n in 7..10 {
        store.put(&mine, value(1, &[n]), bytes(MIB)).unwrap();
    }
    let left: Vec<usize> = (0..10)
        .filter(|n| store.get(&mine, &key(1), &key(*n)).is_some())
        .collect();
    assert_eq!(left, [0, 4, 5, 6, 7, 8, 9]);
    assert!(whole.held_bytes() <= 8 * MIB, "{}", whole.held_bytes());
    assert_eq!(store.put(&mine, value(1, &[99]), bytes(9 * MIB)), Err(NoRoom));
    assert_eq!(store.usage().0, 7, "what can never fit pushes nothing out");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_floods_the_store_evicts_its_own_values() {
    let (_, store) = store();
    let (quiet, loud) = (owner("quiet", "run/default"), owner("loud", "run/default"));
    store.put(&quiet, value(1, &[1]), bytes(MIB)).unwrap();
    store.put(&loud, value(2, &[2]), bytes(MIB)).unwrap();
    for n in 100..200 {
        store.put(&loud, value(3, &[n]), bytes(MIB)).unwrap();
    }
    assert!(store.get(&quiet, &key(1), &key(1)).is_some(), "another gateway's");
    assert!(
        store.get(&loud, &key(2), &key(2)).is_some(),
        "another client's of the same gateway"
    );
    assert!(store.get(&loud, &key(3), &key(199)).is_some() && store.get(&loud, &key(3), &key(100)).is_none());
    assert!(store.evicted.get() > 90);
}

#[tokio::test(start_paused = true)]
async fn runs_and_bodies_come_first() {
    let (whole, store) = store();
    let mine = owner("a", "run/default");
    store.put(&mine, value(1, &[1]), bytes(MIB)).unwrap();
    let _others = whole.try_take(whole.free_bytes() - MIB / 2).unwrap();
    assert_eq!(store.put(&mine, value(1, &[2]), bytes(MIB)), Err(NoRoom));
    assert!(
        store.get(&mine, &key(1), &key(1)).is_some(),
        "nothing is lost for nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn idle_values_are_dropped_and_used_ones_stay() {
    let (whole, store) = store();
    let mine = owner("a", "run/default");
    for n in 1..=3 {
        store.put(&mine, value(n, &[n]), bytes(1)).unwrap();
    }
    tokio::time::advance(KEPT_IDLE / 2 + Duration::from_secs(1)).await;
    assert!(store.get(&mine, &key(1), &key(1)).is_some());
    tokio::time::advance(KEPT_IDLE / 2).await;
    assert_eq!(store.get(&mine, &key(2), &key(2)), None);
    assert_eq!(store.follow(&mine).0.len(), 1);
    store.prune();
    assert_eq!(store.usage(), (1, 2 << 10));
    tokio::time::advance(KEPT_IDLE * 2).await;
    store.prune();
    assert_eq!((store.usage(), whole.held_bytes()), ((0, 0), 0));
    assert!(store.lock().by_owner.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_follower_gets_existing_values_and_new_ones() {
    let (_, store) = store();
    let mine = owner("a", "run/default");
    store.put(&mine, value(1, &[1]), bytes(1)).unwrap();
    let (there, mut listed) = store.follow(&mine);
    assert_eq!(there, [Arc::new(value(1, &[1]))]);
    store.put(&mine, value(1, &[2]), bytes(1)).unwrap();
    store.put(&owner("b", "run/default"), value(1, &[3]), bytes(1)).unwrap();
    assert_eq!(*listed.recv().await.unwrap(), value(1, &[2]));
    assert!(listed.try_recv().is_err());
    for n in 0..=NEWS_WAITING {
        store.put(&mine, value(1, &[n]), bytes(1)).unwrap();
    }
    assert!(
        matches!(listed.recv().await, Err(broadcast::error::RecvError::Lagged(_))),
        "who falls behind hears that he did"
    );
}

#[tokio::test(start_paused = true)]
async fn cancellation_reaches_listeners_and_takes_no_room() {
    let (whole, store) = store();
    let mine = owner("team/app/u", "run/default");
    store.put(&mine, value(1, &[10]), bytes(3)).unwrap();
    let (_, mut news) = store.follow(&mine);
    let held = whole.held_bytes();
    let cancellation = KeptValue::cancellation(key(1), key(10));
    store.put(&mine, cancellation.clone(), Bytes::new()).unwrap();
    assert_eq!(*news.recv().await.unwrap(), cancellation);
    assert_eq!(whole.held_bytes(), held);
    let (listed, _) = store.follow(&mine);
    assert_eq!(listed.len(), 1, "nobody learns of it later");
    assert_eq!(store.get(&mine, &key(1), &key(10)), Some(bytes(3)));
}
