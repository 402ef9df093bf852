//! Validation rules that the API server checks (CEL), each with the message that a user reads, and the same in Rust for files.
//!
//! Every rule has a refused object in `tests/cluster_operator/crds`; a test compares the two lists. The API server and
//! [`super::problems`] both judge these objects.

use knack_vocabulary::defaults::MAX_TIMEOUT_SECONDS;
use knack_vocabulary::{KIND_SKILL, KIND_SKILL_RUNTIME, NAME_MAX_BYTES};
use serde_json::Value;

use super::patterns::{label_key, label_name};
use super::predicates::{
    characters, files, has, is_http_url, is_name, is_path, is_pod_key, is_python_file, is_relative, is_repository,
    is_unique, items, name_of, requirement, text,
};

/// One rule of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The kind.
    pub kind: &'static str,
    /// The position: a path from the object's root; `[]` is a list's item, `{}` a map's value. Empty: the root.
    pub at: &'static str,
    /// CEL.
    pub rule: &'static str,
    /// The message for the user: the error and its remedy.
    pub message: &'static str,
    /// The rule in Rust, for files; absent where it follows from the CEL ([`Rule::check`]).
    check: Option<Check>,
}

/// A rule in Rust: whether a value that is there keeps it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Check {
    /// The value passes this function.
    Of(fn(&Value) -> bool),
    /// Every key of a mapping passes this function.
    Keys(fn(&str) -> bool),
    /// Every key of the mapping in this field passes this function.
    KeysOf(&'static str, fn(&str) -> bool),
    /// Every key of a mapping matches.
    KeysMatch(&'static str),
    /// The text matches.
    Matches(&'static str),
    /// The text does not match.
    MatchesNot(&'static str),
}

/// Inline content of an object, in code points; bytes are checked when the skill is judged.
pub const INLINE_MAX: usize = 120 * 1024;

const fn skill(at: &'static str, rule: &'static str, message: &'static str) -> Rule {
    made(KIND_SKILL, at, rule, message, None)
}

const fn skill_by(at: &'static str, rule: &'static str, message: &'static str, check: Check) -> Rule {
    made(KIND_SKILL, at, rule, message, Some(check))
}

const fn runtime(at: &'static str, rule: &'static str, message: &'static str) -> Rule {
    made(KIND_SKILL_RUNTIME, at, rule, message, None)
}

const fn runtime_by(at: &'static str, rule: &'static str, message: &'static str, check: Check) -> Rule {
    made(KIND_SKILL_RUNTIME, at, rule, message, Some(check))
}

const fn made(
    kind: &'static str,
    at: &'static str,
    rule: &'static str,
    message: &'static str,
    check: Option<Check>,
) -> Rule {
    Rule {
        kind,
        at,
        rule,
        message,
        check,
    }
}

impl Rule {
    /// The rule in Rust. Of a rule that is one regular expression it is the same expression, which both engines read.
    pub(super) fn check(&self) -> Option<Check> {
        let within = |begin: &str, end: &str| {
            let inner = self.rule.strip_prefix(begin)?.strip_suffix(end)?;
            (!inner.contains('\'')).then_some(inner)
        };
        self.check
            .or_else(|| within("self.matches('", "')").map(Check::Matches))
            .or_else(|| within("!self.matches('", "')").map(Check::MatchesNot))
            .or_else(|| within("self.all(k, k.matches('", "'))").map(Check::KeysMatch))
    }
}

const NAME_LENGTH: &str = "self.metadata.name.size() <= 63";
const NAME_FORM: &str =
    "self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$') && !self.metadata.name.contains('--')";
const NAME_LENGTH_TEXT: &str =
    "metadata.name must have at most 63 characters: labels and pods carry it; choose a shorter name";
const NAME_FORM_TEXT: &str =
    "metadata.name must be lower-case letters, digits and single hyphens: models read it as part of tool names";
const ENV_NAME: &str = "self.matches('^[A-Za-z_][A-Za-z0-9_]*$')";
/// Never granted to a tool: [`knack_skill::tool_env::grantable`], which a test compares.
pub(super) const ENV_GRANTABLE: &str = "!self.matches('^(ANTHROPIC_API_KEY|ANTHROPIC_AUTH_TOKEN|AZURE_OPENAI_API_KEY|CEREBRAS_API_KEY|COHERE_API_KEY|DEEPSEEK_API_KEY|FIREWORKS_API_KEY|GEMINI_API_KEY|GOOGLE_API_KEY|GROQ_API_KEY|MISTRAL_API_KEY|OPENAI_API_KEY|OPENROUTER_API_KEY|PERPLEXITY_API_KEY|TOGETHER_API_KEY|XAI_API_KEY|HOME|LANG|PATH|TMPDIR|CLASSPATH|ENV|GCONV_PATH|GLIBC_TUNABLES|IFS|JAVA_TOOL_OPTIONS|LOCPATH|PS4|SHELLOPTS|(KNACK_|BASH_|DYLD_|GIT_|LD_|LUA_|NODE_|NPM_CONFIG_|PERL5|PYTHON|RUBY).*)$')";
const ENV_GRANTABLE_TEXT: &str = "env must not contain variables that are never granted: API keys of model providers, HOME, LANG, PATH, TMPDIR, KNACK_*, and variables that configure an interpreter, a shell or the dynamic linker";
const IMAGE_NAME: &str = "self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')";
const IMAGE_NAME_TEXT: &str = "an image name must consist of lower-case letters, digits and hyphens, as in the runtime's sandbox.images; set an image reference (with /, : or @) in sandbox.image";
const PACKAGE_NAME: &str = "self.matches('^[A-Za-z0-9][^@/:]*$')";
const NODE_PACKAGE: &str = "self.matches('^(@[A-Za-z0-9_~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9_~-][A-Za-z0-9._~-]*(@[A-Za-z0-9^~<>=|*+._ -]*|@npm:[A-Za-z0-9^~<>=|*+._ @/-]*)?$')";
/// A name, clauses with versions of PEP 440, and perhaps a marker. After `===` a text is compared, whatever it is.
const PACKAGE_VERSIONS: &str = "self.matches('(?i)^[a-z0-9]([a-z0-9._-]*[a-z0-9])? *(=== *v?[0-9][a-z0-9.!_*+-]*|([=!~]=|[<>]=?) *v?([0-9]+!)?[0-9]+([.][0-9]+)*([-_.]?(alpha|a|beta|b|preview|pre|rc|c)([-_.]?[0-9]+)?)?(-[0-9]+|[-_.]?(post|rev|r)([-_.]?[0-9]+)?)?([-_.]?dev([-_.]?[0-9]+)?)?([.][*]|[+][a-z0-9]+([-_.][a-z0-9]+)*)?)( *, *(=== *v?[0-9][a-z0-9.!_*+-]*|([=!~]=|[<>]=?) *v?([0-9]+!)?[0-9]+([.][0-9]+)*([-_.]?(alpha|a|beta|b|preview|pre|rc|c)([-_.]?[0-9]+)?)?(-[0-9]+|[-_.]?(post|rev|r)([-_.]?[0-9]+)?)?([-_.]?dev([-_.]?[0-9]+)?)?([.][*]|[+][a-z0-9]+([-_.][a-z0-9]+)*)?))* *(;.*)?$')";
/// Clauses of that form that no version can be compared with. The controller reads all of it (`knack_packages::Rules::read`) and says
/// what is wrong where a number is too large.
const PACKAGE_CLAUSES: &str =
    "!self.matches('(?i)^[^;]*([<>~]=?[^,;]*[*+]|~= *v?([0-9]+!)?[0-9]+([^0-9.!]|[.][^0-9]|$))')";
const PACKAGE_CLAUSES_TEXT: &str = "packages.constraints must have two numbers or more after ~=, such as ~=1.4, and .* or a local version (+) after == and != alone";
/// What [`knack_skill::semver::satisfies`] reads, with numbers that fit, and without `latest`.
pub(super) const PIN_VERSION: &str = "self.matches('^(([~^]|[<>]=?)[0-9]{1,9}([.][0-9]{1,9}){0,2}|(==)?[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}|[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}[-+][0-9A-Za-z.+-]+)$')";
const PIN_VERSION_TEXT: &str = "version must be a version or a constraint on it, such as 1.2.0, ^1, ~1.2 or >=1; latest does not apply: >=0 takes the highest version";
const POD_KEYS: &str = "self.all(k, !(k in ['job-name', 'controller-uid']) && !k.matches('(^|[.])(knack[.]dev|batch[.]kubernetes[.]io|apparmor[.]security[.]beta[.]kubernetes[.]io)/'))";
const POD_KEYS_TEXT: &str = "podMetadata must not set keys of knack.dev/, batch.kubernetes.io/, job-name, controller-uid or AppArmor: they belong to Knack and Kubernetes";

/// The grammar of Semantic Versioning, but for leading zeros of the three numbers, which versions by date have: what an upload may have,
/// its Skill may have.
pub(super) const VERSION: &str = "self.matches('^[0-9]+[.][0-9]+[.][0-9]+(-(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)([.](0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*)?([+][0-9A-Za-z-]+([.][0-9A-Za-z-]+)*)?$')";
/// A schema has no pattern for the keys of a map.
const LABEL_KEYS: &str = concat!("self.all(k, k.matches('^", label_key!(), "$'))");
/// Kubernetes takes capitals in the domain of an annotation.
const ANNOTATION_KEYS: &str = concat!(
    "self.all(k, k.matches('^([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?",
    label_name!(),
    "$'))"
);
const LABEL_KEYS_TEXT: &str = "keys must be label keys of Kubernetes: at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit, with an optional domain before them, such as example.com/team";
const REQUIREMENT: &str = "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)";
const REQUIREMENT_TEXT: &str =
    "matchExpressions with operator In or NotIn must have values; those with Exists or DoesNotExist must not";

/// Every rule.
pub const RULES: &[Rule] = &[
    skill_by(
        "",
        NAME_LENGTH,
        NAME_LENGTH_TEXT,
        Check::Of(|object| name_of(object).len() <= NAME_MAX_BYTES),
    ),
    skill_by(
        "",
        NAME_FORM,
        NAME_FORM_TEXT,
        Check::Of(|object| is_name(name_of(object))),
    ),
    skill_by(
        "spec.source",
        "[has(self.inline), has(self.configMap), has(self.archive), has(self.upload)].filter(x, x).size() == 1",
        "source needs exactly one of inline, configMap, archive and upload",
        Check::Of(|source| {
            ["inline", "configMap", "archive", "upload"]
                .iter()
                .filter(|kind| has(source, kind))
                .count()
                == 1
        }),
    ),
    skill_by(
        "spec.source",
        "!has(self.path) || !self.path.matches('(^|/)[.]{0,2}(/|$)')",
        "source.path must be a relative path inside the source, without empty parts, . and ..",
        Check::Of(|source| !has(source, "path") || is_relative(text(source, "path"))),
    ),
    skill_by(
        "spec.source.inline",
        "(has(self.files) && self.files.size() > 0) || (has(self.binaryFiles) && self.binaryFiles.size() > 0)",
        "source.inline needs at least one file; the skill's text goes to files[\"SKILL.md\"]",
        Check::Of(|inline| files(inline).next().is_some()),
    ),
    skill_by(
        "spec.source.inline",
        "(has(self.files) ? self.files.map(k, self.files[k].size()).sum() : 0) + (has(self.binaryFiles) ? self.binaryFiles.map(k, self.binaryFiles[k].size()).sum() : 0) <= 122880",
        "source.inline holds at most 120 KiB (122880 characters) together, since client-side apply stores the object in an annotation; put larger content into a ConfigMap (source.configMap) or an archive (source.archive)",
        Check::Of(|inline| files(inline).map(|(_, text)| characters(text)).sum::<usize>() <= INLINE_MAX),
    ),
    skill_by(
        "spec.source.inline",
        "!has(self.files) || !has(self.binaryFiles) || !self.files.exists(k, k in self.binaryFiles)",
        "a path of source.inline is in files and in binaryFiles; keep one of the two",
        Check::Of(|inline| is_unique(files(inline).map(|(path, _)| path))),
    ),
    skill_by(
        "spec.source.inline",
        "!has(self.files) || self.files.all(k, k.size() <= 1024 && !k.matches('(^|/)[.]{0,2}(/|$)'))",
        "paths in source.inline.files must be relative, without empty parts, . and .., at most 1024 characters",
        Check::KeysOf("files", is_path),
    ),
    skill_by(
        "spec.source.inline",
        "!has(self.binaryFiles) || self.binaryFiles.all(k, k.size() <= 1024 && !k.matches('(^|/)[.]{0,2}(/|$)'))",
        "paths in source.inline.binaryFiles must be relative, without empty parts, . and .., at most 1024 characters",
        Check::KeysOf("binaryFiles", is_path),
    ),
    skill(
        "spec.source.configMap.items[].path",
        "!self.matches('(^|/)[.]{0,2}(/|$)')",
        "path must be relative, without empty parts, . and ..",
    ),
    skill_by(
        "spec.source.archive.url",
        "isURL(self) && url(self).getScheme() in ['https', 'http'] && url(self).getHostname() != ''",
        "archive.url must be an https:// (or http://) URL with a host",
        Check::Of(|url| is_http_url(url.as_str().unwrap_or_default())),
    ),
    skill(
        "spec.source.archive.url",
        "!self.matches('^[a-z]+://[^/?#]*@')",
        "archive.url must not hold credentials: objects are read by many",
    ),
    skill(
        "spec.source.archive.digest",
        "self.matches('^sha256:[0-9a-f]{64}$')",
        "archive.digest must be sha256: and 64 lower-case hex digits; `sha256sum FILE` prints them",
    ),
    skill(
        "spec.source.upload.digest",
        "self.matches('^[0-9a-f]{64}$')",
        "upload.digest must be 64 lower-case hex digits; the registry writes it",
    ),
    skill(
        "spec.version",
        VERSION,
        "version must be a semantic version in quotes, such as \"1.4.0\"",
    ),
    skill_by(
        "spec.tools[]",
        "has(self.python) != (has(self.name) && has(self.command))",
        "a tool needs name and command, or python alone: a file whose functions are tools",
        Check::Of(|tool| has(tool, "python") != (has(tool, "name") && has(tool, "command"))),
    ),
    skill_by(
        "spec.tools[]",
        "!has(self.python) || !(has(self.name) || has(self.command) || has(self.description) || has(self.inputSchema) || \
         has(self.parameters) || has(self.risk))",
        "a tool with python can set only env and hidden besides: each function declares its other fields",
        Check::Of(|tool| {
            let others = ["name", "command", "description", "inputSchema", "parameters", "risk"];
            !has(tool, "python") || !others.iter().any(|field| has(tool, field))
        }),
    ),
    skill_by(
        "spec.tools[]",
        "!has(self.python) || self.python.matches('^[^/].*[.]py$')",
        "python must be the relative path of a .py file in the skill's folder",
        Check::Of(|tool| !has(tool, "python") || is_python_file(text(tool, "python"))),
    ),
    skill(
        "spec.tools[].env[]",
        ENV_NAME,
        "env must be names of environment variables: letters, digits and _",
    ),
    skill(
        "spec.inputs[].name",
        "self.matches('^[a-zA-Z0-9_-]+$')",
        "input names must consist of letters, digits, _ and -",
    ),
    skill("spec.sandbox.imageName", IMAGE_NAME, IMAGE_NAME_TEXT),
    skill_by(
        "spec.sandbox",
        "!(has(self.image) && has(self.imageName))",
        "set sandbox.image or sandbox.imageName, not both: the first requests an image by reference, the second an image of the runtime by name",
        Check::Of(|sandbox| !(has(sandbox, "image") && has(sandbox, "imageName"))),
    ),
    skill(
        "spec.packages.python[]",
        PACKAGE_NAME,
        "packages.python must be package names with version specifiers, such as pillow>=10; packages are installed from the index, not from URLs or paths",
    ),
    skill(
        "spec.packages.node[]",
        NODE_PACKAGE,
        "packages.node must be package names with version ranges, such as docx@^9; packages are installed from the index, not from URLs, folders or version control",
    ),
    skill_by(
        "spec.packages",
        "!(has(self.standard) && self.standard && has(self.python) && self.python.size() > 0)",
        "set packages.standard or packages.python, not both",
        Check::Of(|packages| packages["standard"] != true || items(packages, "python").is_empty()),
    ),
    skill(
        "spec.ids[]",
        "self.matches('^[A-Za-z0-9][A-Za-z0-9_.:-]*$')",
        "ids must consist of letters, digits, `_`, `-`, `.` and `:`, without slashes, commas and spaces",
    ),
    skill_by(
        "spec.allowedRuntimes.namespaces",
        "(self.from == 'Selector') == has(self.selector)",
        "allowedRuntimes.namespaces.selector must be set with from: Selector, and only then",
        Check::Of(|namespaces| (namespaces["from"] == "Selector") == has(namespaces, "selector")),
    ),
    skill(
        "spec.allowedRuntimes.namespaces.selector.matchLabels",
        LABEL_KEYS,
        LABEL_KEYS_TEXT,
    ),
    skill_by(
        "spec.allowedRuntimes.namespaces.selector.matchExpressions[]",
        REQUIREMENT,
        REQUIREMENT_TEXT,
        Check::Of(requirement),
    ),
    runtime_by(
        "",
        NAME_LENGTH,
        NAME_LENGTH_TEXT,
        Check::Of(|object| name_of(object).len() <= NAME_MAX_BYTES),
    ),
    runtime_by(
        "",
        NAME_FORM,
        NAME_FORM_TEXT,
        Check::Of(|object| is_name(name_of(object))),
    ),
    runtime_by(
        "spec.sandbox",
        "!has(self.timeoutSeconds) || self.timeoutSeconds <= (has(self.maxTimeoutSeconds) ? self.maxTimeoutSeconds : 120)",
        "sandbox.timeoutSeconds must not exceed sandbox.maxTimeoutSeconds (120 when absent); raise the latter",
        Check::Of(|sandbox| {
            let most = sandbox["maxTimeoutSeconds"].as_u64().unwrap_or(MAX_TIMEOUT_SECONDS);
            sandbox["timeoutSeconds"].as_u64().is_none_or(|seconds| seconds <= most)
        }),
    ),
    runtime_by(
        "spec.sandbox.allowedImages[]",
        "!self.contains('@') && !self.matches(':[^/]*$')",
        "allowedImages must be registry/repository without tag and digest: a skill specifies the digest",
        Check::Of(|image| is_repository(image.as_str().unwrap_or_default())),
    ),
    runtime("spec.sandbox.images[].name", IMAGE_NAME, IMAGE_NAME_TEXT),
    runtime_by(
        "spec.sandbox.images",
        "self.all(x, self.exists_one(y, y.name == x.name))",
        "names in sandbox.images must be unique",
        Check::Of(|images| is_unique(images.as_array().into_iter().flatten().map(|image| text(image, "name")))),
    ),
    runtime_by(
        "spec.sandbox",
        "!has(self.imageName) || (has(self.images) && self.images.exists(x, x.name == self.imageName))",
        "sandbox.imageName must be a name of sandbox.images",
        Check::Of(|sandbox| {
            let named = |name: &Value| items(sandbox, "images").iter().any(|image| image["name"] == *name);
            !has(sandbox, "imageName") || named(&sandbox["imageName"])
        }),
    ),
    runtime_by(
        "spec.sandbox",
        "!(has(self.image) && has(self.imageName))",
        "set sandbox.image or sandbox.imageName, not both: each selects the default image",
        Check::Of(|sandbox| !(has(sandbox, "image") && has(sandbox, "imageName"))),
    ),
    runtime_by(
        "spec.sandbox.runAsUserRange",
        "self.min <= self.max",
        "runAsUserRange.min must not exceed runAsUserRange.max",
        Check::Of(|range| range["min"].as_u64() <= range["max"].as_u64()),
    ),
    runtime_by(
        "spec.sandbox.tolerations[]",
        "!(has(self.operator) && self.operator == 'Exists' && has(self.value) && self.value != '')",
        "a toleration with operator Exists must not have a value",
        Check::Of(|toleration| toleration["operator"] != "Exists" || text(toleration, "value").is_empty()),
    ),
    runtime_by(
        "spec.sandbox.hostUsers",
        "!self",
        "sandbox.hostUsers can only be false: sandboxes never need the user ids of the node",
        Check::Of(|users| *users != true),
    ),
    runtime_by(
        "spec.sandbox.languages",
        "self.all(x, self.exists_one(y, y == x))",
        "entries of sandbox.languages must be unique",
        Check::Of(|languages| is_unique(languages.as_array().into_iter().flatten().filter_map(Value::as_str))),
    ),
    runtime_by(
        "spec.sandbox.podMetadata.labels",
        POD_KEYS,
        POD_KEYS_TEXT,
        Check::Keys(is_pod_key),
    ),
    runtime_by(
        "spec.sandbox.podMetadata.annotations",
        POD_KEYS,
        POD_KEYS_TEXT,
        Check::Keys(is_pod_key),
    ),
    runtime("spec.sandbox.podMetadata.labels", LABEL_KEYS, LABEL_KEYS_TEXT),
    runtime("spec.sandbox.podMetadata.annotations", ANNOTATION_KEYS, LABEL_KEYS_TEXT),
    runtime("spec.sandbox.nodeSelector", LABEL_KEYS, LABEL_KEYS_TEXT),
    runtime("spec.skillSelector.matchLabels", LABEL_KEYS, LABEL_KEYS_TEXT),
    runtime(
        "spec.skillSelector.namespaceSelector.matchLabels",
        LABEL_KEYS,
        LABEL_KEYS_TEXT,
    ),
    runtime(
        "spec.allowedCallers.namespaces.selector.matchLabels",
        LABEL_KEYS,
        LABEL_KEYS_TEXT,
    ),
    runtime_by(
        "spec.skillSelector.matchExpressions[]",
        REQUIREMENT,
        REQUIREMENT_TEXT,
        Check::Of(requirement),
    ),
    runtime_by(
        "spec.skillSelector.namespaceSelector.matchExpressions[]",
        REQUIREMENT,
        REQUIREMENT_TEXT,
        Check::Of(requirement),
    ),
    runtime_by(
        "spec.allowedCallers.namespaces.selector.matchExpressions[]",
        REQUIREMENT,
        REQUIREMENT_TEXT,
        Check::Of(requirement),
    ),
    runtime_by(
        "spec.gateway.upstreams",
        "self.all(k, k in ['openai', 'anthropic', 'gemini'])",
        "keys of upstreams must be openai, anthropic or gemini",
        Check::Keys(|key| ["openai", "anthropic", "gemini"].contains(&key)),
    ),
    runtime_by(
        "spec.gateway.upstreams{}.url",
        "isURL(self) && url(self).getScheme() in ['https', 'http'] && url(self).getHostname() != ''",
        "url must be an https:// (or http://) URL with a host",
        Check::Of(|url| is_http_url(url.as_str().unwrap_or_default())),
    ),
    runtime(
        "spec.gateway.upstreams{}.url",
        "!self.matches('^[a-z]+://[^/?#]*@')",
        "url must not hold credentials: objects are read by many",
    ),
    runtime_by(
        "spec.packages",
        "!has(self.allowed) || self.allowed != 'None' || !has(self.standard) || !self.standard",
        "packages.standard needs packages.allowed Standard or Declared: None allows no packages",
        Check::Of(|packages| packages["allowed"] != "None" || packages["standard"] != true),
    ),
    runtime(
        "spec.packages.constraints[]",
        PACKAGE_VERSIONS,
        "packages.constraints must be package names with version specifiers of PEP 440, such as mcp<2",
    ),
    runtime("spec.packages.constraints[]", PACKAGE_CLAUSES, PACKAGE_CLAUSES_TEXT),
    runtime(
        "spec.packages.excludeNewer",
        "self.matches('^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$')",
        "packages.excludeNewer must be a day, such as 2026-07-01",
    ),
    runtime(
        "spec.env[].name",
        ENV_NAME,
        "env names must be names of environment variables: letters, digits and _",
    ),
    runtime("spec.env[].name", ENV_GRANTABLE, ENV_GRANTABLE_TEXT),
    runtime(
        "spec.env[].skills[]",
        "self.matches('^([a-z0-9]([a-z0-9-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",
        "skills must be name or namespace/name",
    ),
    runtime("spec.skillSelector.skills[].version", PIN_VERSION, PIN_VERSION_TEXT),
    runtime_by(
        "spec.skillSelector.skills[].config[]",
        "has(self.value) != has(self.valueFrom)",
        "exactly one of value and valueFrom must be set",
        Check::Of(|entry| has(entry, "value") != has(entry, "valueFrom")),
    ),
];
