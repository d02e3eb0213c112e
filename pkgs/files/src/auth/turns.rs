//! Which password is tried when: a few per address and per user, until they turn out to be correct.
//!
//! An attempt takes its tokens before it starts, so many attempts at once gain nothing over one after the other. If no
//! token is left because earlier attempts are undecided, an attempt is held until they are decided: a correct one
//! returns its tokens. So a page of a hundred files, or an office behind one address, opens at once the first time. If
//! the same password of the same user arrives again meanwhile, it counts as one guess and is tried once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use service::rate_limit::{Exceeded, Rate, RateLimiter};

use super::{Digest, PasswordAttempt, PasswordVerdict};

/// Wrong passwords per minute from one address.
pub const PER_ADDRESS: NonZero<u32> = NonZero::new(5).unwrap();

/// Wrong passwords per minute for one user, from everywhere.
const PER_USER: NonZero<u32> = NonZero::new(100).unwrap();

const MINUTE: Duration = Duration::from_secs(60);

/// The most addresses and users whose attempts are counted. A hash takes 20 ms, so a minute uses fewer than half of
/// them.
const COUNTED: usize = 65_536;

/// Requests that wait for the result of an attempt, their own or an earlier one. Further ones are asked to retry.
pub const WAITING: usize = 1_024;

/// Attempts that may be held at a time.
const HELD: usize = 256;

/// What an attempt counts for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Its address.
    Address(IpAddr),
    /// Its user in a realm, whether that user exists or not.
    User(Digest),
}

impl Counted {
    fn rate(&self) -> Rate {
        match self {
            Self::Address(_) => Rate::per(MINUTE, PER_ADDRESS),
            Self::User(_) => Rate::per(MINUTE, PER_USER),
        }
    }
}

/// A password for a hash, and a user. Attempts of two users stay separate, since their time would otherwise reveal who
/// exists.
pub type Guess = (Digest, Digest);

/// Tells a request the result of its password.
pub type Done = Box<dyn FnOnce(PasswordVerdict) + Send>;

/// All undecided attempts.
pub struct Turns {
    limiter: RateLimiter,
    undecided: Mutex<Undecided>,
}

#[derive(Default)]
struct Undecided {
    /// At most as many as the threads have room for.
    under_way: HashMap<Guess, UnderWay>,
    held: Vec<(PasswordAttempt, Done)>,
    /// The number of requests in both.
    waiting: usize,
}

struct UnderWay {
    counted: Vec<Counted>,
    waiters: Vec<Done>,
}

/// What to do once the lock is released.
#[derive(Default)]
struct Todo {
    begin: Vec<PasswordAttempt>,
    tell: Vec<(Done, PasswordVerdict)>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { limiter: RateLimiter::new(COUNTED), undecided: Mutex::default() }
    }
}

impl Turns {
    /// Requests an attempt. Returns it if it has to start now; call [`Turns::decided`] for it afterwards. Otherwise
    /// `done` was called, or will be.
    pub fn ask(&self, attempt: PasswordAttempt, done: Done) -> Option<PasswordAttempt> {
        let mut undecided = self.undecided();
        if undecided.waiting >= WAITING {
            drop(undecided);
            done(PasswordVerdict::Busy);
            return None;
        }
        undecided.waiting += 1;
        let mut todo = Todo::default();
        self.place(&mut undecided, attempt, done, &mut todo);
        tell(undecided, todo).pop()
    }

    /// An attempt has ended, with `Busy` if it was not made. Returns the attempts that have to start now; those that
    /// are `known` to be correct by now need none.
    pub fn decided(
        &self,
        guess: &Guess,
        verdict: PasswordVerdict,
        known: impl Fn(&PasswordAttempt) -> bool,
    ) -> Vec<PasswordAttempt> {
        let mut undecided = self.undecided();
        let mut todo = Todo::default();
        if let Some(UnderWay { counted, waiters }) = undecided.under_way.remove(guess) {
            if verdict != PasswordVerdict::Rejected {
                self.give_back(&counted);
            }
            todo.tell.extend(waiters.into_iter().map(|done| (done, verdict)));
        }
        for (attempt, done) in std::mem::take(&mut undecided.held) {
            if known(&attempt) {
                todo.tell.push((done, PasswordVerdict::Accepted));
            } else {
                self.place(&mut undecided, attempt, done, &mut todo);
            }
        }
        tell(undecided, todo)
    }

    /// Starts, holds or refuses an attempt.
    fn place(&self, undecided: &mut Undecided, attempt: PasswordAttempt, done: Done, todo: &mut Todo) {
        if let Some(same) = undecided.under_way.get_mut(&attempt.guess()) {
            return same.waiters.push(done);
        }
        match self.take(&attempt.counted) {
            Ok(()) => {
                let under_way = UnderWay { counted: attempt.counted.clone(), waiters: vec![done] };
                undecided.under_way.insert(attempt.guess(), under_way);
                todo.begin.push(attempt);
            }
            Err((missing, exceeded)) => {
                let may_return = || undecided.under_way.values().any(|other| other.counted.contains(missing));
                if undecided.held.len() < HELD && may_return() {
                    undecided.held.push((attempt, done));
                } else {
                    let seconds = exceeded.retry_seconds().max(1);
                    todo.tell.push((done, PasswordVerdict::TooMany { seconds }));
                }
            }
        }
    }

    /// Takes a token for each key, or for none of them. The error says which key has no token left, and when it gets
    /// one.
    fn take<'c>(&self, counted: &'c [Counted]) -> Result<(), (&'c Counted, Exceeded)> {
        let now = Instant::now();
        for (index, key) in counted.iter().enumerate() {
            if let Err(exceeded) = self.limiter.take(key, key.rate(), now) {
                self.give_back(&counted[..index]);
                return Err((key, exceeded));
            }
        }
        Ok(())
    }

    fn give_back(&self, counted: &[Counted]) {
        counted.iter().for_each(|key| self.limiter.give_back(key, key.rate()));
    }

    /// The number of waiting requests.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.undecided().waiting
    }

    fn undecided(&self) -> MutexGuard<'_, Undecided> {
        self.undecided.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports results after releasing the lock, since the receiver may ask again. Returns the attempts to start.
fn tell(mut undecided: MutexGuard<'_, Undecided>, todo: Todo) -> Vec<PasswordAttempt> {
    undecided.waiting -= todo.tell.len();
    drop(undecided);
    todo.tell.into_iter().for_each(|(done, verdict)| done(verdict));
    todo.begin
}
