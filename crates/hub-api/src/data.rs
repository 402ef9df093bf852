//! Bytes in JSON: text where they are UTF-8, base64 elsewhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

/// Bytes of a stream or file. Most are text, which stays readable and a quarter smaller than base64.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Data(pub Bytes);

#[derive(Serialize)]
struct Wire<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl Serialize for Data {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = match std::str::from_utf8(&self.0) {
            Ok(text) => Wire {
                text: Some(text),
                base64: None,
            },
            Err(_) => Wire {
                text: None,
                base64: Some(STANDARD.encode(&self.0)),
            },
        };
        wire.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Owned {
            #[serde(default)]
            text: Option<String>,
            #[serde(default)]
            base64: Option<String>,
        }
        let Owned { text, base64 } = Owned::deserialize(deserializer)?;
        match (text, base64) {
            (Some(text), None) => Ok(Self(text.into_bytes().into())),
            (None, Some(encoded)) => STANDARD
                .decode(encoded)
                .map(|bytes| Self(bytes.into()))
                .map_err(|error| D::Error::custom(format!("not base64: {error}"))),
            _ => Err(D::Error::custom("exactly one of text and base64")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_and_other_bytes_come_back_as_they_were() {
        for bytes in [&b"caf\xc3\xa9"[..], b"\xff\x00\x01", b""] {
            let data = Data(Bytes::copy_from_slice(bytes));
            let json = serde_json::to_string(&data).unwrap();
            assert_eq!(json.contains("text"), std::str::from_utf8(bytes).is_ok());
            assert_eq!(serde_json::from_str::<Data>(&json).unwrap(), data);
        }
        for bad in ["{}", r#"{"text":"a","base64":"YQ=="}"#, r#"{"base64":"%"}"#] {
            assert!(serde_json::from_str::<Data>(bad).is_err(), "{bad}");
        }
    }
}
