//! Limits the memory of all large answers that are being sent, however slowly they are read. The listener bounds only
//! the piece of an answer that it has at hand.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use actix_web::{HttpMessage, HttpRequest, ResponseError};

use super::failure::Failure;
use crate::store::Grant;

/// Answers up to this size, in bytes, are not counted. As many as all connections may have at once (256 with 32
/// streams) take 128 MiB.
const SMALL: u64 = 16 * 1024;

/// A client may hold this fraction of all bytes, so that no single key locks out the others.
const SHARE: u64 = 4;

/// The bytes that large answers currently hold.
pub(in crate::admin) struct AnswerBudget {
    limit: u64,
    held: AtomicU64,
    /// Those of each client that holds some, by [`Grant::client`].
    clients: Mutex<HashMap<i64, u64>>,
}

/// Room for an answer. Whoever owns its bytes keeps this until they are sent.
pub(in crate::admin) struct Held {
    budget: Arc<AnswerBudget>,
    client: i64,
    bytes: u64,
}

impl AnswerBudget {
    /// At most this many bytes. A single answer always has room.
    pub(in crate::admin) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicU64::new(0), clients: Mutex::default() })
    }

    /// Refuses a write that may have a large answer, before anything of it is done.
    ///
    /// # Errors
    /// 503 while no further large answer has room, or none of this client.
    pub(in crate::admin) fn check(&self, request: &HttpRequest) -> Result<(), Failure> {
        match self.has_room(client_of(request)) {
            true => Ok(()),
            false => Err(busy()),
        }
    }

    fn has_room(&self, client: i64) -> bool {
        let (held, share) = (self.held.load(Relaxed), self.limit / SHARE);
        // While all together hold less than a share, so does each.
        held < share
            || (held < self.limit && self.clients().get(&client).is_none_or(|of_client| *of_client < share))
    }

    /// Counts an answer, if it is large, until it is sent or dropped. Replaces it with 503 if there is no room for it,
    /// except for the answer to a write, since what was done is told in any case.
    pub(in crate::admin) fn keep(
        self: &Arc<Self>,
        mut response: ServiceResponse<BoxBody>,
    ) -> ServiceResponse<BoxBody> {
        let bytes = match response.response().body().size() {
            BodySize::Sized(bytes) if bytes > SMALL => bytes,
            // A stream has a bound of its own.
            _ => return response,
        };
        let always = !response.request().method().is_safe();
        match self.hold(client_of(response.request()), bytes, always) {
            Some(held) => {
                response.response_mut().extensions_mut().insert(held);
                response
            }
            None => response.into_response(busy().error_response()),
        }
    }

    /// Room for this many bytes; `None` if there is none, unless it `always` has some.
    pub(super) fn hold(self: &Arc<Self>, client: i64, bytes: u64, always: bool) -> Option<Held> {
        let of_client = {
            let mut clients = self.clients();
            let held = clients.entry(client).or_default();
            *held += bytes;
            *held - bytes
        };
        let before = self.held.fetch_add(bytes, Relaxed);
        // Dropping it gives the bytes back.
        let held = Held { budget: Arc::clone(self), client, bytes };
        let fits = |before: u64, limit: u64| before == 0 || before.saturating_add(bytes) <= limit;
        let has_room = always || (fits(before, self.limit) && fits(of_client, self.limit / SHARE));
        has_room.then_some(held)
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<i64, u64>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Relaxed);
        if let Entry::Occupied(mut held) = self.budget.clients().entry(self.client) {
            *held.get_mut() -= self.bytes;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

/// Who sent a request that has passed the check of its key.
fn client_of(request: &HttpRequest) -> i64 {
    request.extensions().get::<Grant>().map_or(0, |grant| grant.client)
}

fn busy() -> Failure {
    Failure::busy("too many large answers are under way; ask for fewer links, or later")
}

#[cfg(test)]
mod tests {
    use actix_web::http::{Method, header};
    use actix_web::test::{TestRequest, call_service, init_service};
    use service::metrics::Registry;
    use service::ready::Readiness;

    use super::*;
    use crate::admin::{ANSWERS_BYTES, Requests, State, app};
    use crate::domains::InDomains;
    use crate::link::NewLink;
    use crate::store::{Options, Scope, Store};

    #[test]
    fn large_answers_have_a_sum_and_one_always_has_room() {
        let budget = AnswerBudget::new(300);
        let (first, second) =
            (budget.hold(1, 100, false).expect("room"), budget.hold(2, 200, false).expect("room"));
        assert!(!budget.has_room(3) && budget.hold(3, 1, false).is_none());
        let always = budget.hold(3, 50, true).expect("always");
        drop(first);
        assert!(budget.has_room(4) && budget.hold(4, 51, false).is_none());
        drop((second, always));
        assert!(budget.hold(1, 1_000, false).is_some(), "one always has room");
        assert_eq!(budget.held.load(Relaxed), 0);
        assert!(budget.clients().is_empty());
    }

    #[test]
    fn a_client_holds_a_quarter_and_leaves_the_rest_to_others() {
        let budget = AnswerBudget::new(400);
        let both = (budget.hold(1, 60, false).expect("room"), budget.hold(1, 40, false).expect("room"));
        assert!(!budget.has_room(1) && budget.hold(1, 1, false).is_none());
        assert!(budget.has_room(2) && budget.hold(2, 100, false).is_some());
        assert!(budget.hold(2, 300, false).is_some(), "one of each always has room");
        assert!(budget.hold(1, 1, true).is_some(), "what was done is told");
        drop(both);
        assert!(budget.has_room(1) && budget.clients().is_empty());
    }

    #[test]
    fn a_large_answer_without_room_is_refused_and_a_batch_before_it_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Options::new(&directory.path().join("links.db"))).unwrap();
        let (client, token) = store.create_token("test".to_owned(), Scope::Write).wait().unwrap();
        let target = format!("https://example.com/{}", "x".repeat(7_000));
        let links = vec![NewLink { target, ..NewLink::default() }; 8];
        store.create_many(&InDomains::All, links).wait().unwrap();
        let (requests, registry) = (Requests::default(), Registry::default());
        let state = State::new(store.clone(), "https://go.example", Readiness::new(), requests, registry);
        let state = state.unwrap();
        let budget = Arc::clone(&state.answers);
        let request = |method: Method, path: &str, body: &'static str| {
            TestRequest::with_uri(path)
                .method(method)
                .insert_header((header::AUTHORIZATION, format!("Bearer {token}")))
                .insert_header((header::CONTENT_TYPE, "application/json"))
                .set_payload(body)
                .to_request()
        };
        actix_web::rt::System::new().block_on(async {
            let app = init_service(app(Arc::new(state))).await;
            let full = budget.hold(-1, ANSWERS_BYTES, false).expect("room");
            let (one, other) = (
                r#"{"code":"one","target":"https://example.com/"}"#,
                r#"[{"code":"other","target":"https://example.com/"}]"#,
            );
            for (method, path, body, status) in [
                (Method::GET, "/api/v1/links", "", 503),
                (Method::GET, "/api/v1/links?limit=1", "", 200),
                (Method::POST, "/api/v1/links", one, 201),
                (Method::POST, "/api/v1/links/batch", other, 503),
                (Method::POST, "/api/v1/links/batch-edit", other, 503),
                (Method::POST, "/api/v1/links/batch-delete", r#"["one"]"#, 503),
                (Method::GET, "/api/v1/links/one", "", 200),
                (Method::GET, "/api/v1/links/other", "", 404),
            ] {
                let answer = call_service(&app, request(method, path, body)).await;
                assert_eq!(answer.status().as_u16(), status, "{path}");
            }
            drop(full);
            let share = budget.hold(client.id, ANSWERS_BYTES / SHARE, false).expect("room");
            for (method, path, body) in
                [(Method::GET, "/api/v1/links", ""), (Method::POST, "/api/v1/links/batch", other)]
            {
                let answer = call_service(&app, request(method, path, body)).await;
                assert_eq!(answer.status().as_u16(), 503, "{path}: the client has its share");
            }
            drop(share);
            let answer = call_service(&app, request(Method::GET, "/api/v1/links", "")).await;
            assert_eq!(answer.status().as_u16(), 200);
            assert!(budget.held.load(Relaxed) > 8 * 7_000, "until it is sent");
            drop(answer);
            assert_eq!(budget.held.load(Relaxed), 0);
        });
        store.close();
    }
}
