//! Files that a person names, or that are found in folders of theirs.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The bytes of a file of at most so many. Errors: it is larger, or no regular file: opening a pipe waits for a writer, and reading a
/// device may never end.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    // What the name stands for is known of the opened file alone, and without this flag a pipe is opened by its writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "not a regular file; copy its content into one",
        ));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(most)).unwrap_or(0) + 1);
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("more than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_devices_are_refused_at_once_and_files_over_the_bound_too() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("file"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        std::fs::write(&file, "1234").unwrap();
        for (path, most, part) in [
            (pipe.as_path(), 9, "not a regular file"),
            (Path::new("/dev/zero"), 9, "not a regular file"),
            (folder.path(), 9, "directory"),
            (file.as_path(), 3, "more than 3 bytes"),
        ] {
            let error = read(path, most).unwrap_err().to_string();
            assert!(error.contains(part), "{}: {error}", path.display());
        }
        assert_eq!(read(&file, 4).unwrap(), b"1234");
    }
}
