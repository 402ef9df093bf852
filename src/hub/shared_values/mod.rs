//! Values that the replicas of a gateway share: hidden turns and generated files, in the memory of the replica that
//! owns the runtime.
//!
//! A gateway writes after its answers and reads what the stream has announced, so a lost value (a replica of the hub
//! that ends, another owner, no room) costs what it costs a single gateway: the turn is sent as the client sent it, a
//! link answers 404. Values are sealed by the gateway with keys that contain its client's credential.

mod store;

pub use store::{KeptStore, NoRoom, ValueOwner};

use hmac::{Hmac, Mac};
use sha2::Sha256;

use knack_hub_api::KeptKey;

/// Makes the secrets of gateways: each account has one at each runtime, the same at every replica and over restarts.
#[derive(Clone)]
pub struct KeptSecrets([u8; 32]);

impl std::fmt::Debug for KeptSecrets {
    /// Without the secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KeptSecrets").finish_non_exhaustive()
    }
}

impl KeptSecrets {
    /// Secrets made from that of the hub.
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// The secret of one account at one runtime.
    pub fn of(&self, owner: &ValueOwner) -> KeptKey {
        // HMAC pads a short key with zeros; doing so here leaves no length to get wrong.
        let mut key = [0; 64];
        key[..self.0.len()].copy_from_slice(&self.0);
        let mut mac = <Hmac<Sha256> as Mac>::new(&key.into());
        for part in ["knack gateway 1", &owner.account, &owner.runtime.to_string()] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        KeptKey(mac.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use knack_hub_api::RuntimeName;

    #[test]
    fn each_account_has_a_secret_of_its_own_at_each_runtime() {
        let owner = |account: &str, runtime: &str| ValueOwner {
            account: account.to_owned(),
            runtime: runtime.parse::<RuntimeName>().unwrap(),
        };
        let (one, other) = (KeptSecrets::new([1; 32]), KeptSecrets::new([2; 32]));
        let of = |owner| one.of(&owner);
        let mine = of(owner("team/app/u", "run/default"));
        assert_eq!(mine, of(owner("team/app/u", "run/default")));
        for strange in [
            of(owner("team/app/v", "run/default")),
            of(owner("team/app/u", "run/other")),
            other.of(&owner("team/app/u", "run/default")),
        ] {
            assert_ne!(mine, strange);
        }
        assert!(!format!("{one:?}").contains('1'));
    }
}
