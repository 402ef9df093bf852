//! From what `uv` installed to an environment: a virtual environment that is read-only and holds nothing else's files.

use std::collections::HashSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use knack_packages::State;

use super::build_error::BuildError;
use super::limits::BuildLimits;
use super::python::BaseInterpreter;

/// Longest first line of a script that is read.
const MAX_SHEBANG: usize = 1024;

/// The size of a folder. A file with two names counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

impl Size {
    /// The error of a folder that is over a bound.
    pub(super) fn over(self, bytes: u64, files: u64) -> Option<BuildError> {
        let text = if self.bytes > bytes {
            format!("more than {} MiB unpacked", bytes >> 20)
        } else if self.files > files {
            format!("more than {files} files")
        } else {
            return None;
        };
        Some(BuildError::new(
            State::TooLarge,
            format!("{text}; declare fewer or smaller packages"),
        ))
    }
}

/// Measures a folder that others may be writing to. Blocks.
pub(super) fn measure(folder: &Path) -> Size {
    let mut size = Size::default();
    let mut seen = HashSet::new();
    let _ = walk(folder, &mut |_, metadata| {
        if metadata.is_file() && seen.insert(metadata.ino()) {
            size.files += 1;
            size.bytes += metadata.len();
        }
        Ok(())
    });
    size
}

/// Calls `each` for everything below a folder, without following links; folders come after what is in them. What
/// vanishes meanwhile is passed over.
fn walk(folder: &Path, each: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>) -> io::Result<()> {
    // The second member: whether its entries were visited.
    let mut open = vec![(folder.to_path_buf(), false)];
    while let Some((path, visited)) = open.pop() {
        let metadata = match path.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if metadata.is_dir() && !visited {
            open.push((path.clone(), true));
            match fs::read_dir(&path) {
                Ok(entries) => open.extend(entries.filter_map(Result::ok).map(|entry| (entry.path(), false))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        } else if path != folder {
            each(&path, &metadata)?;
        }
    }
    Ok(())
}

/// Makes the prefix that `uv` filled a virtual environment of `base` for the place `home`. Blocks.
pub(super) fn finish(
    prefix: &Path,
    home: &Path,
    base: &BaseInterpreter,
    limits: &BuildLimits,
) -> Result<Size, BuildError> {
    let disk = |what: &'static str| move |error: io::Error| BuildError::of_disk(what, &error);
    check_links(prefix)?;
    let _ = fs::remove_file(prefix.join(".lock"));
    let size = measure(prefix);
    if let Some(error) = size.over(limits.bytes, limits.files) {
        return Err(error);
    }
    let bin = prefix.join("bin");
    fs::create_dir_all(&bin).map_err(disk("bin"))?;
    point_scripts(&bin, &home.join("bin/python3"), base).map_err(disk("bin"))?;
    for name in ["python", "python3", &base.directory] {
        // A package's own file of that name would replace the interpreter.
        let path = bin.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(BuildError::of_disk("bin", &error)),
            _ => symlink(&base.executable, &path).map_err(disk("bin"))?,
        }
    }
    let site = prefix.join("lib").join(&base.directory).join("site-packages");
    fs::create_dir_all(site).map_err(disk("site-packages"))?;
    let bases = base.executable.parent().unwrap_or(Path::new("/usr/bin"));
    let settings = format!(
        "home = {}\ninclude-system-site-packages = false\nversion = {}\n",
        bases.display(),
        base.version
    );
    fs::write(prefix.join("pyvenv.cfg"), settings).map_err(disk("pyvenv.cfg"))?;
    Ok(size)
}

/// Names and versions of what is installed, sorted: of a lock for many platforms that is a part. Blocks.
pub(super) fn installed(prefix: &Path, base: &BaseInterpreter) -> io::Result<Vec<(String, String)>> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(prefix.join("lib").join(&base.directory).join("site-packages"))? {
        let folder = entry?.file_name().to_string_lossy().into_owned();
        // `name-version.dist-info`; neither part holds a hyphen.
        if let Some((name, version)) = folder.strip_suffix(".dist-info").and_then(|stem| stem.split_once('-')) {
            packages.push((knack_packages::name::normalized(name), version.to_owned()));
        }
    }
    packages.sort();
    Ok(packages)
}

/// Takes the right to write from everything, and set-uid with it. Blocks.
pub(super) fn make_read_only(folder: &Path) -> io::Result<()> {
    walk(folder, &mut |path, metadata| {
        let mode = if metadata.is_dir() || metadata.mode() & 0o111 != 0 {
            0o555
        } else {
            0o444
        };
        if metadata.is_symlink() {
            Ok(())
        } else {
            fs::set_permissions(path, Permissions::from_mode(mode))
        }
    })
}

/// Removes a folder that was made read-only. Blocks.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    if !folder.try_exists()? {
        return Ok(());
    }
    let open = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o700));
    open(folder)?;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(path) = folders.pop() {
        for entry in fs::read_dir(&path)?.filter_map(Result::ok) {
            if entry.file_type()?.is_dir() {
                open(&entry.path())?;
                folders.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(folder)
}

/// Every link must lead to a place below the folder: a run may read what an environment links to.
fn check_links(prefix: &Path) -> Result<(), BuildError> {
    let mut escaping: Option<PathBuf> = None;
    let walked = walk(prefix, &mut |path, metadata| {
        let leads_inside = || path.canonicalize().is_ok_and(|target| target.starts_with(prefix));
        if metadata.is_symlink() && !leads_inside() {
            escaping = Some(path.to_path_buf());
        }
        Ok(())
    });
    walked.map_err(|error| BuildError::of_disk("the environment", &error))?;
    match escaping {
        None => Ok(()),
        Some(path) => {
            let shown = path.strip_prefix(prefix).unwrap_or(&path).display().to_string();
            Err(BuildError::new(
                State::Refused,
                format!("a package holds the link {shown}, which leads out of the environment"),
            ))
        }
    }
}

/// Console scripts begin with the interpreter that installed them; they are to begin with the environment's.
fn point_scripts(bin: &Path, python: &Path, base: &BaseInterpreter) -> io::Result<()> {
    for entry in fs::read_dir(bin)?.filter_map(Result::ok) {
        let path = entry.path();
        if !entry.file_type()?.is_file() {
            continue;
        }
        let mut bytes = Vec::new();
        File::open(&path)?.read_to_end(&mut bytes)?;
        if let Some(after) = after_python_shebang(&bytes, base) {
            let mode = path.metadata()?.permissions();
            // Another file: the one that is there may have a second name in the installer's cache.
            fs::remove_file(&path)?;
            let mut file = File::create(&path)?;
            writeln!(file, "#!{}", python.display())?;
            file.write_all(&bytes[after..])?;
            fs::set_permissions(&path, mode)?;
        }
    }
    Ok(())
}

/// Where the text after `#!<a python>` begins; also after the two lines that replace a long path.
fn after_python_shebang(bytes: &[u8], base: &BaseInterpreter) -> Option<usize> {
    let end = |from: usize| {
        bytes[from..]
            .iter()
            .take(MAX_SHEBANG)
            .position(|byte| *byte == b'\n')
            .map(|at| from + at + 1)
    };
    let first_end = end(0)?;
    let first = String::from_utf8_lossy(&bytes[..first_end]);
    let words = first.strip_prefix("#!")?.trim();
    if words == "/bin/sh" {
        let second_end = end(first_end)?;
        let second = String::from_utf8_lossy(&bytes[first_end..second_end]).into_owned();
        let is_trampoline = second.starts_with("'''exec'") && second.contains(&*base.executable.to_string_lossy());
        return if is_trampoline { end(second_end) } else { None };
    }
    let program = words.split_whitespace().next()?;
    let name = program.rsplit('/').next().unwrap_or_default();
    (name == "pythonw" || name.starts_with("python")).then_some(first_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> BaseInterpreter {
        serde_json::from_value(serde_json::json!({
            "executable": "/usr/bin/python3.11", "version": "3.11.2", "directory": "python3.11", "abi": "a", "libc": "g", "architecture": "x",
        }))
        .unwrap()
    }

    #[test]
    fn scripts_begin_with_the_environments_python() {
        for (text, kept) in [
            ("#!/usr/bin/python3\nimport x\n", Some("import x\n")),
            ("#!python\nimport x\n", Some("import x\n")),
            ("#!/opt/python3.11 -s\nx", Some("x")),
            (
                "#!/bin/sh\n'''exec' '/usr/bin/python3.11' \"$0\" \"$@\"\n' '''\nimport x\n",
                Some("import x\n"),
            ),
            ("#!/bin/sh\necho x\n", None),
            ("#!/usr/bin/perl\n", None),
            ("\u{7f}ELF", None),
        ] {
            let after = after_python_shebang(text.as_bytes(), &base());
            assert_eq!(after.map(|at| &text[at..]), kept, "{text}");
        }
    }

    #[test]
    fn a_prefix_becomes_an_environment_that_is_read_only() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().canonicalize().unwrap().join("prefix");
        let site = prefix.join("lib/python3.11/site-packages");
        fs::create_dir_all(&site).unwrap();
        fs::create_dir(prefix.join("bin")).unwrap();
        fs::write(prefix.join("bin/tool"), "#!/usr/bin/python3\nx").unwrap();
        fs::set_permissions(prefix.join("bin/tool"), Permissions::from_mode(0o4755)).unwrap();
        fs::write(prefix.join("bin/python"), "not the interpreter").unwrap();
        fs::write(site.join("a.py"), "x").unwrap();
        fs::create_dir(site.join("A_b-1.0.dist-info")).unwrap();
        let size = finish(&prefix, Path::new("/cache/env"), &base(), &BuildLimits::default()).unwrap();
        assert_eq!(size.files, 3);
        assert_eq!(
            installed(&prefix, &base()).unwrap(),
            [("a-b".to_owned(), "1.0".to_owned())]
        );
        assert_eq!(
            fs::read_to_string(prefix.join("bin/tool")).unwrap(),
            "#!/cache/env/bin/python3\nx"
        );
        assert_eq!(
            fs::read_link(prefix.join("bin/python")).unwrap(),
            Path::new("/usr/bin/python3.11")
        );
        assert!(
            fs::read_to_string(prefix.join("pyvenv.cfg"))
                .unwrap()
                .starts_with("home = /usr/bin\n")
        );
        make_read_only(&prefix).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
        assert_eq!(
            (mode(&site.join("a.py")), mode(&site), mode(&prefix.join("bin/tool"))),
            (0o444, 0o555, 0o555)
        );
        remove(&prefix).unwrap();
        assert!(!prefix.exists());
    }

    #[test]
    fn a_link_that_leads_out_and_too_many_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().canonicalize().unwrap();
        fs::create_dir(prefix.join("lib")).unwrap();
        fs::write(prefix.join("lib/a"), "x").unwrap();
        symlink("a", prefix.join("lib/inside")).unwrap();
        let limits = BuildLimits {
            files: 0,
            ..BuildLimits::default()
        };
        let many = finish(&prefix, &prefix, &base(), &limits).unwrap_err();
        assert_eq!(
            (many.state, many.text.contains("more than 0 files")),
            (State::TooLarge, true)
        );
        symlink("/etc/passwd", prefix.join("lib/outside")).unwrap();
        let out = finish(&prefix, &prefix, &base(), &BuildLimits::default()).unwrap_err();
        assert!(out.state == State::Refused && out.text.contains("lib/outside"), "{out}");
    }
}
