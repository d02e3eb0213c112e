//! Tests every rule of `doctor` on every recorded machine. With the machine's own profile and with its queues placed, a
//! rule finds nothing. Each injected fault is found by its rule, and by no other rule except those listed for it.

use std::fs;
use std::process::Command;

use linerate::doctor::{Finding, Interval, RULES, RuleContext, Sample, examine};
use linerate::nic::apply::apply;
use linerate::nic::plan::Steering;
use linerate::nic::saved::Store;
use linerate::nic::setting::Subject;
use linerate::nic::{self, PlacementRequest, device};
use linerate::profile::Profile;
use linerate::system::{Recorded, System};
use linerate::topology::Topology;

const MACHINES: [&str; 6] =
    ["c6i.4xlarge-8", "c6i.4xlarge-16", "x550-hybrid", "virtio-4", "managed-nvme", "two-nodes"];

/// Faults: the rule that finds it, and lines that override the machine's, in which `IF` stands for its interface, `DEV`
/// for the interface's directory, `IRQ` for an interrupt of a queue and `MAX` for the most channels. Then the other
/// rules that also find it.
const FAULTS: &[(&str, &str, &[&str])] = &[
    ("running", "UNITS/linerate-links.service/cgroup.procs =", &[]),
    ("ready", "get http://127.0.0.1:8091/readyz 503", &[]),
    ("listening", "/proc/net/unix:\n|Num RefCount Protocol Flags Type St Inode Path", &[]),
    (
        "backlog",
        "listener [::]:80 backlog=4096 waiting=0\nlistener 127.0.0.1:8081 backlog=16384 waiting=0\n\
         listener [::]:8090 backlog=16384 waiting=0",
        &[],
    ),
    ("limits", "UNITS/linerate-links.service/memory.max = max", &[]),
    ("affinity", "/proc/700/task/701/status = Cpus_allowed_list:\t0-63", &[]),
    ("interface", "DEV/operstate = down", &[]),
    ("mtu", "DEV/mtu = 1280", &[]),
    ("channels", "channels IF combined=1 max_combined=MAX", &[]),
    ("rings", "rings IF rx=64 tx=64", &[]),
    ("offloads", "offloads IF rx-gro=false rx-lro=false tx-tcp-segmentation=true", &[]),
    ("coalescing", "coalescing IF adaptive_rx=false rx_usecs=300", &[]),
    ("qdisc", "qdiscs IF fq pfifo_fast", &[]),
    ("placement", "/proc/irq/IRQ/smp_affinity_list = 0-63", &[]),
    ("irqbalance", "/proc/812/comm = irqbalance", &[]),
    ("sysctl", "/proc/sys/net/core/somaxconn = 4096", &[]),
    // On a machine that runs an image, the command line also has the store's hash.
    ("parameters", "/proc/cmdline = root=LABEL=nixos ro", &["image"]),
    ("governor", "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor = powersave", &[]),
    // The queue of the missing CPU is planned on another one.
    ("cpus", "/sys/devices/system/cpu/online = 0-2", &["placement"]),
    ("disk", "free / bytes=42 inodes=3", &[]),
    ("image", "verity usr root=cd34 corrupt=false", &[]),
    ("clock", "clock synchronised=false max_error_us=16000000", &[]),
    ("certificate", "/proc/700/cmdline = x\0serve\0--cert\0/nowhere.pem", &[]),
    ("softnet-drops", "later\n/proc/net/softnet_stat:\n|00040000 00000100 00000000", &[]),
    ("time-squeeze", "later\n/proc/net/softnet_stat:\n|00040000 00000000 00000100", &[]),
    ("listen-overflows", "later\n/proc/net/netstat:\n|TcpExt: ListenOverflows\n|TcpExt: 90", &[]),
    (
        "accept-queue",
        "listener [::]:80 backlog=16384 waiting=9000\nlistener 127.0.0.1:8081 backlog=16384 waiting=0\n\
         listener [::]:8090 backlog=16384 waiting=0",
        &[],
    ),
    ("udp-drops", "later\n/proc/net/snmp:\n|Udp: InDatagrams RcvbufErrors\n|Udp: 50000 900", &[]),
    ("ring-drops", "later\nstatistics IF LOST=900", &[]),
    ("ring-drops", "later\nstatistics IF SHORT=900", &[]),
    ("allowance", "later\nstatistics IF bw_out_allowance_exceeded=90000", &[]),
    ("allowance", "later\nstatistics IF pps_allowance_exceeded=90000", &[]),
    ("credits", "later\nDEV/statistics/tx_bytes = 9000000000", &[]),
    ("tracked", "later\nstatistics IF conntrack_allowance_available=9000", &[]),
    ("hot-queue", "later\nstatistics IF HOT", &[]),
    ("conntrack", "/proc/sys/net/netfilter/nf_conntrack_count = 250000", &[]),
    (
        "throttled",
        "later\nUNITS/linerate-links.service/cpu.stat:\n|nr_throttled 9\n|throttled_usec 400000",
        &[],
    ),
    ("memory-limit", "later\nUNITS/linerate-files.service/memory.events:\n|max 7\n|oom_kill 0", &[]),
    ("huge-pages", "later\n/proc/vmstat:\n|compact_stall 40", &[]),
    ("stolen", "later\n/proc/stat:\n|cpu  900000 0 0 900000 0 0 0 200000 0 0", &[]),
];

/// Whether a machine lacks what a rule checks: virtual machines have no governor, virtio has no adjustable coalescing,
/// only ENA has allowances, and only one machine runs an image.
fn lacks(machine: &str, rule: &str) -> bool {
    match rule {
        "governor" => !["x550-hybrid", "managed-nvme", "two-nodes"].contains(&machine),
        "coalescing" => machine == "virtio-4",
        "image" => machine != "virtio-4",
        "allowance" | "credits" | "tracked" => !machine.starts_with("c6i"),
        _ => false,
    }
}

/// A driver's counters of packets that were lost for lack of room, of packets for which there was no memory, and of
/// packets per queue. The second queue gets the most packets.
fn counters(driver: &str) -> (&'static str, &'static str, fn(usize) -> String) {
    match driver {
        "ena" => ("rx_drops", "queue_1_rx_empty_rx_ring", |queue| format!("queue_{queue}_rx_cnt")),
        "ixgbe" => {
            ("rx_no_dma_resources", "alloc_rx_buff_failed", |queue| format!("rx_queue_{queue}_packets"))
        }
        "igc" => ("rx_queue_1_drops", "rx_queue_1_alloc_failed", |queue| format!("rx_queue_{queue}_packets")),
        // virtio doesn't count packets for which there was no memory: those wait, and the hypervisor drops them.
        _ => ("rx1_drops", "rx1_drops", |queue| format!("rx{queue}_packets")),
    }
}

/// Whether a shell can parse the line, and its program is one that is expected on a machine.
fn is_command(line: &str) -> bool {
    const PROGRAMS: [&str; 13] = [
        "chronyc",
        "du",
        "echo",
        "ethtool",
        "ip",
        "journalctl",
        "linerate",
        "lspci",
        "sysctl",
        "systemctl",
        "tc",
        "top",
        "vmstat",
    ];
    let program = line.split_whitespace().next().unwrap_or_default();
    let parsed = Command::new("sh").args(["-n", "-c", line]).status().expect("a shell");
    PROGRAMS.contains(&program) && parsed.success()
}

/// A recorded machine with its profile; its queues are placed as in the profile.
struct Host {
    machine: Recorded,
    profile: Profile,
    interface: String,
}

impl Host {
    fn new(name: &str) -> Self {
        let read = |kind: &str| {
            let path = format!("{}/tests/machines/{name}.{kind}", env!("CARGO_MANIFEST_DIR"));
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let machine: Recorded = read("txt").parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        let profile: Profile = read("json").parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        let interface = device::interfaces(&machine).expect("interfaces").remove(0);
        let placement = profile.nic["front"].placement.clone().expect("a placement");
        let wish = PlacementRequest { policy: placement.policy, steering: Steering::Auto, queues: None };
        let topology = Topology::read(&machine).expect("CPUs");
        apply(&machine, &Store::nowhere(), &topology, &interface, &wish).expect("applied");
        Self { machine, profile, interface }
    }

    /// Overrides the machine's lines with these, after replacing the words that stand for its own names.
    fn amend(&self, lines: &str) {
        let Self { machine, interface, .. } = self;
        let directory = machine.canonical(&format!("/sys/class/net/{interface}")).expect("a directory");
        let topology = Topology::read(machine).expect("CPUs");
        let placed = nic::place(machine, &topology, interface, &PlacementRequest::default()).expect("a plan");
        let irq = placed.settings.iter().find_map(|setting| match setting.subject {
            Subject::Irq { irq, .. } => Some(irq.to_string()),
            _ => None,
        });
        let most = machine.channels(interface).expect("channels").max_combined.to_string();
        let (lost, short, queue) = counters(&placed.device.driver);
        let hot: Vec<String> = (0..placed.device.queues.len())
            .map(|number| format!("{}={}", queue(number), if number == 1 { 900_000 } else { 210_000 }))
            .collect();
        let words: [(&str, &str); 8] = [
            ("UNITS", "/sys/fs/cgroup/system.slice"),
            ("DEV", &directory),
            ("IF ", &format!("{interface} ")),
            ("IRQ", &irq.expect("an interrupt")),
            ("MAX", &most),
            ("LOST", lost),
            ("SHORT", short),
            ("HOT", &hot.join(" ")),
        ];
        let lines = words.iter().fold(lines.to_owned(), |lines, (word, is)| lines.replace(word, is));
        machine.amend(lines.parse().unwrap_or_else(|error| panic!("{lines}: {error}")));
    }

    /// Observes the machine for a second.
    fn examine(&self) -> Vec<Finding> {
        let before = Sample::read(&self.machine);
        self.machine.pause(std::time::Duration::from_secs(1));
        let interval = Interval { before, after: Sample::read(&self.machine), seconds: 1.0 };
        examine(&RuleContext { system: &self.machine, profile: &self.profile, interval: &interval }).0
    }
}

#[test]
fn every_machine_is_well_with_its_own_profile() {
    for name in MACHINES {
        assert_eq!(Host::new(name).examine(), [], "{name}");
    }
}

#[test]
fn every_rule_finds_what_is_wrong_with_every_machine_and_nothing_else() {
    for rule in RULES {
        assert!(FAULTS.iter().any(|(name, ..)| *name == rule.name), "{} is not tried", rule.name);
    }
    for name in MACHINES {
        for (rule, lines, entails) in FAULTS.iter().filter(|(rule, ..)| !lacks(name, rule)) {
            let host = Host::new(name);
            host.amend(lines);
            let findings = host.examine();
            let found: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
            assert!(found.contains(rule), "{name}: {rule} is not found: {findings:?}");
            let others = findings.iter().find(|one| one.rule != *rule && !entails.contains(&one.rule));
            assert_eq!(others, None, "{name}, {rule}");
            for Finding { rule, cost, remedy, .. } in &findings {
                let remedy = remedy.as_deref().unwrap_or_default();
                assert!(!cost.is_empty() && is_command(remedy), "{name}, {rule}: {remedy}");
            }
        }
    }
}

#[test]
fn what_a_machine_does_not_have_is_not_found() {
    for name in MACHINES {
        for (rule, lines, _) in FAULTS.iter().filter(|(rule, ..)| lacks(name, rule)) {
            let host = Host::new(name);
            // A counter that the driver doesn't have can't grow.
            if !["allowance", "tracked"].contains(rule) {
                host.amend(lines);
            }
            assert_eq!(host.examine(), [], "{name}, {rule}");
        }
    }
}
