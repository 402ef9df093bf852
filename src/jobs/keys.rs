//! Keys of a pod's journal and the sealed context that names the execution's owner.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::Aead as _;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _, Nonce};
use hmac::{Hmac, Mac as _};
use knack_runner::protocol::Key;
use knack_skill::model::SkillRef;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::request::RunSkill;

/// Makes keys from the hub's secret and a pod's uid: every pod has its own, and every replica can make it again.
#[derive(Clone)]
pub(super) struct Keys {
    secret: [u8; 32],
}

impl std::fmt::Debug for Keys {
    /// Without the secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Keys").finish_non_exhaustive()
    }
}

/// The owner of the run; sealed, since viewers can read logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SealedContext", into = "SealedContext")]
pub(super) struct Context {
    /// The caller's key.
    pub(super) caller: String,
    /// The skill that it belongs to.
    pub(super) skill: Option<RunSkill>,
    /// Whether the program is a command.
    pub(super) is_command: bool,
    /// Whether the pod was warm.
    pub(super) is_warm: bool,
    /// The time limit of the run, milliseconds.
    pub(super) timeout_ms: u64,
}

/// A [`Context`] as it is sealed: the parts of the skill are members of their own.
#[derive(Serialize, Deserialize)]
struct SealedContext {
    caller: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skill_namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skill: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    is_command: bool,
    is_warm: bool,
    timeout_ms: u64,
}

impl From<Context> for SealedContext {
    fn from(context: Context) -> Self {
        let (id, revision) = context.skill.map(|skill| (skill.id, skill.revision)).unzip();
        let (skill_namespace, skill) = id.map(|id| (id.namespace, id.name)).unzip();
        Self {
            caller: context.caller,
            skill_namespace,
            skill,
            revision: revision.flatten(),
            is_command: context.is_command,
            is_warm: context.is_warm,
            timeout_ms: context.timeout_ms,
        }
    }
}

impl From<SealedContext> for Context {
    fn from(sealed: SealedContext) -> Self {
        let id = sealed.skill_namespace.zip(sealed.skill);
        Self {
            caller: sealed.caller,
            skill: id.map(|(namespace, name)| RunSkill {
                id: SkillRef { namespace, name },
                revision: sealed.revision,
            }),
            is_command: sealed.is_command,
            is_warm: sealed.is_warm,
            timeout_ms: sealed.timeout_ms,
        }
    }
}

impl Keys {
    /// Keys of a secret.
    pub(super) const fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// The key of the conversation with a pod's runner, and of its journal.
    pub(super) fn runner(&self, pod_uid: &str) -> Key {
        Key::new(self.derive("knack runner 3", pod_uid))
    }

    /// Seals a context for a pod.
    pub(super) fn seal(&self, pod_uid: &str, context: &Context) -> String {
        let text = serde_json::to_vec(context).unwrap_or_default();
        // One message per key: a pod runs once.
        let sealed = self.cipher(pod_uid).encrypt(&Nonce::default(), text.as_slice());
        // Encryption fails only beyond 256 GiB; an empty context decrypts to none, which is reported as lost.
        STANDARD.encode(sealed.unwrap_or_default())
    }

    /// Opens a context; `None`: of another secret, or changed.
    pub(super) fn open(&self, pod_uid: &str, sealed: &str) -> Option<Context> {
        let sealed = STANDARD.decode(sealed).ok()?;
        let text = self
            .cipher(pod_uid)
            .decrypt(&Nonce::default(), sealed.as_slice())
            .ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn cipher(&self, pod_uid: &str) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new(&self.derive("knack context 1", pod_uid).into())
    }

    fn derive(&self, purpose: &str, pod_uid: &str) -> [u8; 32] {
        let mut mac =
            <Hmac<Sha256> as hmac::Mac>::new_from_slice(&self.secret).expect("HMAC takes a key of any length");
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        mac.update(pod_uid.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_opens_for_its_pod_and_secret_only() {
        let keys = Keys::new([1; 32]);
        let context = Context {
            caller: "team/app/uid".to_owned(),
            skill: Some(RunSkill {
                id: "team/pdf".parse().unwrap(),
                revision: None,
            }),
            is_command: false,
            is_warm: true,
            timeout_ms: 10_000,
        };
        let sealed = keys.seal("pod-1", &context);
        assert!(!sealed.contains("team"));
        assert_eq!(keys.open("pod-1", &sealed), Some(context));
        assert_eq!(keys.open("pod-2", &sealed), None);
        assert_eq!(Keys::new([2; 32]).open("pod-1", &sealed), None);
        assert_ne!(keys.runner("pod-1"), keys.runner("pod-2"));
    }
    /// A hub reads what another version has sealed, so members stay as they are.
    #[test]
    fn a_context_is_sealed_as_it_was_before_its_skill_was_one_value() {
        let of_skill = |skill: Option<RunSkill>| Context {
            caller: "team/app/uid".to_owned(),
            skill,
            is_command: false,
            is_warm: true,
            timeout_ms: 10_000,
        };
        let skill = |revision: Option<&str>| RunSkill {
            id: "team/pdf".parse().unwrap(),
            revision: revision.map(str::to_owned),
        };
        for (context, members) in [
            (of_skill(None), ""),
            (
                of_skill(Some(skill(None))),
                r#""skill_namespace":"team","skill":"pdf","#,
            ),
            (
                of_skill(Some(skill(Some("1f2e")))),
                r#""skill_namespace":"team","skill":"pdf","revision":"1f2e","#,
            ),
        ] {
            let text =
                format!(r#"{{"caller":"team/app/uid",{members}"is_command":false,"is_warm":true,"timeout_ms":10000}}"#);
            assert_eq!(serde_json::to_string(&context).unwrap(), text);
            assert_eq!(serde_json::from_str::<Context>(&text).unwrap(), context);
        }
    }
}
