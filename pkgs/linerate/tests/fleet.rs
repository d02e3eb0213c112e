//! Tests `linerate fleet` with three real nodes and a bare repository: what it promotes, and that it stops at an
//! unhealthy node.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;
use testkit::Server;

/// A node: linerate-links, and the file that contains its generation.
struct Node {
    service: Server,
    admin: String,
    generation: PathBuf,
}

impl Node {
    fn start(program: &Path, directory: &Path, name: &str, generation: &str) -> Self {
        let file = directory.join(format!("{name}.generation"));
        fs::write(&file, generation).unwrap();
        let service = Server::program(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "1"])
            .arg("--database")
            .arg(directory.join(format!("{name}.db")))
            .arg("--generation-file")
            .arg(&file)
            .start();
        let admin = format!("http://{}", service.listens("admin", "http"));
        Self { service, admin, generation: file }
    }
}

/// A bare repository with three commits in a line, nodes, and the file that lists them.
struct Fleet {
    directory: TempDir,
    commits: [String; 3],
    nodes: Vec<Node>,
}

impl Fleet {
    /// Two nodes in `canary`, one in `wave1`, all at the first commit; `main` is at the second.
    fn new(program: &Path) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path();
        git(path, &["init", "--quiet", "--bare", "boxes.git"]);
        let tree = git(path, &["--git-dir=boxes.git", "hash-object", "-w", "-t", "tree", "/dev/null"]);
        let mut commits: [String; 3] = Default::default();
        for index in 0..3_usize {
            let message = index.to_string();
            let mut arguments = vec!["--git-dir=boxes.git", "commit-tree", &tree, "-m", &message];
            let parent = index.checked_sub(1).map(|before| commits[before].clone());
            if let Some(parent) = &parent {
                arguments.extend(["-p", parent]);
            }
            let commit = git(path, &arguments);
            commits[index] = commit;
        }
        let nodes: Vec<_> =
            ["a", "b", "c"].iter().map(|name| Node::start(program, path, name, &commits[0])).collect();
        let fleet = Self { directory, commits, nodes };
        for (branch, commit) in [("main", 1), ("canary", 0), ("wave1", 0)] {
            fleet.point(branch, commit);
        }
        let mut text = format!(
            "repository = {:?}\nsource = \"main\"\nwaves = [\"canary\", \"wave1\", \"wave2\"]\nwell-for = \"1s\"\n",
            fleet.path().join("boxes.git")
        );
        for (node, (name, wave)) in fleet.nodes.iter().zip([("a", "canary"), ("b", "canary"), ("c", "wave1")])
        {
            text += &format!("[[node]]\nname = {name:?}\nwave = {wave:?}\nservices = [{:?}]\n", node.admin);
        }
        fs::write(fleet.path().join("fleet.toml"), text).unwrap();
        fleet
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn point(&self, branch: &str, commit: usize) {
        let branch = format!("refs/heads/{branch}");
        git(self.path(), &["--git-dir=boxes.git", "update-ref", &branch, &self.commits[commit]]);
    }

    /// The commit that a branch is at.
    fn at(&self, branch: &str) -> Option<usize> {
        let branch = format!("refs/heads/{branch}");
        let asked = ["--git-dir=boxes.git", "for-each-ref", "--format=%(objectname)", &branch];
        let commit = git(self.path(), &asked);
        self.commits.iter().position(|one| *one == commit)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        command
            .arg("fleet")
            .args(arguments)
            .env("LINERATE_FLEET_SETTINGS", self.path().join("fleet.toml"))
            // The user's git settings must not matter.
            .env("HOME", self.path());
        command
    }

    /// The exit code of a command, and everything it prints.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        said(self.command(arguments).output().unwrap())
    }
}

fn said(output: Output) -> (i32, String) {
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "test").env(format!("GIT_{who}_EMAIL"), "test@box.example");
    }
    let output = command.current_dir(directory).env("HOME", directory).args(arguments).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_wave_goes_on_while_nodes_are_well_and_stops_where_one_is_unhealthy() {
    let Some(binaries) = support::binaries() else { return };
    let fleet = Fleet::new(&binaries.join("linerate-links"));

    // All nodes are healthy and up to date.
    let (code, text) = fleet.run(&["--json", "status", "--interval", "0"]);
    assert_eq!(code, 0, "{text}");
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(status["waves"][1]["commit"], fleet.commits[0].as_str());
    assert_eq!(status["halted"], Value::Null);

    // No node runs the new commit, so nothing is watched.
    let (code, text) = fleet.run(&["promote", "canary"]);
    assert_eq!((code, fleet.at("canary")), (0, Some(1)), "{text}");
    // Nodes that still run the old commit show nothing about the new one.
    let (code, text) = fleet.run(&["promote", "wave1"]);
    assert_eq!((code, fleet.at("wave1")), (3, Some(0)), "{text}");
    assert!(text.contains("wave1 stays: a of canary: links is of another generation"), "{text}");
    // One updated node of two isn't enough.
    fs::write(&fleet.nodes[0].generation, &fleet.commits[1]).unwrap();
    let (code, text) = fleet.run(&["promote", "wave1"]);
    assert_eq!((code, fleet.at("wave1")), (3, Some(0)), "{text}");
    assert!(text.contains("b of canary"), "{text}");
    let (code, text) = fleet.run(&["status", "--interval", "0"]);
    assert!(code == 3 && text.contains("b: links is of another generation"), "{text}");

    // Both nodes are updated, and stay healthy long enough.
    fs::write(&fleet.nodes[1].generation, &fleet.commits[1]).unwrap();
    let (code, text) = fleet.run(&["--json", "promote", "wave1", "--every", "1"]);
    assert_eq!((code, fleet.at("wave1")), (0, Some(1)), "{text}");
    // On a slow machine they were watched for longer.
    let told: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert!(told["well_for_seconds"].as_u64() >= Some(1) && text.contains("well, and"), "{text}");

    // With the next commit, one node fails while it is watched.
    fleet.point("main", 2);
    assert_eq!(fleet.run(&["promote", "canary"]).0, 0);
    for node in &fleet.nodes[..2] {
        fs::write(&node.generation, &fleet.commits[2]).unwrap();
    }
    let mut promotion = fleet
        .command(&["promote", "wave1", "--well-for", "1h", "--every", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(promotion.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("well, and"), "{line}");
    fleet.nodes[1].service.kill();
    stderr.read_to_string(&mut line).unwrap();
    assert_eq!(promotion.wait().unwrap().code(), Some(3), "{line}");
    assert!(line.contains("error: wave1 stays: b of canary:") && line.contains("does not report"), "{line}");
    assert_eq!(fleet.at("wave1"), Some(1), "nothing was moved");
}

/// The address of a node_exporter that always answers with this page.
fn exporter(page: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 4096]).unwrap();
            let length = page.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            connection.write_all(format!("{head}{page}").as_bytes()).unwrap();
        }
    });
    format!("http://{address}")
}

#[test]
fn findings_of_a_doctor_that_no_longer_looks_move_nothing() {
    let Some(binaries) = support::binaries() else { return };
    let fleet = Fleet::new(&binaries.join("linerate-links"));
    let settings = fleet.path().join("fleet.toml");
    let text = fs::read_to_string(&settings).unwrap();
    // The last node is the only one of its wave.
    let with = |page| fs::write(&settings, format!("{text}machine = {:?}\n", exporter(page))).unwrap();
    with(
        "linerate_doctor_findings{severity=\"critical\"} 0\n\
         linerate_doctor_look_timestamp_seconds 1000\n\
         node_time_seconds 9000\n",
    );
    let (code, text) = fleet.run(&["promote", "wave2"]);
    assert_eq!((code, fleet.at("wave2")), (3, None), "{text}");
    assert!(text.contains("its doctor has not looked for 8000 s"), "{text}");
    // Without a time, or within ten minutes, the findings count.
    for page in [
        "linerate_doctor_findings 0\nlinerate_doctor_look_timestamp_seconds 1000\n",
        "linerate_doctor_findings 0\nlinerate_doctor_look_timestamp_seconds 1e3\nnode_time_seconds 1.6e3\n",
    ] {
        with(page);
        let (code, text) = fleet.run(&["status", "--interval", "0"]);
        assert_eq!(code, 0, "{text}");
    }
}

#[test]
fn halted_waves_stay_until_they_may_go_on() {
    let Some(binaries) = support::binaries() else { return };
    let fleet = Fleet::new(&binaries.join("linerate-links"));
    assert_eq!(fleet.run(&["halt", "a disk of box a\u{1b}[31m is full"]).0, 0);
    let (code, text) = fleet.run(&["promote", "canary"]);
    assert_eq!((code, fleet.at("canary")), (3, Some(0)), "{text}");
    assert!(text.contains("halted: a disk of box a [31m is full"), "{text}");
    assert!(fleet.run(&["status", "--interval", "0"]).1.starts_with("halted: a disk"));
    assert_eq!(fleet.run(&["resume"]).0, 0);
    assert_eq!(fleet.run(&["resume"]).0, 0, "and once more");
    assert_eq!((fleet.run(&["promote", "canary"]).0, fleet.at("canary")), (0, Some(1)));
}

#[test]
fn what_cannot_be_is_said_in_one_line_and_moves_nothing() {
    let Some(binaries) = support::binaries() else { return };
    let fleet = Fleet::new(&binaries.join("linerate-links"));
    // The last wave is at a commit that the previous wave doesn't have.
    fleet.point("wave2", 2);
    let nowhere = fleet.path().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    for (arguments, code, expected) in [
        (&["promote", "wave9"][..], 2, "there is no wave wave9; there are canary, wave1, wave2"),
        (&["promote", "main"], 2, "there is no wave main"),
        (&["promote", "--well-for=1", "wave1"], 2, "expected a time"),
        (&["promote", "../x"], 2, "expected a branch"),
        (&["promote", "wave2"], 1, "which wave1 does not have"),
        (&["status", "--settings", nowhere], 2, "nowhere"),
        (&["drain", "--drain-file", "/nowhere/drain"], 1, "/nowhere/drain"),
        (&["announce", "--ready=http://h", "--bird=/x", "--protocol=a; down"], 2, "letters, digits"),
    ] {
        let (found, text) = fleet.run(arguments);
        assert!(found == code && text.contains(expected), "{arguments:?}: {found} {text}");
    }
    fs::remove_dir_all(fleet.path().join("boxes.git")).unwrap();
    let (code, text) = fleet.run(&["promote", "canary"]);
    assert!(code == 1 && text.contains("git") && text.trim().lines().count() == 1, "{text}");
}
