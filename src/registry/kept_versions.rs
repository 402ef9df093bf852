//! The versions that an uploaded skill has, as the controller builds them. Pure.

use knack_api::Skill;
use knack_api::skill::UploadSource;
use knack_skill::model::ActivationMode;

use super::objects::UploadedSkill;

/// One version of an uploaded skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVersion {
    /// Counted from 1; never used twice.
    pub number: u32,
    /// The version that its SKILL.md says, if any.
    pub version: Option<String>,
    /// The version's files.
    pub source: UploadSource,
    /// The activation that it would have as the default version; `None`: that of its SKILL.md.
    pub activation: Option<ActivationMode>,
    /// Whether it is the default version.
    pub is_default: bool,
}

/// The versions of an uploaded skill, the one created first at the front. None of a skill that was not uploaded, or whose source
/// somebody else changed since.
pub fn kept_versions(skill: &Skill) -> Vec<KeptVersion> {
    let Some(source) = &skill.spec.source.upload else {
        return Vec::new();
    };
    let Some(uploaded) = UploadedSkill::of(skill) else {
        return Vec::new();
    };
    let entry = &uploaded.entry;
    if entry.served().is_none_or(|served| served.digest != source.digest) {
        return Vec::new();
    }
    let kept = entry.versions.iter().map(|version| KeptVersion {
        number: version.number,
        version: version.version.clone(),
        source: UploadSource {
            digest: version.digest.clone(),
            config_maps: uploaded.config_maps(version),
        },
        activation: entry.mode_of(version).map(knack_registry::Mode::activation),
        is_default: entry.default == Some(version.number),
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use knack_registry::Mode;

    use super::*;
    use crate::registry::objects::tests::{object, uploaded};

    #[test]
    fn an_uploaded_skill_has_its_versions_and_no_other_skill_has_any() {
        let mut draw = uploaded("draw", &[1, 2, 3], Some(2));
        draw.entry.versions[2].version = Some("1.3.0".to_owned());
        draw.entry.versions[2].mode = Some(Mode::Auto);
        let skill = object(&draw);
        let kept = kept_versions(&skill);
        let numbers: Vec<(u32, bool)> = kept.iter().map(|kept| (kept.number, kept.is_default)).collect();
        assert_eq!(numbers, [(1, false), (2, true), (3, false)]);
        assert_eq!((&kept[0].version, kept[0].activation), (&None, None));
        let last = KeptVersion {
            number: 3,
            version: Some("1.3.0".to_owned()),
            source: UploadSource {
                digest: "digest3".to_owned(),
                config_maps: draw.config_maps(&draw.entry.versions[2]),
            },
            activation: Some(ActivationMode::Auto),
            is_default: false,
        };
        assert_eq!(kept[2], last);
        assert_eq!(Some(&kept[1].source), skill.spec.source.upload.as_ref());

        let mut edited = skill.clone();
        edited.spec.source.upload.as_mut().unwrap().digest = "another".to_owned();
        let mut inline = skill.clone();
        inline.spec.source.upload = None;
        let mut bare = skill;
        bare.metadata.annotations = None;
        for (what, skill) in [
            ("edited by another client", edited),
            ("another source", inline),
            ("no record", bare),
            ("without versions", object(&uploaded("draw", &[], None))),
        ] {
            assert_eq!(kept_versions(&skill), [], "{what}");
        }
    }
}
