use super::*;

const MIB: usize = 1 << 20;

#[test]
fn half_of_the_limit_is_the_budget_within_its_bounds() {
    for (limit, expected) in [
        (None, 512 * MIB),
        (Some(512 << 20), 256 * MIB),
        (Some(2 << 30), 1024 * MIB),
        (Some(16 << 20), 64 * MIB),
        (Some(0), 64 * MIB),
    ] {
        assert_eq!(MemoryBudget::of_limit(limit).total_bytes(), expected, "{limit:?}");
    }
    assert!(MemoryBudget::new(usize::MAX).total_bytes() > 1 << 40);
}

#[test]
fn shares_are_given_back_when_dropped_and_when_shrunk() {
    let budget = MemoryBudget::new(8 * MIB);
    let mut first = budget.try_take(5 * MIB).unwrap();
    let refused = budget.try_take(4 * MIB).unwrap_err();
    assert!(!refused.is_final());
    assert!(budget.try_take(9 * MIB).unwrap_err().is_final());
    first.shrink_to(3 * MIB);
    assert_eq!((first.bytes(), budget.held_bytes()), (3 * MIB, 3 * MIB));
    first.grow_to(8 * MIB).unwrap();
    assert_eq!(budget.free_bytes(), 0);
    assert!(first.grow_to(9 * MIB).is_err());
    drop(first);
    assert_eq!(budget.free_bytes(), 8 * MIB);
}

#[test]
fn what_a_part_holds_counts_in_the_whole_and_a_refusal_holds_nothing() {
    let whole = MemoryBudget::new(8 * MIB);
    let part = whole.part(2 * MIB);
    let mut held = part.try_take(MIB).unwrap();
    held.grow_to(2 * MIB).unwrap();
    assert_eq!((part.free_bytes(), whole.free_bytes()), (0, 6 * MIB));
    assert!(
        part.try_take(MIB).is_err(),
        "the part has no more, though the whole has"
    );
    assert!(
        held.grow_to(3 * MIB).unwrap_err().is_final(),
        "by the sum, not by what is new"
    );
    assert_eq!(whole.free_bytes(), 6 * MIB);
    let others = whole.try_take(6 * MIB).unwrap();
    assert!(
        part.try_take(3 * MIB).unwrap_err().is_final(),
        "though the whole is full"
    );
    held.shrink_to(MIB);
    drop(others);
    assert_eq!((part.free_bytes(), whole.free_bytes()), (MIB, 7 * MIB));
    drop(held);
    assert_eq!((part.free_bytes(), whole.free_bytes()), (2 * MIB, 8 * MIB));
    assert_eq!(whole.part(usize::MAX).total_bytes(), 8 * MIB);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_returned_bytes_or_a_refusal_in_time() {
    let budget = MemoryBudget::new(2 * MIB);
    let held = budget.try_take(2 * MIB).unwrap();
    let patience = Duration::from_secs(1);
    assert!(budget.take(MIB, patience).await.is_err());
    assert!(budget.take(3 * MIB, patience).await.unwrap_err().is_final());
    let (taken, ()) = tokio::join!(budget.take(MIB, patience), async {
        tokio::time::sleep(patience / 2).await;
        drop(held);
    });
    assert_eq!(taken.unwrap().bytes(), MIB);
    assert_eq!(budget.free_bytes(), 2 * MIB, "a wait that ended holds nothing");
}
