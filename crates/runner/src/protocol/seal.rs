//! Sealing the frames of a run, so that whoever reads the log of its container learns nothing but ids and times.
//!
//! ChaCha20-Poly1305. The key belongs to one container, which runs once, so the frame's number is nonce enough. The
//! sealed text is the frame as JSON without its bytes, a newline, and the bytes raw: base64 is paid once.

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _};

use super::{Data, FromRunner, Sealed};

/// Length of a journal key.
pub const KEY_BYTES: usize = 32;

/// Seals the frames of one run, in order.
pub struct Sealer {
    cipher: ChaCha20Poly1305,
    next: u64,
}

impl std::fmt::Debug for Sealer {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Sealer")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Sealer {
    /// Takes a key of [`KEY_BYTES`]; `None` for any other length.
    pub fn new(key: &[u8]) -> Option<Self> {
        let cipher = ChaCha20Poly1305::new_from_slice(key).ok()?;
        Some(Self { cipher, next: 0 })
    }

    /// Seals a frame. Frames that are no secret, and those that could not be sealed, come back as `None`.
    pub fn seal(&mut self, frame: &FromRunner, nonce: &str) -> Option<FromRunner> {
        let text = plain(frame)?;
        let sealed = self.cipher.encrypt(&number(self.next), bound(&text, nonce)).ok()?;
        let sequence = self.next;
        self.next += 1;
        Some(FromRunner::Sealed(Sealed {
            nonce: nonce.to_owned(),
            sequence,
            data: Data(sealed),
        }))
    }
}

/// Whether a frame tells anything of the run itself.
pub(crate) const fn is_secret(frame: &FromRunner) -> bool {
    matches!(
        frame,
        FromRunner::Output(_) | FromRunner::File(_) | FromRunner::FileError(_) | FromRunner::Result(_)
    )
}

/// Opens a sealed frame.
///
/// `None`: another key, or somebody changed it.
pub fn open(key: &[u8], sealed: &Sealed) -> Option<FromRunner> {
    let cipher = ChaCha20Poly1305::new_from_slice(key).ok()?;
    let payload = bound(&sealed.data.0, &sealed.nonce);
    let text = cipher.decrypt(&number(sealed.sequence), payload).ok()?;
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let (head, bytes) = (text.get(..end)?, text.get(end + 1..)?);
    let mut frame: FromRunner = serde_json::from_slice(head).ok()?;
    match &mut frame {
        FromRunner::Output(output) => output.data = Data(bytes.to_vec()),
        FromRunner::File(piece) => piece.data = Data(bytes.to_vec()),
        FromRunner::FileError(_) | FromRunner::Result(_) => {}
        _ => return None,
    }
    Some(frame)
}

/// The frame's JSON without its bytes, and the bytes.
fn plain(frame: &FromRunner) -> Option<Vec<u8>> {
    let (head, bytes): (FromRunner, &[u8]) = match frame {
        FromRunner::Output(output) => {
            let mut head = output.clone();
            head.data = Data::default();
            (FromRunner::Output(head), &output.data.0)
        }
        FromRunner::File(piece) => {
            let mut head = piece.clone();
            head.data = Data::default();
            (FromRunner::File(head), &piece.data.0)
        }
        FromRunner::FileError(_) | FromRunner::Result(_) => (frame.clone(), &[]),
        _ => return None,
    };
    let mut text = serde_json::to_vec(&head).ok()?;
    text.push(b'\n');
    text.extend_from_slice(bytes);
    Some(text)
}

/// The runner's nonce is part of what is authenticated: a frame of another conversation does not open.
fn bound<'a>(text: &'a [u8], nonce: &'a str) -> Payload<'a, 'a> {
    Payload {
        msg: text,
        aad: nonce.as_bytes(),
    }
}

fn number(sequence: u64) -> chacha20poly1305::Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::super::{FileError, FileErrorKind, FilePiece, Output, OutputStream, Rejected};
    use super::*;

    const KEY: [u8; KEY_BYTES] = [7; KEY_BYTES];

    fn frames() -> Vec<FromRunner> {
        let nonce = "n".to_owned();
        vec![
            FromRunner::Output(Output {
                nonce: nonce.clone(),
                stream: OutputStream::Stderr,
                data: Data(vec![0, 10, 255, b'{', b'\n']),
            }),
            FromRunner::File(FilePiece {
                nonce: nonce.clone(),
                path: "a\nb".to_owned(),
                mode: 0o644,
                size: 3,
                sha256: "00".to_owned(),
                offset: 0,
                data: Data(Vec::new()),
                last: true,
            }),
            FromRunner::FileError(FileError {
                nonce,
                path: "x".to_owned(),
                kind: FileErrorKind::Symlink,
                message: "no".to_owned(),
            }),
        ]
    }

    #[test]
    fn only_the_key_and_the_conversation_open_a_frame() {
        let mut sealer = Sealer::new(&KEY).unwrap();
        for (index, frame) in frames().into_iter().enumerate() {
            let Some(FromRunner::Sealed(framed)) = sealer.seal(&frame, "n") else {
                panic!("{frame:?} is not sealed");
            };
            assert_eq!(framed.sequence, index as u64);
            assert_eq!(open(&KEY, &framed), Some(frame));
            assert_eq!(open(&[8; KEY_BYTES], &framed), None);
            let foreign = Sealed {
                nonce: "other".to_owned(),
                ..framed.clone()
            };
            assert_eq!(open(&KEY, &foreign), None);
            let moved = Sealed {
                sequence: framed.sequence + 1,
                ..framed.clone()
            };
            assert_eq!(open(&KEY, &moved), None);
            let mut changed = framed;
            changed.data.0[0] ^= 1;
            assert_eq!(open(&KEY, &changed), None);
        }
    }

    #[test]
    fn what_a_journal_reader_may_see_stays_plain() {
        let mut sealer = Sealer::new(&KEY).unwrap();
        let rejected = FromRunner::Rejected(Rejected {
            nonce: String::new(),
            message: "no".to_owned(),
        });
        assert_eq!(sealer.seal(&rejected, "n"), None);
        assert!(Sealer::new(b"short").is_none());
    }
}
