//! The next step, as a function of the present objects and the time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Life of a certificate: 90 days, as public authorities issue them.
pub const VALIDITY: Duration = Duration::from_hours(90 * 24);
/// A certificate is valid from this long before it is made: clocks of nodes differ.
pub const BACKDATE: Duration = Duration::from_mins(5);
/// How long an authority is published before it is needed, and after: a kubelet refreshes ConfigMap volumes within about
/// two minutes; an hour forgives a slow one and costs nothing.
pub const OVERLAP: Duration = Duration::from_hours(1);

/// A serving certificate, its key, and the root that signed it. Times are seconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// PEM of the serving certificate.
    pub certificate: String,
    /// PEM of its key.
    pub key: String,
    /// PEM of the authority.
    pub authority: String,
    /// Valid from.
    pub not_before: u64,
    /// Valid until.
    pub not_after: u64,
    /// DNS names and addresses it serves, sorted.
    pub names: Vec<String>,
}

impl std::fmt::Debug for Pair {
    /// The key is not shown.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Pair")
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// A pair whose authority is published and which is not served yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingPair {
    /// The pair.
    pub pair: Pair,
    /// When its authority was published.
    pub published_at: u64,
}

/// An authority whose pair is no longer served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    /// PEM.
    pub authority: String,
    /// When its pair was replaced.
    pub replaced_at: u64,
}

/// Everything that is kept, in the Secret's `state.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateState {
    /// The pair that serves.
    pub active: Option<Pair>,
    /// The pair that will.
    pub next: Option<PendingPair>,
    /// The authority that did.
    pub previous: Option<Previous>,
}

/// The one thing to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateStep {
    /// There is nothing that could serve: make a pair and serve it at once.
    Create,
    /// Make the next pair and publish its authority.
    Prepare,
    /// Let the next pair serve.
    Activate,
    /// Drop the previous authority.
    Retire,
    /// Nothing before this time.
    Nothing {
        /// Seconds since the Unix epoch.
        until: u64,
    },
}

/// Decides. `names` must be sorted; a certificate for other names is as good as none. `root` is the PEM of the authority that
/// signs now: what another one signed serves on until the next pair has been published for its hour.
pub fn due(now: u64, state: &CertificateState, names: &[String], root: &str) -> CertificateStep {
    let Some(active) = state.active.as_ref().filter(|pair| usable(pair, now, names)) else {
        return match &state.next {
            // Serves the prepared pair early: gateways trust it already, and would not trust a third authority.
            Some(next) if usable(&next.pair, now, names) => CertificateStep::Activate,
            _ => CertificateStep::Create,
        };
    };
    let renew_at = active.not_after.saturating_sub(VALIDITY.as_secs() / 3);
    let mut until = renew_at;
    match &state.next {
        Some(next) if !usable(&next.pair, now, names) => return CertificateStep::Prepare,
        Some(next) if next.published_at + OVERLAP.as_secs() <= now => return CertificateStep::Activate,
        Some(next) => until = next.published_at + OVERLAP.as_secs(),
        None if renew_at <= now || active.authority != root => return CertificateStep::Prepare,
        None => {}
    }
    match &state.previous {
        Some(previous) if previous.replaced_at + OVERLAP.as_secs() <= now => CertificateStep::Retire,
        Some(previous) => CertificateStep::Nothing {
            until: until.min(previous.replaced_at + OVERLAP.as_secs()),
        },
        None => CertificateStep::Nothing { until },
    }
}

/// The state after doing what is due; `pair` is the new one for [`CertificateStep::Create`] and [`CertificateStep::Prepare`].
pub fn advance(now: u64, due: CertificateStep, mut state: CertificateState, pair: Option<Pair>) -> CertificateState {
    match due {
        CertificateStep::Create => {
            // Gateways may still trust what served last; there is no overlap to be had, only to be offered.
            let previous = state.active.take();
            CertificateState {
                active: pair,
                next: None,
                previous: previous.map(|pair| Previous {
                    authority: pair.authority,
                    replaced_at: now,
                }),
            }
        }
        CertificateStep::Prepare => CertificateState {
            next: pair.map(|pair| PendingPair {
                pair,
                published_at: now,
            }),
            ..state
        },
        CertificateStep::Activate => match state.next.take() {
            Some(next) => CertificateState {
                previous: state.active.take().map(|pair| Previous {
                    authority: pair.authority,
                    replaced_at: now,
                }),
                active: Some(next.pair),
                next: None,
            },
            None => state,
        },
        CertificateStep::Retire => CertificateState {
            previous: None,
            ..state
        },
        CertificateStep::Nothing { .. } => state,
    }
}

/// The authorities that clients must trust now, each once: of the pair that serves, of the next one, of the previous one, and
/// the root of all that come.
pub fn bundle(state: &CertificateState, root: &str) -> String {
    let next = state.next.as_ref().map(|next| next.pair.authority.as_str());
    let active = state.active.as_ref().map(|pair| pair.authority.as_str());
    let previous = state.previous.as_ref().map(|previous| previous.authority.as_str());
    let all = [active, next, previous, Some(root)].into_iter().flatten();
    let mut known: Vec<&str> = Vec::new();
    for authority in all.map(str::trim_end) {
        if !known.contains(&authority) {
            known.push(authority);
        }
    }
    known.iter().flat_map(|authority| [authority, "\n"]).collect()
}

/// Authorities and more of them as one bundle, each certificate once.
pub fn joined(authorities: &str, more: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let mut known: Vec<&str> = Vec::new();
    for bundle in [authorities, more] {
        for certificate in bundle.split_inclusive(END).map(str::trim) {
            if !certificate.is_empty() && !known.contains(&certificate) {
                known.push(certificate);
            }
        }
    }
    known.iter().flat_map(|certificate| [certificate, "\n"]).collect()
}

/// The names of a hub behind the Service `service` of `namespace`, sorted. The wildcard is for one replica of it:
/// `10-0-0-7.<service>.<namespace>.svc`, which clients resolve by themselves.
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    let mut names = vec![
        service.to_owned(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("*.{service}.{namespace}.svc"),
    ];
    names.sort();
    names
}

fn usable(pair: &Pair, now: u64, names: &[String]) -> bool {
    pair.not_before <= now && now < pair.not_after && pair.names == names
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;
    const HOUR: u64 = 3600;

    fn names() -> Vec<String> {
        vec!["hub".to_owned()]
    }

    const ROOT: &str = "root 1\n";

    fn pair(mark: &str, from_day: u64, root: &str) -> Pair {
        Pair {
            certificate: format!("certificate {mark}"),
            key: format!("key {mark}"),
            authority: root.to_owned(),
            not_before: from_day * DAY,
            not_after: (from_day + 90) * DAY,
            names: names(),
        }
    }

    fn active(pair: Pair) -> CertificateState {
        CertificateState {
            active: Some(pair),
            ..CertificateState::default()
        }
    }

    #[test]
    fn a_renewed_certificate_changes_nothing_that_clients_trust() {
        let mut state = CertificateState::default();
        assert_eq!(due(DAY, &state, &names(), ROOT), CertificateStep::Create);
        state = advance(DAY, CertificateStep::Create, state, Some(pair("a", 1, ROOT)));
        assert_eq!(
            due(2 * DAY, &state, &names(), ROOT),
            CertificateStep::Nothing { until: 61 * DAY }
        );
        let now = 61 * DAY;
        for (now, step, made) in [
            (now, CertificateStep::Prepare, Some(pair("b", 61, ROOT))),
            (now + HOUR, CertificateStep::Activate, None),
            (now + 2 * HOUR, CertificateStep::Retire, None),
        ] {
            assert_eq!(due(now, &state, &names(), ROOT), step);
            state = advance(now, step, state, made);
            assert_eq!(bundle(&state, ROOT), ROOT, "{step:?}");
        }
        assert_eq!(state.active.as_ref().unwrap().key, "key b");
    }

    #[test]
    fn another_root_is_trusted_before_what_it_signs_serves_and_the_last_one_until_its_pair_has_gone() {
        let mut state = active(pair("a", 1, ROOT));
        let root = "root 2\n";
        let (both, both_later) = ("root 1\nroot 2\n", "root 2\nroot 1\n");
        assert_eq!(bundle(&state, root), both, "at once");
        let now = 2 * DAY;
        assert_eq!(due(now, &state, &names(), root), CertificateStep::Prepare);
        state = advance(now, CertificateStep::Prepare, state, Some(pair("b", 2, root)));
        assert_eq!(bundle(&state, root), both, "published before it serves");
        assert_eq!(state.active.as_ref().unwrap().key, "key a");
        let waits = |state: &CertificateState, now| {
            due(now + 1, state, &names(), root) == CertificateStep::Nothing { until: now + HOUR }
        };
        assert!(waits(&state, now));

        let now = now + HOUR;
        assert_eq!(due(now, &state, &names(), root), CertificateStep::Activate);
        state = advance(now, CertificateStep::Activate, state, None);
        assert_eq!(state.active.as_ref().unwrap().key, "key b");
        assert_eq!(bundle(&state, root), both_later, "trusted after it served");
        assert!(waits(&state, now));

        assert_eq!(due(now + HOUR, &state, &names(), root), CertificateStep::Retire);
        state = advance(now + HOUR, CertificateStep::Retire, state, None);
        assert_eq!(bundle(&state, root), root);
        assert_eq!(
            due(now + HOUR, &state, &names(), root),
            CertificateStep::Nothing { until: 62 * DAY }
        );
    }

    #[test]
    fn what_cannot_serve_is_replaced_at_once() {
        for (state, now) in [
            (CertificateState::default(), 0),
            (active(pair("a", 1, ROOT)), 91 * DAY),
            (active(pair("a", 5, ROOT)), DAY),
        ] {
            assert_eq!(due(now, &state, &names(), ROOT), CertificateStep::Create, "{state:?}");
        }
        let other = ["other".to_owned()];
        assert_eq!(
            due(2 * DAY, &active(pair("a", 1, ROOT)), &other, ROOT),
            CertificateStep::Create
        );
    }

    #[test]
    fn after_a_long_sleep_the_published_one_serves_before_a_third_is_made() {
        let state = CertificateState {
            next: Some(PendingPair {
                pair: pair("b", 61, ROOT),
                published_at: 61 * DAY,
            }),
            ..active(pair("a", 1, ROOT))
        };
        assert_eq!(due(100 * DAY, &state, &names(), ROOT), CertificateStep::Activate);
        assert_eq!(due(200 * DAY, &state, &names(), ROOT), CertificateStep::Create);
    }

    #[test]
    fn keys_are_never_shown() {
        assert!(!format!("{:?}", pair("a", 1, ROOT)).contains("key a"));
    }
}
