//! Uploads and containers of callers, wherever they are kept.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use knack_wire::own_files::CONTAINER_PREFIX;

use super::files_caller::FilesCaller;
use super::objects::{Container, ContainerFile, FileInfo, NewContainer, NewContainerFile, NewFile, Source};
use super::operation::{Answer, Op, RemovedIds, Reply};
use super::refusal::FilesRefusal;
use crate::files::FileEntry;

/// Contents of one container that are read at once.
const READ_AT_ONCE: usize = 4;

/// Attempts to read a file that other requests replace meanwhile.
const READ_TRIES: usize = 8;

/// The clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The store of uploads and containers: a folder of this machine, or the registry of a cluster.
#[async_trait]
pub trait UploadStore: fmt::Debug + Send + Sync {
    /// Does an operation for a caller. Its changes are kept when this returns.
    async fn call(&self, caller: &FilesCaller, op: Op, content: Bytes) -> Result<Reply, FilesRefusal>;

    /// The time.
    fn now(&self) -> Timestamp;

    /// How long a container that asks for nothing else lives without use.
    fn idle(&self) -> SignedDuration;
}

/// Uploads and containers of all callers.
#[derive(Debug)]
pub struct UserFiles(Box<dyn UploadStore>);

impl UserFiles {
    /// The uploads and containers of a store.
    pub fn of(store: impl UploadStore + 'static) -> Arc<Self> {
        Arc::new(Self(Box::new(store)))
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.0.now()
    }

    /// How long a container that asks for nothing else lives without use.
    pub(crate) fn idle(&self) -> SignedDuration {
        self.0.idle()
    }

    async fn ask(&self, caller: &FilesCaller, op: Op) -> Result<Answer, FilesRefusal> {
        self.0.call(caller, op, Bytes::new()).await.map(|(answer, _)| answer)
    }

    pub(super) async fn add_file(
        &self,
        caller: &FilesCaller,
        file: NewFile,
        content: Bytes,
    ) -> Result<FileInfo, FilesRefusal> {
        match self.0.call(caller, Op::AddFile(file), content).await? {
            (Answer::File(info), _) => Ok(info),
            _ => Err(FilesRefusal::Failed),
        }
    }

    pub(super) async fn file(&self, caller: &FilesCaller, id: &str) -> Result<FileInfo, FilesRefusal> {
        match self.ask(caller, Op::File(id.to_owned())).await? {
            Answer::File(info) => Ok(info),
            _ => Err(FilesRefusal::Failed),
        }
    }

    pub(super) async fn file_content(&self, caller: &FilesCaller, id: &str) -> Result<Bytes, FilesRefusal> {
        let reply = self.0.call(caller, Op::FileContent(id.to_owned()), Bytes::new()).await;
        reply.map(|(_, content)| content)
    }

    pub(super) async fn files(
        &self,
        caller: &FilesCaller,
        places: Vec<String>,
    ) -> Result<(Vec<FileInfo>, RemovedIds), FilesRefusal> {
        match self.ask(caller, Op::Files(places)).await? {
            Answer::Files(files, gone) => Ok((files, gone)),
            _ => Err(FilesRefusal::Failed),
        }
    }

    pub(super) async fn delete_file(&self, caller: &FilesCaller, id: &str) -> Result<(), FilesRefusal> {
        self.ask(caller, Op::DeleteFile(id.to_owned())).await.map(drop)
    }

    pub(super) async fn note_gone(
        &self,
        caller: &FilesCaller,
        id: &str,
        created: Timestamp,
    ) -> Result<(), FilesRefusal> {
        self.ask(caller, Op::NoteGone(id.to_owned(), created)).await.map(drop)
    }

    pub(super) async fn add_container(
        &self,
        caller: &FilesCaller,
        new: NewContainer,
    ) -> Result<Container, FilesRefusal> {
        let answer = self.ask(caller, Op::AddContainer(new)).await?;
        container_of(answer).map(|(one, _)| one)
    }

    /// A new container for the runs of an answer, as OpenAI's API shows it.
    pub(crate) async fn open_container(&self, caller: &FilesCaller) -> Result<Container, FilesRefusal> {
        self.add_container(caller, new_container()).await
    }

    pub(super) async fn container(
        &self,
        caller: &FilesCaller,
        id: &str,
        places: Vec<String>,
    ) -> Result<(Container, RemovedIds), FilesRefusal> {
        let answer = self.ask(caller, Op::Container(id.to_owned(), places)).await?;
        container_of(answer)
    }

    /// A container for a request that names it; counts as a use.
    pub(crate) async fn use_container(&self, caller: &FilesCaller, id: &str) -> Result<Container, FilesRefusal> {
        let answer = self.ask(caller, Op::UseContainer(id.to_owned())).await?;
        container_of(answer).map(|(one, _)| one)
    }

    pub(super) async fn containers(
        &self,
        caller: &FilesCaller,
        places: Vec<String>,
    ) -> Result<(Vec<Container>, RemovedIds), FilesRefusal> {
        match self.ask(caller, Op::Containers(places)).await? {
            Answer::Containers(all, gone) => Ok((all, gone)),
            _ => Err(FilesRefusal::Failed),
        }
    }

    pub(super) async fn delete_container(&self, caller: &FilesCaller, id: &str) -> Result<(), FilesRefusal> {
        self.ask(caller, Op::DeleteContainer(id.to_owned())).await.map(drop)
    }

    pub(super) async fn add_to_container(
        &self,
        caller: &FilesCaller,
        container: &str,
        file: NewContainerFile,
        content: Bytes,
    ) -> Result<ContainerFile, FilesRefusal> {
        let op = Op::AddToContainer(container.to_owned(), file);
        container_file_of(self.0.call(caller, op, content).await?.0)
    }

    pub(super) async fn copy_to_container(
        &self,
        caller: &FilesCaller,
        container: &str,
        (upload, path): (&FileInfo, &str),
    ) -> Result<ContainerFile, FilesRefusal> {
        let (container, id) = (container.to_owned(), upload.id.clone());
        let op = if path == upload.name {
            Op::CopyToContainer(container, id)
        } else {
            Op::CopyToContainerAs(container, id, path.to_owned())
        };
        container_file_of(self.ask(caller, op).await?)
    }

    pub(super) async fn container_file_content(
        &self,
        caller: &FilesCaller,
        container: &str,
        file: &str,
    ) -> Result<(ContainerFile, Bytes), FilesRefusal> {
        let op = Op::ContainerFileContent(container.to_owned(), file.to_owned());
        let (answer, content) = self.0.call(caller, op, Bytes::new()).await?;
        Ok((container_file_of(answer)?, content))
    }

    /// The contents of a container by path.
    pub(super) async fn contents(
        &self,
        caller: &FilesCaller,
        container: &Container,
    ) -> Result<Vec<(String, Bytes)>, FilesRefusal> {
        let files = container.files.clone();
        let reads = files
            .into_iter()
            .map(|file| async move { self.content_at(caller, &container.id, file).await });
        let read = futures::stream::iter(reads)
            .buffered(READ_AT_ONCE)
            .try_collect::<Vec<_>>();
        Ok(read.await?.into_iter().flatten().collect())
    }

    /// A file of a container with its path. Another request may have replaced it, under a new id: then what is at its path now;
    /// `None`: nothing is.
    async fn content_at(
        &self,
        caller: &FilesCaller,
        container: &str,
        mut file: ContainerFile,
    ) -> Result<Option<(String, Bytes)>, FilesRefusal> {
        for _ in 0..READ_TRIES {
            match self.container_file_content(caller, container, &file.id).await {
                Ok((_, content)) => return Ok(Some((file.path, content))),
                Err(FilesRefusal::Missing("Container file", _)) => {}
                Err(refusal) => return Err(refusal),
            }
            let (now, _) = self.container(caller, container, Vec::new()).await?;
            match now.files.into_iter().find(|one| one.path == file.path) {
                Some(there) => file = there,
                None => return Ok(None),
            }
        }
        Err(FilesRefusal::Busy)
    }

    pub(super) async fn delete_container_file(
        &self,
        caller: &FilesCaller,
        container: &str,
        file: &str,
    ) -> Result<(), FilesRefusal> {
        let op = Op::DeleteContainerFile(container.to_owned(), file.to_owned());
        self.ask(caller, op).await.map(drop)
    }

    /// Files that a run made, into the container of its request. That of an answer is made with its first file. Returns those that are
    /// kept, and how many could not be.
    pub(crate) async fn add_made(
        &self,
        caller: &FilesCaller,
        id: &str,
        files: &[(FileEntry, Bytes)],
    ) -> (Vec<ContainerFile>, usize) {
        let (mut kept, mut refused) = (Vec::new(), 0);
        for (index, (entry, content)) in files.iter().enumerate() {
            let file = NewContainerFile {
                path: entry.name.clone(),
                mime: entry.mime_type.clone(),
                source: Source::Assistant,
            };
            match self.add_to_container(caller, id, file, content.clone()).await {
                Ok(file) => kept.push(file),
                // The answer does not wait for each of them in vain.
                Err(FilesRefusal::Away | FilesRefusal::Busy | FilesRefusal::TooOften(_)) => {
                    refused += files.len() - index;
                    break;
                }
                Err(_) => refused += 1,
            }
        }
        (kept, refused)
    }
}

/// A container that a model request opens.
pub(super) fn new_container() -> NewContainer {
    NewContainer {
        id: new_id(CONTAINER_PREFIX),
        ..NewContainer::default()
    }
}

fn container_of(answer: Answer) -> Result<(Container, RemovedIds), FilesRefusal> {
    match answer {
        Answer::Container(one, gone) => Ok((one, gone)),
        _ => Err(FilesRefusal::Failed),
    }
}

fn container_file_of(answer: Answer) -> Result<ContainerFile, FilesRefusal> {
    match answer {
        Answer::ContainerFile(file) => Ok(file),
        _ => Err(FilesRefusal::Failed),
    }
}

/// A UUIDv7 behind a prefix: sorts by time.
pub(super) fn new_id(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::now_v7().simple())
}
