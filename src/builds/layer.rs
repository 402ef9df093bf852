//! An environment as a layer of an image: equal folders give equal bytes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// Below the default of 6: shared objects are most of an environment, and a build waits for this.
const LEVEL: Compression = Compression::new(4);

/// A layer in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layer {
    /// `sha256:…` of the compressed bytes.
    pub(super) digest: String,
    /// `sha256:…` of the bytes before compression.
    pub(super) diff_id: String,
    /// Compressed bytes.
    pub(super) size: u64,
}

/// The last folder that node searches, from the work directory of a run and from the skills: the root of the image, which nothing
/// in a pod can write to.
const NODE_MODULES: &str = "node_modules";

/// Writes a folder, by its absolute path, into a file as a compressed layer. `modules` is the folder in it that holds packages of
/// Node, to which a link at the root of the image leads. Blocks.
///
/// Owners are root, times are zero, nothing is writable, set-uid is gone; order is that of the names.
pub(super) fn write(folder: &Path, modules: Option<&Path>, file: &Path) -> io::Result<Layer> {
    let compressed = HashingWriter::new(BufWriter::new(File::create(file)?));
    let mut tar = Builder::new(HashingWriter::new(GzEncoder::new(compressed, LEVEL)));
    let inside = folder.strip_prefix("/").map_err(io::Error::other)?;
    let parents: Vec<&Path> = inside
        .ancestors()
        .skip(1)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    for parent in parents.into_iter().rev() {
        append_folder(&mut tar, parent, 0o755)?;
    }
    let mut open = vec![folder.to_path_buf()];
    while let Some(path) = open.pop() {
        let metadata = path.symlink_metadata()?;
        let name = path.strip_prefix("/").map_err(io::Error::other)?;
        if metadata.is_dir() {
            append_folder(&mut tar, name, 0o555)?;
            let mut entries: Vec<PathBuf> = fs::read_dir(&path)?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<io::Result<_>>()?;
            // The last one is taken first.
            entries.sort_by(|one, other| other.cmp(one));
            open.extend(entries);
        } else if metadata.is_symlink() {
            let mut header = header(EntryType::Symlink, 0o777, 0);
            tar.append_link(&mut header, name, fs::read_link(&path)?)?;
        } else if metadata.is_file() {
            let mode = if metadata.permissions().mode() & 0o111 == 0 {
                0o444
            } else {
                0o555
            };
            let mut header = header(EntryType::Regular, mode, metadata.len());
            tar.append_data(&mut header, name, File::open(&path)?)?;
        } else {
            return Err(io::Error::other(format!(
                "{} is neither file, folder nor link",
                path.display()
            )));
        }
    }
    if let Some(modules) = modules {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        tar.append_link(&mut header, NODE_MODULES, modules)?;
    }
    let (gzip, diff_id, _) = tar.into_inner()?.end();
    let (mut file, digest, size) = gzip.finish()?.end();
    file.flush()?;
    Ok(Layer { digest, diff_id, size })
}

fn append_folder(tar: &mut Builder<impl Write>, name: &Path, mode: u32) -> io::Result<()> {
    let mut header = header(EntryType::Directory, mode, 0);
    tar.append_data(&mut header, name, io::empty())
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// Counts and hashes the written bytes.
struct HashingWriter<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W> HashingWriter<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            bytes: 0,
        }
    }

    fn end(self) -> (W, String, u64) {
        let digest = format!("sha256:{}", knack_skill::digest::hex(&self.hash.finalize()));
        (self.inner, digest, self.bytes)
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use flate2::read::GzDecoder;

    use super::*;

    fn made(times: &[&str]) -> (Vec<u8>, Layer, PathBuf) {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join("env-1");
        fs::create_dir_all(folder.join("bin")).unwrap();
        // In another order each time: what a folder lists first differs.
        for name in times {
            fs::write(folder.join(name), format!("of {name}")).unwrap();
        }
        fs::set_permissions(folder.join("bin/tool"), fs::Permissions::from_mode(0o4755)).unwrap();
        symlink("/usr/bin/python3", folder.join("bin/python3")).unwrap();
        let file = work.path().join("layer");
        let layer = write(&folder, None, &file).unwrap();
        (fs::read(&file).unwrap(), layer, folder)
    }

    #[test]
    fn a_layer_is_sorted_owned_by_root_and_read_only() {
        let (bytes, layer, folder) = made(&["b.txt", "a.txt", "bin/tool"]);
        assert_eq!(layer.size, bytes.len() as u64);
        assert_eq!(layer.digest, format!("sha256:{}", knack_skill::digest::sha256(&bytes)));
        let mut raw = Vec::new();
        GzDecoder::new(&bytes[..]).read_to_end(&mut raw).unwrap();
        assert_eq!(layer.diff_id, format!("sha256:{}", knack_skill::digest::sha256(&raw)));
        let inside = folder.strip_prefix("/").unwrap();
        let mut found = Vec::new();
        for entry in tar::Archive::new(&raw[..]).entries().unwrap() {
            let entry = entry.unwrap();
            let (header, path) = (entry.header(), entry.path().unwrap().into_owned());
            assert_eq!(
                (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()),
                (0, 0, 0)
            );
            if let Ok(own) = path.strip_prefix(inside) {
                found.push((own.display().to_string(), header.mode().unwrap() & 0o7777));
            } else {
                assert_eq!(header.mode().unwrap() & 0o7777, 0o755, "{}", path.display());
            }
        }
        let expected = [
            ("", 0o555),
            ("a.txt", 0o444),
            ("b.txt", 0o444),
            ("bin", 0o555),
            ("bin/python3", 0o777),
            ("bin/tool", 0o555),
        ];
        assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }

    #[test]
    fn packages_of_node_are_linked_from_the_root_of_the_image() {
        let work = tempfile::tempdir().unwrap();
        let (folder, file) = (work.path().join("env-1"), work.path().join("layer"));
        let modules = folder.join("node_modules");
        fs::create_dir_all(modules.join("a")).unwrap();
        let mut links = Vec::new();
        for modules in [None, Some(modules.as_path())] {
            write(&folder, modules, &file).unwrap();
            let mut raw = Vec::new();
            GzDecoder::new(&fs::read(&file).unwrap()[..])
                .read_to_end(&mut raw)
                .unwrap();
            for entry in tar::Archive::new(&raw[..]).entries().unwrap() {
                let entry = entry.unwrap();
                let target = entry.link_name().unwrap().map(std::borrow::Cow::into_owned);
                links.extend(target.map(|target| {
                    (
                        entry.path().unwrap().into_owned(),
                        target,
                        entry.header().uid().unwrap(),
                    )
                }));
            }
        }
        assert_eq!(links, [(PathBuf::from("node_modules"), modules, 0)]);
    }

    #[test]
    fn equal_folders_give_equal_bytes() {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join("env-1");
        let mut layers = Vec::new();
        for names in [["x", "y", "z"], ["z", "x", "y"]] {
            fs::create_dir_all(&folder).unwrap();
            for name in names {
                fs::write(folder.join(name), name).unwrap();
            }
            layers.push(write(&folder, None, &work.path().join("layer")).unwrap());
            fs::remove_dir_all(&folder).unwrap();
        }
        assert_eq!(layers[0], layers[1]);
    }
}
