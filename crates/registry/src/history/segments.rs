//! The files of a history: grown at the end, closed by size and age, removed as a whole.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use super::lines::{Line, numbers, parse, path};
use super::settings::FILE_BYTES;
use crate::disk::Disk;
use crate::no_link;

/// A new file is started each day, so that old executions are removed within a day of their time.
const FILE_SPAN_MICROS: i64 = 24 * 3_600 * 1_000_000;

#[derive(Debug)]
struct Segment {
    number: u32,
    bytes: u64,
    /// When it was begun.
    begun: i64,
    /// The time of its oldest execution, which may have been copied from an earlier file.
    oldest: i64,
    newest: i64,
}

#[derive(Debug)]
pub(super) struct Segments {
    folder: PathBuf,
    /// Oldest first.
    files: VecDeque<Segment>,
    next: u32,
    /// The last one may end within a line.
    torn: bool,
}

/// The content of the disk.
pub(super) struct StoredLines {
    pub(super) segments: Segments,
    /// With the number of their file, oldest first.
    pub(super) lines: Vec<(u32, Line)>,
    pub(super) broken: usize,
}

impl Segments {
    /// Reads all files; one that ends within a line is cut to whole lines.
    pub(super) fn read(folder: &Path, disk: &dyn Disk) -> io::Result<StoredLines> {
        let mut read = StoredLines {
            segments: Self {
                folder: folder.to_owned(),
                files: VecDeque::new(),
                next: 1,
                torn: false,
            },
            lines: Vec::new(),
            broken: 0,
        };
        for number in numbers(folder)? {
            let path = path(folder, number);
            let bytes = no_link::read(&path)?;
            let found = parse(&bytes);
            if found.whole < bytes.len() as u64 {
                disk.cut(&path, found.whole)?;
            }
            read.broken += found.broken;
            let times = || found.all.iter().map(|line| line.execution.created);
            let oldest = times().min();
            read.segments.files.push_back(Segment {
                number,
                bytes: found.whole,
                begun: oldest.unwrap_or_default(),
                // One without lines makes no other one go.
                oldest: oldest.unwrap_or(i64::MAX),
                newest: times().max().unwrap_or_default(),
            });
            read.segments.next = number.saturating_add(1);
            read.lines.extend(found.all.into_iter().map(|line| (number, line)));
        }
        Ok(read)
    }

    /// Appends whole lines to the last file, or to a new one; `times` are that of the oldest of their executions, and now. Returns
    /// the file, and the offset of the lines in it. Errors: the disk; a part of the lines may be written, which is cut off before
    /// the next.
    pub(super) fn append(&mut self, lines: &[u8], times: (i64, i64), disk: &dyn Disk) -> io::Result<(u32, u64)> {
        self.append_after(0, lines, times, disk)
    }

    /// Appends whole lines, but not to the first file, which is to be removed.
    pub(super) fn append_beside_first(
        &mut self,
        lines: &[u8],
        times: (i64, i64),
        disk: &dyn Disk,
    ) -> io::Result<(u32, u64)> {
        self.append_after(1, lines, times, disk)
    }

    fn append_after(
        &mut self,
        first: usize,
        lines: &[u8],
        (oldest, now): (i64, i64),
        disk: &dyn Disk,
    ) -> io::Result<(u32, u64)> {
        if let Some(file) = self.files.back().filter(|_| self.torn) {
            match disk.cut(&path(&self.folder, file.number), file.bytes) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.torn = false,
            }
        }
        let last = self.files.range(first.min(self.files.len())..).next_back();
        let fits = last
            .is_some_and(|file| file.bytes + lines.len() as u64 <= FILE_BYTES && now - file.begun < FILE_SPAN_MICROS);
        if !fits {
            self.files.push_back(Segment {
                number: self.next,
                bytes: 0,
                begun: now,
                oldest: now,
                newest: now,
            });
            self.next = self.next.saturating_add(1);
        }
        let Some(file) = self.files.back_mut() else {
            return Err(io::Error::other("no file is open"));
        };
        let at = (file.number, file.bytes);
        self.torn = true;
        disk.append(&path(&self.folder, file.number), lines)?;
        self.torn = false;
        file.bytes += lines.len() as u64;
        file.oldest = file.oldest.min(oldest);
        file.newest = file.newest.max(now);
        Ok(at)
    }

    /// The number of files.
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// The number of files in which something is written.
    pub(super) fn filled(&self) -> usize {
        self.files.iter().filter(|file| file.bytes > 0).count()
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The first file if one must be removed: there are more than `most_bytes`, or a file has what is too old. Always the first, so
    /// that no line is gone before those that it has replaced.
    pub(super) fn surplus(&self, most_bytes: u64, since: i64) -> Option<u32> {
        let first = self.files.front()?;
        // With room for the copy of what is still kept of it.
        let too_many = self.bytes() + FILE_BYTES > most_bytes && self.files.len() > 1;
        let too_old = |file: &Segment| file.oldest < since.saturating_sub(FILE_SPAN_MICROS);
        (too_many || first.newest < since || self.files.iter().any(too_old)).then_some(first.number)
    }

    /// Removes the first file.
    pub(super) fn remove_first(&mut self, disk: &dyn Disk) -> io::Result<()> {
        let Some(first) = self.files.front() else { return Ok(()) };
        match disk.remove(&path(&self.folder, first.number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => self.files.pop_front(),
        };
        Ok(())
    }
}
