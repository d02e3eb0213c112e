//! The binary on recorded machines.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// Runs the binary on a machine from `tests/machines`.
fn linerate(machine: &str, args: &[&str]) -> Output {
    let file = format!("{}/tests/machines/{machine}.txt", env!("CARGO_MANIFEST_DIR"));
    Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["--machine", &file])
        .args(args)
        .output()
        .expect("the binary")
}

/// The CPU of each queue, the number of settings, and how many of them hold.
fn planned(machine: &str, policy: &str) -> (Vec<u64>, usize, usize) {
    let output = linerate(machine, &["--json", "nic", "plan", "--policy", policy]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let interface = &json["interfaces"][0];
    let placements = interface["plan"]["placements"].as_array().expect("placements");
    let cpus = placements.iter().map(|placement| placement["cpu"].as_u64().expect("a CPU")).collect();
    let settings = interface["settings"].as_array().expect("settings");
    let holding = settings.iter().filter(|setting| setting["now"] == setting["wanted"]).count();
    (cpus, settings.len(), holding)
}

#[test]
fn every_recorded_machine_has_its_plan() {
    // Each queue has one interrupt, RPS and XPS; each virtio queue has two interrupts.
    type Case = (&'static str, &'static str, &'static [u64], usize, usize);
    let cases: [Case; 10] = [
        ("c6i.4xlarge-8", "spread", &[0, 1, 2, 3, 4, 5, 6, 7], 24, 7),
        ("c6i.4xlarge-8", "reserve=0,8", &[1, 2, 3, 4, 5, 6, 7, 9], 24, 0),
        ("c6i.4xlarge-16", "spread", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], 48, 47),
        (
            "x550-hybrid",
            "spread",
            &[0, 2, 4, 6, 8, 10, 12, 13, 14, 15, 16, 17, 18, 19, 1, 3, 5, 7, 9, 11],
            60,
            22,
        ),
        ("virtio-4", "spread", &[0, 1, 2, 3], 16, 16),
        ("virtio-4", "pin=3,1", &[3, 1, 3, 1], 16, 4 + 2),
        ("managed-nvme", "spread", &[0, 1, 2, 3], 12, 0),
        ("two-nodes", "spread", &[8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7], 48, 0),
        ("two-nodes", "local", &[8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31], 48, 16),
        ("two-nodes", "pin=8", &[8; 16], 48, 17),
    ];
    for (machine, policy, cpus, settings, holding) in cases {
        let planned = planned(machine, policy);
        assert_eq!(planned, (cpus.to_vec(), settings, holding), "{machine}, {policy}");
    }
}

#[test]
fn interrupts_of_others_and_of_management_are_left_out() {
    let output = linerate("managed-nvme", &["--json", "nic", "plan"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("eno1-TxRx-3"));
    assert!(!text.contains("nvme"), "{text}");
    let output = linerate("c6i.4xlarge-8", &["--json", "nic", "plan"]);
    assert!(!String::from_utf8(output.stdout).expect("text").contains("ena-mgmnt"));
}

#[test]
fn people_get_a_table_a_picture_and_reasons() {
    let output = linerate("c6i.4xlarge-8", &["nic", "plan", "--explain", "ens5"]);
    let text = String::from_utf8(output.stdout).expect("text");
    for line in [
        "ens5: ena at 0000:00:05.0, 8 of 8 channels, 9 vectors; policy spread on CPUs 0-15",
        "0      28   0-15     0    - → 0,8   0 → 0,8",
        "  core  7  cpu  7 ■ queue 7  cpu 15 ▫ from 7",
        "8 queues on 8 cores: each has a core to itself before any sibling serves one.",
        "/proc/irq/28/smp_affinity_list (ens5-Tx-Rx-0): 0-15 → 0",
        "17 of 24 settings to change.",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is missing in\n{text}");
    }
}

#[test]
fn what_cannot_be_planned_is_one_line_and_code_2() {
    let cases: [(&[&str], &str); 4] = [
        (&["nic", "plan", "eth7"], "error: there is no interface eth7\n"),
        (&["nic", "plan", "../net/eth0"], "error: there is no interface ../net/eth0\n"),
        (&["nic", "plan", "--policy", "pin=9"], "error: CPU 9 is not online: 0-3 are\n"),
        (&["nic", "plan", "--policy", "reserve=0-3"], "error: policy reserve=0-3 leaves no CPU for queues\n"),
    ];
    for (args, message) in cases {
        let output = linerate("virtio-4", args);
        assert_eq!(String::from_utf8_lossy(&output.stderr), message);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn what_is_asked_wrongly_is_one_line_that_helps_and_code_2() {
    let profile = format!("{}/tests/machines/virtio-4.json", env!("CARGO_MANIFEST_DIR"));
    let cases: [(&[&str], &str); 9] = [
        (
            &["--machine", &profile, "doctor"],
            "line 1: of what; --machine takes a recorded machine, and --profile what a machine should be like",
        ),
        (&["--machine", "/nowhere", "doctor"], "/nowhere: No such file or directory"),
        (&["doctor", "--profile", "/nowhere"], "/nowhere: No such file or directory"),
        (&["bench"], "the following required arguments were not provided: <SERVICE=URL>..."),
        (
            &["bench", "links=http://127.0.0.1:1/", "--against", "/nowhere"],
            "/nowhere: No such file or directory",
        ),
        (&["doctor", "--interval", "x"], "invalid value 'x' for '--interval <SECONDS>'"),
        (&["doctor", "--watch", "--interval", "0"], "at least 1"),
        (&["--machine", &profile, "update", "status"], "update is about the machine that it runs on"),
        (&["--machine", &profile, "up", "--data", "/nowhere"], "up is about the machine that it runs on"),
    ];
    for (args, message) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_linerate")).args(args).output().expect("the binary");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("error: ") && said.contains(message), "{args:?}: {said}");
        assert_eq!((said.lines().count(), output.status.code()), (1, Some(2)), "{args:?}: {said}");
    }
}

#[test]
fn up_without_a_home_asks_where_data_is_kept() {
    let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .arg("up")
        .env_clear()
        // Nothing can be created there.
        .env("TMPDIR", "/dev/null")
        .output()
        .expect("the binary");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((said.lines().count(), output.status.code()), (1, Some(2)), "{said}");
    assert!(said.starts_with("error: ") && said.contains("--data"), "{said}");
}

#[test]
fn an_empty_variable_is_unset() {
    let machine = format!("{}/tests/machines/virtio-4.txt", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["--machine", &machine, "doctor"])
        .envs([("LINERATE_PROFILE", ""), ("LINERATE_DOCTOR_STATE", ""), ("LINERATE_MACHINE", "")])
        .output()
        .expect("the binary");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn whoever_may_not_place_queues_is_told_who_may() {
    let machine = format!("{}/tests/machines/c6i.4xlarge-8.txt", env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let mut command = if rustix::process::geteuid().is_root() {
        // The test runs as `nobody`, who may not enter every home directory, so it puts everything where all users may
        // read it.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755))
            .expect("a directory for all");
        // Another process makes the copy. This process would have it open for writing, and children of other tests
        // would inherit that until they run.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_linerate")).arg(path("linerate")).status();
        assert!(copied.expect("cp").success());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(path("linerate"));
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_linerate"))
    };
    std::fs::copy(&machine, path("machine.txt")).expect("copied");
    command.arg("--machine").arg(path("machine.txt"));
    // The state directory is one where only root may save the original values.
    let output = command.args(["nic", "apply", "--state", "/linerate"]).output().expect("the binary");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.ends_with("; only root may place queues: sudo linerate nic\n"), "{message}");
    assert_eq!((message.lines().count(), output.status.code()), (1, Some(1)), "{message}");
}

#[test]
fn what_is_not_as_planned_is_code_3() {
    let output = linerate("c6i.4xlarge-8", &["nic", "verify", "ens5"]);
    assert_eq!(output.status.code(), Some(3));
    let message = "error: 17 settings are not as planned: linerate nic apply mends them\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), message);
    let output = linerate("virtio-4", &["nic", "verify", "eth0"]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn without_a_card_or_a_policy_only_what_was_applied_is_verified() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().to_str().expect("a path");
    let verify = || {
        let output = linerate("c6i.4xlarge-8", &["nic", "verify", "--state", state]);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let save = |interface: &str| {
        let saved = format!(
            r#"{{"interface":"{interface}","policy":"spread","steering":true,"managed":[],"originals":[]}}"#
        );
        std::fs::write(directory.path().join(format!("nic-{interface}.json")), saved).expect("a file");
    };
    assert_eq!(verify(), (Some(0), "Nothing was applied.\n".to_owned()));
    // A card that is gone.
    save("ens9");
    assert_eq!(verify(), (Some(0), "Nothing was applied.\n".to_owned()));
    save("ens5");
    let (code, said) = verify();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.starts_with("ens5, policy spread: 7 settings hold, 17 do not\n"), "{said}");
}

#[test]
fn a_profile_is_compared_and_what_drifted_is_code_3() {
    let directory = tempfile::tempdir().expect("a directory");
    let profile = directory.path().join("profile.json");
    let doctor = |text: &str, args: &[&str]| {
        std::fs::write(&profile, text).expect("a file");
        let path = profile.to_str().expect("a path");
        linerate("virtio-4", &[&["doctor", "--profile", path], args].concat())
    };
    let well = doctor(r#"{"cpu": {"threads": 4}}"#, &[]);
    assert_eq!(well.status.code(), Some(0), "{}", String::from_utf8_lossy(&well.stdout));
    let drifted = doctor(r#"{"cpu": {"threads": 8}}"#, &["--json"]);
    assert_eq!(drifted.status.code(), Some(3));
    let json: serde_json::Value = serde_json::from_slice(&drifted.stdout).expect("JSON");
    assert_eq!(
        (&json["findings"][0]["rule"], &json["findings"][0]["expected"]),
        (&"cpus".into(), &"8".into())
    );
    assert_eq!(doctor(r#"{"cpu": {"threads": 8}}"#, &["--fail-on", "critical"]).status.code(), Some(0));
    let slip = doctor(r#"{"cpu": {"thread": 8}}"#, &[]);
    assert_eq!(slip.status.code(), Some(2));
    let message = String::from_utf8_lossy(&slip.stderr).into_owned();
    assert!(message.contains("profile.json: cpu.thread: unknown field `thread`"), "{message}");
    assert_eq!(message.lines().count(), 1);
}

#[test]
fn the_command_line_describes_itself() {
    let run =
        |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_linerate")).args(args).output().expect("the binary");
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("doctor"), "{shell}");
        let explained = run(&["completions", shell, "--explain"]);
        let last = String::from_utf8_lossy(&explained.stdout).lines().last().expect("a line").to_owned();
        assert!(last.starts_with(&format!("# {shell} looks for this in ")), "{last}");
        let json: serde_json::Value =
            serde_json::from_slice(&run(&["--json", "completions", shell]).stdout).expect("JSON");
        assert_eq!(json["script"], String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let page = run(&["man"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&run(&["man", "--json"]).stdout).expect("JSON");
    assert_eq!(json["page"], String::from_utf8_lossy(&page).into_owned());
    let directory = tempfile::tempdir().expect("a directory");
    assert!(run(&["man", directory.path().to_str().expect("a path")]).status.success());
    for page in
        ["linerate.1", "linerate-nic-watch.1", "linerate-doctor.1", "linerate-up.1", "linerate-bench.1"]
    {
        let text = std::fs::read_to_string(directory.path().join(page)).expect(page);
        assert!(text.contains(".SH OPTIONS"), "{page}");
    }
}

#[test]
fn what_the_readme_says_to_try_on_any_machine_works() {
    let directory = tempfile::tempdir().expect("a directory");
    // Lay the package out as in a checkout.
    let packages = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a directory");
    std::os::unix::fs::symlink(packages, directory.path().join("pkgs")).expect("a link");
    let readme = include_str!("../README.md");
    let lines: Vec<&str> =
        readme.lines().filter_map(|line| line.strip_prefix("$ linerate --machine ")).collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
            .arg("--machine")
            .args(line.split_whitespace())
            .current_dir(directory.path())
            .output()
            .expect("the binary");
        assert!(matches!(output.status.code(), Some(0 | 3)), "{line}: {output:?}");
        assert!(output.stdout.len() > 100, "{line}: {output:?}");
    }
}
