//! Tar archives with entries that no honest program writes.

/// A tar of entries: path, kind, mode, content or target of a link.
pub(crate) fn tar(entries: &[(&str, ::tar::EntryType, u32, &[u8])]) -> Vec<u8> {
    let mut builder = ::tar::Builder::new(Vec::new());
    for (path, kind, mode, content) in entries {
        let mut header = ::tar::Header::new_ustar();
        // Set by hand: the builder refuses the paths that a reader must refuse.
        let field = &mut header.as_old_mut().name;
        field[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        let is_link = matches!(kind, ::tar::EntryType::Symlink | ::tar::EntryType::Link);
        if is_link {
            header.set_link_name(std::str::from_utf8(content).unwrap()).unwrap();
        }
        let body: &[u8] = if is_link { b"" } else { content };
        header.set_size(body.len() as u64);
        header.set_cksum();
        builder.append(&header, body).unwrap();
    }
    builder.into_inner().unwrap()
}
