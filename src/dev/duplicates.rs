//! Skills that have one name: one of them would replace the other.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use knack_gateway::catalog::SkillSource;
use knack_skill::model::SkillRef;

/// The indices of skills whose key an earlier skill has, each with the index of the first one.
pub(crate) fn repeated<'s, K: Eq + Hash>(
    skills: impl IntoIterator<Item = &'s SkillSource>,
    key: impl Fn(&'s SkillSource) -> K,
) -> BTreeMap<usize, &'s SkillSource> {
    let mut first: HashMap<K, &SkillSource> = HashMap::new();
    let mut again = BTreeMap::new();
    for (index, skill) in skills.into_iter().enumerate() {
        let known = first.entry(key(skill)).or_insert(skill);
        if !std::ptr::eq(*known, skill) {
            again.insert(index, *known);
        }
    }
    again
}

/// The errors of sources that are not served whatever they hold, by their place: the name is that of an earlier one, or a flag may mean
/// several.
pub(super) fn left_out(skills: &[SkillSource], contested: &BTreeMap<&SkillRef, String>) -> BTreeMap<usize, String> {
    let again = repeated(skills, |source| &source.id);
    let places = skills.iter().enumerate();
    let texts = places.filter_map(|(place, source)| {
        if let Some(why) = contested.get(&source.id) {
            return Some((place, format!("skill {} is not served: {why}", source.id.name)));
        }
        let first = place_of_first(again.get(&place)?, source);
        let text = format!(
            "skill {} is already defined in {first}; this one is left out; rename one",
            source.id
        );
        Some((place, text))
    });
    texts.collect()
}

/// Where the first of two skills of one name is, for a report of the second.
pub(crate) fn place_of_first<'s>(first: &'s SkillSource, again: &SkillSource) -> &'s str {
    if first.origin == again.origin {
        "the same file"
    } else {
        &first.origin
    }
}

/// What is wrong with the first skill whose name an earlier one has, where only names count.
pub(crate) fn repeated_name<'s>(skills: impl IntoIterator<Item = &'s SkillSource> + Clone) -> Option<String> {
    let again = repeated(skills.clone(), |skill| &skill.id.name);
    let (index, first) = again.into_iter().next()?;
    let skill = skills.into_iter().nth(index)?;
    let name = &skill.id.name;
    Some(format!(
        "{}: {} has a skill {name}, too; rename one, or name one of them on the command line",
        skill.origin, first.origin
    ))
}
