//! Session tickets, under keys that are replaced.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::GetRandomFailed;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::ProducesTickets;
use rustls::ticketer::TicketRotator;

use super::Error;
use crate::config::TICKET_KEY;

/// Makes and opens the tickets of all workers, over TCP and QUIC, each key for so long.
///
/// # Errors
/// When there are no random numbers.
pub(super) fn new(key: Duration) -> Result<Arc<dyn ProducesTickets>, Error> {
    let seconds = key.clamp(Duration::from_secs(1), TICKET_KEY).as_secs();
    let seconds = u32::try_from(seconds).expect("six hours are few seconds");
    Ok(Arc::new(TicketRotator::new(seconds, Key::random).map_err(Error::Tickets)?))
}

/// One key: rustls' ticketer, which is not kept for as long as it would keep its key itself.
#[derive(Debug)]
struct Key(Arc<dyn ProducesTickets>);

impl Key {
    fn random() -> Result<Box<dyn ProducesTickets>, GetRandomFailed> {
        Ok(Box::new(Self(Ticketer::new().map_err(|_| GetRandomFailed)?)))
    }
}

impl ProducesTickets for Key {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(cipher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_opened_under_its_key_and_the_next_and_no_more() {
        let tickets = new(Duration::from_secs(1)).expect("random numbers");
        let ticket = tickets.encrypt(b"session").expect("a key");
        // The key is replaced by the first use after its time, however late that is.
        let next = || std::thread::sleep(Duration::from_millis(2100));
        next();
        assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        next();
        assert_eq!(tickets.decrypt(&ticket), None);
        assert!(tickets.encrypt(b"session").is_some_and(|again| tickets.decrypt(&again).is_some()));
    }
}
