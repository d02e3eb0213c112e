//! Passwords of basic authentication (RFC 7617). Separate threads try them, a few per minute and address (`turns`).
//! Correct ones are then remembered, so that a hot file stays hot.
//!
//! What is remembered is a keyed digest of hash and password, but neither of the two. If the hash changes, the password
//! has to be tried again.

mod turns;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use service::password;
use service::socket::network;

use crate::site::secrets::Realm;
use crate::threads::health::ThreadHealth;
use crate::threads::pool::ThreadPool;

use turns::{Counted, Guess, Turns};

/// Hashes at once. Each takes 19 MiB and a core for some 20 ms.
const THREADS: usize = 2;

/// Passwords that may wait for a thread; they take about half a second.
const WAITING: usize = 64;

/// Passwords that are remembered. Beyond it, the oldest are forgotten.
const KNOWN: usize = 4096;

/// How long a password is remembered.
const KNOWN_FOR: Duration = Duration::from_secs(600);

/// The longest credentials, in base64.
const MAX_BYTES: usize = 1024;

type Digest = [u8; 32];

/// The state of passwords, for all workers.
pub struct Authenticator {
    key: hmac::Key,
    known: ArcSwap<HashMap<Digest, Instant>>,
    turns: Turns,
    pool: ThreadPool,
}

/// The result of checking credentials.
#[derive(Debug)]
pub enum CredentialCheck {
    /// They are known to be correct.
    Accepted,
    /// There are none, or they are malformed.
    Rejected,
    /// They have to be tried.
    Verify(PasswordAttempt),
}

/// Credentials that are to be tried.
pub struct PasswordAttempt {
    /// The realm.
    pub realm: Arc<Realm>,
    hash: Arc<str>,
    /// Whether the hash is that user's. Otherwise it is any hash, so that the time does not reveal which users exist.
    is_user: bool,
    password: String,
    digest: Digest,
    user: Digest,
    counted: Vec<Counted>,
}

impl PasswordAttempt {
    fn guess(&self) -> Guess {
        (self.digest, self.user)
    }
}

/// The result of trying a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordVerdict {
    /// The password is right.
    Accepted,
    /// It is not.
    Rejected,
    /// There were too many wrong passwords.
    TooMany {
        /// How long until another may be tried.
        seconds: u64,
    },
    /// Too many passwords wait now.
    Busy,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl fmt::Debug for PasswordAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordAttempt").field("realm", &self.realm.name).finish_non_exhaustive()
    }
}

impl Default for Authenticator {
    fn default() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &aws_lc_rs::rand::SystemRandom::new());
        Self {
            key: key.expect("the system has random bytes"),
            known: ArcSwap::default(),
            turns: Turns::default(),
            pool: ThreadPool::new("files-auth", THREADS, WAITING),
        }
    }
}

impl Authenticator {
    /// Checks the credentials in the `Authorization` of a request from `address`.
    pub fn check(
        &self,
        realm: &Arc<Realm>,
        authorization: Option<&[u8]>,
        address: Option<IpAddr>,
    ) -> CredentialCheck {
        let Some((user, password)) = authorization.and_then(credentials) else {
            return CredentialCheck::Rejected;
        };
        let hash = realm.users.get(&*user);
        let is_user = hash.is_some();
        let Some(hash) = hash.or_else(|| realm.users.values().next()) else {
            return CredentialCheck::Rejected;
        };
        let digest = self.digest(&[hash.as_bytes(), password.as_bytes()]);
        if is_user && self.knows(&digest) {
            return CredentialCheck::Accepted;
        }
        let address = address.map(|address| Counted::Address(network(address)));
        let user = self.digest(&[realm.name.as_bytes(), user.as_bytes()]);
        CredentialCheck::Verify(PasswordAttempt {
            realm: Arc::clone(realm),
            hash: Arc::clone(hash),
            is_user,
            password,
            digest,
            user,
            counted: address.into_iter().chain([Counted::User(user)]).collect(),
        })
    }

    /// Tries a password on a separate thread. Calls `done` on that thread, or at once.
    pub fn verify_in_background(
        self: &Arc<Self>,
        this: PasswordAttempt,
        done: impl FnOnce(PasswordVerdict) + Send + 'static,
    ) {
        self.begin(self.turns.ask(this, Box::new(done)).into_iter().collect());
    }

    /// Tries the passwords whose turn it is, and then those that may follow.
    fn begin(self: &Arc<Self>, mut due: Vec<PasswordAttempt>) {
        while let Some(this) = due.pop() {
            let (authenticator, guess) = (Arc::clone(self), this.guess());
            let taken = self.pool.run(move || {
                let verdict =
                    service::panics::catch(|| authenticator.verify(&this)).unwrap_or_else(|panic| {
                        panic.log("job", "trying a password");
                        PasswordVerdict::Busy
                    });
                let due = authenticator.decided(&guess, verdict);
                authenticator.begin(due);
            });
            if !taken {
                due.extend(self.decided(&guess, PasswordVerdict::Busy));
            }
        }
    }

    fn decided(&self, guess: &Guess, verdict: PasswordVerdict) -> Vec<PasswordAttempt> {
        self.turns.decided(guess, verdict, |held| held.is_user && self.knows(&held.digest))
    }

    fn knows(&self, digest: &Digest) -> bool {
        self.known.load().get(digest).is_some_and(|since| since.elapsed() < KNOWN_FOR)
    }

    /// Since when each thread has been running its current job.
    pub fn health(&self) -> &ThreadHealth {
        self.pool.health()
    }

    fn verify(&self, this: &PasswordAttempt) -> PasswordVerdict {
        let right = password::verify(&this.password, &this.hash) && this.is_user;
        if !right {
            return PasswordVerdict::Rejected;
        }
        let now = Instant::now();
        self.known.rcu(|known| {
            let mut known: HashMap<Digest, Instant> = known
                .iter()
                .filter(|(_, since)| now.duration_since(**since) < KNOWN_FOR)
                .map(|(digest, since)| (*digest, *since))
                .collect();
            if known.len() >= KNOWN
                && let Some(oldest) = known.iter().min_by_key(|(_, since)| **since).map(|(digest, _)| *digest)
            {
                known.remove(&oldest);
            }
            known.insert(this.digest, now);
            known
        });
        PasswordVerdict::Accepted
    }

    /// A digest of several texts, separated.
    fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }
}

/// User and password (RFC 7617, section 2).
fn credentials(authorization: &[u8]) -> Option<(String, String)> {
    let (scheme, rest) = authorization.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") || rest.len() > MAX_BYTES {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(rest.trim_ascii()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn realm(users: &[(&str, &str)]) -> Arc<Realm> {
        let hash = |password: &str| Arc::from(password::hash(password).expect("a hash"));
        let users = users.iter().map(|(user, password)| ((*user).to_owned(), hash(password)));
        Arc::new(Realm { name: "r".to_owned(), users: users.collect() })
    }

    fn basic(user: &str, password: &str) -> Vec<u8> {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))).into_bytes()
    }

    /// The final result for credentials.
    fn verdict(
        authenticator: &Arc<Authenticator>,
        realm: &Arc<Realm>,
        authorization: &[u8],
        address: IpAddr,
    ) -> PasswordVerdict {
        match authenticator.check(realm, Some(authorization), Some(address)) {
            CredentialCheck::Accepted => PasswordVerdict::Accepted,
            CredentialCheck::Rejected => PasswordVerdict::Rejected,
            CredentialCheck::Verify(this) => {
                let (give, verdict) = channel();
                authenticator
                    .verify_in_background(this, move |verdict| give.send(verdict).expect("it is waited for"));
                verdict.recv().expect("a verdict")
            }
        }
    }

    #[test]
    fn a_right_password_is_known_and_wrong_ones_are_few() {
        let authenticator = Arc::new(Authenticator::default());
        let realm = realm(&[("a", "one"), ("b", "two:")]);
        let (here, there) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert_eq!(verdict(&authenticator, &realm, &basic("a", "one"), here), PasswordVerdict::Accepted);
        assert!(matches!(
            authenticator.check(&realm, Some(&basic("a", "one")), None),
            CredentialCheck::Accepted
        ));
        assert_eq!(verdict(&authenticator, &realm, &basic("b", "two:"), here), PasswordVerdict::Accepted);
        for (user, password) in [("a", "two:"), ("b", "one"), ("c", "one"), ("a", ""), ("", "one")] {
            assert_eq!(
                verdict(&authenticator, &realm, &basic(user, password), here),
                PasswordVerdict::Rejected,
                "{user}"
            );
        }
        // On a very slow machine, tokens return meanwhile, so one or two more are tried.
        let mut further = (0..5).map(|_| verdict(&authenticator, &realm, &basic("a", "x"), here));
        let told =
            |verdict| matches!(verdict, PasswordVerdict::TooMany { seconds } if (1..=12).contains(&seconds));
        assert!(further.any(told));
        // A remembered user still succeeds, and so do clients from other addresses.
        assert_eq!(verdict(&authenticator, &realm, &basic("a", "one"), here), PasswordVerdict::Accepted);
        assert_eq!(verdict(&authenticator, &realm, &basic("a", "x"), there), PasswordVerdict::Rejected);
        // If the hash changes, the password is no longer known.
        let changed = self::realm(&[("a", "other")]);
        assert_eq!(verdict(&authenticator, &changed, &basic("a", "one"), there), PasswordVerdict::Rejected);
    }

    /// The results for credentials that are all sent at once.
    fn verdicts(
        authenticator: &Arc<Authenticator>,
        realm: &Arc<Realm>,
        all: impl Iterator<Item = Vec<u8>>,
    ) -> Vec<PasswordVerdict> {
        let (give, verdicts) = channel();
        let here = Some(IpAddr::from([192, 0, 2, 1]));
        for authorization in all {
            match authenticator.check(realm, Some(&authorization), here) {
                CredentialCheck::Verify(this) => {
                    let give = give.clone();
                    authenticator.verify_in_background(this, move |verdict| {
                        give.send(verdict).expect("it is waited for");
                    });
                }
                CredentialCheck::Accepted => give.send(PasswordVerdict::Accepted).expect("it is waited for"),
                CredentialCheck::Rejected => panic!("they are credentials"),
            }
        }
        drop(give);
        verdicts.iter().collect()
    }

    #[test]
    fn right_passwords_that_come_all_at_once_are_let_in() {
        // The files of a page for one user, and several users behind one address.
        let users: Vec<(String, String)> = (0..12).map(|n| (format!("u{n}"), format!("p{n}"))).collect();
        let users: Vec<(&str, &str)> = users.iter().map(|(user, password)| (&**user, &**password)).collect();
        let realm = realm(&users);
        for (many, each) in [(1, 200), (12, 3)] {
            let authenticator = Arc::new(Authenticator::default());
            let sent =
                (0..each).flat_map(|_| users[..many].iter().map(|(user, password)| basic(user, password)));
            let verdicts = verdicts(&authenticator, &realm, sent);
            assert_eq!(verdicts, vec![PasswordVerdict::Accepted; many * each]);
        }
    }

    #[test]
    fn wrong_passwords_that_come_all_at_once_are_as_few() {
        let authenticator = Arc::new(Authenticator::default());
        let realm = realm(&[("a", "one")]);
        // Each of them twice, which counts as one guess.
        let sent = (0..40).flat_map(|n| [n, n]).map(|n| basic("a", &format!("x{n}")));
        let verdicts = verdicts(&authenticator, &realm, sent);
        let of = |is: fn(&PasswordVerdict) -> bool| verdicts.iter().filter(|verdict| is(verdict)).count();
        let tried = of(|verdict| *verdict == PasswordVerdict::Rejected);
        let most = turns::PER_ADDRESS.get() as usize;
        // On a very slow machine, tokens return meanwhile, so one or two more are tried.
        assert!((most..=2 * (most + 2)).contains(&tried), "{verdicts:?}");
        assert_eq!(tried + of(|verdict| matches!(verdict, PasswordVerdict::TooMany { .. })), 80);
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let authenticator = Arc::new(Authenticator::default());
        let realm = realm(&[("a", "one")]);
        let verdicts = verdicts(&authenticator, &realm, (0..turns::WAITING + 9).map(|_| basic("a", "x")));
        // If the first is decided before the last is sent, that one is another attempt.
        let busy = verdicts.iter().filter(|verdict| **verdict == PasswordVerdict::Busy).count();
        assert!(busy <= 9 && verdicts.len() == turns::WAITING + 9, "{busy}");
        assert_eq!(authenticator.turns.waiting(), 0);
    }

    #[test]
    fn what_are_no_credentials_is_not_tried() {
        let authenticator = Authenticator::default();
        let realm = realm(&[("a", "one")]);
        let long = format!("Basic {}", BASE64_STANDARD.encode("a:".to_owned() + &"x".repeat(MAX_BYTES)));
        for text in
            ["", "Basic", "Basic ", "Basic YQ==", "Basic !!!!", "Bearer YTpvbmU=", "Basic gIA6gA==", &long]
        {
            assert!(
                matches!(authenticator.check(&realm, Some(text.as_bytes()), None), CredentialCheck::Rejected),
                "{text}"
            );
        }
        assert!(matches!(authenticator.check(&realm, None, None), CredentialCheck::Rejected));
        let nobody = self::realm(&[]);
        assert!(matches!(
            authenticator.check(&nobody, Some(&basic("a", "one")), None),
            CredentialCheck::Rejected
        ));
    }
}
