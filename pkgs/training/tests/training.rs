//! Programs of any build can be trained; only instrumented ones leave profiles.
#![forbid(unsafe_code)]

use training::Programs;

#[test]
#[ignore = "it takes all CPUs from other tests: make test runs it alone"]
fn every_request_of_the_training_is_answered() {
    let [program, ..] = ["linerate-links", "linerate-api", "linerate-files"].map(testkit::binary);
    let profiles = tempfile::tempdir().expect("a directory");
    let programs = Programs {
        directory: program.parent().expect("a directory").to_owned(),
        profiles: profiles.path().to_owned(),
        seconds: 1,
    };
    training::train(&programs).expect("it is trained");
    assert_eq!(programs.untrained(), Some("linerate-api"), "these are not instrumented");
}
