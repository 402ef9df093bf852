//! The files that the runs of one request see and make: bounded in count and bytes, and counted as what the request holds.

use std::collections::BTreeMap;

use bytes::Bytes;
use knack_execution::{InputFile, Limits, OutputFile};
use knack_skill::call::{self, RunSpec};
use knack_wire::request::Attachment;

use crate::http_server::budget::{Holding, RequestMemory};
use crate::model_calls::turn_store::KeyedHash;

/// Files that the runs of one request may make: as many as one later run may be given.
pub(crate) const MADE_MAX_FILES: usize = Limits::MAX_INPUT_FILES;
/// Bytes of all files that the runs of one request may make: eight runs with the most that one may return.
pub(crate) const MADE_MAX_BYTES: usize = 32 << 20;
/// Bytes of earlier turns' files that are put into the work directory again: as many as the runs of one request may
/// make.
pub(crate) const STAGED_MAX_BYTES: usize = MADE_MAX_BYTES;

/// The refusal of a run while attachments find no room.
const NO_ROOM_FOR_ATTACHMENTS: &str =
    "the gateway is short of memory for the attached files; try again in a few seconds";

/// The budget that the memory for files comes from, and the client that it counts for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileMemory<'a> {
    /// The memory budget of requests.
    pub requests: &'a RequestMemory,
    /// The caller.
    pub caller: &'a KeyedHash,
}

/// Files of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestFiles {
    /// Files of earlier runs and of the user, by path; a later one of the same path wins.
    staged: BTreeMap<String, Bytes>,
    /// The request whose attachments are not staged yet.
    request: Option<knack_wire::Request>,
    /// Files that runs of this request made, replaced ones included: the answer holds them until it ends.
    made_files: usize,
    made_bytes: usize,
    /// Bytes of what was there before.
    given_bytes: usize,
    holding: Option<Holding>,
}

impl RequestFiles {
    /// Files of earlier turns. False: there was no room for all of them.
    pub(crate) fn stage(&mut self, files: Vec<(String, Bytes)>, room: FileMemory<'_>) -> bool {
        let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        let fits = self.hold(bytes, room);
        if fits {
            self.given_bytes += bytes;
            // The later ones are newer: a file may be where a folder was, and a folder where a file was.
            for (path, bytes) in files {
                self.staged.retain(|earlier, _| !call::collide(earlier, &path));
                self.staged.insert(path, bytes);
            }
        }
        fits
    }

    /// Remembers the request whose attachments the first run needs.
    pub(crate) fn attach_later(&mut self, request: knack_wire::Request) {
        self.request = Some(request);
    }

    /// Stages what the user attached as `inputs/<name>`, once; names are made safe and distinct.
    ///
    /// Errors: there are more than a run may be given, or there is no room now, and a later call tries again.
    pub(crate) fn attach(&mut self, room: FileMemory<'_>) -> Result<(), String> {
        let Some(request) = &self.request else { return Ok(()) };
        let attachments: Vec<Attachment> = request.attachments();
        // Before they are named: each name is compared with all others.
        if attachments.len() > Limits::MAX_INPUT_FILES {
            return Err(format!(
                "{} attached files, at most {} are allowed; send fewer, or pack them into one archive",
                attachments.len(),
                Limits::MAX_INPUT_FILES
            ));
        }
        let bytes: usize = attachments.iter().map(|attachment| attachment.bytes.len()).sum();
        if !self.hold(bytes, room) {
            return Err(NO_ROOM_FOR_ATTACHMENTS.to_owned());
        }
        self.given_bytes += bytes;
        self.request = None;
        for (index, attachment) in attachments.into_iter().enumerate() {
            let name = input_name(&attachment, index, |name| {
                let path = format!("inputs/{name}");
                self.staged.keys().any(|staged| call::collide(staged, &path))
            });
            self.staged.insert(format!("inputs/{name}"), attachment.bytes.into());
        }
        Ok(())
    }

    /// Keeps the files of a run, for later runs and for the client. Files without room are returned as texts that name
    /// each.
    pub(crate) fn keep<'f>(
        &mut self,
        files: &'f [OutputFile],
        room: FileMemory<'_>,
    ) -> (Vec<&'f OutputFile>, Vec<String>) {
        let (mut kept, mut refused) = (Vec::new(), Vec::new());
        for file in files {
            let length = file.bytes.len();
            if self.made_files >= MADE_MAX_FILES || self.made_bytes + length > MADE_MAX_BYTES {
                refused.push(format!(
                    "{}: not kept; the runs of one request make at most {MADE_MAX_FILES} files and {} MiB in all",
                    file.path,
                    MADE_MAX_BYTES >> 20
                ));
            } else if self.hold(length, room) {
                self.made_files += 1;
                self.made_bytes += length;
                // A file that is now a folder, or was one, is gone.
                self.staged.retain(|path, _| !call::collide(path, &file.path));
                self.staged.insert(file.path.clone(), file.bytes.clone());
                kept.push(file);
            } else {
                refused.push(format!(
                    "{}: not kept; the gateway is short of memory, try again in a few seconds",
                    file.path
                ));
            }
        }
        (kept, refused)
    }

    /// Takes room for so many more bytes.
    fn hold(&mut self, more: usize, room: FileMemory<'_>) -> bool {
        let bytes = self.given_bytes + self.made_bytes + more;
        match &mut self.holding {
            Some(holding) => holding.grow_to(bytes).is_ok(),
            None if bytes == 0 => true,
            None => {
                self.holding = room.requests.hold(room.caller, bytes).ok();
                self.holding.is_some()
            }
        }
    }

    /// The files of the conversation, where this run finds them. Names that begin with a dot stay behind, and files of
    /// the skill where the conversation has one; beside a program of the model's, what would be in the folder of the skills.
    pub(crate) fn inputs(&self, spec: &RunSpec) -> Vec<InputFile> {
        let files = self
            .staged
            .iter()
            .filter(|(path, _)| call::is_stageable(path))
            .map(|(path, bytes)| (path.clone(), bytes.clone()));
        let placed = if matches!(spec.program, call::Program::Tool(_)) {
            call::below_inputs(files)
        } else {
            let mut placed: BTreeMap<String, Bytes> = files.filter(|(path, _)| !call::is_below_skills(path)).collect();
            for (path, bytes) in &spec.staged {
                if !placed.keys().any(|taken| call::collide(taken, path)) {
                    placed.insert(path.clone(), Bytes::copy_from_slice(bytes));
                }
            }
            placed
        };
        placed
            .into_iter()
            .map(|(path, bytes)| InputFile { path, bytes })
            .collect()
    }
}

/// Attachments of one name that get numbers; the last one of more replaces the one before.
const MAX_SAME_NAMES: usize = 200;
/// Longest staged input name, bytes; file systems take 255.
const INPUT_NAME_MAX: usize = 120;
/// Longest extension, bytes, that a name that is too long keeps; known ones are shorter.
const EXTENSION_MAX: usize = 16;

/// The name of an input below `inputs/`: safe as a path, and another one than those that are taken.
pub(crate) fn input_name(attachment: &Attachment, index: usize, taken: impl Fn(&str) -> bool) -> String {
    let given = attachment.name.as_deref().unwrap_or_default();
    let base = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = base
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ') {
                c
            } else {
                '_'
            }
        })
        .collect();
    let clean = shortened(clean.trim().trim_start_matches('.'));
    let name = if clean.is_empty() {
        format!("file-{}{}", index + 1, extension(attachment.media_type.as_deref()))
    } else {
        clean
    };
    if !taken(&name) {
        return name;
    }
    (2..=MAX_SAME_NAMES)
        .map(|n| format!("{n}-{name}"))
        .find(|name| !taken(name))
        .unwrap_or(name)
}

/// A name within [`INPUT_NAME_MAX`]. Its extension stays, by which programs know what a file is.
fn shortened(name: &str) -> String {
    if name.len() <= INPUT_NAME_MAX {
        return name.to_owned();
    }
    let extension = name.rfind('.').map_or("", |at| &name[at..]);
    let extension = if extension.len() <= EXTENSION_MAX {
        extension
    } else {
        ""
    };
    let stem = &name[..name.floor_char_boundary(INPUT_NAME_MAX - extension.len())];
    format!("{}{extension}", stem.trim_end())
}

fn extension(media_type: Option<&str>) -> &'static str {
    match media_type.unwrap_or_default() {
        "audio/wav" => ".wav",
        "audio/mp3" | "audio/mpeg" => ".mp3",
        "image/png" => ".png",
        "image/jpeg" => ".jpg",
        "image/gif" => ".gif",
        "image/webp" => ".webp",
        "application/pdf" => ".pdf",
        "text/plain" => ".txt",
        "text/csv" => ".csv",
        "application/json" => ".json",
        _ => ".bin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_server::budget::BodyTimes;
    use knack_memory::MemoryBudget;

    fn room(requests: &RequestMemory) -> FileMemory<'_> {
        FileMemory {
            requests,
            caller: &[1; 32],
        }
    }

    fn attachment(name: Option<&str>, media_type: Option<&str>) -> Attachment {
        Attachment {
            name: name.map(ToOwned::to_owned),
            media_type: media_type.map(ToOwned::to_owned),
            bytes: Vec::new(),
        }
    }

    fn made(name: &str, bytes: usize) -> OutputFile {
        OutputFile {
            path: name.to_owned(),
            bytes: vec![0; bytes].into(),
            sha256: String::new(),
            mime_type: "text/plain",
        }
    }

    #[test]
    fn files_are_kept_within_the_bounds_of_one_request_and_of_the_memory() {
        let requests = |mib: usize| RequestMemory::new(&MemoryBudget::new(mib << 20), BodyTimes::default());
        let (large, small) = (requests(512), requests(16));
        let mut files = RequestFiles::default();
        // Replaced ones count: the answer holds them until it ends.
        for n in 0..8 {
            let run = [made("same", 4 << 20)];
            let (kept, refused) = files.keep(&run, room(&large));
            assert_eq!((kept.len(), refused.len()), (1, 0), "{n}");
        }
        let nine = [made("a", 1), made("b", 0)];
        let (kept, refused) = files.keep(&nine, room(&large));
        assert_eq!(kept.len(), 1, "an empty one fits");
        assert!(refused[0].starts_with("a: not kept; the runs of one request make at most 200 files and 32 MiB"));
        let mut files = RequestFiles::default();
        let two = [made("a", 6 << 20), made("b", 6 << 20)];
        let (kept, refused) = files.keep(&two, room(&small));
        assert_eq!(kept.len(), 1);
        assert!(refused[0].contains("short of memory"), "{refused:?}");
        assert!(!files.stage(vec![("c".to_owned(), vec![0; 6 << 20].into())], room(&small)));
        drop(files);
        assert_eq!(small.process().held_bytes(), 0);
    }

    #[test]
    fn files_that_have_no_place_beside_others_stay_behind() {
        let large = RequestMemory::new(&MemoryBudget::new(512 << 20), BodyTimes::default());
        let mut files = RequestFiles::default();
        let first = [made("a", 1), made("b/c", 1), made("skills/x", 1)];
        drop(files.keep(&first, room(&large)));
        // A later run made a folder of the file.
        let later = [made("a/d", 1)];
        drop(files.keep(&later, room(&large)));
        let spec = RunSpec {
            skill: None,
            program: call::Program::Argv(vec!["true".to_owned()]),
            cwd: call::Cwd::Work,
            mounts: Vec::new(),
            staged: ["b", "e"].map(|path| (path.to_owned(), b"s"[..].into())).into(),
            sandbox: knack_skill::model::SandboxRequest::default(),
            render: call::Render::Code,
        };
        let placed: Vec<String> = files.inputs(&spec).into_iter().map(|input| input.path).collect();
        assert_eq!(placed, ["a/d", "b/c", "e"]);
    }

    #[test]
    fn more_attachments_than_a_run_takes_are_refused_before_they_are_named() {
        let large = RequestMemory::new(&MemoryBudget::new(512 << 20), BodyTimes::default());
        for (count, is_taken) in [(Limits::MAX_INPUT_FILES, true), (Limits::MAX_INPUT_FILES + 1, false)] {
            let part = r#"{"type":"input_file","filename":"a","file_data":"data:text/plain;base64,eA=="}"#;
            let parts = vec![part; count].join(",");
            let body = format!(r#"{{"model":"m","input":[{{"role":"user","content":[{parts}]}}]}}"#);
            let knack_wire::Route::Model(route) = knack_wire::route("POST", "/v1/responses") else {
                panic!("a route of models")
            };
            let request = knack_wire::Request::parse(route, body.into()).unwrap();
            assert_eq!(request.attachments().len(), count);
            let mut files = RequestFiles::default();
            files.attach_later(request);
            let attached = files.attach(room(&large));
            assert_eq!((attached.is_ok(), files.staged.is_empty()), (is_taken, !is_taken));
            if let Err(text) = attached {
                assert!(
                    text.starts_with("201 attached files, at most 200 are allowed"),
                    "{text}"
                );
            }
        }
    }

    /// A file of an earlier turn whose name a later turn gave to a folder; the later one wins.
    #[test]
    fn files_of_earlier_turns_have_one_place_each() {
        let large = RequestMemory::new(&MemoryBudget::new(512 << 20), BodyTimes::default());
        let mut files = RequestFiles::default();
        let earlier = ["out", "in/x", "kept"].map(|path| (path.to_owned(), Bytes::from_static(b"1")));
        assert!(files.stage(earlier.into(), room(&large)));
        let later = ["out/x", "in"].map(|path| (path.to_owned(), Bytes::from_static(b"2")));
        assert!(files.stage(later.into(), room(&large)));
        let staged: Vec<&str> = files.staged.keys().map(String::as_str).collect();
        assert_eq!(staged, ["in", "kept", "out/x"]);
    }

    #[test]
    fn attachment_names_are_safe_and_distinct() {
        for (name, media_type, expected) in [
            (Some("data.csv"), None, "data.csv"),
            (Some("../../etc/passwd"), None, "passwd"),
            (Some("a\\b\\c.txt"), None, "c.txt"),
            (Some(".bashrc"), None, "bashrc"),
            (Some("x\0y"), None, "x_y"),
            (None, Some("image/png"), "file-1.png"),
            (Some("//"), None, "file-1.bin"),
        ] {
            assert_eq!(input_name(&attachment(name, media_type), 0, |_| false), expected);
        }
        let long = |name: String| input_name(&attachment(Some(&name), None), 0, |_| false);
        assert_eq!(
            long(format!("{}.csv", "n".repeat(300))),
            format!("{}.csv", "n".repeat(116))
        );
        assert_eq!(
            long(format!("{}.csv", "ü".repeat(300))),
            format!("{}.csv", "ü".repeat(58))
        );
        assert_eq!(long("n".repeat(300)), "n".repeat(120));
        assert_eq!(long(format!("a.{}", "n".repeat(300))), format!("a.{}", "n".repeat(118)));
        assert_eq!(input_name(&attachment(Some("a"), None), 0, |name| name == "a"), "2-a");
    }
}
