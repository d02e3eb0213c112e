//! Whose password is tried when: a few by address and by user, counted until they turn out to be right.
//!
//! A try takes its tokens before it is begun, so that whoever sends many at once has as few as whoever sends them one by
//! one. Who finds none left because of tries that are not decided yet is held until they are: a right one gives its
//! tokens back, so that a page of a hundred files, or an office behind one address, opens at once the first time. The same
//! password of the same user sent again meanwhile is one guess, and tried once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use service::rate_limit::{Exceeded, Rate, RateLimiter};

use super::{Digest, PasswordAttempt, PasswordVerdict};

/// Wrong passwords a minute from one address.
pub const PER_ADDRESS: NonZero<u32> = NonZero::new(5).unwrap();

/// Wrong passwords a minute for one user, from everywhere.
const PER_USER: NonZero<u32> = NonZero::new(100).unwrap();

const MINUTE: Duration = Duration::from_secs(60);

/// Addresses and users whose tries are counted. A hash takes 20 ms, so that there are not half as many in a minute.
const COUNTED: usize = 65_536;

/// Requests that wait for what comes of a try, their own or one before; more are told to come again.
pub const WAITING: usize = 1_024;

/// Tries that are held at a time.
const HELD: usize = 256;

/// What a try counts for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Its address.
    Address(IpAddr),
    /// Its user of a realm, whether there is one or not.
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

/// A password for a hash, and a user: two users' tries stay two, or the time they take would tell who is one.
pub type Guess = (Digest, Digest);

/// Tells a request what came of its password.
pub type Done = Box<dyn FnOnce(PasswordVerdict) + Send>;

/// All tries that are not decided.
pub struct Turns {
    limiter: RateLimiter,
    undecided: Mutex<Undecided>,
}

#[derive(Default)]
struct Undecided {
    /// No more than the threads have room for.
    under_way: HashMap<Guess, UnderWay>,
    held: Vec<(PasswordAttempt, Done)>,
    /// Requests in both.
    waiting: usize,
}

struct UnderWay {
    counted: Vec<Counted>,
    waiters: Vec<Done>,
}

/// What there is to do once the lock is free.
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
    /// A try is asked for. Answers it where it is to be begun now, whose [`Turns::decided`] then has to be called; else
    /// `done` has been called, or will be.
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

    /// A try has come to its end; busy where it was not made. Answers those that are to be begun now; what is `known` to be
    /// right by now needs none.
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

    /// Has a try begun, held, or refused.
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

    /// Takes a token from each, or from none; then tells which has none, and when it has.
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

    /// Requests that wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.undecided().waiting
    }

    fn undecided(&self) -> MutexGuard<'_, Undecided> {
        self.undecided.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells what is to be told, with the lock free: whoever is told may ask again. Answers what is to be begun.
fn tell(mut undecided: MutexGuard<'_, Undecided>, todo: Todo) -> Vec<PasswordAttempt> {
    undecided.waiting -= todo.tell.len();
    drop(undecided);
    todo.tell.into_iter().for_each(|(done, verdict)| done(verdict));
    todo.begin
}
