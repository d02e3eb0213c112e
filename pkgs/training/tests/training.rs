//! The training answers as it should with programs of any build; only instrumented ones leave profiles.
#![forbid(unsafe_code)]

use training::Programs;

#[test]
fn every_request_of_the_training_is_answered_as_expected() {
    let [program, ..] = ["linerate-links", "linerate-api", "linerate-files"].map(testkit::binary);
    let profiles = tempfile::tempdir().expect("a directory");
    let programs = Programs {
        directory: program.parent().expect("a directory").to_owned(),
        profiles: profiles.path().to_owned(),
        seconds: 1,
    };
    training::train(&programs).expect("it is trained");
}
