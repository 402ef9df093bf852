//! Resolves names to addresses without the denied ones: the check is where the connection takes its address from.

use std::net::SocketAddr;

use knack_egress::Guard;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// A name has addresses, and none may be reached.
#[derive(Debug, thiserror::Error)]
#[error("no public address")]
pub(crate) struct NoPublicAddress;

/// The system's resolver behind the address rule.
#[derive(Debug, Clone)]
pub(crate) struct GuardedResolver {
    guard: Guard,
}

impl GuardedResolver {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.guard.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(admitted(&guard, name.as_str(), found)?.into_iter()) as Addrs)
        })
    }
}

/// The addresses that a connection may take: those of this answer, which is the one that was judged. One denied address
/// denies the name: a name that mixes them is made to be tried until it works.
fn admitted(guard: &Guard, name: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, NoPublicAddress> {
    if found.iter().all(|address| guard.admits(name, address.ip())) {
        Ok(found)
    } else {
        Err(NoPublicAddress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_reached_only_if_every_address_of_the_answer_is_public() {
        let public = Guard::new(Vec::new());
        let mirrors = Guard::new(vec!["10.9.0.0/16".parse().unwrap()]);
        for (guard, answer, reached) in [
            (public.clone(), &["93.184.215.14", "2606:2800:21f:cb07::1"][..], true),
            // The answers of one name that is made to change: each is judged.
            (public.clone(), &["127.0.0.1"], false),
            (public.clone(), &["93.184.215.14", "10.9.0.1"], false),
            (public.clone(), &["10.9.0.1", "93.184.215.14"], false),
            (public.clone(), &["93.184.215.14", "169.254.169.254"], false),
            (public.clone(), &["2606:2800:21f:cb07::1", "::ffff:127.0.0.1"], false),
            (public.clone(), &["2606:2800:21f:cb07::1", "fd00::1"], false),
            (mirrors.clone(), &["10.9.0.1"], true),
            (mirrors.clone(), &["10.9.0.1", "10.8.0.1"], false),
            (mirrors, &["10.9.0.1", "169.254.169.254"], false),
        ] {
            let found: Vec<SocketAddr> = answer
                .iter()
                .map(|address| SocketAddr::new(address.parse().unwrap(), 443))
                .collect();
            let admitted = admitted(&guard, "mirror.example.com", found.clone());
            assert_eq!(admitted.ok(), reached.then_some(found), "{answer:?}");
        }
    }
}
