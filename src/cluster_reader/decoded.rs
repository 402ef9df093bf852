//! Watch events about objects that this version may be unable to decode. Pure.

use kube::core::{DeserializeGuard, ObjectMeta};
use kube::runtime::watcher::Event;

/// An event about an object that this version cannot decode: a newer one wrote it. What is known without its content.
#[derive(Debug)]
pub(crate) enum Undecoded {
    /// It was written: its last known state stays in use.
    Written,
    /// A list has it: its last known state stays in use.
    Listed(Box<ObjectMeta>),
    /// It is gone.
    Deleted(Box<ObjectMeta>),
}

/// An event with its object, as far as this version can decode it; an object that it cannot decode must not end the watch.
pub(crate) fn decoded<K>(event: Event<DeserializeGuard<K>>, kind: &'static str) -> Result<Event<K>, Undecoded> {
    let read = |guard: DeserializeGuard<K>| {
        guard.0.map_err(|invalid| {
            let (namespace, name) = (&invalid.metadata.namespace, &invalid.metadata.name);
            tracing::warn!(kind, namespace, name, error = %invalid.error, "an object cannot be decoded; its last readable state stays in use until it is deleted");
            Box::new(invalid.metadata)
        })
    };
    Ok(match event {
        Event::Apply(guard) => Event::Apply(read(guard).map_err(|_| Undecoded::Written)?),
        Event::Delete(guard) => Event::Delete(read(guard).map_err(Undecoded::Deleted)?),
        Event::InitApply(guard) => Event::InitApply(read(guard).map_err(Undecoded::Listed)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}
