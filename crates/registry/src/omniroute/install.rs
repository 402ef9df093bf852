//! The body of an install as a valid upload.
//!
//! OmniRoute's `handlerCode` names a function of its process, or holds the text of a SKILL.md; neither is run there. Here it
//! is the text of a SKILL.md, or a Python program that is run in the sandbox. A name of a handler is refused: no handler is
//! here, and the skill could not act.

use std::collections::BTreeMap;

use knack_skill::functions::{Function, FunctionLock, LOCK_FILE};
use knack_skill::model::SkillFile;
use knack_skill::names;
use knack_skill::problem::Profile;
use knack_skill::registration::{self, Registration};
use knack_skill::risk::Risk;
use knack_skill::schema;
use knack_skill::tree::DOCUMENT_NAMES;
use serde_json::{Map, Value, json};

use crate::Files;
use crate::answer::Refusal;
use crate::catalogs::Catalog;
use crate::check::check;
use crate::draft::Draft;
use crate::mode::Mode;
use crate::owner::Owner;

/// The file of a Python program.
pub(super) const HANDLER: &str = "handler.py";
/// The function in it that is called.
const FUNCTION: &str = "handler";
/// The member of the body with the code.
const CODE: &str = "handlerCode";
/// The member of it with the schema, and that of a SKILL.md's `metadata`.
pub(super) const SCHEMA: &str = "schema";
/// The members of a body.
const MEMBERS: [&str; 6] = ["name", "version", "description", SCHEMA, CODE, "apiKeyId"];

/// A skill that is installed from a catalog.
#[derive(Debug)]
pub(super) struct CatalogSkill {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) version: Option<String>,
    /// The text of its SKILL.md.
    pub(super) document: String,
    pub(super) catalog: Catalog,
}

/// Characters of a name in an install from a catalog, as OmniRoute has it.
const CATALOG_NAME_MAX: usize = 64;
/// Characters of a description in an install from a catalog.
const CATALOG_DESCRIPTION_MAX: usize = 1024;

/// A valid install.
#[derive(Debug)]
pub(super) struct Installation {
    /// The name as written, where it is no legal one.
    pub(super) title: Option<String>,
    /// The entry that is stored.
    pub(super) draft: Draft,
}

impl Installation {
    /// Reads the members of a body. Errors name the one that is wrong.
    pub(super) fn read(mut members: Map<String, Value>, owner: &Owner) -> Result<Self, Refusal> {
        demand_known(&members, &MEMBERS)?;
        of_caller(&members, owner)?;
        // An install describes what it installs; only a registration may leave it out.
        if !members.contains_key("description") {
            return Err(Refusal::invalid("description", "must be text"));
        }
        let version_given = members.contains_key("version");
        if let Some(code) = members.remove(CODE) {
            members.insert("handler".to_owned(), code);
        }
        if let Some(Value::Object(schema)) = members.get_mut(SCHEMA) {
            for part in ["input", "output"] {
                schema.entry(part).or_insert_with(|| Value::Object(Map::new()));
            }
        }
        let schema = members.get(SCHEMA).cloned().unwrap_or_default();
        let entry = registration::check(&Value::Object(members)).map_err(|invalid| {
            let field = if invalid.field == "handler" {
                CODE
            } else {
                &invalid.field
            };
            Refusal::invalid(field, invalid.message)
        })?;
        let files = |name: &str| files(name, &entry, &schema);
        let mut new = Self::of(&entry, CODE, files)?;
        new.draft.version = Some(chosen(new.draft.version, entry.version.clone(), version_given)?);
        new.draft.mode = Some(Mode::On);
        Ok(new)
    }

    /// A SKILL.md of a catalog.
    pub(super) fn of_document(installed: CatalogSkill) -> Result<Self, Refusal> {
        let CatalogSkill {
            name,
            description,
            version,
            document,
            catalog,
        } = installed;
        for (field, text, most) in [
            ("name", &name, CATALOG_NAME_MAX),
            ("description", &description, CATALOG_DESCRIPTION_MAX),
        ] {
            let count = text.chars().count();
            if !(1..=most).contains(&count) {
                let text = format!("must have 1 to {most} characters, has {count}");
                return Err(Refusal::invalid(field, text));
            }
        }
        demand_document(document.as_bytes())?;
        let version_given = version.is_some();
        let version = version_of(version.as_deref())?;
        let entry = Registration {
            name,
            version,
            description,
            handler: document,
            enabled: true,
        };
        let files = |_: &str| Ok(Files::from([file(DOCUMENT_NAMES[0], entry.handler.clone())]));
        let mut new = Self::of(&entry, DOCUMENT_NAMES[0], files)?;
        new.draft.is_release = new.draft.version.is_none();
        new.draft.version = Some(chosen(new.draft.version, entry.version.clone(), version_given)?);
        new.draft.mode = Some(Mode::Auto);
        new.draft.catalog = Some(catalog);
        Ok(new)
    }

    /// A folder of a catalog, which was checked.
    pub(super) fn of_folder(mut draft: Draft, version: Option<&str>, catalog: Catalog) -> Result<Self, Refusal> {
        // A version that its author states is the author's: whoever installs it can give no other one to files that changed under it.
        draft.is_release = draft.version.is_none();
        draft.version = Some(chosen(draft.version, version_of(version)?, version.is_some())?);
        draft.mode = Some(Mode::Auto);
        draft.catalog = Some(catalog);
        Ok(Self { title: None, draft })
    }

    fn of(
        entry: &Registration,
        field: &str,
        files: impl FnOnce(&str) -> Result<Files, Refusal>,
    ) -> Result<Self, Refusal> {
        let name = names::normalize(&entry.name);
        if !entry.name.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Refusal::invalid(
                "name",
                "must contain a letter from a to z or a digit, since the name in requests is made of these",
            ));
        }
        let files = files(&name)?;
        let is_document = !files.contains_key(HANDLER);
        let mut draft = check(&name, files, Profile::Load)
            .map_err(|refusal| Refusal::invalid(field, format!("{}: {}", refusal.field, refusal.message)))?;
        draft.is_release = true;
        // A missing description defaults to the name.
        if is_document && draft.description == draft.name && !entry.description.is_empty() {
            draft.description.clone_from(&entry.description);
        }
        let title = (entry.name != name).then(|| entry.name.clone());
        Ok(Self { title, draft })
    }
}

/// Refuses what a site sends instead of a SKILL.md, such as a page to sign in: a skill may be any text.
pub(super) fn demand_document(bytes: &[u8]) -> Result<(), Refusal> {
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    if text.starts_with(b"---") {
        return Ok(());
    }
    let text = "not a SKILL.md: the file must start with `---`, a name and a description";
    Err(Refusal::invalid(DOCUMENT_NAMES[0], text))
}

/// The version of an install: what its SKILL.md says, else that of the body.
fn chosen(stated: Option<String>, version: String, is_given: bool) -> Result<String, Refusal> {
    match stated {
        Some(stated) if is_given && stated != version => {
            let text = format!("its SKILL.md says {stated}, but the body says {version}; make them equal, or omit one");
            Err(Refusal::invalid("version", text))
        }
        Some(stated) => Ok(stated),
        None => Ok(version),
    }
}

/// The version of a body, else the default one.
fn version_of(written: Option<&str>) -> Result<String, Refusal> {
    let version = registration::demand_version(written.unwrap_or(registration::DEFAULT_VERSION));
    version.map_err(|invalid| Refusal::invalid(&invalid.field, invalid.message))
}

/// Whether a body has these members only. Errors name the first one that it may not have.
pub(super) fn demand_known(members: &Map<String, Value>, known: &[&str]) -> Result<(), Refusal> {
    match members.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let text = format!("unknown field; allowed fields: {}", known.join(", "));
            Err(Refusal::invalid(unknown, text))
        }
    }
}

/// A skill belongs to the caller who sends it: another owner cannot be named.
pub(super) fn of_caller(members: &Map<String, Value>, owner: &Owner) -> Result<(), Refusal> {
    match members.get("apiKeyId") {
        None => Ok(()),
        Some(id) if id.as_str() == Some(&*owner.shown()) => Ok(()),
        Some(_) => {
            let text = "skills belong to the credential that sends the request; omit this field";
            Err(Refusal::invalid("apiKeyId", text))
        }
    }
}

/// The folder of a skill.
fn files(name: &str, entry: &Registration, schema: &Value) -> Result<Files, Refusal> {
    let code = &entry.handler;
    if code.starts_with("---") {
        let takes = schema::normalize(&schema["input"]);
        if takes["properties"]
            .as_object()
            .is_some_and(|properties| !properties.is_empty())
        {
            let text =
                "a SKILL.md is not a function and takes no arguments; leave this {}, or declare tools in the SKILL.md";
            return Err(Refusal::invalid("schema.input", text));
        }
        return Ok(Files::from([file(DOCUMENT_NAMES[0], code.clone())]));
    }
    if !code.lines().any(begins_function) {
        let text = format!(
            "must be the text of a SKILL.md, which starts with ---, or a Python program with a function \
             \"def {FUNCTION}(…)\" that takes what schema.input declares; names of handlers, such as {:?}, refer to functions of OmniRoute's process, which are not available here",
            entry.handler.chars().take(NAMED_CHARS).collect::<String>()
        );
        return Err(Refusal::invalid(CODE, text));
    }
    let mut files = Files::from([
        file(HANDLER, code.clone()),
        file(DOCUMENT_NAMES[0], document(name, entry, schema)),
    ]);
    let function = Function {
        function: FUNCTION.to_owned(),
        name: name.to_owned(),
        description: described(entry).to_owned(),
        input_schema: schema::with_properties(&schema::normalize(&schema["input"])),
        retryable: false,
        hidden: false,
        config: Vec::new(),
        // The risk of a tool whose entry states none.
        risk: Risk::Safe,
    };
    let functions = BTreeMap::from([(HANDLER.to_owned(), vec![function])]);
    let lock = FunctionLock::of(&functions, &files).text();
    files.extend([file(LOCK_FILE, lock)]);
    Ok(files)
}

/// Whether a line of Python begins the function that is called; blanks count as in Python.
fn begins_function(line: &str) -> bool {
    let name = behind_word(behind_word(line, "async").unwrap_or(line), "def");
    let rest = name.and_then(|name| name.strip_prefix(FUNCTION));
    rest.is_some_and(|rest| rest.trim_start_matches(BLANKS).starts_with('('))
}

/// What is behind a word and the blanks after it.
fn behind_word<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(word)?;
    let after = rest.trim_start_matches(BLANKS);
    (after.len() < rest.len()).then_some(after)
}

/// The blanks within a line of Python.
const BLANKS: [char; 2] = [' ', '\t'];

/// Characters of a handler's name that a refusal repeats.
const NAMED_CHARS: usize = 40;

fn described(entry: &Registration) -> &str {
    if entry.description.is_empty() {
        &entry.name
    } else {
        &entry.description
    }
}

/// The SKILL.md of a Python program. JSON is YAML.
fn document(name: &str, entry: &Registration, schema: &Value) -> String {
    let text = |text: &str| Value::from(text).to_string();
    // The schema of the whole install is shown and decides nothing: what a call takes is in the lock of the function.
    let metadata = json!({SCHEMA: schema});
    let (shown, description, version) = (text(&entry.name), text(described(entry)), text(&entry.version));
    format!(
        "---\nname: {name}\ndisplay_name: {shown}\ndescription: {description}\nversion: {version}\nmetadata: {metadata}\n\
         tools:\n  - python: {HANDLER}\n---\n{}\n",
        described(entry)
    )
}

fn file(path: &str, text: String) -> (String, SkillFile) {
    let file = SkillFile {
        bytes: text.into_bytes().into(),
        executable: false,
    };
    (path.to_owned(), file)
}

#[cfg(test)]
mod tests {
    use knack_skill::model::SkillRef;
    use knack_skill::{LoadInput, SpecOverrides, load};

    use super::*;

    #[test]
    fn a_function_begins_with_any_blanks_of_python() {
        for (line, expected) in [
            ("def handler(text):", true),
            ("def handler ():", true),
            ("def  handler\t(a,", true),
            ("async  def handler(", true),
            ("def handlers():", false),
            ("defhandler():", false),
            ("asyncdef handler():", false),
            (" def handler():", false),
            ("def handler", false),
            ("handler()", false),
        ] {
            assert_eq!(begins_function(line), expected, "{line}");
        }
    }

    /// Installers get no warnings about what they cannot change.
    #[test]
    fn the_files_that_an_install_makes_have_no_problems() {
        let input = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        for schema in [
            json!({"input": input, "output": {"type": "object"}}),
            json!({"input": input}),
            json!({}),
        ] {
            let code = "def handler(text):\n    return text\n";
            let body =
                json!({"name": "Reverse Text", "description": "Reverses.", "schema": schema, "handlerCode": code});
            let owner = Owner::from([1; 32]);
            let draft = Installation::read(body.as_object().unwrap().clone(), &owner)
                .unwrap()
                .draft;
            let loaded = load(LoadInput {
                id: SkillRef {
                    namespace: "team".to_owned(),
                    name: draft.name,
                },
                files: draft.files,
                overrides: SpecOverrides::default(),
                profile: Profile::Load,
            });
            let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
            assert_eq!(problems, [""; 0], "{schema}");
        }
    }
}
