//! Tests `up` with the real services and the commands that it suggests, and `bench` of these services.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{apart, binaries};
use testkit::{Server, until};

/// Starts `up` on a directory and waits for its output, which comes once all services are ready.
fn up(data: &Path) -> (Server, Value) {
    // Whoever runs the tests may ignore SIGHUP, as nohup(1) does, and programs inherit that.
    let up = Server::program("env").args(["--default-signal=HUP", env!("CARGO_BIN_EXE_linerate"), "--json"]);
    let up = up.args(["up", "--data"]).arg(data);
    let server = up.start();
    let said = serde_json::from_str(server.said());
    let said = said.unwrap_or_else(|error| panic!("{error}: {:?} {}", server.said(), server.log()));
    (server, said)
}

/// The exit code of an `up` that should end.
fn ended(server: &Server) -> i32 {
    server.wait(Duration::from_secs(120)).code().expect("a code")
}

/// The services that it started and that still run. Ports can't show that, since other programs may use them by now.
fn running(said: &Value) -> Vec<&str> {
    let processes = said["processes"].as_object().expect("processes");
    assert_eq!(processes.keys().collect::<Vec<_>>(), ["api", "console", "files", "links", "writer"]);
    let runs = |(name, pid): &(&String, &Value)| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        // The console and the files writer run this same program.
        let own = ["console", "writer"].contains(&name.as_str());
        let program = if own { "linerate".to_owned() } else { format!("linerate-{name}") };
        // A zombie has ended, and nobody has asked how.
        field("Name:") == program && !field("State:").starts_with('Z')
    };
    processes.iter().filter(runs).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn what_it_says_to_try_works_and_everything_ends_together() {
    if binaries().is_none() {
        return;
    }
    let data = tempfile::tempdir().expect("a directory");
    // Start twice: the second time uses the data of the first.
    for _ in 0..2 {
        let (server, said) = up(data.path());
        let commands = said["commands"].as_array().expect("commands");
        let run = |command: &Value, more: &str| {
            let command = command.as_str().expect("a command");
            let output =
                Command::new("sh").args(["-c", &format!("{command} {more}")]).output().expect("a shell");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let (add, curls) = commands.split_last().expect("commands");
        let answers: Vec<String> = curls.iter().map(|curl| run(curl, "--silent --max-time 120")).collect();
        let statuses: Vec<&str> =
            answers.iter().map(|text| text.split_whitespace().nth(1).unwrap_or_default()).collect();
        assert_eq!(statuses, ["307", "201", "200", "200"], "{commands:?}");
        // Short URLs start with the address that serves them, whichever port that is.
        let links = format!("http://{}/", said["links"].as_str().expect("an address"));
        assert!(answers[1].contains(&format!("\"short_url\":\"{links}")), "{links}: {}", answers[1]);
        let added = run(add, "");
        assert!(added.starts_with(&links), "{add}: {added}");
        assert_eq!(running(&said).len(), 5);
        // The console is the address for a browser. It shows the new link without a sign-in.
        let console = format!(
            "curl --silent --max-time 120 http://{}/links",
            said["console"].as_str().expect("an address")
        );
        let page = run(&console.into(), "");
        assert!(page.contains("No sign-in") && page.contains("/link/hello"), "{page}");
        uploads(data.path(), &said);
        server.signal(Signal::INT);
        assert_eq!(ended(&server), 0);
        assert!(running(&said).is_empty(), "{:?} still run", running(&said));
    }
}

/// Checks that files serves a file that was uploaded with the console's form, and that the console records who uploaded
/// it.
fn uploads(data: &Path, said: &Value) {
    let at = |service: &str| format!("http://{}", said[service].as_str().expect("an address"));
    let (console, files, jar) = (at("console"), at("files"), data.join("cookies"));
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--max-time", "120", "--cookie"]).arg(&jar).arg("--cookie-jar").arg(&jar);
        let output = curl.args(arguments).output().expect("curl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let page = curl(&[&format!("{console}/files")]);
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap_or_else(|| panic!("no form: {page}"));
    let csrf = format!("csrf={}", rest.split('"').next().expect("a token"));
    let sent = data.join("sent.txt");
    std::fs::write(&sent, "sent by a form\n").expect("written");
    let (origin, file) = (format!("Origin: {console}"), format!("file=@{}", sent.display()));
    let form = ["-F", &csrf, "-F", "path=/", "-F", "replace=yes", "-F", &file, "-H", &origin];
    let answer = curl(&[&form[..], &["-i", &format!("{console}/files/upload")]].concat());
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    assert_eq!(curl(&[&format!("{files}/sent.txt")]), "sent by a form\n");
    // Each service has its own audit log; the api's is still empty.
    for (service, action) in [("console", "files.upload"), ("links", "link.create")] {
        let page = format!("{console}/access?service={service}");
        until(&format!("{service} has logged {action}"), || curl(&[&page]).contains(action));
    }
    let page = curl(&[&format!("{console}/access?service=api")]);
    assert!(page.contains("No write is found"), "{page}");
}

#[test]
fn the_end_of_one_is_the_end_of_all() {
    if binaries().is_none() {
        return;
    }
    let data = tempfile::tempdir().expect("a directory");
    let (server, said) = up(data.path());
    let files = said["processes"]["files"].as_i64().and_then(|pid| Pid::from_raw(pid as i32));
    kill_process(files.expect("a process"), Signal::KILL).expect("a process");
    assert_eq!(ended(&server), 1);
    let errors = server.log();
    assert!(errors.lines().any(|line| line.starts_with("error: files ended: signal: 9")), "{errors}");
    assert!(running(&said).is_empty(), "{:?} still run", running(&said));
}

#[test]
fn its_services_end_when_it_is_killed_or_its_terminal_is_closed() {
    if binaries().is_none() {
        return;
    }
    let data = tempfile::tempdir().expect("a directory");
    let (server, said) = up(data.path());
    server.kill();
    until("its services have ended", || running(&said).is_empty());
    // The last thread of a process may end later than the first.
    let lock = std::fs::File::open(data.path().join(".lock")).expect("a lock");
    until("the data is free", || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
    drop(lock);
    // The next one uses the same data.
    let (server, said) = up(data.path());
    server.signal(Signal::HUP);
    assert_eq!(ended(&server), 0);
    assert!(running(&said).is_empty(), "{:?} still run", running(&said));
}

/// A shell script that waits until `up` on the directory `$2` has printed its suggestions.
const UP: &str = r#"
"$1" up --data "$2" >"$2/said" 2>"$2/errors" &
up=$!
until grep -q '^token' "$2/said"; do kill -0 $up || { cat "$2/errors"; exit 1; }; sleep 0.05; done
"#;

/// The output of a script that runs next to `up` in isolation. The directory of `up` is `$2`.
fn beside_up(script: &str) -> Option<(tempfile::TempDir, String)> {
    binaries()?;
    let data = tempfile::tempdir().expect("a directory");
    let output = apart(&format!("{UP}{script}\nkill -INT $up\nwait $up"))?
        .arg(env!("CARGO_BIN_EXE_linerate"))
        .arg(data.path())
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    Some((data, text))
}

#[test]
fn every_address_it_prints_answers_and_is_at_the_usual_port() {
    let answers = r#"
        for url in $(sed -nE 's/^(console|links|admin|files|api) +//p' "$2/said"); do
            curl --silent --max-time 120 --output /dev/null --write-out '%{url} %{http_code}\n' "$url"
        done"#;
    let Some((data, text)) = beside_up(answers) else { return };
    let expected = "http://127.0.0.1:8110/ 200\nhttp://127.0.0.1:8080/hello 307\nhttp://127.0.0.1:8081/ 200\n\
                    http://127.0.0.1:8090/ 200\nhttp://127.0.0.1:8100/v1/users 200\n";
    assert_eq!(text, expected);
    let said = std::fs::read_to_string(data.path().join("said")).expect("what it said");
    let programs = Path::new(env!("CARGO_BIN_EXE_linerate")).parent().expect("a directory").display();
    let hint = format!("\nprograms  {programs}  (PATH=$PATH:{programs} to run them by name)\n");
    assert!(said.contains(&hint) && !said.contains("is taken"), "{said}");
}

#[test]
fn a_port_that_is_taken_is_said() {
    let second = r#"
        mkdir "$2/second"
        "$1" up --data "$2/second" >"$2/second/said" 2>"$2/second/errors" &
        second=$!
        until grep -q '^token' "$2/second/said"; do kill -0 $second; sleep 0.05; done
        grep 'is taken' "$2/second/said"
        kill -INT $second
        wait $second"#;
    let Some((_, text)) = beside_up(second) else { return };
    let ports: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(ports, ["8080", "8081", "8090", "8091", "8100", "8101", "8110", "8111"], "{text}");
    assert!(text.starts_with("port 8080 is taken: ") && text.contains(" is used instead\n"), "{text}");
}

#[test]
fn a_second_one_with_the_same_data_leaves_the_first_alone() {
    let second = r#"
        "$1" up --data "$2" 2>&1 || echo "code $?"
        token=$(sed -n 's/^token *//p' "$2/said")
        admin=$(sed -n 's/^admin *//p' "$2/said")
        curl --silent --max-time 120 --output /dev/null --write-out '%{http_code}\n' \
            -H "Authorization: Bearer $token" "${admin}api/v1/links""#;
    let Some((data, text)) = beside_up(second) else { return };
    let data = data.path().display();
    let expected = format!("error: another linerate up uses {data}: choose another by --data\ncode 2\n200\n");
    assert_eq!(text, expected);
}

#[test]
fn bench_measures_what_runs_saves_it_and_compares_with_it() {
    if Command::new("wrk").arg("--version").output().is_err() {
        return support::skipped("linerate bench", "wrk is missing, which makes its load");
    }
    let bench = r#"
        links=links=http://127.0.0.1:8080/hello
        "$1" bench $links api=http://127.0.0.1:8100/v1/users --rounds 1 --seconds 1 --save "$2/then" --chart "$2/svg"
        # Whatever the machine does meanwhile, nothing is ten times as slow.
        "$1" --json bench $links --rounds 1 --seconds 1 --against "$2/then" --tolerance 1000
        for service in links=http://127.0.0.1:8080/nothing-is-here links=http://127.0.0.1:1/; do
            "$1" bench $service --rounds 1 --seconds 1 2>&1 || echo "code $?"
        done"#;
    let Some((data, text)) = beside_up(bench) else { return };
    for server in ["links", "api"] {
        let row = text.lines().find(|line| line.starts_with(&format!("| deployed | {server} ")));
        let cells: Vec<&str> =
            row.unwrap_or_else(|| panic!("{server}: {text}")).split('|').map(str::trim).collect();
        let number =
            |cell: usize| cells[cell].parse::<f64>().unwrap_or_else(|error| panic!("{error}: {cells:?}"));
        assert!(number(3) > 0.0 && number(6) > 0.0, "requests and CPU time: {cells:?}");
    }
    let line = text.lines().find(|line| line.starts_with('{')).expect("JSON");
    let measured: Value = serde_json::from_str(line).expect("JSON");
    let change = &measured["changes"][0];
    assert_eq!(
        (&change["service"], measured["changes"].as_array().map(Vec::len)),
        (&"links".into(), Some(1))
    );
    assert!(change["before_us"].as_f64() > Some(0.0) && change["now_us"].as_f64() > Some(0.0), "{change}");
    let svg = std::fs::read_to_string(data.path().join("svg")).expect("a chart");
    assert!(svg.starts_with("<svg") && svg.contains("api"), "{svg}");
    assert!(text.contains("error: links answers /nothing-is-here with 404"), "{text}");
    assert!(
        text.contains("error: links at 127.0.0.1:1: ") && text.matches("code 1\n").count() == 2,
        "{text}"
    );
}
