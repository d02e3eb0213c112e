//! `nic apply`, `verify` and `undo` on recorded machines.

use std::fs;

use linerate::nic::apply::{Applied, Error, Verified, apply, undo, verify};
use linerate::nic::plan::Steering;
use linerate::nic::saved::Store;
use linerate::nic::{self, PlacementPlan, PlacementRequest, device};
use linerate::system::{Recorded, Rings, System};
use linerate::topology::Topology;
use rustix::io::Errno;
use tempfile::TempDir;

const MACHINES: [&str; 6] =
    ["c6i.4xlarge-8", "c6i.4xlarge-16", "x550-hybrid", "virtio-4", "managed-nvme", "two-nodes"];

/// A recorded machine with one interface, and a directory for original values.
struct Host {
    machine: Recorded,
    interface: String,
    directory: TempDir,
}

fn wish(policy: &str, queues: Option<u32>) -> PlacementRequest {
    PlacementRequest { policy: policy.parse().expect("a policy"), steering: Steering::Auto, queues }
}

impl Host {
    fn new(name: &str) -> Self {
        let path = format!("{}/tests/machines/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let machine: Recorded = fs::read_to_string(path).expect("a file").parse().expect("a machine");
        let interface = device::interfaces(&machine).expect("interfaces").remove(0);
        Self { machine, interface, directory: TempDir::new().expect("a directory") }
    }

    fn store(&self) -> Store {
        Store::at(self.directory.path().join("state"))
    }

    fn place(&self, policy: &str) -> PlacementPlan {
        let topology = Topology::read(&self.machine).expect("CPUs");
        nic::place(&self.machine, &topology, &self.interface, &wish(policy, None)).expect("a plan")
    }

    fn apply(&self, policy: &str) -> Result<Applied, Error> {
        self.apply_queues(policy, None)
    }

    fn apply_queues(&self, policy: &str, queues: Option<u32>) -> Result<Applied, Error> {
        let topology = Topology::read(&self.machine).expect("CPUs");
        apply(&self.machine, &self.store(), &topology, &self.interface, &wish(policy, queues))
    }

    fn verify(&self, policy: &str) -> Verified {
        let saved = self.store().load(&self.interface).expect("what was saved");
        verify(&self.machine, &self.place(policy), saved.as_ref())
    }

    fn undo(&self) -> usize {
        undo(&self.machine, &self.store(), &self.interface).expect("undone").restored.len()
    }

    fn nothing_is_saved(&self) -> bool {
        self.store().interfaces().expect("a directory").is_empty()
    }
}

#[test]
fn what_is_applied_is_verified_kept_and_undone_byte_for_byte() {
    for name in MACHINES {
        for policy in ["spread", "local", "pin=1,3", "reserve=0-2"] {
            let machine = Host::new(name);
            let before = machine.machine.files();
            let applied = machine.apply(policy).expect("applied");
            let settings = applied.changed.len() + applied.held;
            let verified = machine.verify(policy);
            assert_eq!((verified.held, verified.drifted.len()), (settings, 0), "{name}, {policy}");
            assert_eq!(verified.pending, Vec::<String>::new());
            // Apply again: nothing is written, and the first values stay recorded.
            let writes = machine.machine.writes().len();
            assert_eq!(machine.apply(policy).expect("applied again").held, settings);
            assert_eq!(machine.machine.writes().len(), writes);
            assert_eq!(machine.undo(), applied.changed.len());
            assert_eq!(machine.machine.files(), before, "{name}, {policy}");
            assert!(machine.nothing_is_saved());
            assert_eq!(machine.undo(), 0);
        }
    }
}

#[test]
fn the_oldest_originals_come_back_whatever_was_applied_since() {
    let machine = Host::new("c6i.4xlarge-8");
    let before = machine.machine.files();
    for policy in ["spread", "pin=5", "reserve=0-3"] {
        machine.apply(policy).expect(policy);
    }
    machine.undo();
    assert_eq!(machine.machine.files(), before);
}

#[test]
fn a_failure_anywhere_rolls_everything_back() {
    let files = Host::new("c6i.4xlarge-8");
    let wrong: Vec<String> = files
        .place("pin=9,12")
        .settings
        .iter()
        .filter(|setting| !setting.holds())
        .map(|setting| files.machine.canonical(&setting.path).expect("a file"))
        .collect();
    assert!(wrong.len() > 10);
    for path in &wrong {
        for (errno, says) in [(Errno::NOSPC, "no interrupt vector left"), (Errno::INVAL, "Invalid argument")]
        {
            let machine = Host::new("c6i.4xlarge-8");
            let before = machine.machine.files();
            machine.machine.refuse(path, errno, usize::MAX);
            let error = machine.apply("pin=9,12").expect_err("refused");
            assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(machine.machine.files(), before, "{path}");
            assert!(machine.nothing_is_saved());
        }
    }
}

#[test]
fn a_failed_change_of_policy_leaves_the_old_one_applied_and_undoable() {
    let machine = Host::new("c6i.4xlarge-8");
    let before = machine.machine.files();
    machine.apply("spread").expect("applied");
    machine.machine.refuse("/proc/irq/33/smp_affinity_list", Errno::NOSPC, 1);
    machine.apply("pin=9").expect_err("refused");
    assert_eq!(machine.verify("spread").drifted, []);
    assert_eq!(machine.store().load("ens5").expect("kept").expect("kept").policy, "spread");
    machine.undo();
    assert_eq!(machine.machine.files(), before);
}

#[test]
fn managed_interrupts_are_left_alone_and_said_so() {
    // The errnos of Linux 6.12 and later, and of earlier versions.
    for errno in [Errno::PERM, Errno::IO] {
        let machine = Host::new("c6i.4xlarge-8");
        let before = machine.machine.files();
        machine.machine.refuse("/proc/irq/30/smp_affinity_list", errno, usize::MAX);
        let applied = machine.apply("pin=9,12").expect("applied");
        assert_eq!(applied.managed, ["ens5-Tx-Rx-2"]);
        let verified = machine.verify("pin=9,12");
        assert_eq!((verified.managed, verified.drifted), (vec!["ens5-Tx-Rx-2".to_owned()], vec![]));
        machine.undo();
        assert_eq!(machine.machine.files(), before);
    }
    // Only interrupts can be managed: for other files, the same errno is a failure.
    let machine = Host::new("c6i.4xlarge-8");
    let path = machine.machine.canonical("/sys/class/net/ens5/queues/rx-0/rps_cpus").expect("a file");
    machine.machine.refuse(&path, Errno::PERM, usize::MAX);
    assert!(matches!(machine.apply("spread"), Err(Error::RolledBack(_))));
}

#[test]
fn what_is_refused_for_now_is_tried_again() {
    for errno in [Errno::BUSY, Errno::AGAIN, Errno::NOMEM] {
        let machine = Host::new("c6i.4xlarge-8");
        machine.machine.refuse("/proc/irq/28/smp_affinity_list", errno, 4);
        machine.apply("spread").expect("the fifth attempt");
        assert_eq!(machine.verify("spread").drifted, []);
        let machine = Host::new("c6i.4xlarge-8");
        let before = machine.machine.files();
        machine.machine.refuse("/proc/irq/28/smp_affinity_list", errno, 5);
        machine.apply("spread").expect_err("five refusals");
        assert_eq!(machine.machine.files(), before);
    }
}

#[test]
fn a_running_irqbalance_is_not_fought() {
    let machine = Host::new("c6i.4xlarge-8");
    machine.machine.set("/proc/812/comm", "irqbalance\n");
    assert!(matches!(machine.apply("spread"), Err(Error::Irqbalance(812))));
    assert_eq!(machine.machine.writes(), []);
    assert!(machine.nothing_is_saved());
}

#[test]
fn what_a_crash_left_half_done_can_be_undone() {
    let whole = Host::new("two-nodes");
    whole.apply("spread").expect("applied");
    let writes = whole.machine.writes();
    for count in 0..=writes.len() {
        let crashed = Host::new("two-nodes");
        let before = crashed.machine.files();
        for (path, content) in &writes[..count] {
            crashed.machine.write(path, content).expect("a write");
        }
        let saved = whole.store().load(&whole.interface).expect("kept").expect("kept");
        crashed.store().save(&saved).expect("kept");
        assert_eq!(crashed.undo(), count);
        assert_eq!(crashed.machine.files(), before);
    }
}

#[test]
fn drift_is_seen_and_mended() {
    let machine = Host::new("virtio-4");
    machine.apply("pin=3,2,1,0").expect("applied");
    machine.machine.write("/proc/irq/35/smp_affinity_list", "0-3").expect("a write");
    let drifted = machine.verify("pin=3,2,1,0").drifted;
    assert_eq!(
        drifted.iter().map(|setting| setting.path.as_str()).collect::<Vec<_>>(),
        ["/proc/irq/35/smp_affinity_list"]
    );
    assert_eq!(machine.apply("pin=3,2,1,0").expect("applied").changed.len(), 1);
    assert_eq!(machine.verify("pin=3,2,1,0").drifted, []);
}

#[test]
fn an_interrupt_that_has_not_moved_yet_is_pending() {
    let machine = Host::new("virtio-4");
    machine.apply("spread").expect("applied");
    machine.machine.set("/proc/irq/35/effective_affinity_list", "3\n");
    let verified = machine.verify("spread");
    assert_eq!((verified.pending, verified.drifted), (vec!["virtio1-input.1".to_owned()], vec![]));
}

#[test]
fn interrupts_are_found_by_name_after_they_were_renumbered() {
    let machine = Host::new("virtio-4");
    machine.apply("pin=3").expect("applied");
    // The port was restarted: its interrupts have other numbers, and the driver has placed them again.
    let path = format!("{}/tests/machines/virtio-4.txt", env!("CARGO_MANIFEST_DIR"));
    let mut text = fs::read_to_string(path).expect("a file").replace("[32-40]", "[62-70]");
    for irq in 32..=40 {
        text = text.replace(&format!("/irq/{irq}/"), &format!("/irq/{}/", irq + 30));
        text = text.replace(&format!("|  {irq}:"), &format!("|  {}:", irq + 30));
    }
    let restarted = Host { machine: text.parse().expect("a machine"), ..machine };
    let before = restarted.machine.files();
    restarted.machine.write("/proc/irq/65/smp_affinity_list", "3").expect("a write");
    assert_eq!(restarted.undo(), 1);
    let after = restarted.machine.files();
    assert_eq!(after["/proc/irq/65/smp_affinity_list"], before["/proc/irq/65/smp_affinity_list"]);
}

#[test]
fn other_channels_come_first_and_go_back_last() {
    for (name, queues) in [("c6i.4xlarge-8", 4), ("c6i.4xlarge-16", 8), ("two-nodes", 4), ("x550-hybrid", 6)]
    {
        let host = Host::new(name);
        let before = host.machine.files();
        let channels = host.machine.channels(&host.interface).expect("channels");
        let applied = host.apply_queues("spread", Some(queues)).expect("applied");
        assert_eq!(applied.channels, Some(queues), "{name}");
        assert_eq!(host.machine.channels(&host.interface).expect("channels").combined, queues);
        let verified = host.verify("spread");
        assert_eq!((verified.wrong(), verified.held), (0, applied.changed.len() + applied.held), "{name}");
        // Applying again changes nothing.
        assert!(!host.apply_queues("spread", Some(queues)).expect("applied again").anything());
        undo(&host.machine, &host.store(), &host.interface).expect("undone");
        assert_eq!(host.machine.channels(&host.interface).expect("channels"), channels);
        assert_eq!(host.machine.files(), before, "{name}");
    }
}

#[test]
fn rings_stay_as_long_as_they_are_through_other_channels() {
    let host = Host::new("c6i.4xlarge-8");
    let long = Rings { rx: Some(16384), tx: Some(512) };
    host.machine.set_rings("ens5", &long).expect("rings");
    let rings = || host.machine.rings("ens5").expect("rings");
    assert_eq!(host.apply_queues("spread", Some(4)).expect("applied").rings, Some(long.clone()));
    assert_eq!(rings(), long);
    assert_eq!(host.verify("spread").wrong(), 0, "rings come before what their restart takes along");
    assert_eq!(host.apply_queues("spread", Some(4)).expect("applied again").rings, None);
    undo(&host.machine, &host.store(), "ens5").expect("undone");
    assert_eq!(rings(), long);
    // First a later write fails, then setting the rings itself.
    for path in ["/proc/irq/29/smp_affinity_list", "rings ens5"] {
        let before = host.machine.files();
        host.machine.refuse(path, Errno::NOSPC, 1);
        host.apply_queues("pin=9,12", Some(4)).expect_err("refused");
        assert_eq!(rings(), long, "{path}");
        assert_eq!(host.machine.files(), before, "{path}");
        assert!(host.nothing_is_saved());
    }
}

#[test]
fn an_uneven_rss_table_is_dealt_out_anew_and_put_back() {
    let host = Host::new("c6i.4xlarge-8");
    let uneven: Vec<u32> = (0..128).map(|entry| entry % 3).collect();
    host.machine.set_indirection("ens5", &uneven).expect("a table");
    assert!(host.verify("spread").uneven);
    assert!(host.apply("spread").expect("applied").rss);
    assert!(!host.verify("spread").uneven);
    assert!(!host.apply("spread").expect("applied").rss);
    host.undo();
    assert_eq!(host.machine.indirection("ens5").expect("a table"), uneven);
    // Request fewer channels than the table names. The kernel refuses that while the table is set.
    let uneven: Vec<u32> = (0..128).map(|entry| entry % 3 + 5).collect();
    host.machine.set_indirection("ens5", &uneven).expect("a table");
    host.machine.set_channels("ens5", 4).expect_err("the table names queue 7");
    host.apply_queues("spread", Some(4)).expect("applied");
    assert_eq!(host.verify("spread").wrong(), 0);
    undo(&host.machine, &host.store(), "ens5").expect("undone");
    assert_eq!(host.machine.indirection("ens5").expect("a table"), uneven);
    assert_eq!(host.machine.channels("ens5").expect("channels").combined, 8);
}

#[test]
fn queues_that_an_rss_table_cannot_name_do_not_make_it_uneven() {
    // ixgbe on an 82599 has a queue per CPU, of which RSS uses 16.
    let table: Vec<String> = (0..128).map(|entry| (entry % 16).to_string()).collect();
    let text = format!(
        "\
/sys/devices/system/cpu/online = 0-23
/sys/class/net/eth0/device/numa_node = -1
/sys/class/net/eth0/queues/rx-[0-23]/rps_cpus = 000000
/sys/class/net/eth0/queues/tx-[0-23]/xps_cpus = 000000
/proc/interrupts:
|            CPU0
channels eth0 combined=24 max_combined=24
rss_rings eth0 16
indirection eth0 {}
",
        table.join(" ")
    );
    let host = Host {
        machine: text.parse().expect("a machine"),
        interface: "eth0".to_owned(),
        directory: TempDir::new().expect("a directory"),
    };
    assert!(!host.apply("spread").expect("applied").rss);
    assert!(!host.apply("spread").expect("applied again").anything());
    assert_eq!(host.verify("spread").wrong(), 0);
    // Among the 16, it may still be uneven.
    host.machine.set_indirection("eth0", &[0; 128]).expect("a table");
    assert!(host.apply("spread").expect("applied").rss);
    assert!(!host.verify("spread").uneven);
}

#[test]
fn an_rss_table_whose_default_is_refused_is_left_alone_and_said_so() {
    let host = Host::new("c6i.4xlarge-8");
    let uneven = vec![0; 128];
    host.machine.set_indirection("ens5", &uneven).expect("a table");
    host.machine.refuse("indirection ens5", Errno::INVAL, 1);
    let applied = host.apply("spread").expect("applied");
    assert!(applied.rss_refused && !applied.rss && !applied.changed.is_empty());
    assert_eq!(host.machine.indirection("ens5").expect("a table"), uneven);
    assert_eq!(host.verify("spread").drifted, []);
    // Another error is a failure, and other channels don't need the default.
    host.machine.refuse("indirection ens5", Errno::BUSY, 1);
    assert!(matches!(host.apply("spread"), Err(Error::Driver { .. })));
    host.machine.refuse("indirection ens5", Errno::INVAL, 1);
    assert_eq!(host.apply_queues("spread", Some(4)).expect("applied").channels, Some(4));
}

#[test]
fn channels_go_back_where_what_follows_fails() {
    let host = Host::new("c6i.4xlarge-8");
    let before = host.machine.files();
    host.machine.refuse("/proc/irq/29/smp_affinity_list", Errno::NOSPC, 1);
    let error = host.apply_queues("pin=9,12", Some(4)).expect_err("refused");
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert_eq!(host.machine.channels("ens5").expect("channels").combined, 8);
    assert_eq!(host.machine.files(), before);
    assert!(host.nothing_is_saved());
    // If the driver refuses, nothing changes.
    host.machine.refuse("channels ens5", Errno::BUSY, 1);
    assert!(matches!(host.apply_queues("spread", Some(4)), Err(Error::Driver { .. })));
    assert_eq!(host.machine.files(), before);
    assert!(host.nothing_is_saved());
    assert!(matches!(
        host.apply_queues("spread", Some(9)),
        Err(Error::Nic(nic::Error::Channels { most: 8, .. }))
    ));
}
