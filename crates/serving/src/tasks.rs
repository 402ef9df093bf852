//! Tasks that a process needs as long as it runs: the end of one of them is the end of the process, since what it served
//! would stay as it was last seen. Kubernetes starts the process again.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

/// A task ended that its process needs.
#[derive(Debug, thiserror::Error)]
#[error("the task {task:?} {how}; this process ends and is started again")]
pub struct TaskEnded {
    task: String,
    how: String,
}

impl TaskEnded {
    /// A task that returned or panicked.
    pub fn new<T>(task: &str, ended: Result<T, tokio::task::JoinError>) -> Self {
        Self {
            task: task.to_owned(),
            how: ended.map_or_else(|error| format!("failed: {error}"), |_| "ended".to_owned()),
        }
    }
}

/// Whether a task may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Endless,
    Finite,
}

/// Named tasks, which end when this is dropped.
#[derive(Debug, Default)]
pub struct Tasks {
    tasks: JoinSet<Course>,
    names: HashMap<Id, String>,
}

impl Tasks {
    /// Starts a task that never returns.
    pub fn spawn(&mut self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        self.start(name.into(), Course::Endless, task);
    }

    /// Starts a task that may return.
    pub fn spawn_finite(&mut self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        self.start(name.into(), Course::Finite, task);
    }

    fn start(&mut self, name: String, course: Course, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.tasks.spawn(async move {
            task.await;
            course
        });
        self.names.insert(handle.id(), name);
    }

    /// Returns when a task has panicked, or has returned and may not. Cancel-safe.
    pub async fn ended(&mut self) -> TaskEnded {
        loop {
            let Some(ended) = self.tasks.join_next_with_id().await else {
                // All that were there have done their work.
                return std::future::pending().await;
            };
            let id = ended.as_ref().map_or_else(tokio::task::JoinError::id, |(id, _)| *id);
            let name = self.names.remove(&id).unwrap_or_default();
            match ended {
                Ok((_, Course::Finite)) => {}
                ended => return TaskEnded::new(&name, ended),
            }
        }
    }

    /// Returns when each of them has returned or panicked.
    pub async fn returned(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn end_of_a_task_is_reported_with_its_name() {
        let mut tasks = Tasks::default();
        tasks.spawn("waits", std::future::pending());
        tasks.spawn_finite("reads once", async {});
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(50), tasks.ended());
        assert!(waiting.await.is_err(), "nothing has failed");
        tasks.spawn_finite("watch of Skills", async { panic!("a bug") });
        let ended = tasks.ended().await.to_string();
        assert!(
            ended.contains("\"watch of Skills\" failed") && ended.contains("a bug"),
            "{ended}"
        );
        tasks.spawn("follows", async {});
        let ended = tasks.ended().await.to_string();
        assert!(ended.contains("\"follows\" ended"), "{ended}");
    }
}
