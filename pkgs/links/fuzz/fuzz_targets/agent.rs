//! User agents: any bytes have a kind, which does not depend on upper and lower case.
#![no_main]

use libfuzzer_sys::fuzz_target;
use links::agent::Agent;

fuzz_target!(|bytes: &[u8]| {
    let agent = Agent::classify(bytes);
    assert_eq!(Agent::from_u8(agent as u8), agent);
    assert_eq!(Agent::classify(&bytes.to_ascii_uppercase()), agent);
    assert_eq!(bytes.is_empty(), agent == Agent::None);
});
