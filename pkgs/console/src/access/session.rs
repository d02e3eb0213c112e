//! Who is signed in. Sessions are only in memory, so they end with the process.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::csrf;

/// The most sessions at once. One more ends another one: see [`make_room`].
const SESSIONS: usize = 64;

/// The most sessions at once of a key or a person, so that nobody ends those of others by signing in again and again.
const SESSIONS_EACH: usize = 8;

/// The lifetime of sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLifetime {
    /// The longest time after signing in.
    pub(crate) whole: Duration,
    /// The longest time without a request.
    pub(crate) idle: Duration,
}

/// The credentials that the console uses for a user's requests to the services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// A key for linerate-links.
    pub(crate) links: Option<String>,
    /// A key for linerate-api.
    pub(crate) api: Option<String>,
    /// A user whose identity an issuer confirms. Requests to the services then use the issuer's token.
    pub(crate) user: Option<User>,
}

/// A user whose identity an issuer confirms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Their identifier at the issuer, which stays the same when their name changes.
    pub(crate) id: String,
    /// Their name.
    pub(crate) name: String,
}

impl Grant {
    /// Whether both have a key in common or belong to the same person.
    fn shares_with(&self, other: &Self) -> bool {
        fn same<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.is_some() && one == other
        }
        same(self.links.as_ref(), other.links.as_ref())
            || same(self.api.as_ref(), other.api.as_ref())
            || same(self.user.as_ref().map(|user| &user.id), other.user.as_ref().map(|user| &user.id))
    }

    /// The name in logs of the user with this grant: their own name, or the part of their links key that isn't secret.
    pub(crate) fn name(&self) -> Option<String> {
        let name = self.user.as_ref().map(|user| user.name.clone());
        name.or_else(|| self.links.as_deref().map(shown))
    }
}

/// The sessions, by the digest of their cookie's value. Nobody can sign in with what they read from leaked memory.
#[derive(Debug)]
pub(crate) struct Sessions {
    life: SessionLifetime,
    all: Mutex<HashMap<[u8; 32], Session>>,
}

#[derive(Debug)]
struct Session {
    grant: Grant,
    from: Option<IpAddr>,
    begun: Instant,
    used: Instant,
    /// The longest time that the session may live, if it is less than the usual lifetime.
    most: Duration,
}

/// Selects sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Sessions that have a key in common with the requesting session, or belong to the same person.
    Own,
    /// All sessions.
    Everybodys,
}

/// A session, for the page that lists them.
#[derive(Debug)]
pub(crate) struct Listed {
    /// Its name. Nobody can sign in with it.
    pub(crate) name: String,
    /// Whether it is the requesting session.
    pub(crate) own: bool,
    /// Whether it has a key in common with the requesting session, or belongs to the same person.
    pub(crate) shares: bool,
    /// The name of its owner in logs.
    pub(crate) who: String,
    /// The address that it was begun from; none over a Unix socket.
    pub(crate) from: Option<IpAddr>,
    /// How long ago it was begun.
    pub(crate) begun: Duration,
    /// How long ago it was last used.
    pub(crate) used: Duration,
}

/// The part of a key that identifies it. Nobody can sign in with it.
pub(crate) fn shown(key: &str) -> String {
    let known = key.char_indices().nth(12).map_or("", |(end, _)| &key[..end]);
    format!("{known}…")
}

impl Sessions {
    /// Starts without any sessions.
    pub(crate) fn new(life: SessionLifetime) -> Self {
        Self { life, all: Mutex::default() }
    }

    /// Begins a session with keys that were found to be valid, and returns its cookie's value.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub(crate) fn begin(
        &self,
        grant: Grant,
        from: Option<IpAddr>,
        now: Instant,
    ) -> Result<String, getrandom::Error> {
        self.begin_until(grant, from, now, self.life.whole)
    }

    /// Begins a session that lives at most for `most`, since its credentials expire then.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn begin_until(
        &self,
        grant: Grant,
        from: Option<IpAddr>,
        now: Instant,
        most: Duration,
    ) -> Result<String, getrandom::Error> {
        let id = csrf::random()?;
        let mut all = self.lock();
        all.retain(|_, session| session.lives(&self.life, now));
        make_room(&mut all, &grant);
        all.insert(digest(&id), Session { grant, from, begun: now, used: now, most });
        Ok(id)
    }

    /// A session's grant; with `use_it`, the session counts as used.
    pub(crate) fn grant(&self, id: &str, use_it: bool, now: Instant) -> Option<Grant> {
        let mut all = self.lock();
        let session = all.get_mut(&digest(id)).filter(|session| session.lives(&self.life, now))?;
        if use_it {
            session.used = now;
        }
        Some(session.grant.clone())
    }

    /// Changes a session's grant, if the session still exists.
    pub(crate) fn change(&self, id: &str, change: impl FnOnce(&mut Grant)) {
        if let Some(session) = self.lock().get_mut(&digest(id)) {
            change(&mut session.grant);
        }
    }

    /// Removes a linerate-api key from all sessions that have it; the rest of their grants stays.
    pub(crate) fn forget(&self, key: &str) {
        for session in self.lock().values_mut() {
            session.grant.api.take_if(|one| one == key);
        }
    }

    /// The sessions of the owner of this grant, or all sessions, most recently used first. `own` is the requesting
    /// session's cookie value.
    pub(crate) fn of(&self, whose: Whose, grant: &Grant, own: &str, now: Instant) -> Vec<Listed> {
        let own = digest(own);
        let all = self.lock();
        let live = all.iter().filter(|(_, session)| session.lives(&self.life, now));
        let listed = live.map(|(id, session)| Listed {
            name: name(id),
            own: *id == own,
            shares: session.grant.shares_with(grant),
            who: session.grant.name().unwrap_or_default(),
            from: session.from,
            begun: now.saturating_duration_since(session.begun),
            used: now.saturating_duration_since(session.used),
        });
        let listed = listed.filter(|one| one.shares || whose == Whose::Everybodys);
        let mut listed: Vec<Listed> = listed.collect();
        listed.sort_by_key(|one| one.used);
        listed
    }

    /// Ends the session with this name if `whose` selects it. Returns the name of its owner in logs.
    pub(crate) fn end_named(&self, whose: Whose, grant: &Grant, wanted: &str) -> Option<String> {
        let mut all = self.lock();
        let (id, session) = all.iter().find(|(id, _)| name(id) == wanted)?;
        if whose == Whose::Own && !session.grant.shares_with(grant) {
            return None;
        }
        let (id, who) = (*id, session.grant.name().unwrap_or_default());
        all.remove(&id);
        Some(who)
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &str) {
        self.lock().remove(&digest(id));
    }

    /// Ends all sessions with this grant's links key or token, which links no longer accepts. Sessions that only share
    /// the key of linerate-api stay, and so do the same user's sessions with newer tokens.
    pub(crate) fn end_refused(&self, grant: &Grant) {
        self.lock().retain(|_, session| session.grant.links.is_none() || session.grant.links != grant.links);
    }

    /// Ends all sessions that have a key in common with this grant.
    pub(crate) fn end_all(&self, grant: &Grant) {
        self.lock().retain(|_, session| !session.grant.shares_with(grant));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], Session>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a session if there is no room for another one with this grant: the least recently used one that has a key in
/// common with the grant or belongs to the same person, or else of all.
fn make_room(all: &mut HashMap<[u8; 32], Session>, grant: &Grant) {
    let of_grant = all.iter().filter(|(_, session)| session.grant.shares_with(grant));
    if all.len() < SESSIONS && of_grant.clone().count() < SESSIONS_EACH {
        return;
    }
    let oldest = of_grant.min_by_key(|(_, session)| session.used);
    let oldest = oldest.or_else(|| all.iter().min_by_key(|(_, session)| session.used));
    if let Some(id) = oldest.map(|(id, _)| *id) {
        all.remove(&id);
    }
}

impl Session {
    fn lives(&self, life: &SessionLifetime, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) < life.whole.min(self.most)
            && now.saturating_duration_since(self.used) < life.idle
    }
}

/// A session's name: a part of its digest. The cookie's value can't be derived from it.
fn name(digest: &[u8; 32]) -> String {
    HEXLOWER.encode(&digest[..8])
}

fn digest(id: &str) -> [u8; 32] {
    Sha256::digest(id).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: SessionLifetime =
        SessionLifetime { whole: Duration::from_secs(100), idle: Duration::from_secs(10) };

    fn links(key: &str) -> Grant {
        Grant { links: Some(key.into()), ..Grant::default() }
    }

    fn sessions() -> (Sessions, Instant) {
        (Sessions::new(LIFE), Instant::now())
    }

    #[test]
    fn a_session_ends_unused_and_in_any_case_after_its_life() {
        let (sessions, begun) = sessions();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let id = sessions.begin(links("lr_1"), None, begun).expect("random");
        assert_eq!(sessions.grant("another", true, begun), None);
        for seconds in (0..100).step_by(9) {
            assert_eq!(sessions.grant(&id, true, at(seconds)), Some(links("lr_1")), "{seconds}");
        }
        assert_eq!(sessions.grant(&id, true, at(100)), None, "however busy");
        let id = sessions.begin(links("lr_1"), None, begun).expect("random");
        for seconds in 0..10 {
            assert!(sessions.grant(&id, false, at(seconds)).is_some());
        }
        assert_eq!(sessions.grant(&id, false, at(10)), None, "looked at, and not used");
    }

    #[test]
    fn sessions_are_bounded_and_the_one_used_longest_ago_makes_room() {
        let (sessions, begun) = sessions();
        let at = |millis| begun + Duration::from_millis(millis);
        let ids: Vec<String> = (0..=SESSIONS as u64)
            .map(|number| sessions.begin(links(&number.to_string()), None, at(number)).expect("random"))
            .collect();
        assert_eq!(sessions.lock().len(), SESSIONS);
        assert_eq!(sessions.grant(&ids[0], true, at(100)), None);
        assert!(sessions.grant(&ids[1], true, at(100)).is_some());
    }

    #[test]
    fn signing_in_again_and_again_ends_ones_own_sessions_alone() {
        let at = |begun: Instant, millis: usize| begun + Duration::from_millis(millis as u64);
        // Whether or not others have all the room that is left.
        for others in [2, SESSIONS - 1] {
            let (sessions, begun) = sessions();
            let of_others: Vec<String> = (0..others)
                .map(|number| sessions.begin(links(&number.to_string()), None, begun).expect("random"))
                .collect();
            let own: Vec<String> = (1..=2 * SESSIONS)
                .map(|number| sessions.begin(links("own"), None, at(begun, number)).expect("random"))
                .collect();
            let now = at(begun, 3 * SESSIONS);
            assert!(of_others.iter().all(|id| sessions.grant(id, false, now).is_some()), "{others}");
            let left = own.iter().filter(|id| sessions.grant(id, false, now).is_some()).count();
            assert_eq!(left, SESSIONS_EACH.min(SESSIONS - others), "{others}");
            assert!(sessions.grant(&own[2 * SESSIONS - 1], false, now).is_some(), "the newest one");
        }
    }

    #[test]
    fn signing_out_everywhere_leaves_the_sessions_of_others() {
        let (sessions, now) = sessions();
        let [one, two, other] =
            ["lr_1", "lr_1", "lr_2"].map(|token| sessions.begin(links(token), None, now).expect("random"));
        sessions.end_all(&links("lr_1"));
        assert_eq!(
            [one, two, other].map(|id| sessions.grant(&id, true, now).is_some()),
            [false, false, true]
        );
    }

    #[test]
    fn a_key_that_links_refuses_ends_the_sessions_that_have_it_and_no_others() {
        let (sessions, now) = sessions();
        let team = |key: &str| Grant { api: Some("lrk_1".into()), ..links(key) };
        let ada =
            |token: &str| Grant { user: Some(User { id: "1".into(), name: "ada".into() }), ..links(token) };
        let ids = [team("lr_1"), links("lr_1"), team("lr_2"), ada("old"), ada("new")]
            .map(|grant| sessions.begin(grant, None, now).expect("random"));
        sessions.end_refused(&team("lr_1"));
        sessions.end_refused(&ada("old"));
        assert_eq!(ids.map(|id| sessions.grant(&id, true, now).is_some()), [false, false, true, false, true]);
    }

    #[test]
    fn the_sessions_of_a_person_are_theirs_whatever_token_they_have() {
        let (sessions, now) = sessions();
        let person = |id: &str, token: &str| Grant {
            user: Some(User { id: id.into(), name: "ada".into() }),
            ..links(token)
        };
        let [one, two, other] = [("1", "a"), ("1", "b"), ("2", "c")]
            .map(|(id, token)| sessions.begin(person(id, token), None, now).expect("random"));
        assert_eq!(sessions.of(Whose::Own, &person("1", "a"), &one, now).len(), 2);
        sessions.end_all(&person("1", "a"));
        assert_eq!(
            [one, two, other].map(|id| sessions.grant(&id, true, now).is_some()),
            [false, false, true]
        );
        assert_eq!(person("1", "a").name().as_deref(), Some("ada"));
        assert_eq!(links("lr_0123456789abcdef").name().as_deref(), Some("lr_012345678…"));
    }

    #[test]
    fn a_session_lives_no_longer_than_the_token_that_it_is_of() {
        let (sessions, begun) = sessions();
        let most = Duration::from_secs(5);
        let id = sessions.begin_until(links("a"), None, begun, most).expect("random");
        assert!(sessions.grant(&id, true, begun + most / 2).is_some());
        assert_eq!(sessions.grant(&id, true, begun + most), None);
    }

    #[test]
    fn a_key_of_the_api_that_is_none_any_more_leaves_sessions_what_else_they_are_for() {
        let (sessions, now) = sessions();
        let id = sessions.begin(links("lr_1"), None, now).expect("random");
        let both = Grant { api: Some("lrk_1".into()), ..links("lr_1") };
        for (key, after) in [("lrk_2", &both), ("lrk_1", &links("lr_1"))] {
            sessions.change(&id, |grant| *grant = both.clone());
            sessions.forget(key);
            assert_eq!(sessions.grant(&id, true, now).as_ref(), Some(after), "{key}");
        }
    }

    #[test]
    fn one_sees_and_ends_sessions_of_ones_own_keys_alone() {
        let (sessions, now) = sessions();
        let [own, same, other] =
            ["lr_1", "lr_1", "lr_2"].map(|key| sessions.begin(links(key), None, now).expect("random"));
        let listed = sessions.of(Whose::Own, &links("lr_1"), &own, now);
        assert_eq!(listed.iter().filter(|one| one.own).count(), 1);
        let named = |id: &str| name(&digest(id));
        let mut names: Vec<_> = listed.iter().map(|one| one.name.clone()).collect();
        names.sort();
        let mut expected = [named(&own), named(&same)];
        expected.sort();
        assert_eq!(names, expected);
        for name in [named(&same), named(&other)] {
            sessions.end_named(Whose::Own, &links("lr_1"), &name);
        }
        assert_eq!(
            [&own, &same, &other].map(|id| sessions.grant(id, true, now).is_some()),
            [true, false, true]
        );
        // An administrator, who may write everything, sees all sessions and can end them.
        let listed = sessions.of(Whose::Everybodys, &links("lr_1"), &own, now);
        let mut shares: Vec<_> = listed.iter().map(|one| (one.shares, one.own)).collect();
        shares.sort_unstable();
        assert_eq!(shares, [(false, false), (true, true)]);
        let ended = sessions.end_named(Whose::Everybodys, &links("lr_1"), &named(&other));
        assert_eq!(ended.as_deref(), Some("…"));
        assert_eq!(sessions.grant(&other, true, now), None);
    }

    #[test]
    fn a_key_is_shown_as_far_as_it_is_no_secret() {
        for (key, as_shown) in [("lr_0123456789abcdef0123", "lr_012345678…"), ("short", "…"), ("é", "…")]
        {
            assert_eq!(shown(key), as_shown);
        }
    }
}
