//! Tests `linerate update` on a box whose EFI partition is a directory and whose systemd-sysupdate is a script: which
//! versions it accepts and refuses, and which files are on the partition afterwards.

mod machine;
mod patches;

use std::fs;

use machine::{Box, NOTHING, THREE, set};

#[test]
fn each_command_ends_as_it_should_and_changes_what_it_should() {
    // The boot files, the server's answer, the command, its exit code, a part of its output, and the boot files
    // afterwards.
    type Case = (
        &'static [&'static str],
        &'static str,
        &'static [&'static str],
        i32,
        &'static str,
        &'static [&'static str],
    );
    let cases: &[Case] = &[
        (&["box_2.efi"], THREE, &["check"], 0, r#"{"running":"2","available":"3"}"#, &["box_2.efi"]),
        (&["box_2.efi"], NOTHING, &["check"], 0, r#""available":null"#, &["box_2.efi"]),
        (&["box_2.efi"], NOTHING, &["apply"], 0, r#"{"next":null}"#, &["box_2.efi"]),
        (&["box_2.efi"], THREE, &["apply"], 0, r#"{"next":"3"}"#, &["box_2.efi", "box_3+2-0.efi"]),
        // The server's version is below the floor, or isn't a version at all.
        (&["box_2.efi"], r#"echo '{"available":"1"}'"#, &["check"], 2, "below 1.5", &["box_2.efi"]),
        (&["box_2.efi"], r#"echo '{"available":"../x"}'"#, &["apply"], 1, "not understood", &["box_2.efi"]),
        (&["box_2.efi"], "echo nonsense", &["apply"], 1, "not understood", &["box_2.efi"]),
        (&["box_2.efi"], "echo bad signature >&2; exit 1", &["apply"], 1, "bad signature", &["box_2.efi"]),
        // The requested version isn't allowed.
        (&["box_2.efi"], THREE, &["apply", "1.4"], 2, "below 1.5", &["box_2.efi"]),
        (&["box_2.efi"], THREE, &["apply", "1.9"], 2, "older than 2", &["box_2.efi"]),
        (&["box_2.efi"], THREE, &["apply", "2"], 2, "runs already", &["box_2.efi"]),
        (&["box_2.efi"], THREE, &["apply", "3;x"], 2, "is no version", &["box_2.efi"]),
        // The running version is on trial, and may have to go back to the version that an update would overwrite.
        (
            &["box_1.9.efi", "box_2+1-1.efi"],
            THREE,
            &["apply"],
            1,
            "on trial",
            &["box_1.9.efi", "box_2+1-1.efi"],
        ),
        // A version that has failed gets its tries back.
        (
            &["box_2.efi", "box_3+0-2.efi"],
            NOTHING,
            &["apply", "3"],
            0,
            r#""3""#,
            &["box_2.efi", "box_3+2-0.efi"],
        ),
        (
            &["box_1.9.efi", "box_2.efi"],
            NOTHING,
            &["rollback"],
            0,
            r#""1.9""#,
            &["box_1.9.efi", "box_2+0-1.efi"],
        ),
        // An update that has not booted yet is taken back, and the only version that is known to be good stays so.
        (
            &["box_2.efi", "box_3+2-0.efi"],
            NOTHING,
            &["rollback"],
            0,
            r#""2""#,
            &["box_2.efi", "box_3+0-0.efi"],
        ),
        // So is one that counts as good without a boot, where versions are not on trial.
        (&["box_2.efi", "box_3.efi"], NOTHING, &["rollback"], 0, r#""2""#, &["box_2.efi", "box_3+0-0.efi"]),
        (
            &["box_1.9+1-1.efi", "box_2+1-1.efi"],
            NOTHING,
            &["rollback"],
            1,
            "no other",
            &["box_1.9+1-1.efi", "box_2+1-1.efi"],
        ),
        (
            &["box_1.9.efi", "box_2+1-1.efi"],
            NOTHING,
            &["rollback"],
            0,
            r#""1.9""#,
            &["box_1.9.efi", "box_2+0-2.efi"],
        ),
        (
            &["box_1.4.efi", "box_2.efi"],
            NOTHING,
            &["rollback"],
            2,
            "below 1.5",
            &["box_1.4.efi", "box_2.efi"],
        ),
        (
            &["box_2.efi", "box_3+0-2.efi"],
            NOTHING,
            &["rollback"],
            1,
            "no other",
            &["box_2.efi", "box_3+0-2.efi"],
        ),
        (
            &["box_2.efi", "other_1.9.efi"],
            NOTHING,
            &["rollback"],
            1,
            "no other",
            &["box_2.efi", "other_1.9.efi"],
        ),
        (&["box_1.9.efi"], NOTHING, &["rollback"], 1, "no boot file", &["box_1.9.efi"]),
        (&["box_2.efi"], NOTHING, &["status"], 0, r#"{"version":"2","trial":"good"}"#, &["box_2.efi"]),
        (&["box_2+1-1.efi"], NOTHING, &["status"], 0, r#""trial":{"left":1,"done":1}"#, &["box_2+1-1.efi"]),
    ];
    for (before, available, arguments, status, said, after) in cases {
        let case = format!("{before:?} {available} {arguments:?}");
        let machine = Box::new(before, available);
        let output = machine.run(arguments);
        let all = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert_eq!(output.status.code(), Some(*status), "{case}: {all}");
        assert!(all.contains(said), "{case}: {all}");
        assert_eq!(machine.files(), set(after), "{case}: {all}");
    }
}

#[test]
fn without_trials_a_version_is_good_once_it_is_written() {
    // The boot files, the command, and the boot files afterwards. systemd-sysupdate gives a new file two tries.
    type Case = (&'static [&'static str], &'static [&'static str], [&'static str; 2]);
    let cases: &[Case] = &[
        (&["box_2.efi"], &["apply"], ["box_2.efi", "box_3.efi"]),
        (&["box_2.efi"], &["apply", "3"], ["box_2.efi", "box_3.efi"]),
        // It was taken back, or is in the slot already.
        (&["box_2.efi", "box_3+0-0.efi"], &["apply", "3"], ["box_2.efi", "box_3.efi"]),
        (&["box_2.efi", "box_3.efi"], &["apply", "3"], ["box_2.efi", "box_3.efi"]),
        (&["box_1.9.efi", "box_2.efi"], &["rollback"], ["box_1.9.efi", "box_2+0-1.efi"]),
    ];
    for (before, arguments, after) in cases {
        let machine = Box::new(before, THREE);
        machine.set("tries", serde_json::json!(0));
        let output = machine.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{before:?} {arguments:?}: {output:?}");
        assert_eq!(machine.files(), set(after), "{before:?} {arguments:?}");
        // Nobody is told that an unhealthy version would be left.
        assert!(!String::from_utf8_lossy(&output.stdout).contains("trial"), "{output:?}");
    }
}

/// A power cut happened while an update was overwriting the other slot; that slot's boot file still exists.
#[test]
fn a_version_without_its_partitions_cannot_be_rolled_back_to() {
    let labels = ["verity_@v", "store_@v"];
    for (partitions, status) in [(vec!["verity_1.9", "store_1.9"], 0), (vec!["verity_1.9"], 1), (vec![], 1)] {
        let machine = Box::new(&["box_1.9.efi", "box_2.efi"], NOTHING);
        for name in &partitions {
            fs::write(machine.path().join(name), "").unwrap();
        }
        machine.set("labels", serde_json::json!(labels));
        let output = machine.run(&["rollback"]);
        assert_eq!(output.status.code(), Some(status), "{partitions:?}");
    }
    // Giving such a version new tries isn't enough: it has to be written again.
    let machine = Box::new(&["box_2.efi", "box_3+0-2.efi"], THREE);
    machine.set("labels", serde_json::json!(labels));
    assert_eq!(machine.run(&["apply", "3"]).status.code(), Some(0));
    assert_eq!(machine.asked(), "update 3\n");
}

#[test]
fn nothing_is_asked_of_the_server_for_what_is_refused() {
    for arguments in [["apply", "1.4"], ["apply", "2"]] {
        let machine = Box::new(&["box_2.efi"], THREE);
        machine.run(&arguments);
        assert_eq!(machine.asked(), "", "{arguments:?}");
    }
}

#[test]
fn a_server_that_stalls_is_not_waited_for() {
    for arguments in [["check", "--timeout", "1"], ["apply", "--timeout", "1"]] {
        let machine = Box::new(&["box_2.efi"], "exec sleep 1000");
        let output = machine.run(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("took longer than 1 s"), "{arguments:?}");
        assert_eq!(machine.files(), set(&["box_2.efi"]), "{arguments:?}");
    }
    let machine = Box::new(&["box_2.efi"], NOTHING);
    assert_eq!(machine.run(&["check", "--timeout", "0"]).status.code(), Some(2));
}

#[test]
fn a_box_that_is_no_image_says_so() {
    let machine = Box::new(&["box_2.efi"], THREE);
    fs::remove_file(machine.path().join("update.json")).unwrap();
    let output = machine.run(&["status"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("only a box that is an image"));
}
