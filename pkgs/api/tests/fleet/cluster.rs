//! Three PostgreSQL servers under Patroni with etcd, HAProxy in front of them and pgbouncer in front of that, each
//! member in its own network namespace, everything with TLS.
//!
//! The test runs in its own network and process namespace, so that everything disappears with it, whatever happens.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testkit::wait_for;

/// The address of etcd, HAProxy, pgbouncer and the nodes.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Debian's PostgreSQL programs.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The ports of HAProxy and pgbouncer.
const BALANCER: u16 = 5500;
const POOLER: u16 = 6432;

/// The servers.
pub struct Cluster {
    directory: TempDir,
    patroni: PathBuf,
    members: Vec<Member>,
    etcd: Child,
    _others: Vec<Child>,
}

struct Member {
    name: String,
    address: Ipv4Addr,
    /// A process that keeps the namespace.
    holder: Child,
    patroni: Child,
}

/// The unprivileged user for programs that refuse to run as root.
fn postgres() -> (u32, u32) {
    let accounts = fs::read_to_string("/etc/passwd").expect("accounts");
    let line = accounts.lines().find_map(|line| line.strip_prefix("postgres:")).expect("Debian's user");
    let mut numbers = line.split(':').skip(1).map(|number| number.parse().expect("a number"));
    (numbers.next().expect("a user"), numbers.next().expect("a group"))
}

fn as_postgres(program: impl AsRef<Path>, directory: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program.as_ref());
    command.current_dir(directory).env("HOME", directory).env("LC_ALL", "C").stdin(Stdio::null());
    command
}

fn logged(command: &mut Command, log: &Path) -> Child {
    let log = File::create(log).expect("a file");
    command.stdout(log.try_clone().expect("a file")).stderr(log).spawn().expect("it runs")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn ip(arguments: &str) {
    run(Command::new("ip").args(arguments.split(' ')));
}

impl Cluster {
    /// Starts everything; `programs` has Patroni's programs.
    pub fn start(programs: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("fleet").tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        let at = |name: &str| directory.path().join(name);
        let (user, group) = postgres();
        let names: Vec<String> =
            [HERE].into_iter().chain((1..=3).map(address)).map(|ip| ip.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        testkit::certificate(&names).write(at("chain.pem"), at("key.pem"));
        fs::set_permissions(at("key.pem"), fs::Permissions::from_mode(0o600)).expect("ours");
        chown(at("key.pem"), Some(user), Some(group)).expect("root");
        for name in ["etcd", "m1", "m2", "m3", "p"] {
            fs::create_dir(at(name)).expect("a directory");
            chown(at(name), Some(user), Some(group)).expect("root");
        }
        ip("link add name fleet type bridge");
        ip(&format!("addr add {HERE}/24 dev fleet"));
        ip("link set fleet up");
        let (client, peer) = (format!("http://{HERE}:2379"), format!("http://{HERE}:2380"));
        let mut etcd = as_postgres("etcd", directory.path());
        etcd.arg("--data-dir").arg(at("etcd")).args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"]);
        // Debian's etcd before 3.5 doesn't know that flag.
        if !run(Command::new("etcd").arg("--help")).contains("unsafe-no-fsync") {
            let arguments: Vec<_> = etcd.get_args().map(ToOwned::to_owned).collect();
            etcd = Command::new("setpriv");
            etcd.args(arguments.into_iter().filter(|argument| argument != "--unsafe-no-fsync"));
        }
        let etcd = logged(&mut etcd, &at("etcd.log"));
        wait_for("etcd", || TcpStream::connect((HERE, 2379)).ok());
        let patroni = programs.join("patroni");
        let mut members: Vec<Member> = Vec::new();
        for index in 1..=3 {
            members.push(Member::start(index, directory.path(), &patroni));
            if index == 1 {
                wait_for("a leader", || rest(address(1), "/primary").filter(|(status, _)| *status == 200));
            }
        }
        let mut cluster = Self { directory, patroni, members, etcd, _others: Vec::new() };
        cluster.in_step();
        cluster.sql("postgres", "CREATE ROLE api LOGIN PASSWORD 'secret'");
        cluster.sql("postgres", "CREATE DATABASE app OWNER api");
        cluster.sql("postgres", "CREATE DATABASE links OWNER api");
        cluster.front();
        cluster
    }

    /// HAProxy and pgbouncer.
    fn front(&mut self) {
        let at = |name: &str| self.directory.path().join(name);
        let servers: String = self
            .members
            .iter()
            .map(|Member { name, address, .. }| format!("  server {name} {address}:5432 check port 8008\n"))
            .collect();
        let text = format!(
            "global\n  maxconn 200\ndefaults\n  mode tcp\n  timeout connect 1s\n  timeout client 30m\n  timeout server 30m\n\
             \x20 timeout check 1s\nlisten rw\n  bind {HERE}:{BALANCER}\n  option httpchk GET /primary\n  http-check expect status 200\n\
             \x20 default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions\n{servers}"
        );
        fs::write(at("haproxy.cfg"), text).expect("a file");
        let haproxy =
            logged(Command::new("haproxy").args(["-db", "-f"]).arg(at("haproxy.cfg")), &at("haproxy.log"));
        let shown = |name: &str| at(name).display().to_string();
        let (chain, key, users) = (shown("chain.pem"), shown("key.pem"), shown("p/users.txt"));
        fs::write(at("p/users.txt"), "\"api\" \"secret\"\n").expect("a file");
        let text = format!(
            "[databases]\n* = host={HERE} port={BALANCER}\n[pgbouncer]\nlisten_addr = {HERE}\nlisten_port = {POOLER}\n\
             unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {users}\npool_mode = transaction\ndefault_pool_size = 10\n\
             server_tls_sslmode = verify-full\nserver_tls_ca_file = {chain}\nclient_tls_sslmode = require\nclient_tls_cert_file = {chain}\n\
             client_tls_key_file = {key}\nserver_login_retry = 1\nserver_connect_timeout = 2\nquery_timeout = 10\n"
        );
        fs::write(at("p/pgbouncer.ini"), text).expect("a file");
        let mut pgbouncer = as_postgres("pgbouncer", self.directory.path());
        let pgbouncer = logged(pgbouncer.arg(at("p/pgbouncer.ini")), &at("pgbouncer.log"));
        self._others.extend([haproxy, pgbouncer]);
        wait_for("pgbouncer", || TcpStream::connect((HERE, POOLER)).ok());
        // HAProxy takes each server for the leader until it has checked it twice, and uses them in turn.
        let leads = || {
            let mut psql = as_postgres("psql", self.directory.path());
            psql.env("PGPASSWORD", "secret").env("PGSSLMODE", "require").env("PGCONNECT_TIMEOUT", "5");
            psql.args(["-h", &HERE.to_string(), "-p", &BALANCER.to_string(), "-U", "api", "-d", "app"]);
            psql.args(["-qAtXc", "SELECT pg_is_in_recovery()"]);
            psql.output().is_ok_and(|output| output.stdout == b"f\n")
        };
        wait_for("HAProxy knows the leader", || (0..3).all(|_| leads()).then_some(()));
    }

    /// A database URL with all members, one of which accepts writes.
    pub fn hosts(&self, database: &str) -> String {
        let hosts: Vec<String> =
            self.members.iter().map(|member| format!("{}:5432", member.address)).collect();
        let chain = self.directory.path().join("chain.pem");
        format!(
            "postgres://api:secret@{}/{database}?sslmode=verify-full&sslrootcert={}&channel_binding=require&connect_timeout=2",
            hosts.join(","),
            chain.display()
        )
    }

    /// A database URL through pgbouncer, which uses HAProxy.
    pub fn pooler(&self, database: &str) -> String {
        let chain = self.directory.path().join("chain.pem");
        format!(
            "postgres://api:secret@{HERE}:{POOLER}/{database}?sslmode=verify-full&sslrootcert={}&connect_timeout=2",
            chain.display()
        )
    }

    /// Runs a statement on the leader.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let leader = self.leader();
        let mut psql = as_postgres("psql", self.directory.path());
        psql.arg("-h")
            .arg(self.directory.path().join(format!("m{}", leader + 1)))
            .args(["-d", database, "-qAtXc", sql]);
        run(&mut psql)
    }

    /// The index of the leader.
    pub fn leader(&self) -> usize {
        wait_for("a leader", || self.leading())
    }

    fn leading(&self) -> Option<usize> {
        (0..self.members.len()).find(|&index| {
            rest(self.members[index].address, "/primary").is_some_and(|(status, _)| status == 200)
        })
    }

    /// Waits until a leader has a standby with everything it commits, and all three are healthy.
    pub fn in_step(&self) {
        wait_for("all three are in step", || {
            let (_, text) = rest(self.members[self.leading()?].address, "/cluster")?;
            let cluster: Value = serde_json::from_str(&text).ok()?;
            let members = cluster["members"].as_array()?;
            let is = |role: &str| members.iter().filter(|member| member["role"] == role).count();
            let well = members
                .iter()
                .filter(|member| member["state"] == "running" || member["state"] == "streaming");
            (well.count() == 3 && is("leader") == 1 && is("sync_standby") >= 1).then_some(())
        });
    }

    /// Makes another member the leader, cleanly.
    pub fn switch_over(&self) {
        let before = self.leader();
        let leader = &self.members[before];
        let body = format!("{{\"leader\":\"{}\"}}", leader.name);
        // Patroni refuses while a standby is slow to say how it is.
        wait_for("a switchover", || {
            let told = exchange(leader.address, "POST", "/switchover", &body);
            let done = told.is_some_and(|(status, _)| status == 200);
            (done || self.leading().is_some_and(|now| now != before)).then_some(())
        });
    }

    /// Kills the processes of the leader's PostgreSQL, but not Patroni.
    pub fn kill_postmaster(&self) {
        let leader = self.leader() + 1;
        let file = self.directory.path().join(format!("m{leader}/data/postmaster.pid"));
        let pid = fs::read_to_string(file).expect("it runs");
        signal("-KILL", pid.lines().next().expect("a process"));
    }

    /// Kills the leader's Patroni and PostgreSQL at once; returns which member it was.
    pub fn kill_leader(&mut self) -> usize {
        let leader = self.leader();
        let mut all = Command::new("pkill");
        all.args(["-KILL", "--ns", &self.members[leader].holder.id().to_string(), "--nslist", "net"]);
        // The process that keeps the namespace ends too, so the namespace is made again.
        run(&mut all);
        let _ = self.members[leader].holder.wait();
        let _ = self.members[leader].patroni.wait();
        leader
    }

    /// Starts a killed member again.
    pub fn revive(&mut self, index: usize) {
        let _ = Command::new("ip").args(["link", "del", &format!("to{}", index + 1)]).output();
        self.members[index] = Member::start(index + 1, self.directory.path(), &self.patroni);
    }

    /// Stops etcd, or lets it continue.
    pub fn hold_etcd(&self, hold: bool) {
        signal(if hold { "-STOP" } else { "-CONT" }, &self.etcd.id().to_string());
    }

    /// Cuts a member's network, or restores it.
    pub fn cut(&self, index: usize, cut: bool) {
        ip(&format!("link set to{} {}", index + 1, if cut { "down" } else { "up" }));
    }

    /// Makes both standbys pause replay, or continue: the synchronous one still receives what is committed.
    pub fn lag(&self, lag: bool) {
        let leader = self.leader();
        for index in (0..self.members.len()).filter(|&index| index != leader) {
            let mut psql = as_postgres("psql", self.directory.path());
            let function = if lag { "pg_wal_replay_pause" } else { "pg_wal_replay_resume" };
            psql.arg("-h").arg(self.directory.path().join(format!("m{}", index + 1)));
            run(psql.args(["-d", "postgres", "-qAtXc", &format!("SELECT {function}()")]));
        }
    }

    /// All logs, for finding out what went wrong.
    pub fn said(&self) -> String {
        ["etcd", "p1", "p2", "p3", "haproxy", "pgbouncer"]
            .iter()
            .map(|name| {
                let text =
                    fs::read_to_string(self.directory.path().join(format!("{name}.log"))).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                format!("== {name}\n{}\n", lines[lines.len().saturating_sub(15)..].join("\n"))
            })
            .collect()
    }
}

impl Member {
    fn start(index: usize, directory: &Path, patroni: &Path) -> Self {
        let (name, address) = (format!("p{index}"), address(index as u8));
        let mut holder = Command::new("unshare");
        let holder = holder
            .args(["--net", "--", "sleep", "1000000"])
            .stdin(Stdio::null())
            .spawn()
            .expect("a namespace");
        let pid = holder.id();
        // Until the process has moved there, it is in this network namespace.
        wait_for("a namespace", || {
            let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
            (of(&pid.to_string())? != of("self")?).then_some(())
        });
        ip(&format!("link add to{index} type veth peer name eth0 netns {pid}"));
        ip(&format!("link set to{index} master fleet up"));
        let within = |arguments: &str| {
            run(Command::new("nsenter")
                .arg(format!("--net=/proc/{pid}/ns/net"))
                .arg("ip")
                .args(arguments.split(' ')))
        };
        within("link set lo up");
        within(&format!("addr add {address}/24 dev eth0"));
        within("link set eth0 up");
        let file = directory.join(format!("{name}.yml"));
        fs::write(&file, settings(&name, index, address, directory)).expect("a file");
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{pid}/ns/net")).arg("--").args([
            "setpriv",
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
            // Python and Patroni may be below a home directory that others may not read.
            "--inh-caps=+dac_read_search",
            "--ambient-caps=+dac_read_search",
            "--",
        ]);
        command.arg(patroni).arg(&file).current_dir(directory).env("HOME", directory).env("LC_ALL", "C");
        let patroni = logged(command.stdin(Stdio::null()), &directory.join(format!("{name}.log")));
        Self { name, address, holder, patroni }
    }
}

fn address(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 10 + index)
}

fn settings(name: &str, index: usize, address: Ipv4Addr, directory: &Path) -> String {
    let mut versions: Vec<PathBuf> =
        fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    versions.sort();
    let programs = versions.last().expect("Debian's PostgreSQL").join("bin");
    let (programs, at) = (programs.display(), directory.display());
    // Patroni accepts no ttl below 20 s.
    format!(
        "scope: fleet
name: {name}
restapi: {{listen: '{address}:8008', connect_address: '{address}:8008'}}
etcd3: {{host: '{HERE}:2379'}}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 3
    maximum_lag_on_failover: 1048576
    synchronous_mode: true
    failsafe_mode: true
    postgresql: {{use_pg_rewind: true}}
  initdb: [{{encoding: UTF8}}, no-sync]
postgresql:
  listen: '{address}:5432'
  connect_address: '{address}:5432'
  data_dir: {at}/m{index}/data
  bin_dir: {programs}
  pgpass: {at}/m{index}/pgpass
  authentication:
    superuser: {{username: postgres, password: su}}
    replication: {{username: replicator, password: re}}
    rewind: {{username: rewinder, password: rw}}
  pg_hba:
  - local all all trust
  - hostssl replication replicator all scram-sha-256
  - hostssl all all all scram-sha-256
  parameters:
    unix_socket_directories: '{at}/m{index}'
    ssl: 'on'
    ssl_cert_file: '{at}/chain.pem'
    ssl_key_file: '{at}/key.pem'
    password_encryption: scram-sha-256
    shared_buffers: 32MB
    max_connections: 100
    checkpoint_timeout: 30s
    wal_sender_timeout: 5s
    wal_receiver_timeout: 5s
    tcp_user_timeout: 5000
"
    )
}

fn rest(address: Ipv4Addr, path: &str) -> Option<(u16, String)> {
    exchange(address, "GET", path, "")
}

/// A request to Patroni.
fn exchange(address: Ipv4Addr, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let at = SocketAddr::new(IpAddr::V4(address), 8008);
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_millis(500)).ok()?;
    // A switchover is answered once it is done.
    let patience = if method == "GET" { Duration::from_secs(2) } else { PATIENCE };
    stream.set_read_timeout(Some(patience)).ok()?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

fn signal(signal: &str, pid: &str) {
    run(Command::new("kill").args([signal, pid]));
}
