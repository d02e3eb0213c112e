//! Files that don't fit into memory, compared with nginx and with what fio reads from the same disk.
//!
//! Servers are in a control group with less memory than the files take, so that most of what is requested has to be
//! read from the disk. Page, dentry and inode caches are dropped before each round. Meanwhile, a separate client
//! requests one hot file, at a rate that is no load.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bench::report::{Report, mebibytes};
use bench::rounds::median;
use bench::server::Server;
use bench::{Error, setup};
use comfy_table::{CellAlignment, Table, presets};

use crate::drain::{self, Order, Outcome, Workload};
use crate::limited::Limited;
use crate::network::Network;
use crate::{NGINX, OTHER, OURS, Scale, peers};

/// A server's memory, including its page cache.
const MEMORY_BYTES: u64 = 200 << 20;

/// Files: directory, bytes, number. Five and twenty-five times the memory.
const SMALL: (&str, usize, usize) = ("small", 16_384, 57_000);
const LARGE: (&str, usize, usize) = ("large", 2_400_000, 2_000);
const HOT: (&str, usize, usize) = ("hot", 1_024, 1);
/// Ten times the memory, for Zipf's law.
const MANY: (&str, usize, usize) = ("many", 65_536, 32_000);

/// Requests per second for the hot file, from four connections.
const HOT_RATE: f64 = 1000.0;

/// The most files that fio keeps open.
const FIO_OPEN: usize = 2_000;

/// nginx with its files read by threads, bypassing the page cache.
const NGINX_DIRECT: &str = "nginx, directio";
/// Ours without io_uring.
const THREADS: &str = "ours, --disk threads";

/// What is requested.
struct Case {
    /// The part of the bench.
    row: &'static str,
    name: &'static str,
    files: (&'static str, usize, usize),
    order: Order,
    connections: usize,
}

const CASES: [Case; 3] = [
    Case { row: "cold-16KB", name: "16 KB at random", files: SMALL, order: Order::Random, connections: 128 },
    Case { row: "cold-2.4MB", name: "2.4 MB at random", files: LARGE, order: Order::Random, connections: 32 },
    Case { row: "cold-zipf", name: "64 KB by Zipf's law", files: MANY, order: Order::Zipf, connections: 128 },
];

/// Whether a part of the bench is one of these.
pub fn is_row(part: &str) -> bool {
    CASES.iter().any(|case| case.row == part)
}

/// One round's figures.
#[derive(Clone, Copy)]
struct Sample {
    requests: f64,
    megabytes: f64,
    cpu_us: f64,
    cpu_per_gigabyte: f64,
    p99_us: f64,
    hot_p99_us: f64,
    /// The same before the other load.
    hot_alone_p99_us: f64,
    resident: f64,
    page_cache: f64,
}

/// The measurements of one server.
struct Series<'a> {
    name: &'static str,
    start: Box<Start<'a>>,
    samples: Vec<Sample>,
}

impl Series<'_> {
    fn of(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(figure))
    }
}

/// Measures one row: all servers in turn, round after round, each started again.
pub fn measure(scale: Scale, row: &str, results: &Path, report: &mut Report) -> Result<(), Error> {
    let case = CASES.iter().find(|case| case.row == row).expect("only rows are asked for");
    let limit = match Limited::new("probe", MEMORY_BYTES) {
        Ok(limit) => limit.version(),
        Err(error) => {
            eprintln!("{row}: left out, for memory cannot be limited here: {error}");
            return Ok(());
        }
    };
    report.condition(format!(
        "{row}: {} connections, {} MiB of memory for each server by control groups of version {limit}; caches are dropped \
         before each round; the hot file is asked for {HOT_RATE} times a second meanwhile",
        case.connections,
        MEMORY_BYTES >> 20
    ));
    let root = results.join("cold-files");
    for files in [case.files, HOT] {
        make(&root, files)?;
    }
    // fio reads blocks of these too.
    if case.order == Order::Random {
        make(&root, LARGE)?;
    }
    let network = Network::loopback();
    let disks = fio(scale, case, &root)?;
    let with = |name: &'static str, flags: &'static [&'static str]| {
        let (root, network) = (root.clone(), &network);
        let program = PathBuf::from(peers::BINARY);
        let start: Box<Start<'_>> = Box::new(move || ours(&program, network, &root, name, flags));
        Series { name, start, samples: Vec::new() }
    };
    let peer = |name: &'static str, how: &'static str| {
        let (root, network) = (root.clone(), &network);
        let start: Box<Start<'_>> = Box::new(move || nginx(network, &root, name, how));
        Series { name, start, samples: Vec::new() }
    };
    // nginx with `directio` gets one output buffer: two, which bypass the page cache, for each of 128 connections would
    // take more memory than it has.
    let mut servers = vec![
        with(OURS, &[]),
        peer(NGINX, "aio threads;"),
        peer(NGINX_DIRECT, "aio threads; directio 8k; output_buffers 1 512k;"),
        with(THREADS, &["--disk", "threads"]),
    ];
    if let Some(program) = setup::other_build("linerate-files")? {
        let (root, network) = (root.clone(), &network);
        let start: Box<Start<'_>> = Box::new(move || ours(&program, network, &root, OTHER, &[]));
        servers.push(Series { name: OTHER, start, samples: Vec::new() });
    }
    for number in 0..scale.rounds {
        for server in &mut servers {
            let confined = (server.start)()?;
            let sample = match round(scale, &network, &confined, case, number as u64) {
                Ok(sample) => sample,
                // Under this load, nginx with `directio` sometimes cuts an answer off.
                Err(error) if server.name == NGINX_DIRECT => {
                    report
                        .condition(format!("{row}: round {} of {NGINX_DIRECT} failed: {error}", number + 1));
                    continue;
                }
                Err(error) => return Err(error),
            };
            eprintln!(
                "{:<20} {:<22} {:>7.0}/s {:>6.0} MB/s {:>5.1} µs {:.3} s/GB, p99 {:.1} ms, of the hot file {:.2} ms ({:.2} alone)",
                case.name,
                server.name,
                sample.requests,
                sample.megabytes,
                sample.cpu_us,
                sample.cpu_per_gigabyte,
                sample.p99_us / 1e3,
                sample.hot_p99_us / 1e3,
                sample.hot_alone_p99_us / 1e3,
            );
            server.samples.push(sample);
        }
    }
    servers.retain(|server| !server.samples.is_empty());
    println!("{}", table(case, &servers));
    for server in &servers {
        let name = format!("{}, {}", case.name, server.name);
        report.figure(format!("{name}: requests"), server.of(|sample| sample.requests), "1/s");
        report.figure(format!("{name}: bandwidth"), server.of(|sample| sample.megabytes), "MB/s");
        report.figure(format!("{name}: CPU of a request"), server.of(|sample| sample.cpu_us), "µs");
        report.figure(format!("{name}: CPU by the GB"), server.of(|sample| sample.cpu_per_gigabyte), "s");
        report.figure(format!("{name}: p99"), server.of(|sample| sample.p99_us), "µs");
        report.figure(format!("{name}: the hot file's p99"), server.of(|sample| sample.hot_p99_us), "µs");
        report.figure(format!("{name}: RSS"), server.of(|sample| sample.resident), "MiB");
        report.figure(format!("{name}: page cache"), server.of(|sample| sample.page_cache), "MiB");
    }
    targets(case, &servers, &disks, report);
    Ok(())
}

/// The targets, compared with the better of nginx's two ways.
fn targets(case: &Case, servers: &[Series<'_>], disks: &[Disk], report: &mut Report) {
    let [ours, others @ ..] = servers else { return };
    let nginx: Vec<_> = others.iter().filter(|server| [NGINX, NGINX_DIRECT].contains(&server.name)).collect();
    let name = case.name;
    let most = |figure: fn(&Sample) -> f64| nginx.iter().map(|server| server.of(figure)).fold(0.0, f64::max);
    let over = |figure: fn(&Sample) -> f64| most(figure) / ours.of(figure);
    let requests: fn(&Sample) -> f64 = |sample| sample.requests;
    let of_nginx = if case.row == "cold-16KB" { 1.0 / 3.0 } else { 0.5 };
    report.target(format!("{name}, nginx's requests/s over ours"), over(requests), "x", of_nginx);
    for Disk { files, megabytes, reads } in disks {
        report.figure(format!("fio, {name}, of {files}: bandwidth"), *megabytes, "MB/s");
        report.figure(format!("fio, {name}, of {files}: reads"), *reads, "1/s");
        let part = if case.row == "cold-16KB" { 0.6 } else { 0.8 };
        report.target(
            format!("{name}, fio's reads/s of {files} over our requests/s"),
            reads / ours.of(requests),
            "x",
            1.0 / part,
        );
    }
    if case.row == "cold-2.4MB" {
        let cpu: fn(&Sample) -> f64 = |sample| sample.cpu_per_gigabyte;
        let theirs = nginx.iter().map(|server| server.of(cpu)).fold(f64::INFINITY, f64::min);
        report.target(format!("{name}, our CPU s/GB over nginx's"), ours.of(cpu) / theirs, "x", 0.7);
    }
    let hot = ours.of(|sample| sample.hot_p99_us) / ours.of(|sample| sample.hot_alone_p99_us);
    report.target(format!("{name}, the hot file's p99 over its p99 alone"), hot, "x", 2.0);
}

fn table(case: &Case, servers: &[Series<'_>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        case.name,
        "requests/s",
        "MB/s",
        "CPU µs",
        "CPU s/GB",
        "p99 ms",
        "the hot file's p99 ms",
        "alone",
        "RSS MiB",
        "page cache MiB",
    ]);
    for server in servers {
        table.add_row([
            server.name.to_owned(),
            format!("{:.0}", server.of(|sample| sample.requests)),
            format!("{:.0}", server.of(|sample| sample.megabytes)),
            format!("{:.1}", server.of(|sample| sample.cpu_us)),
            format!("{:.3}", server.of(|sample| sample.cpu_per_gigabyte)),
            format!("{:.1}", server.of(|sample| sample.p99_us / 1e3)),
            format!("{:.2}", server.of(|sample| sample.hot_p99_us / 1e3)),
            format!("{:.2}", server.of(|sample| sample.hot_alone_p99_us / 1e3)),
            format!("{:.1}", server.of(|sample| sample.resident)),
            format!("{:.1}", server.of(|sample| sample.page_cache)),
        ]);
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("\n{}\n{table}", case.row)
}

/// One server with one load: the state of the caches halfway through is what counts.
fn round(
    scale: Scale,
    network: &Network,
    confined: &Confined,
    case: &Case,
    number: u64,
) -> Result<Sample, Error> {
    let server = &confined.server;
    drop_caches();
    // By then, the hot file is hot.
    drain::run(network, server, &hot(0.3))?;
    let hot_alone = hot_alongside(network, server, scale.seconds.min(1.0))?.wait()?;
    let (directory, _, files) = case.files;
    // All servers in a round get the same requests, different from those that warm them up.
    let asked = |seed| Workload {
        directory,
        files,
        order: case.order,
        connections: case.connections,
        seconds: scale.seconds,
        rate: None,
        seed,
    };
    drain::run(network, server, &asked(2 * number))?;
    let before = server.usage()?.cpu();
    let probe = hot_alongside(network, server, scale.seconds)?;
    let outcome = drain::run(network, server, &asked(2 * number + 1))?;
    let usage = server.usage()?;
    let hot = probe.wait()?;
    let bytes = outcome.bytes as f64;
    let cpu = (usage.cpu() - before).as_secs_f64();
    Ok(Sample {
        requests: outcome.requests as f64 / outcome.seconds,
        megabytes: bytes / 1e6 / outcome.seconds,
        cpu_us: cpu * 1e6 / outcome.requests as f64,
        cpu_per_gigabyte: cpu / (bytes / 1e9),
        p99_us: outcome.p99_us,
        hot_p99_us: hot.p99_us,
        hot_alone_p99_us: hot_alone.p99_us,
        resident: mebibytes(usage.resident),
        page_cache: mebibytes(confined.limited.page_cache()?),
    })
}

fn hot(seconds: f64) -> Workload<'static> {
    let (directory, _, files) = HOT;
    Workload { directory, files, order: Order::Turn, connections: 4, seconds, rate: Some(HOT_RATE), seed: 0 }
}

/// A client for the hot file, during another load.
struct Probe(std::thread::JoinHandle<Result<Outcome, Error>>);

impl Probe {
    fn wait(self) -> Result<Outcome, Error> {
        self.0.join().expect("it does not panic")
    }
}

/// Starts requesting the hot file: if allowed, with priority over the other load on its CPU, whose delays aren't the
/// server's fault.
fn hot_alongside(network: &Network, server: &Server, seconds: f64) -> Result<Probe, Error> {
    let ahead = Command::new("chrt").args(["-f", "1", "true"]).stderr(Stdio::null()).status();
    let this = std::env::current_exe()?;
    let command = if ahead.is_ok_and(|status| status.success()) {
        let mut command = network.client("chrt");
        command.args(["-f", "1"]).arg(this);
        command
    } else {
        network.client(this)
    };
    let load = drain::prepared(command, server, &hot(seconds));
    Ok(Probe(std::thread::spawn(load)))
}

/// Creates files, unless they exist from an earlier run: that takes longer than all measurements.
fn make(root: &Path, (directory, bytes, files): (&str, usize, usize)) -> Result<(), Error> {
    let place = root.join(directory);
    let done = place.join("done");
    if done.exists() {
        return Ok(());
    }
    eprintln!("making {files} files of {bytes} bytes in {}", place.display());
    fs::create_dir_all(&place).map_err(Error::file(&place))?;
    let content: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 257) as u8).collect();
    for number in 0..files {
        let path = place.join(format!("f{number}.bin"));
        let mut file = fs::File::create(&path).map_err(Error::file(&path))?;
        file.write_all(&(number as u64).to_le_bytes()).and_then(|()| file.write_all(&content[8..]))?;
    }
    rustix::fs::sync();
    fs::write(&done, "").map_err(Error::file(&done))
}

/// Makes the kernel forget what it has cached of the disk.
fn drop_caches() {
    rustix::fs::sync();
    if fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
        eprintln!("caches stay as they are: dropping them takes root");
    }
    std::thread::sleep(Duration::from_millis(100));
}

/// The disk's read performance.
struct Disk {
    /// The files it was measured with.
    files: &'static str,
    megabytes: f64,
    reads: f64,
}

/// The disk's performance for the reads of a case, on the same files. If these are small, also that for as many reads
/// from fewer, larger files, which need not be opened as often. Nothing if the reads aren't random.
fn fio(scale: Scale, case: &Case, root: &Path) -> Result<Vec<Disk>, Error> {
    if case.order != Order::Random {
        return Ok(Vec::new());
    }
    let mut disks = vec![reads_of(scale, case, root, case.files, "the same files")?];
    if case.files.1 < LARGE.1 {
        disks.push(reads_of(scale, case, root, LARGE, "large files")?);
    }
    Ok(disks)
}

fn reads_of(
    scale: Scale,
    case: &Case,
    root: &Path,
    (directory, bytes, files): (&str, usize, usize),
    name: &'static str,
) -> Result<Disk, Error> {
    // Whole pages.
    let block = case.files.1 / 4096 * 4096;
    let size = bytes / block * block;
    let open = files.min(FIO_OPEN);
    let mut command = Command::new("taskset");
    command.args(["-c", "0", "fio", "--output-format=json", "--name=cold", "--direct=1", "--rw=randread"]);
    command.args(["--ioengine=io_uring", "--time_based", "--group_reporting", "--norandommap"]);
    command.args(["--filename_format=f$filenum.bin", "--file_service_type=random", "--randrepeat=1"]);
    command.arg(format!("--directory={}", root.join(directory).display()));
    command.args([format!("--nrfiles={files}"), format!("--openfiles={open}"), format!("--bs={block}")]);
    command.args([format!("--filesize={size}"), format!("--iodepth={}", case.connections)]);
    command.arg(format!("--runtime={}", scale.seconds * 2.0));
    let output = command.output().map_err(|source| Error::Run { program: "fio".into(), source })?;
    let failed = || Error::Failed {
        program: "fio".into(),
        status: output.status,
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
    };
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|_| failed())?;
    let read = &json["jobs"][0]["read"];
    let (bandwidth, reads) = (read["bw_bytes"].as_f64(), read["iops"].as_f64());
    let (bandwidth, reads) = bandwidth.zip(reads).filter(|(_, reads)| *reads > 0.0).ok_or_else(failed)?;
    eprintln!("fio, {}, of {name}: {:.0} MB/s, {reads:.0} reads/s", case.name, bandwidth / 1e6);
    Ok(Disk { files: name, megabytes: bandwidth / 1e6, reads })
}

/// A server with little memory. It ends before its control group does.
struct Confined {
    server: Server,
    limited: Limited,
}

/// Starts one.
type Start<'a> = dyn Fn() -> Result<Confined, Error> + 'a;

fn ours(
    program: &Path,
    network: &Network,
    root: &Path,
    name: &'static str,
    flags: &[&str],
) -> Result<Confined, Error> {
    let address = network.address()?;
    let limited = Limited::new(&address.port().to_string(), MEMORY_BYTES)?;
    let mut command = placed(&limited, program);
    command
        .args(["serve", "--workers", "1", "--listen", &address.to_string(), "--root"])
        .arg(root)
        .args(flags);
    start(name, address, command, limited)
}

/// nginx as for hot files, but with threads that wait for the disk.
fn nginx(network: &Network, root: &Path, name: &'static str, how: &str) -> Result<Confined, Error> {
    let program = setup::require("nginx", "nginx-light")?;
    let address = network.address()?;
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let file = root.join(format!("nginx-{}.conf", address.port()));
    let configuration = format!(
        "daemon off; {user} worker_processes 1; pid nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 8192; multi_accept on; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 4000000000; keepalive_timeout 1h;\n\
         {} default_type application/octet-stream; {how}\n\
         server {{ listen {address} reuseport backlog=4096; root {}; }} }}\n",
        peers::OPEN_FILES,
        root.display(),
    );
    fs::write(&file, configuration).map_err(Error::file(&file))?;
    let limited = Limited::new(&address.port().to_string(), MEMORY_BYTES)?;
    let mut command = placed(&limited, &program);
    command.arg("-p").arg(root).arg("-c").arg(&file);
    let started = start(name, address, command, limited);
    // It has read the file by the time it answers.
    let _ = fs::remove_file(&file);
    started
}

/// A command on CPU 0 with little memory.
fn placed(limited: &Limited, program: &Path) -> Command {
    let mut command = limited.command("taskset");
    command.args(["-c", "0"]).arg(program);
    command
}

fn start(
    name: &'static str,
    address: std::net::SocketAddr,
    mut command: Command,
    limited: Limited,
) -> Result<Confined, Error> {
    Ok(Confined { server: Server::start(name, address, &mut command)?, limited })
}
