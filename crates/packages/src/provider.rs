//! Which packages can provide a module, by its name: the modules of a package are in its files, which are not here.
//!
//! ```text
//! data/imports.txt     what is imported and the packages that give it, where the names differ: `yaml` -> pyyaml
//! data/namespaces.txt  modules that many packages share: below them each part of a name is one of a package
//! else                 the name of a package is the import's, or its first parts': `ruamel.yaml` -> ruamel-yaml
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::name::normalized;

const TABLE: &str = include_str!("data/imports.txt");
const SHARED: &str = include_str!("data/namespaces.txt");

static PACKAGES: LazyLock<BTreeMap<&'static str, Vec<&'static str>>> = LazyLock::new(|| {
    let read = lines(TABLE).filter_map(|line| {
        let (module, packages) = line.split_once(' ')?;
        Some((module, packages.split(' ').collect()))
    });
    read.collect()
});
static NAMESPACES: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| lines(SHARED).collect());

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.starts_with('#'))
}

/// A module that a script needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleNeed {
    /// The module for a message, as far as a package has it: `numpy` of `numpy.linalg`, `google.auth` of `google.auth.jwt`.
    pub module: String,
    /// Normalized names of the packages that can provide it, the likeliest first. Empty for a namespace, of which any package
    /// will do.
    packages: Vec<String>,
}

impl ModuleNeed {
    /// The package to declare. `None`: the module is a namespace, and its name says no more.
    pub fn package(&self) -> Option<&str> {
        self.packages.first().map(String::as_str)
    }

    /// The one of these packages that provides it.
    pub fn provider<'g>(&self, given: &GivenPackages<'g>) -> Option<&'g str> {
        let mut packages = self.packages.iter();
        let named = packages.find_map(|package| given.names.get(package.as_str()).copied());
        // `azure.storage.filedatalake` is in azure-storage-file-datalake.
        let mut packages = self.packages.iter();
        let joined = || packages.find_map(|package| given.joined.get(&joined(package)).copied());
        let of_namespace = || {
            let mut names = given.names.iter().filter(|_| self.packages.is_empty());
            names.find(|package| is_below(&self.module, package)).copied()
        };
        named.or_else(joined).or_else(of_namespace)
    }
}

/// The packages that scripts have.
#[derive(Debug, Clone, Default)]
pub struct GivenPackages<'g> {
    names: BTreeSet<&'g str>,
    /// By their names without separators.
    joined: BTreeMap<String, &'g str>,
}

impl<'g> FromIterator<&'g str> for GivenPackages<'g> {
    /// Takes normalized names.
    fn from_iter<I: IntoIterator<Item = &'g str>>(names: I) -> Self {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let joined = names.iter().map(|name| (joined(name), *name)).collect();
        Self { names, joined }
    }
}

fn joined(package: &str) -> String {
    package.replace('-', "")
}

/// Whether a package has modules below a namespace.
fn is_below(namespace: &str, package: &str) -> bool {
    let is_named = package
        .strip_prefix(&normalized(namespace))
        .is_some_and(|rest| rest.starts_with('-'));
    let is_in = |module: &str| {
        let below = module.strip_prefix(namespace);
        below.is_some_and(|rest| rest.starts_with('.'))
    };
    let mut table = PACKAGES.iter();
    is_named || table.any(|(module, packages)| is_in(module) && packages.contains(&package))
}

/// What an import needs; `names` are those of `from module import`.
pub(crate) fn needs(module: &str, names: &[String]) -> Vec<ModuleNeed> {
    if !NAMESPACES.contains(module) || names.is_empty() {
        return vec![need(module, names)];
    }
    // Each name is a module of its own package.
    let modules: BTreeSet<String> = names.iter().map(|name| format!("{module}.{name}")).collect();
    modules.iter().map(|module| need(module, &[])).collect()
}

fn need(module: &str, names: &[String]) -> ModuleNeed {
    let prefixes: Vec<&str> = prefixes(module).collect();
    let mut packages = Vec::new();
    // The longest prefix that is known says what the shorter ones are not.
    let known = prefixes
        .iter()
        .rposition(|prefix| PACKAGES.contains_key(prefix) || NAMESPACES.contains(prefix));
    let own = &prefixes[known.map_or(0, |at| at + 1)..];
    let listed = known.and_then(|at| PACKAGES.get(prefixes[at]));
    packages.extend(listed.into_iter().flatten().map(|package| (*package).to_owned()));
    let is_shared = known.is_some() && listed.is_none();
    let spelled = |prefix: &str| normalized(if is_shared { without_version(prefix) } else { prefix });
    packages.extend(own.iter().map(|prefix| spelled(prefix)));
    let shown = match own.first() {
        Some(first) if is_shared => first,
        _ => prefixes[known.unwrap_or_default()],
    };
    // Of a namespace alone, any package will do.
    if !is_shared || !own.is_empty() {
        packages.extend(names.iter().map(|name| normalized(&format!("{module}.{name}"))));
    }
    ModuleNeed {
        module: shown.to_owned(),
        packages,
    }
}

/// `a`, `a.b` and `a.b.c` of `a.b.c`.
fn prefixes(module: &str) -> impl Iterator<Item = &str> {
    let ends = module.match_indices('.').map(|(at, _)| at);
    ends.chain([module.len()]).map(|end| &module[..end])
}

/// `google.cloud.speech` of `google.cloud.speech_v1p1beta1`: modules of one package have versions.
fn without_version(module: &str) -> &str {
    match module.rsplit_once("_v") {
        Some((name, version))
            if version.starts_with(|first: char| first.is_ascii_digit()) && !version.contains('.') =>
        {
            name
        }
        _ => module,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provided(module: &str, names: &[&str], given: &[&str]) -> Vec<(String, Option<String>)> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let given: GivenPackages<'_> = given.iter().copied().collect();
        let needs = needs(module, &names);
        let found = needs
            .into_iter()
            .map(|need| (need.module.clone(), need.provider(&given).map(str::to_owned)));
        found.collect()
    }

    #[test]
    fn the_tables_are_sorted_and_read() {
        for table in [TABLE, SHARED] {
            let read: Vec<&str> = lines(table).collect();
            assert!(read.is_sorted(), "{read:?}");
            assert!(read.iter().all(|line| !line.trim().is_empty() && line.trim() == *line));
        }
        assert_eq!(
            PACKAGES.len(),
            lines(TABLE).count(),
            "each line has a module and a package"
        );
        for package in PACKAGES.values().flatten() {
            assert_eq!(*package, normalized(package));
        }
    }

    #[test]
    fn a_package_provides_the_modules_that_its_name_or_the_table_says() {
        for (module, names, given) in [
            ("ruamel.yaml", &[][..], "ruamel-yaml"),
            ("ruamel.yaml.comments", &["CommentedMap"], "ruamel-yaml"),
            ("ruamel", &["yaml"], "ruamel-yaml"),
            ("google.cloud.storage", &[], "google-cloud-storage"),
            ("google.cloud", &["storage"], "google-cloud-storage"),
            ("google.cloud", &["speech_v1p1beta1"], "google-cloud-speech"),
            (
                "google.cloud.bigquery_storage_v1.types",
                &[],
                "google-cloud-bigquery-storage",
            ),
            ("google.protobuf", &["message"], "protobuf"),
            ("google", &["protobuf"], "protobuf"),
            ("google", &["genai"], "google-genai"),
            ("google.oauth2", &["service_account"], "google-auth"),
            ("google.api_core.exceptions", &[], "google-api-core"),
            ("googleapiclient.discovery", &["build"], "google-api-python-client"),
            ("azure.identity", &["DefaultAzureCredential"], "azure-identity"),
            ("azure.storage.blob", &[], "azure-storage-blob"),
            ("azure.storage", &["blob"], "azure-storage-blob"),
            ("azure.storage.filedatalake", &[], "azure-storage-file-datalake"),
            ("zope.interface", &["implementer"], "zope-interface"),
            ("opentelemetry", &["trace"], "opentelemetry-api"),
            ("opentelemetry.sdk.trace", &[], "opentelemetry-sdk"),
            // A namespace that nobody has listed.
            ("acme.tools.deep", &[], "acme-tools"),
            ("acme", &["tools"], "acme-tools"),
            ("cv2", &[], "opencv-python"),
            ("cv2", &[], "opencv-python-headless"),
            ("psycopg2.extras", &[], "psycopg2-binary"),
            ("numpy.linalg", &[], "numpy"),
        ] {
            let found = provided(module, names, &["requests", given]);
            assert!(
                matches!(&found[..], [(_, Some(provider))] if provider == given),
                "{module} {names:?}: {found:?}"
            );
        }
    }

    #[test]
    fn other_packages_of_a_namespace_do_not_provide_it() {
        for (module, names, given, missing) in [
            ("ruamel.yaml", &[][..], "ruamel-base", "ruamel.yaml"),
            (
                "google.cloud.storage",
                &[],
                "google-cloud-bigquery",
                "google.cloud.storage",
            ),
            ("google.cloud.storage", &[], "google", "google.cloud.storage"),
            ("google.protobuf", &[], "google-auth", "google.protobuf"),
            ("azure.identity", &[], "azure-core", "azure.identity"),
            ("azure", &[], "requests", "azure"),
            ("acme", &[], "acme-tools", "acme"),
            ("yaml", &[], "yaml", "yaml"),
            ("langchain", &["hub"], "langchain-core", "langchain"),
        ] {
            assert_eq!(
                provided(module, names, &[given]),
                [(missing.to_owned(), None)],
                "{module} {names:?}"
            );
        }
    }

    #[test]
    fn of_a_namespace_each_imported_module_counts_and_of_its_bare_name_any() {
        assert_eq!(
            provided("google.cloud", &["storage", "bigquery"], &["google-cloud-storage"]),
            [
                ("google.cloud.bigquery".to_owned(), None),
                (
                    "google.cloud.storage".to_owned(),
                    Some("google-cloud-storage".to_owned())
                ),
            ]
        );
        for (module, given) in [
            ("google.cloud", "google-cloud-storage"),
            ("google", "protobuf"),
            ("zope", "zope-interface"),
        ] {
            assert_eq!(
                provided(module, &[], &[given]),
                [(module.to_owned(), Some(given.to_owned()))]
            );
        }
    }

    #[test]
    fn the_package_to_declare_is_the_likeliest() {
        for (module, package) in [
            ("google.cloud.storage.blob", Some("google-cloud-storage")),
            ("ruamel.yaml.comments", Some("ruamel-yaml")),
            ("PIL.Image", Some("pillow")),
            ("cv2", Some("opencv-python-headless")),
            ("requests.adapters", Some("requests")),
            ("google.cloud", None),
        ] {
            assert_eq!(needs(module, &[])[0].package(), package, "{module}");
        }
    }
}
