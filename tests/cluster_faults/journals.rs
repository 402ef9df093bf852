//! What ran, by the journals of all pods, also of those that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use cluster_support::{Cluster, PodLogs};
use serde_json::Value;

/// Executions according to the pods' own logs.
pub(crate) struct Journals {
    logs: PodLogs,
    /// Pods of each execution, and when its first start was seen.
    started: BTreeMap<String, (Vec<String>, Instant)>,
    /// Pods whose journal needs no second look.
    known: BTreeSet<String>,
    /// Pods that are bound and have started nothing.
    bound: BTreeSet<String>,
    /// When each container was first seen.
    seen: BTreeMap<String, Instant>,
}

impl Journals {
    /// From now on, in a namespace.
    pub(crate) fn keep(cluster: &Cluster, namespace: &str) -> Self {
        Self {
            logs: cluster.keep_logs(namespace),
            started: BTreeMap::new(),
            known: BTreeSet::new(),
            bound: BTreeSet::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Reads what is new.
    pub(crate) fn look(&mut self) {
        for pod in self.logs.pods() {
            self.seen.entry(pod.clone()).or_insert_with(Instant::now);
            if self.known.contains(&pod) {
                continue;
            }
            for line in self.logs.lines(&pod) {
                let frame: Value = serde_json::from_str(&line).unwrap_or_default();
                match frame["type"].as_str() {
                    Some("claimed") => {
                        self.bound.insert(pod.clone());
                    }
                    Some("started") => {
                        let id = frame["id"].as_str().unwrap().to_owned();
                        let entry = self.started.entry(id).or_insert_with(|| (Vec::new(), Instant::now()));
                        entry.0.push(pod.clone());
                        self.known.insert(pod.clone());
                        self.bound.remove(&pod);
                    }
                    _ => {}
                }
            }
        }
    }

    /// When each execution was first seen to have started.
    pub(crate) fn started(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.started.iter().map(|(id, (_, at))| (id.as_str(), *at))
    }

    /// Pods that are bound and have started nothing (so far).
    pub(crate) fn bound(&self) -> &BTreeSet<String> {
        &self.bound
    }

    /// Containers not older than `age` in which nothing has started (so far).
    pub(crate) fn starting(&self, age: Duration) -> usize {
        let young = self
            .seen
            .iter()
            .filter(|(pod, at)| !self.known.contains(*pod) && at.elapsed() < age);
        young.count()
    }

    /// How often each execution has started, at last. A pod that started two is counted for both.
    pub(crate) fn starts(&mut self) -> BTreeMap<String, usize> {
        self.known.clear();
        self.started.clear();
        self.look();
        let counted = self.started.iter().map(|(id, (pods, _))| (id.clone(), pods.len()));
        counted.collect()
    }

    /// Bytes of the largest journal.
    pub(crate) fn largest(&self) -> u64 {
        self.logs.sizes().into_values().max().unwrap_or_default()
    }
}
