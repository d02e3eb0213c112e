//! The machine as the console shows it. It uses the same code as `doctor` and `nic`.

mod release;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use console::HelperAt;
use console::machine::{
    Cpu, Disk, Examined, Host, Interface, Machine, Queue, QueueChange, Queues, ResolvedFinding, Rule,
    Severity, Ticks, Watch, Watched,
};
use service::exit;

use release::Release;

use crate::doctor::since::{self, Since};
use crate::doctor::{self, Diagnosis, Interval, RULES, RuleContext, Sample};
use crate::helper::{self, Request, Verb, Worker};
use crate::nic::services;
use crate::nic::setting::Subject;
use crate::nic::{self, PlacementPlan, PlacementRequest, Setting, device};
use crate::profile::Profile;
use crate::system::{self, System, memory};
use crate::topology::Topology;

/// How long counters are watched to find current losses, in seconds.
const INTERVAL: u64 = 1;

/// Where services keep the data that must not run out of disk space.
const DATA: &str = "/var/lib";

/// The services that keep data in [`DATA`], each in its own directory.
const SERVICES: [&str; 3] = ["links", "files", "api"];

/// The machine behind a [`System`]. It is opened anew for each request, so no socket stays open while nobody looks.
pub struct LiveMachine {
    recorded: Option<PathBuf>,
    profile: Option<PathBuf>,
    since: Mutex<Since>,
    helper: Option<Helper>,
    begun: Instant,
}

/// Who performs actions that need privileges.
enum Helper {
    /// This process, with the rights of its user.
    Own(Box<Worker>),
    /// The helper behind a socket.
    At(PathBuf),
}

impl LiveMachine {
    /// The same machine with a helper that places queues and records what processes do.
    #[must_use]
    pub fn helped_by(self, helper: &HelperAt) -> Self {
        let helper = match helper {
            HelperAt::None => None,
            HelperAt::Own => {
                let worker = Worker::new(self.profile.clone(), self.recorded.clone());
                Some(Helper::Own(Box::new(worker)))
            }
            HelperAt::Unix(path) => Some(Helper::At(path.clone())),
        };
        Self { helper, ..self }
    }

    /// The output of one of the helper's commands.
    fn ask(&self, verb: Verb, by: &str) -> Result<serde_json::Value, String> {
        let request = Request { verb, by: by.to_owned() };
        let answer = match &self.helper {
            None => return Err("this console was started without --helper".into()),
            Some(Helper::Own(worker)) => worker.work(&request),
            Some(Helper::At(path)) => {
                let failed = |error| format!("the helper at {}: {error}", path.display());
                request.check().map_err(|error| error.to_string())?;
                helper::ask(path, &request).map_err(failed)?
            }
        };
        match answer.error {
            Some(why) => Err(why),
            None => serde_json::from_str(&answer.output).map_err(|error| format!("the helper said {error}")),
        }
    }

    /// This machine, or one recorded in a file, compared with the profile in another file.
    pub fn new(recorded: Option<PathBuf>, profile: Option<PathBuf>) -> Self {
        // Findings are noted in memory from now on, and aren't stored anywhere.
        Self { recorded, profile, since: Mutex::default(), helper: None, begun: Instant::now() }
    }

    fn system(&self) -> Result<Box<dyn System>, String> {
        system::open(self.recorded.as_deref()).map_err(|error| exit::chain(&error))
    }

    fn profile(&self) -> Result<Option<Profile>, String> {
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
            let parsed = text.and_then(|text| text.parse::<Profile>().map_err(|error| exit::chain(&error)));
            parsed.map_err(|error| format!("{}: {error}", path.display()))
        };
        self.profile.as_ref().map(read).transpose()
    }
}

impl Machine for LiveMachine {
    fn doctor(&self) -> Result<Examined, String> {
        let (system, profile) = (self.system()?, self.profile()?);
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let named =
            profile.as_ref().map(|profile| profile.host.clone().unwrap_or_else(|| "this host".into()));
        let Diagnosis { mut findings, idle, denied } =
            doctor::diagnose(&*system, &profile.unwrap_or_default(), INTERVAL);
        // The machine's own doctor checks more often and may see more. The console reads its notes but doesn't change
        // them.
        let noted = match self.recorded {
            Some(_) => Since::default(),
            None => Since::load(since::DIRECTORY.as_ref()),
        };
        let mut own = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        own.note(&mut findings, at);
        noted.add_to(&mut findings);
        let past = past(&findings, own.past(), noted.past());
        drop(own);
        let rules = RULES.iter().map(|rule| Rule {
            name: rule.name,
            about: rule.about,
            source: rule.source,
            looked: !idle.contains(&rule.name),
            denied: denied.iter().find(|(name, _)| *name == rule.name).map(|(_, what)| what.clone()),
        });
        Ok(Examined {
            profile: named,
            at,
            findings: findings.into_iter().map(finding).collect(),
            past,
            rules: rules.collect(),
        })
    }

    fn queues(&self) -> Result<Queues, String> {
        let system = &*self.system()?;
        let topology = Topology::read(system).map_err(|error| format!("the CPUs: {error}"))?;
        let names = match device::interfaces(system) {
            Err(nic::Error::NoDevices) => Vec::new(),
            names => names.map_err(|error| exit::chain(&error))?,
        };
        // As the doctor does: the profile; without one, the placement that was applied, or else the default.
        let profile = self.profile()?.unwrap_or_default();
        let wishes =
            doctor::wishes(&RuleContext { system, profile: &profile, interval: &Interval::default() });
        let interfaces = names.into_iter().map(|name| {
            let wish = wishes.iter().find(|(wished, ..)| *wished == name);
            let wish = wish.map_or_else(PlacementRequest::default, |(_, wish, _)| wish.clone());
            let placed = nic::place(system, &topology, &name, &wish);
            interface(system, &topology, name, placed)
        });
        let interfaces = interfaces.collect();
        let stat = system.read("/proc/stat").unwrap_or_default();
        let counted = Sample::of_cpus(system);
        let cpus = topology.cpus.iter().map(|cpu| {
            let of = |name: &str| counted.get(&format!("softnet/{}/{name}", cpu.id)).unwrap_or(0);
            Cpu {
                id: cpu.id,
                core: cpu.core,
                node: cpu.node,
                processed: of("processed"),
                dropped: of("dropped"),
                squeezed: of("time_squeeze"),
                ticks: ticks(&stat, cpu.id),
            }
        });
        let services = services::running(system).into_iter();
        Ok(Queues {
            at_millis: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            interfaces,
            cpus: cpus.collect(),
            services: services.map(|service| (service.unit, service.cpus.to_string())).collect(),
            irqbalance: nic::irqbalance(system),
        })
    }

    fn host(&self) -> Host {
        let Ok(system) = self.system() else { return Host::default() };
        let system = &*system;
        let line = |path: &str| {
            let text = system.read(path).ok()?.trim().to_owned();
            (!text.is_empty()).then_some(text)
        };
        let release = Release::of(system, self.recorded.is_none());
        let first = |path: &str| line(path)?.split_whitespace().next()?.parse::<f64>().ok();
        Host {
            name: line("/proc/sys/kernel/hostname"),
            kernel: line("/proc/sys/kernel/osrelease"),
            uptime: first("/proc/uptime").map(|seconds| seconds as u64),
            generation: release.generation,
            version: release.version,
            trial: release.trial,
            updated: release.updated,
            memory: memory::parse(&system.read(memory::PATH).unwrap_or_default()),
            disks: disks(system),
            load: first("/proc/loadavg"),
            cpus: Topology::read(system).ok().map(|topology| topology.cpus.len()),
        }
    }

    fn helped(&self) -> bool {
        self.helper.is_some()
    }

    fn change(&self, change: &QueueChange, by: &str) -> Result<String, String> {
        let (verb, done) = match change {
            QueueChange::Apply { interface } => (Verb::Apply { interface: interface.clone() }, "changed"),
            QueueChange::Undo { interface } => (Verb::Undo { interface: interface.clone() }, "restored"),
        };
        let said = self.ask(verb, by)?;
        let of = |key: &str| said["interfaces"][0][key].as_array().map_or(0, Vec::len);
        let (count, held) = (of(done), &said["interfaces"][0]["held"]);
        Ok(match change {
            QueueChange::Apply { interface } => {
                let held = held.as_u64().unwrap_or(0);
                let later = match of("pending") {
                    0 => String::new(),
                    pending => format!(", {pending} move with their next interrupt"),
                };
                let managed = match of("managed") {
                    0 => String::new(),
                    managed => format!(", {managed} are managed by the kernel and left alone"),
                };
                format!("{interface}: {count} settings changed, {held} held{later}{managed}")
            }
            QueueChange::Undo { interface } => {
                format!("{interface}: {count} settings put back, {} are gone", of("gone"))
            }
        })
    }

    fn watch(&self, watch: &Watch, by: &str) -> Result<Watched, String> {
        let Watch { service, seconds, waiting } = watch.clone();
        let said = self.ask(Verb::Profile { service, seconds, waiting }, by)?;
        let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
        Ok(Watched {
            folded: text("folded"),
            event: text("event"),
            kernel: said["kernel"].as_bool().unwrap_or(false),
            lost: said["lost"].as_u64().unwrap_or(0),
        })
    }
}

/// The file systems that hold the services' data. If no service has its own directory, the one that [`DATA`] is on.
fn disks(system: &dyn System) -> Vec<Disk> {
    let mut disks: Vec<(system::Free, Disk)> = Vec::new();
    for service in SERVICES {
        let place = format!("{DATA}/linerate-{service}");
        let Ok(free) = system.canonical(&place).and_then(|place| system.free(&place)) else { continue };
        // The same free space means the same file system.
        match disks.iter_mut().find(|(known, _)| *known == free) {
            Some((_, disk)) => disk.services.push(service),
            None => disks.push((free, Disk { services: vec![service], free_percent: free.bytes })),
        }
    }
    if disks.is_empty() {
        let all = system.free(DATA).or_else(|_| system.free("/"));
        return all
            .ok()
            .map(|free| Disk { services: Vec::new(), free_percent: free.bytes })
            .into_iter()
            .collect();
    }
    disks.into_iter().map(|(_, disk)| disk).collect()
}

/// Resolved findings that the console or the machine's own doctor noted, without those that have been found again.
fn past(
    findings: &[doctor::Finding],
    own: Vec<since::ResolvedFinding>,
    noted: Vec<since::ResolvedFinding>,
) -> Vec<ResolvedFinding> {
    let mut all: Vec<since::ResolvedFinding> = Vec::new();
    for one in own.into_iter().chain(noted) {
        if findings.iter().any(|found| found.rule == one.rule && found.subject == one.subject) {
            continue;
        }
        match all.iter_mut().find(|known| known.rule == one.rule && known.subject == one.subject) {
            Some(known) if known.times >= one.times => {}
            Some(known) => *known = one,
            None => all.push(one),
        }
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.ended));
    let past = all.into_iter().map(|since::ResolvedFinding { rule, subject, begun, ended, times }| {
        ResolvedFinding { rule, subject, begun, ended, times }
    });
    past.collect()
}

fn finding(finding: doctor::Finding) -> console::machine::Finding {
    console::machine::Finding {
        rule: finding.rule.to_owned(),
        subject: finding.subject,
        severity: match finding.severity {
            doctor::Severity::Notice => Severity::Notice,
            doctor::Severity::Warning => Severity::Warning,
            doctor::Severity::Critical => Severity::Critical,
        },
        expected: finding.expected,
        found: finding.found,
        cost: finding.cost,
        remedy: finding.remedy,
        effect: finding.effect,
        since: finding.since,
        times: finding.times,
    }
}

/// An interface, how it should be set, and its counters.
fn interface(
    system: &dyn System,
    topology: &Topology,
    name: String,
    placed: Result<PlacementPlan, nic::Error>,
) -> Interface {
    let count = |what: &str| {
        let text = system.read(&format!("/sys/class/net/{name}/statistics/{what}")).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0)
    };
    let counted = Interface {
        packets: (count("rx_packets"), count("tx_packets")),
        bytes: (count("rx_bytes"), count("tx_bytes")),
        dropped: count("rx_dropped") + count("tx_dropped") + count("rx_missed_errors"),
        ..Interface::default()
    };
    match placed {
        Err(error) => Interface { name, error: Some(exit::chain(&error)), ..counted },
        Ok(placed) => {
            let about = nic::headline(&placed.device, &placed.plan);
            Interface {
                about: about.strip_prefix(&format!("{name}: ")).unwrap_or(&about).to_owned(),
                queues: queues(&placed),
                reasons: nic::reasons(topology, &placed),
                changes: placed.settings.iter().filter(|setting| !setting.holds()).count(),
                settings: placed.settings.len(),
                name,
                ..counted
            }
        }
    }
}

fn queues(placed: &PlacementPlan) -> Vec<Queue> {
    let queues = placed.plan.placements.iter().zip(&placed.device.queues).enumerate();
    let queue = |(number, (placement, queue)): (usize, (&nic::plan::Placement, &device::Queue))| {
        let of = |kind: fn(&Subject) -> bool| -> Option<&Setting> {
            placed.settings.iter().find(|setting| setting.queue == number && kind(&setting.subject))
        };
        let both = |setting: &Setting| (setting.now.to_string(), setting.wanted.to_string());
        Queue {
            number,
            irqs: queue.interrupts.iter().map(|interrupt| interrupt.irq).collect(),
            interrupts: queue.interrupts.iter().map(|interrupt| interrupt.count).sum(),
            cpu_now: of(|subject| matches!(subject, Subject::Irq { .. }))
                .map_or_else(String::new, |setting| setting.now.to_string()),
            cpu: placement.cpu,
            rps: of(|subject| *subject == Subject::Rps).map(both),
            xps: of(|subject| *subject == Subject::Xps).map(both),
        }
    };
    queues.map(queue).collect()
}

/// A CPU's line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
fn ticks(stat: &str, cpu: usize) -> Ticks {
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")));
    let fields = line.unwrap_or_default().split_whitespace().map_while(|field| field.parse::<u64>().ok());
    // Guests' time is already included in users' time.
    let fields: Vec<u64> = fields.take(8).collect();
    let at = |index: usize| fields.get(index).copied().unwrap_or(0);
    Ticks { softirq: at(6), idle: at(3) + at(4), all: fields.iter().sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recorded machine from the command line's tests.
    fn recorded(name: &str) -> LiveMachine {
        let path = format!("{}/tests/machines/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        LiveMachine::new(Some(path.into()), None)
    }

    #[test]
    fn queues_are_those_that_the_command_line_plans() {
        let queues = recorded("c6i.4xlarge-8").queues().expect("queues");
        let [interface] = &queues.interfaces[..] else { panic!("{queues:?}") };
        assert_eq!(interface.queues.len(), 8);
        assert!(interface.about.starts_with("ena at "), "{}", interface.about);
        assert_eq!(
            interface.settings,
            interface.queues.iter().map(|queue| queue.irqs.len() + 2).sum::<usize>()
        );
        let planned: Vec<usize> = interface.queues.iter().map(|queue| queue.cpu).collect();
        assert_eq!(planned, (0..8).collect::<Vec<_>>());
        assert_eq!(queues.cpus.len(), 16);
    }

    #[test]
    fn queues_are_compared_with_what_the_profile_says() {
        let machine = recorded("c6i.4xlarge-8");
        let profile = machine.recorded.as_ref().map(|path| path.with_extension("json"));
        let queues = LiveMachine { profile, ..machine }.queues().expect("queues");
        assert!(queues.interfaces[0].about.contains("policy pin="), "{}", queues.interfaces[0].about);
    }

    #[test]
    fn rules_that_had_nothing_to_compare_with_are_told() {
        let examined = recorded("c6i.4xlarge-8").doctor().expect("examined");
        assert_eq!(examined.rules.len(), RULES.len());
        assert!(examined.rules.iter().any(|rule| !rule.looked), "there is no profile");
        assert!(examined.rules.iter().any(|rule| rule.looked));
    }

    #[test]
    fn figures_are_read_as_the_kernel_writes_them() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 10 1 20 300 5 2 40 3 7 0\n";
        assert_eq!(ticks(stat, 1), Ticks { softirq: 40, idle: 305, all: 381 });
        assert_eq!(ticks(stat, 2), Ticks::default());
    }

    #[test]
    fn disks_are_told_by_the_services_on_them() {
        let machine: system::Recorded = "\
/var/lib/linerate-links/links.db =
/var/lib/linerate-api/api.db =
/var/lib/linerate-files/index.html =
free /var/lib/linerate-links bytes=40 inodes=90
free /var/lib/linerate-api bytes=40 inodes=90
free /var/lib/linerate-files bytes=12 inodes=80
"
        .parse()
        .expect("a machine");
        let told: Vec<_> =
            disks(&machine).into_iter().map(|disk| (disk.services, disk.free_percent)).collect();
        assert_eq!(told, [(vec!["links", "api"], 40), (vec!["files"], 12)]);
        let machine: system::Recorded = "free / bytes=40 inodes=90\n".parse().expect("a machine");
        assert_eq!(disks(&machine), [Disk { services: Vec::new(), free_percent: 40 }]);
    }

    #[test]
    fn what_is_found_again_is_no_history() {
        let one = |subject: &str, ended, times| since::ResolvedFinding {
            rule: "disk".into(),
            subject: subject.into(),
            begun: 1,
            ended,
            times,
        };
        let found = doctor::Finding { rule: "disk", ..doctor::Finding::symptom("a", "") };
        let told = past(&[found], vec![one("a", 5, 1), one("b", 6, 1)], vec![one("b", 4, 3), one("c", 9, 1)]);
        let told: Vec<_> = told.iter().map(|one| (&*one.subject, one.ended, one.times)).collect();
        assert_eq!(told, [("c", 9, 1), ("b", 4, 3)]);
    }
}
