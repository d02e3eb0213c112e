//! Files that do not fit into memory, beside nginx and beside what fio reads of the same disk.
//!
//! Servers are in a control group with less memory than the files take, so that most of what is asked for has to be read
//! from the disk. Page, dentry and inode caches are dropped before each round. While files are asked for, a client of its
//! own asks for one hot file, at a rate that is no load.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;
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
use crate::{NGINX, OURS, Scale, peers};

/// A server's memory, page cache included.
const MEMORY_BYTES: u64 = 200 << 20;

/// Files: directory, bytes, number. Five and twenty-five times the memory.
const SMALL: (&str, usize, usize) = ("small", 16_384, 57_000);
const LARGE: (&str, usize, usize) = ("large", 2_400_000, 2_000);
const HOT: (&str, usize, usize) = ("hot", 1_024, 1);
/// Ten times the memory, for Zipf's law.
const MANY: (&str, usize, usize) = ("many", 65_536, 32_000);

/// Requests a second for the hot file, of four connections.
const HOT_RATE: f64 = 1000.0;

/// nginx with its files read by threads, around the page cache.
const NGINX_DIRECT: &str = "nginx, directio";
/// Ours without io_uring.
const THREADS: &str = "ours, --disk threads";

/// What is asked for.
struct Case {
    name: &'static str,
    files: (&'static str, usize, usize),
    order: Order,
    connections: usize,
}

const CASES: [Case; 3] = [
    Case { name: "16 KB at random", files: SMALL, order: Order::Random, connections: 128 },
    Case { name: "2.4 MB at random", files: LARGE, order: Order::Random, connections: 32 },
    Case { name: "64 KB by Zipf's law", files: MANY, order: Order::Zipf, connections: 128 },
];

/// One round's figures.
#[derive(Clone, Copy)]
struct Sample {
    requests: f64,
    megabytes: f64,
    cpu_per_gigabyte: f64,
    p99_us: f64,
    hot_p99_us: f64,
    resident: f64,
}

/// Measures all cases.
pub fn measure(scale: Scale, results: &Path, report: &mut Report) -> Result<(), Error> {
    let limit = match Limited::new("probe", MEMORY_BYTES) {
        Ok(limit) => limit.version(),
        Err(error) => {
            eprintln!("cold: left out, for memory cannot be limited here: {error}");
            return Ok(());
        }
    };
    report.condition(format!(
        "cold: {} MiB of memory for each server by control groups of version {limit}; caches are dropped before each \
         round; the hot file is asked for {HOT_RATE} times a second meanwhile",
        MEMORY_BYTES >> 20
    ));
    let root = results.join("cold-files");
    for files in [SMALL, LARGE, MANY, HOT] {
        make(&root, files)?;
    }
    let network = Network::loopback();
    let disks = fio(scale, &root)?;
    for (name, megabytes, requests) in &disks {
        report.figure(format!("fio, {name}: bandwidth"), *megabytes, "MB/s");
        report.figure(format!("fio, {name}: reads"), *requests, "1/s");
    }
    let mut samples: HashMap<(&str, &str), Vec<Sample>> = HashMap::new();
    let servers: [(&str, Start); 4] =
        [(OURS, ours), (NGINX, nginx), (NGINX_DIRECT, nginx_direct), (THREADS, ours_by_threads)];
    let mut alone: HashMap<&str, Vec<f64>> = HashMap::new();
    for _ in 0..scale.rounds {
        for case in &CASES {
            for (name, start) in servers {
                let confined = start(&network, &root)?;
                let server = &confined.server;
                drop_caches();
                // The hot file is one by then.
                drain::run(&network, server, &hot(0.3))?;
                let hot_alone = hot_alongside(&network, server, scale.seconds.min(1.0))?.wait()?;
                alone.entry(name).or_default().push(hot_alone.p99_us);
                let sample = round(scale, &network, server, case)?;
                eprintln!(
                    "{:<20} {name:<22} {:>7.0}/s {:>6.0} MB/s {:.3} s/GB, p99 {:.1} ms, of the hot file {:.2} ms ({:.2} alone)",
                    case.name,
                    sample.requests,
                    sample.megabytes,
                    sample.cpu_per_gigabyte,
                    sample.p99_us / 1e3,
                    sample.hot_p99_us / 1e3,
                    hot_alone.p99_us / 1e3,
                );
                samples.entry((case.name, name)).or_default().push(sample);
            }
        }
    }
    let of = |case: &Case, server: &str, figure: fn(&Sample) -> f64| {
        median(samples.get(&(case.name, server)).into_iter().flatten().map(figure))
    };
    println!("{}", table(&servers, of));
    let [small, large, zipf] = &CASES;
    let requests = |case: &Case, server: &str| of(case, server, |sample| sample.requests);
    let bandwidth = |case: &Case, server: &str| of(case, server, |sample| sample.megabytes);
    let cpu = |case: &Case, server: &str| of(case, server, |sample| sample.cpu_per_gigabyte);
    // The better of the two ways nginx has.
    let best = |figure: &dyn Fn(&str) -> f64| figure(NGINX).max(figure(NGINX_DIRECT));
    let ours = requests(small, OURS);
    report.target(
        "16 KB at random, nginx's requests/s over ours",
        best(&|name| requests(small, name)) / ours,
        "x",
        1.0 / 3.0,
    );
    report.target("16 KB at random, fio's reads/s over our requests/s", disks[0].2 / ours, "x", 1.0 / 0.6);
    let ours = bandwidth(large, OURS);
    report.target(
        "2.4 MB at random, nginx's bandwidth over ours",
        best(&|name| bandwidth(large, name)) / ours,
        "x",
        0.5,
    );
    report.target("2.4 MB at random, fio's bandwidth over ours", disks[1].1 / ours, "x", 1.0 / 0.8);
    let theirs = cpu(large, NGINX).min(cpu(large, NGINX_DIRECT));
    report.target("2.4 MB at random, our CPU s/GB over nginx's", cpu(large, OURS) / theirs, "x", 0.7);
    let ours = requests(zipf, OURS);
    report.target(
        "64 KB by Zipf's law, nginx's requests/s over ours",
        best(&|name| requests(zipf, name)) / ours,
        "x",
        0.5,
    );
    let alone = median(alone.get(OURS).into_iter().flatten().copied());
    for case in &CASES {
        let name = format!("{}, the hot file's p99 over its p99 alone", case.name);
        report.target(name, of(case, OURS, |sample| sample.hot_p99_us) / alone, "x", 2.0);
    }
    Ok(())
}

fn table(servers: &[(&str, Start)], of: impl Fn(&Case, &str, fn(&Sample) -> f64) -> f64) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "files",
        "server",
        "requests/s",
        "MB/s",
        "CPU s/GB",
        "p99 ms",
        "the hot file's p99 ms",
        "RSS MiB",
    ]);
    for case in &CASES {
        for (name, _) in servers {
            table.add_row([
                case.name.to_owned(),
                (*name).to_owned(),
                format!("{:.0}", of(case, name, |sample| sample.requests)),
                format!("{:.0}", of(case, name, |sample| sample.megabytes)),
                format!("{:.3}", of(case, name, |sample| sample.cpu_per_gigabyte)),
                format!("{:.1}", of(case, name, |sample| sample.p99_us / 1e3)),
                format!("{:.2}", of(case, name, |sample| sample.hot_p99_us / 1e3)),
                format!("{:.1}", of(case, name, |sample| sample.resident)),
            ]);
        }
    }
    table.column_iter_mut().skip(2).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("\ncold\n{table}")
}

/// One server under one load: caches as they are after half of the time count.
fn round(scale: Scale, network: &Network, server: &Server, case: &Case) -> Result<Sample, Error> {
    let (directory, _, files) = case.files;
    let asked = |seconds| Workload {
        directory,
        files,
        order: case.order,
        connections: case.connections,
        seconds,
        rate: None,
    };
    drain::run(network, server, &asked(scale.seconds))?;
    let before = server.usage()?.cpu();
    let probe = hot_alongside(network, server, scale.seconds)?;
    let outcome = drain::run(network, server, &asked(scale.seconds))?;
    let usage = server.usage()?;
    let hot = probe.wait()?;
    let bytes = outcome.bytes as f64;
    Ok(Sample {
        requests: outcome.requests as f64 / outcome.seconds,
        megabytes: bytes / 1e6 / outcome.seconds,
        cpu_per_gigabyte: (usage.cpu() - before).as_secs_f64() / (bytes / 1e9),
        p99_us: outcome.p99_us,
        hot_p99_us: hot.p99_us,
        resident: mebibytes(usage.resident),
    })
}

fn hot(seconds: f64) -> Workload<'static> {
    let (directory, _, files) = HOT;
    Workload { directory, files, order: Order::Turn, connections: 4, seconds, rate: Some(HOT_RATE) }
}

/// A client for the hot file, beside another load.
struct Probe(std::thread::JoinHandle<Result<Outcome, Error>>);

impl Probe {
    fn wait(self) -> Result<Outcome, Error> {
        self.0.join().expect("it does not panic")
    }
}

/// Starts asking for the hot file. Where that is allowed, ahead of the other load on its CPU, whose business is none of
/// the server's.
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

/// Makes files, where they are not there from a run before: that takes longer than all measuring.
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

/// Has the kernel forget what it has of the disk.
fn drop_caches() {
    rustix::fs::sync();
    if fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
        eprintln!("caches stay as they are: dropping them takes root");
    }
    std::thread::sleep(Duration::from_millis(100));
}

/// What the disk gives for the reads of the first two cases: the name, MB/s and reads a second.
fn fio(scale: Scale, root: &Path) -> Result<[(&'static str, f64, f64); 2], Error> {
    let one = |case: &Case| -> Result<(&'static str, f64, f64), Error> {
        let (directory, bytes, files) = case.files;
        // Whole pages; more files than it may open are as many reads of fewer, larger ones.
        let block = bytes / 4096 * 4096;
        let (directory, files) = if files > LARGE.2 { (LARGE.0, LARGE.2) } else { (directory, files) };
        let size = LARGE.1 / block * block;
        let mut command = Command::new("taskset");
        command.args([
            "-c",
            "0",
            "fio",
            "--output-format=json",
            "--name=cold",
            "--direct=1",
            "--rw=randread",
        ]);
        command.args(["--ioengine=io_uring", "--time_based", "--group_reporting", "--norandommap"]);
        command.args(["--filename_format=f$filenum.bin", "--file_service_type=random"]);
        command.arg(format!("--directory={}", root.join(directory).display()));
        command.args([format!("--nrfiles={files}"), format!("--openfiles={files}"), format!("--bs={block}")]);
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
        eprintln!("fio, {}: {:.0} MB/s, {reads:.0} reads/s", case.name, bandwidth / 1e6);
        Ok((case.name, bandwidth / 1e6, reads))
    };
    Ok([one(&CASES[0])?, one(&CASES[1])?])
}

/// A server with little memory. It ends before its control group does.
struct Confined {
    server: Server,
    _limited: Limited,
}

/// Starts one.
type Start = fn(&Network, &Path) -> Result<Confined, Error>;

fn ours(network: &Network, root: &Path) -> Result<Confined, Error> {
    ours_with(network, root, OURS, &[])
}

fn ours_by_threads(network: &Network, root: &Path) -> Result<Confined, Error> {
    ours_with(network, root, THREADS, &["--disk", "threads"])
}

fn ours_with(network: &Network, root: &Path, name: &'static str, flags: &[&str]) -> Result<Confined, Error> {
    let address = network.address()?;
    let limited = Limited::new(&address.port().to_string(), MEMORY_BYTES)?;
    let mut command = placed(&limited, Path::new(peers::BINARY));
    command
        .args(["serve", "--workers", "1", "--listen", &address.to_string(), "--root"])
        .arg(root)
        .args(flags);
    start(name, address, command, limited)
}

/// nginx as for hot files, but with threads that wait for the disk.
fn nginx(network: &Network, root: &Path) -> Result<Confined, Error> {
    nginx_with(network, root, NGINX, "aio threads;")
}

/// The same around the page cache. Two such buffers for each of 128 connections would be more memory than it has.
fn nginx_direct(network: &Network, root: &Path) -> Result<Confined, Error> {
    nginx_with(network, root, NGINX_DIRECT, "aio threads; directio 8k; output_buffers 1 512k;")
}

fn nginx_with(network: &Network, root: &Path, name: &'static str, how: &str) -> Result<Confined, Error> {
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
    start(name, address, command, limited)
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
    Ok(Confined { server: Server::start(name, address, &mut command)?, _limited: limited })
}
