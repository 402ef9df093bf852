//! Kubernetes quantities, as far as a sandbox's resources need them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The pattern that the CRD accepts: no sign, so that a negative limit is refused at admission. Of numbers the minimum is.
pub const QUANTITY_PATTERN: &str = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]{1,2}))?$";

/// A non-negative Kubernetes quantity, kept as it was written: `500m`, `256Mi`, `1.5`, `1e3`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Quantity(String);

impl Quantity {
    /// Reads a quantity. The error says what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        thousandths(text).map(|_| Self(text.to_owned())).ok_or_else(|| {
            format!("{text:?} is not a Kubernetes quantity that can be a limit; write for example 500m, 2 or 256Mi")
        })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// In thousandths of the unit, rounded up: millicores for CPU. Saturates.
    pub fn milli(&self) -> u128 {
        thousandths(&self.0).unwrap_or_default()
    }

    /// In whole units, rounded up: bytes for memory. Saturates.
    pub fn units(&self) -> u64 {
        u64::try_from(self.milli().div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

/// The value in thousandths, rounded up, saturating; `None` if the text is no such quantity.
fn thousandths(text: &str) -> Option<u128> {
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (base, power) = scale(suffix)?;
    // Beyond these digits nothing fits in a limit that means anything; they would only overflow.
    let mantissa: u128 = format!("{whole}{}", fraction.get(..9.min(fraction.len()))?)
        .parse()
        .unwrap_or(u128::MAX);
    let places = i32::try_from(fraction.len().min(9)).unwrap_or(9);
    if base == 2 {
        let scaled = mantissa
            .saturating_mul(1_000)
            .saturating_mul(1_u128.checked_shl(power.unsigned_abs())?);
        return Some(scaled.div_ceil(10_u128.pow(places.unsigned_abs())));
    }
    let exponent = power + 3 - places;
    let ten = 10_u128.checked_pow(exponent.unsigned_abs()).unwrap_or(u128::MAX);
    Some(if exponent >= 0 {
        mantissa.saturating_mul(ten)
    } else {
        mantissa.div_ceil(ten)
    })
}

/// Base and exponent of a suffix.
fn scale(suffix: &str) -> Option<(u8, i32)> {
    Some(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.trim_start_matches(['+', '-']);
            if digits.is_empty() || digits.len() > 2 || exponent.len() > digits.len() + 1 {
                return None;
            }
            (10, exponent.parse().ok()?)
        }
    })
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// YAML writes `cpu: 2` as a number.
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a Kubernetes quantity such as 500m, 2 or 256Mi")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "maxLength": 32,
            "minimum": 0,
            "x-kubernetes-int-or-string": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubernetes_reads() {
        for (text, milli) in [
            ("256Mi", 268_435_456_000_u128),
            ("1G", 1_000_000_000_000),
            ("12", 12_000),
            ("500m", 500),
            ("1.5", 1_500),
            ("1.5Gi", 1_610_612_736_000),
            (".5", 500),
            ("1e3", 1_000_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("1n", 1),
            ("0", 0),
        ] {
            assert_eq!(Quantity::parse(text).map(|q| q.milli()), Ok(milli), "{text}");
        }
        for text in ["", "x", "-1", "1.5.5", "1Zi", "Mi", "1e", "1e999", "1 Gi", "+1"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn absurd_values_saturate_and_never_wrap() {
        let absurd = Quantity::parse("99999999999999999999999999999999999999999999Ei").unwrap();
        assert_eq!(absurd.units(), u64::MAX);
        assert_eq!(Quantity::parse("9e99").unwrap().units(), u64::MAX);
    }

    #[test]
    fn numbers_are_read_as_their_text() {
        assert_eq!(serde_json::from_str::<Quantity>("2").unwrap().milli(), 2_000);
        assert_eq!(serde_json::from_str::<Quantity>("0.5").unwrap().milli(), 500);
        assert!(serde_json::from_str::<Quantity>("-1").is_err());
    }
}
