//! An image that the hub may run, as the ConfigMap and the Role name it. Pure.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use knack_hub_api::RuntimeName;

/// Parts the words of an image's name: neither a name nor a namespace contains it, nor does the key of a status.
const SEPARATOR: char = '_';

/// The images that the hub may run.
pub(super) type AdmittedImages = BTreeMap<AdmittedImage, ImageAdmission>;

/// An image that the hub may run for a runtime. As text it is the name of a resource in the Role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AdmittedImage {
    /// The runtime.
    pub(super) runtime: RuntimeName,
    /// The hex digits of the image's digest.
    pub(super) digest: String,
}

impl AdmittedImage {
    /// The length of its text.
    pub(super) const fn bytes(&self) -> usize {
        let RuntimeName { namespace, name } = &self.runtime;
        namespace.len() + name.len() + self.digest.len() + 2 * SEPARATOR.len_utf8()
    }
}

impl fmt::Display for AdmittedImage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RuntimeName { namespace, name } = &self.runtime;
        write!(formatter, "{namespace}{SEPARATOR}{name}{SEPARATOR}{}", self.digest)
    }
}

impl FromStr for AdmittedImage {
    /// What the text is not.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split_once(SEPARATOR);
        let words = words.and_then(|(namespace, rest)| Some((namespace, rest.split_once(SEPARATOR)?)));
        let (namespace, (name, digest)) = words.ok_or("not the name of an image")?;
        Ok(Self {
            runtime: RuntimeName::new(namespace, name),
            digest: digest.to_owned(),
        })
    }
}

/// What is known of an image that the hub may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageAdmission {
    /// The mark of the repository of its base ([`repository_mark`](super::image::repository_mark)).
    pub(super) mark: String,
    /// Since when it is not needed any more, in seconds since the Unix epoch.
    pub(super) unused_since: Option<i64>,
}

impl fmt::Display for ImageAdmission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.mark)?;
        self.unused_since.map_or(Ok(()), |since| write!(formatter, " {since}"))
    }
}

impl FromStr for ImageAdmission {
    type Err = Infallible;

    /// A time that cannot be read is none: the image counts as needed until now.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mark, since) = text.split_once(' ').unwrap_or((text, ""));
        Ok(Self {
            mark: mark.to_owned(),
            unused_since: since.parse().ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_what_is_known_of_them_are_read_as_they_are_written() {
        let image = AdmittedImage {
            runtime: RuntimeName::new("team-a", "main"),
            digest: "0123".to_owned(),
        };
        assert_eq!(image.to_string(), "team-a_main_0123");
        assert_eq!(image.bytes(), image.to_string().len());
        assert_eq!(image.to_string().parse(), Ok(image));
        for other in ["", "0123456789abcdef", "a_b"] {
            assert!(other.parse::<AdmittedImage>().is_err(), "{other}");
        }
        for (text, mark, unused_since) in [("m", "m", None), ("m 17", "m", Some(17)), ("", "", None)] {
            let read: ImageAdmission = text.parse().unwrap();
            assert_eq!((read.mark.as_str(), read.unused_since), (mark, unused_since));
            assert_eq!(read.to_string(), text);
        }
        assert_eq!("m x".parse::<ImageAdmission>().unwrap().unused_since, None);
    }
}
