//! What this process was handed, and what it hands over.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::wire::Item;

/// Of the whole process, as are its sockets.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    enabled: false,
    handed: Vec::new(),
    offered: Vec::new(),
    later: Vec::new(),
    hooks: Vec::new(),
    left: None,
});

/// Whether another process has taken over. Set once, and asked where a mutex would be too much.
static HANDED_OVER: AtomicBool = AtomicBool::new(false);

/// Is told by which names the other process has not taken what it was handed.
type Hook = Box<dyn FnOnce(&BTreeSet<String>) + Send>;

/// Says what the next process is to know.
type Tell = Box<dyn Fn() -> String + Send>;

struct Registry {
    enabled: bool,
    /// What nobody has taken yet.
    handed: Vec<Item>,
    offered: Vec<Item>,
    /// What is to be told, by name.
    later: Vec<(String, Tell)>,
    hooks: Vec<Hook>,
    /// By which names this process has not taken what it was handed, once it has taken over.
    left: Option<BTreeSet<String>>,
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on what is offered is kept for the next process.
pub(super) fn enable(handed: Vec<Item>) {
    let mut registry = registry();
    registry.enabled = true;
    registry.handed = handed;
}

/// Whether there may be another process after this one. Known from [`Takeover::begin`](super::Takeover::begin) on.
pub fn enabled() -> bool {
    registry().enabled
}

/// Whether another process has taken over from this one: it drains then, and what comes is for the other.
pub fn is_handed_over() -> bool {
    HANDED_OVER.load(SeqCst)
}

/// Takes the descriptors that were handed over by this name, in the order in which they were offered.
pub fn take(name: &str) -> Vec<OwnedFd> {
    take_all(|known| known == name).into_iter().map(|(_, fd)| fd).collect()
}

/// Takes the descriptors that were handed over by such names, in the order in which they were offered.
pub fn take_all(which: impl Fn(&str) -> bool) -> Vec<(String, OwnedFd)> {
    let mut registry = registry();
    let taken = registry.handed.extract_if(.., |item| item.fd.is_some() && which(&item.name));
    taken.filter_map(|item| Some((item.name, item.fd?))).collect()
}

/// What the process before has told by this name, such as a key.
pub fn told(name: &str) -> Option<String> {
    let registry = registry();
    let mut texts = registry.handed.iter().filter(|item| item.fd.is_none());
    texts.find_map(|item| item.name.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

/// Offers another descriptor of `fd` to the next process, by a name of a kibibyte at most; does nothing where there is none
/// to come.
pub fn offer(name: &str, fd: impl AsFd) {
    let mut registry = registry();
    if !registry.enabled {
        return;
    }
    match fd.as_fd().try_clone_to_owned() {
        Ok(fd) => registry.offered.push(Item { name: name.to_owned(), fd: Some(fd) }),
        Err(error) => tracing::warn!(%error, name, "this cannot be handed over"),
    }
}

/// Tells the next process something, by a name without `=`; does nothing where there is none to come.
pub fn tell(name: &str, text: &str) {
    let mut registry = registry();
    if registry.enabled {
        registry.offered.push(Item { name: format!("{name}={text}"), fd: None });
    }
}

/// The same of what changes: `text` is asked when the next process does.
pub fn tell_later(name: &str, text: impl Fn() -> String + Send + 'static) {
    let mut registry = registry();
    if registry.enabled {
        registry.later.push((name.to_owned(), Box::new(text)));
    }
}

/// Has `hook` called once, when another process takes over and before it serves, with the names by which it has not taken
/// what it was handed.
pub fn on_handed_over(hook: impl FnOnce(&BTreeSet<String>) + Send + 'static) {
    let mut registry = registry();
    if registry.enabled {
        registry.hooks.push(Box::new(hook));
    }
}

/// Closes what was handed over and nobody has taken; tells by which names that was.
pub(super) fn close_the_rest() -> BTreeSet<String> {
    let mut registry = registry();
    let rest = std::mem::take(&mut registry.handed);
    rest.into_iter().filter(|item| item.fd.is_some()).map(|item| item.name).collect()
}

/// This process has taken over, and left what goes by these names.
pub(super) fn has_taken_over(left: BTreeSet<String>) {
    registry().left = Some(left);
}

/// What a process has come to have by taking over.
#[derive(Debug)]
pub struct Outcome {
    /// The descriptors that it offers in its turn.
    pub taken: Vec<(String, OwnedFd)>,
    /// By which names it has left what it was handed.
    pub left: BTreeSet<String>,
}

/// That of this process; none where it has taken over from nobody.
pub fn outcome() -> Option<Outcome> {
    let registry = registry();
    let left = registry.left.clone()?;
    let another = |item: &Item| Some((item.name.clone(), item.fd.as_ref()?.try_clone().ok()?));
    Some(Outcome { taken: registry.offered.iter().filter_map(another).collect(), left })
}

/// Other descriptors of all that is offered.
pub(super) fn offered() -> std::io::Result<Vec<Item>> {
    let registry = registry();
    let another = |item: &Item| {
        let fd = item.fd.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok(Item { name: item.name.clone(), fd })
    };
    let told =
        registry.later.iter().map(|(name, text)| Ok(Item { name: format!("{name}={}", text()), fd: None }));
    registry.offered.iter().map(another).chain(told).collect()
}

/// Another process has all of it, but for what is `left` by these names.
pub(super) fn hand_over(left: &BTreeSet<String>) {
    HANDED_OVER.store(true, SeqCst);
    let hooks = std::mem::take(&mut registry().hooks);
    hooks.into_iter().for_each(|hook| hook(left));
    close();
}

/// Closes what is offered, so that who listens no more is not connected to.
pub(super) fn close() {
    let mut registry = registry();
    registry.enabled = false;
    registry.offered.clear();
    registry.later.clear();
    registry.hooks.clear();
}
