//! HTTP/3 with aioquic; the cases are in `h3.py`.

use std::process::Command;

use crate::load::PATIENCE;
use crate::server::Server;
use crate::tools;

/// Runs cases against a server.
pub fn run(server: &Server, cases: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/h3.py");
    let output = Command::new(tools::aioquic())
        .arg(script)
        .arg(server.secure.port().to_string())
        .args(cases)
        .env("SERVER", server.id().to_string())
        .output()
        .expect("Python runs");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn requests_are_answered() {
    let server = Server::start(&["--body-bytes", "8388608"]);
    run(
        &server,
        &[
            "answers_get_and_head",
            "answers_who_sends_a_goaway",
            "takes_what_qpack_allows_without_a_table",
            "echoes_megabytes_and_trailers",
            "reads_on_after_empty_frames",
            "serves_many_streams_at_once",
            "sends_large_responses",
            "resumes_sessions_without_early_data",
            "refuses_what_is_too_large",
            "refuses_other_expectations",
            "tells_who_waits_to_continue",
        ],
    );
}

/// Whether a fast path answers or not, clients see the same.
#[test]
fn a_fast_path_answers_plain_requests_at_once() {
    let server = Server::start(&["--fast"]);
    run(
        &server,
        &[
            "answers_plain_requests_at_once",
            "answers_get_and_head",
            "answers_who_sends_a_goaway",
            "serves_many_streams_at_once",
            "sends_large_responses",
            "resets_malformed_requests",
            "resets_requests_that_end_early",
            "closes_connections_that_break_the_protocol",
            "closes_connections_that_end_within_data",
            "survives_noise",
        ],
    );
}

#[test]
fn what_a_fast_path_has_answered_is_told_when_it_drains() {
    for case in ["names_what_it_has_answered", "says_goodbye"] {
        let server = Server::start(&["--fast", "--drain-grace", "200"]);
        run(&server, &[case]);
        assert!(server.wait(PATIENCE).success());
    }
}

#[test]
fn a_client_of_a_fast_path_that_takes_nothing_is_cut() {
    run(&Server::start(&["--fast", "--patience", "3000"]), &["cuts_clients_that_take_nothing"]);
}

#[test]
fn connections_have_a_limit() {
    let server = Server::start(&["--connections-per-address", "2"]);
    run(&server, &["refuses_connections_beyond_the_limit"]);
}

#[test]
fn connections_count_for_addresses_that_are_proven() {
    let server = Server::start(&["--connections-per-address", "2"]);
    run(&server, &["counts_connections_for_proven_addresses_only"]);
}

#[test]
fn requests_that_never_begin_have_a_limit() {
    run(&Server::start(&[]), &["closes_connections_whose_requests_never_begin"]);
}

#[test]
fn who_cancels_answers_may_go_on() {
    run(&Server::start(&["--fast", "--patience", "2000"]), &["goes_on_after_answers_were_cancelled"]);
}

#[test]
fn bodies_under_way_have_a_sum() {
    let server = Server::start(&["--body-bytes", "65536", "--body-bytes-total", "131072"]);
    run(&server, &["refuses_bodies_beyond_what_there_is_room_for"]);
    server.until(|metrics| metrics.sum("interop_listener_shed_total{reason=\"bodies\"}") >= 3.0);
}

#[test]
fn under_load_clients_prove_their_addresses() {
    run(&Server::start(&["--workers", "1"]), &["has_clients_prove_their_addresses_under_load"]);
}

#[test]
fn a_client_may_move_to_other_ports() {
    run(&Server::start(&["--workers", "2"]), &["follows_a_client_to_other_ports"]);
}

#[test]
fn malformed_requests_and_broken_protocol_get_the_right_errors() {
    run(
        &Server::start(&[]),
        &[
            "resets_malformed_requests",
            "resets_requests_that_end_early",
            "closes_connections_that_break_the_protocol",
            "closes_connections_that_end_within_data",
            "survives_noise",
        ],
    );
}

#[test]
fn slow_clients_are_cut() {
    let server = Server::start(&["--patience", "3000"]);
    run(
        &server,
        &[
            "cuts_slow_clients",
            "cuts_clients_that_take_nothing",
            "closes_connections_that_take_nothing_again_and_again",
        ],
    );
}

#[test]
fn bodies_that_drip_are_cut() {
    run(&Server::start(&["--body-time", "1500"]), &["cuts_bodies_that_drip"]);
}

#[test]
fn draining_finishes_what_is_in_flight() {
    // The last notice arrives while answers are in progress.
    let server = Server::start(&["--drain-grace", "200"]);
    run(&server, &["says_goodbye"]);
    assert!(server.wait(PATIENCE).success());
}

#[test]
fn a_first_request_is_served_while_draining() {
    // The last notice would come after the client has gone.
    let server = Server::start(&["--drain", "60000", "--drain-grace", "60000"]);
    run(&server, &["serves_a_first_request_while_draining"]);
    assert!(server.wait(PATIENCE).success());
}
