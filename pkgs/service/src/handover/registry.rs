//! What this process received from the one before, and what it offers to the next.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::wire::Item;

/// One per process, as its sockets are.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    enabled: false,
    handed: Vec::new(),
    offered: Vec::new(),
    later: Vec::new(),
    hooks: Vec::new(),
    left: None,
});

/// Whether another process has taken over. Set once; read where a mutex would cost too much.
static HANDED_OVER: AtomicBool = AtomicBool::new(false);

/// Receives the names of what the other process did not take.
type Hook = Box<dyn FnOnce(&BTreeSet<String>) + Send>;

/// Returns a text for the next process.
type Tell = Box<dyn Fn() -> String + Send>;

struct Registry {
    enabled: bool,
    /// Items that nobody has taken yet.
    handed: Vec<Item>,
    offered: Vec<Item>,
    /// Texts for the next process, by name.
    later: Vec<(String, Tell)>,
    hooks: Vec<Hook>,
    /// The names of what this process did not take; none before it has taken over.
    left: Option<BTreeSet<String>>,
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores what was handed over. From here on, offers are kept for the next process.
pub(super) fn enable(handed: Vec<Item>) {
    let mut registry = registry();
    registry.enabled = true;
    registry.handed = handed;
}

/// Whether another process may follow this one. Valid from [`Takeover::begin`](super::Takeover::begin) on.
pub fn enabled() -> bool {
    registry().enabled
}

/// Whether another process has taken over. This one then drains, and new connections belong to the other.
pub fn is_handed_over() -> bool {
    HANDED_OVER.load(SeqCst)
}

/// Takes the descriptors that were handed over under this name, in the order of their offers.
pub fn take(name: &str) -> Vec<OwnedFd> {
    take_all(|known| known == name).into_iter().map(|(_, fd)| fd).collect()
}

/// Takes the descriptors that were handed over under such names, in the order of their offers.
pub fn take_all(which: impl Fn(&str) -> bool) -> Vec<(String, OwnedFd)> {
    let mut registry = registry();
    let taken = registry.handed.extract_if(.., |item| item.fd.is_some() && which(&item.name));
    taken.filter_map(|item| Some((item.name, item.fd?))).collect()
}

/// Whether a descriptor with such a name was handed over and nobody has taken it yet.
pub(crate) fn is_left(which: impl Fn(&str) -> bool) -> bool {
    registry().handed.iter().any(|item| item.fd.is_some() && which(&item.name))
}

/// The text that the process before sent under this name, such as a key.
pub fn told(name: &str) -> Option<String> {
    let registry = registry();
    let mut texts = registry.handed.iter().filter(|item| item.fd.is_none());
    texts.find_map(|item| item.name.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

/// Offers a duplicate of `fd` to the next process, under a name of at most 1 KiB. Does nothing if none can follow.
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

/// Sends a text to the next process, under a name without `=`. Does nothing if none can follow.
pub fn tell(name: &str, text: &str) {
    let mut registry = registry();
    if registry.enabled {
        registry.offered.push(Item { name: format!("{name}={text}"), fd: None });
    }
}

/// The same for a text that changes: `text` is called when the next process asks.
pub fn tell_later(name: &str, text: impl Fn() -> String + Send + 'static) {
    let mut registry = registry();
    if registry.enabled {
        registry.later.push((name.to_owned(), Box::new(text)));
    }
}

/// Calls `hook` once, when another process takes over and before it serves, with the names of what that process did not
/// take.
pub fn on_handed_over(hook: impl FnOnce(&BTreeSet<String>) + Send + 'static) {
    let mut registry = registry();
    if registry.enabled {
        registry.hooks.push(Box::new(hook));
    }
}

/// Closes the descriptors that were handed over and that nobody has taken. Returns their names.
pub(super) fn close_the_rest() -> BTreeSet<String> {
    let mut registry = registry();
    let rest = std::mem::take(&mut registry.handed);
    rest.into_iter().filter(|item| item.fd.is_some()).map(|item| item.name).collect()
}

/// Records that this process has taken over without the items of these names.
pub(super) fn has_taken_over(left: BTreeSet<String>) {
    registry().left = Some(left);
}

/// The result of a takeover.
#[derive(Debug)]
pub struct Outcome {
    /// The descriptors that this process offers to the next.
    pub taken: Vec<(String, OwnedFd)>,
    /// The names of what it did not take.
    pub left: BTreeSet<String>,
}

/// The result of this process's takeover; none if it did not take over.
pub fn outcome() -> Option<Outcome> {
    let registry = registry();
    let left = registry.left.clone()?;
    let another = |item: &Item| Some((item.name.clone(), item.fd.as_ref()?.try_clone().ok()?));
    Some(Outcome { taken: registry.offered.iter().filter_map(another).collect(), left })
}

/// Duplicates of all descriptors on offer, and the texts.
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

/// Records that another process has everything except what is `left`, by name.
pub(super) fn hand_over(left: &BTreeSet<String>) {
    HANDED_OVER.store(true, SeqCst);
    let hooks = std::mem::take(&mut registry().hooks);
    hooks.into_iter().for_each(|hook| hook(left));
    close();
}

/// Closes the offers, so that clients do not connect to a socket that nobody serves.
pub(super) fn close() {
    let mut registry = registry();
    registry.enabled = false;
    registry.offered.clear();
    registry.later.clear();
    registry.hooks.clear();
}
