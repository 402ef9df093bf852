//! The logs of a namespace's pods, those of deleted pods too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often new logs are looked for: a pod lives for some hundred milliseconds at least.
const LOOK_EVERY: Duration = Duration::from_millis(30);

/// Keeps the log of every container that runs in a namespace while it lives: a hard link keeps what kubelet removes.
/// Needs no API server, so it goes on in an outage.
#[derive(Debug)]
pub struct PodLogs {
    kept: PathBuf,
    /// Dropped, it ends the thread.
    stop: Option<mpsc::Sender<()>>,
    looking: Option<JoinHandle<()>>,
}

impl PodLogs {
    /// `source` is kubelet's `podLogsDir`; `kept` a folder of the same file system that does not exist yet.
    pub(crate) fn keep(source: PathBuf, kept: PathBuf, namespace: &str) -> Self {
        fs::create_dir_all(&kept).unwrap();
        let (stop, stopped) = mpsc::channel();
        let looking = {
            let (kept, prefix) = (kept.clone(), format!("{namespace}_"));
            std::thread::spawn(move || {
                let mut known = BTreeSet::new();
                while stopped.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                    link_new(&source, &kept, &prefix, &mut known);
                }
            })
        };
        Self {
            kept,
            stop: Some(stop),
            looking: Some(looking),
        }
    }

    /// The pods that have a log, a further attempt to start as `<pod>@<attempt>`.
    #[must_use]
    pub fn pods(&self) -> Vec<String> {
        let files = fs::read_dir(&self.kept).unwrap().flatten();
        files
            .map(|file| file.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// What a pod has written so far, line by line. The last line may be incomplete.
    #[must_use]
    pub fn lines(&self, pod: &str) -> Vec<String> {
        let text = fs::read(self.kept.join(pod)).unwrap_or_default();
        written(&String::from_utf8_lossy(&text))
    }

    /// Bytes of each pod's log file, by the pod's name.
    #[must_use]
    pub fn sizes(&self) -> BTreeMap<String, u64> {
        let files = fs::read_dir(&self.kept).unwrap().flatten();
        let sized = files.filter_map(|file| {
            let size = file.metadata().ok()?.len();
            Some((file.file_name().to_string_lossy().into_owned(), size))
        });
        sized.collect()
    }
}

// The links would keep the disk full.
impl Drop for PodLogs {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(looking) = self.looking.take() {
            let _ = looking.join();
        }
        let _ = fs::remove_dir_all(&self.kept);
    }
}

/// Links `<source>/<namespace>_<pod>_<uid>/<container>/<attempt>.log`, which kubelet and containerd agree on: `<pod>` is
/// the first attempt. kubelet counts one on where a container was made and containerd went before it started.
fn link_new(source: &Path, kept: &Path, prefix: &str, known: &mut BTreeSet<PathBuf>) {
    for pod in entries(source) {
        let name = pod.file_name().to_string_lossy().into_owned();
        let Some((pod_name, _)) = name.strip_prefix(prefix).and_then(|rest| rest.split_once('_')) else {
            continue;
        };
        // A log comes a moment after its folder.
        for log in entries(&pod.path()).flat_map(|container| entries(&container.path())) {
            let file = log.file_name().to_string_lossy().into_owned();
            let link = match file.strip_suffix(".log") {
                Some("0") => pod_name.to_owned(),
                Some(attempt) => format!("{pod_name}@{attempt}"),
                None => continue,
            };
            if !known.contains(&log.path()) && fs::hard_link(log.path(), kept.join(link)).is_ok() {
                known.insert(log.path());
            }
        }
    }
}

/// What is in a folder; nothing if it is gone.
fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// The container's own lines: `<time> <stream> <P: goes on, F: ends> <text>` without what the runtime added.
fn written(log: &str) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for piece in log.lines() {
        let mut parts = piece.splitn(4, ' ');
        let (Some(_), Some(_), Some(tag), Some(text)) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        line.push_str(text);
        if tag.starts_with('F') {
            lines.push(std::mem::take(&mut line));
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_from_their_pieces() {
        let log = "t stdout F {\"a\":1}\nt stdout P one \nt stdout F two\nbroken\nt stdout P la";
        assert_eq!(written(log), ["{\"a\":1}", "one two", "la"]);
    }

    #[test]
    fn what_is_removed_stays() {
        let folder = std::env::temp_dir().join(format!("knack-pod-logs-{}", std::process::id()));
        let (source, kept) = (folder.join("logs"), folder.join("kept"));
        let container = source.join("ns_pod-1_uid/sandbox");
        fs::create_dir_all(&container).unwrap();
        fs::create_dir_all(source.join("other_pod-2_uid/sandbox")).unwrap();
        fs::write(container.join("0.log"), "t stdout F first\n").unwrap();
        fs::write(container.join("1.log"), "t stdout F again\n").unwrap();
        fs::create_dir_all(&kept).unwrap();
        let mut known = BTreeSet::new();
        link_new(&source, &kept, "ns_", &mut known);
        fs::remove_dir_all(source.join("ns_pod-1_uid")).unwrap();
        link_new(&source, &kept, "ns_", &mut known);
        assert_eq!(fs::read_to_string(kept.join("pod-1")).unwrap(), "t stdout F first\n");
        assert_eq!(fs::read_to_string(kept.join("pod-1@1")).unwrap(), "t stdout F again\n");
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 2);
        fs::remove_dir_all(folder).unwrap();
    }
}
