//! The runtime of sessions and the feed. They have their own, since callers' runtimes come and go.
//!
//! Generic code is compiled in each crate that calls it, and once for each caller, and a tokio task consists of about
//! twenty functions. So work is boxed, and the code that runs it is compiled once, here.

use std::io;
use std::pin::{Pin, pin};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::comment::{comment, commented};

/// Threads that write and read lists, and receive changes.
const THREADS: usize = 2;

/// Work whose result goes elsewhere.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The runtime; it ends when dropped.
#[derive(Debug)]
pub struct Background(Option<Runtime>);

impl Background {
    /// Starts it.
    ///
    /// # Errors
    /// When the system starts no threads.
    pub fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("store")
            .enable_all()
            .build();
        Ok(Self(Some(runtime?)))
    }

    /// Runs work.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.begin(Box::pin(work))
    }

    /// Runs work whose statements have the calling task's comment.
    pub fn carry(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.begin_carrying(Box::pin(work));
    }

    /// Waits for work, on a thread that may block.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        let mut answer = None;
        self.wait(pin!(async { answer = Some(work.await) }));
        answer.expect("it was waited for")
    }

    #[inline(never)]
    fn begin(&self, work: Work) -> JoinHandle<()> {
        self.runtime().spawn(work)
    }

    #[inline(never)]
    fn begin_carrying(&self, work: Work) {
        // Statements report the calling task's trace, although another task runs them.
        self.begin(Box::pin(commented(comment(), work)));
    }

    #[inline(never)]
    fn wait(&self, work: Pin<&mut dyn Future<Output = ()>>) {
        self.runtime().block_on(work);
    }

    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until dropped")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // An async thread must not block on the shutdown, and there is nothing to wait for.
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::Comment;

    #[test]
    fn work_has_the_comment_of_who_asks_where_it_is_carried() {
        let background = Background::start().expect("a runtime");
        let asked = Comment::new("traceparent", "00-1").expect("a comment");
        let told = background.block_on(commented(Some(asked.clone()), async {
            let [(carry, carried), (spawn, spawned)] = [oneshot::channel(), oneshot::channel()];
            background.carry(async move { drop(carry.send(comment())) });
            background.spawn(async move { drop(spawn.send(comment())) });
            (carried.await.expect("an answer"), spawned.await.expect("an answer"))
        }));
        assert_eq!(told, (Some(asked), None));
    }
}
