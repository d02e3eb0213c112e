//! The service is killed while it writes to SQLite.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::*;

/// Tells the child where to write.
const DATABASE: &str = "LINERATE_API_TEST_DATABASE";

/// Users acknowledged before the child is killed.
const ACKNOWLEDGED: usize = 200;

#[test]
#[ignore = "the child of the next test, which kills it"]
fn write_until_killed() {
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("the system can start threads");
    runtime.block_on(async {
        let path = PathBuf::from(path).display().to_string();
        let options = Options::new(format!("sqlite:{path}").parse().expect("a path"));
        let users = Users::open(&options).await.expect("it opens");
        for number in 0..1_000_000 {
            println!("\n{}", create(&users, number).await.id);
        }
    });
}

#[test]
fn what_was_acknowledged_survives_a_kill_of_the_service() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("users.db");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "crash::write_until_killed", "--ignored", "--nocapture"])
        .env(DATABASE, &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let ids = lines.map_while(Result::ok).filter_map(|line| line.parse::<UserId>().ok());
    let mut acknowledged: Vec<UserId> = Vec::new();
    for id in ids {
        acknowledged.push(id);
        if acknowledged.len() == ACKNOWLEDGED {
            child.kill().expect("it runs");
        }
    }
    child.wait().expect("it was killed");
    assert!(acknowledged.len() >= ACKNOWLEDGED);
    let runtime = tokio::runtime::Runtime::new().expect("the system can start threads");
    runtime.block_on(async {
        let options = Options::new(format!("sqlite:{}", path.display()).parse().expect("a path"));
        let users = Users::open(&options).await.expect("it opens");
        let found = users.get_many(&acknowledged).await.expect("the database answers");
        assert_eq!(found.len(), acknowledged.len());
    });
}
