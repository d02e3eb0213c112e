//! CPU time and memory that services were denied.

use super::severity;
use crate::doctor::sample::share;
use crate::doctor::{Finding, Rule, RuleContext, Severity};

/// CPU time of control groups.
pub const THROTTLED: Rule = Rule {
    name: "throttled",
    about: "no service is stopped because it used up its share of CPU time",
    cost: "requests wait until the next period, up to a tenth of a second",
    source: "Documentation/admin-guide/cgroup-v2.rst, cpu.stat",
    compares: None,
    check: throttled,
};

/// Memory of control groups.
pub const MEMORY: Rule = Rule {
    name: "memory-limit",
    about: "no service is held at its limit of memory, or killed there",
    cost: "a service that is killed drops its connections; one that is held waits for memory to be reclaimed",
    source: "Documentation/admin-guide/cgroup-v2.rst, memory.events",
    compares: None,
    check: memory,
};

/// Huge pages.
pub const HUGE_PAGES: Rule = Rule {
    name: "huge-pages",
    about: "nobody waits while the kernel moves memory together for huge pages",
    cost: "an allocation takes milliseconds now and then",
    source: "Documentation/admin-guide/mm/transhuge.rst, compact_stall",
    compares: None,
    check: huge_pages,
};

/// CPU time that the hypervisor took.
pub const STOLEN: Rule = Rule {
    name: "stolen",
    about: "the hypervisor gives the CPUs that it promised",
    cost: "a request waits while its virtual CPU does not run",
    source: "proc_stat(5), steal",
    compares: None,
    check: stolen,
};

fn throttled(context: &RuleContext<'_>) -> Vec<Finding> {
    let finding = |unit: String| {
        let times = context.interval.grew(&format!("unit/{unit}/nr_throttled"));
        let stopped = context.interval.grew(&format!("unit/{unit}/throttled_usec")) as f64 / 1e6;
        let share = stopped / context.interval.seconds.max(f64::EPSILON);
        let finding = Finding::symptom(&unit, format!("stopped {times} times, {:.0} ms", stopped * 1e3));
        let remedy = format!("systemctl set-property {unit} CPUQuota=");
        (times > 0).then(|| finding.severity(severity(share)).effect(share).remedy(remedy))
    };
    context.interval.members("unit/").into_iter().filter_map(finding).collect()
}

fn memory(context: &RuleContext<'_>) -> Vec<Finding> {
    let finding = |unit: String| {
        let times = |name: &str| context.interval.grew(&format!("unit/{unit}/{name}"));
        let (held, killed) = (times("max"), times("oom_kill"));
        let finding = Finding::symptom(&unit, format!("held {held} times, {killed} processes killed"));
        let severity = if killed > 0 { Severity::Critical } else { Severity::Warning };
        let remedy =
            format!("systemctl show {unit} -p MemoryMax -p MemoryPeak  # a smaller cache or a larger limit");
        (held + killed > 0).then(|| finding.severity(severity).remedy(remedy))
    };
    context.interval.members("unit/").into_iter().filter_map(finding).collect()
}

fn huge_pages(context: &RuleContext<'_>) -> Vec<Finding> {
    let stalls = context.interval.grew("vm/compact_stall");
    if stalls == 0 {
        return Vec::new();
    }
    // One stall per second affects one request in several thousand.
    let often = stalls as f64 / context.interval.seconds.max(f64::EPSILON) >= 1.0;
    let severity = if often { Severity::Warning } else { Severity::Notice };
    let finding = Finding::symptom("compaction", format!("{stalls} allocations waited")).severity(severity);
    vec![finding.remedy("echo madvise > /sys/kernel/mm/transparent_hugepage/defrag")]
}

fn stolen(context: &RuleContext<'_>) -> Vec<Finding> {
    let stolen = context.interval.grew("time/stolen");
    let share = share(stolen, context.interval.grew("time/all").saturating_sub(stolen));
    // Below 1 %, it is the hypervisor's own housekeeping.
    if share < 0.01 {
        return Vec::new();
    }
    let finding =
        Finding::symptom("cpu", format!("{:.1} % of CPU time taken by the hypervisor", share * 100.0));
    let severity = if share >= 0.05 { Severity::Warning } else { Severity::Notice };
    vec![
        finding
            .severity(severity)
            .effect(share)
            .remedy("vmstat 1  # column st; a host of its own, or another kind of instance"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::symptoms;

    #[test]
    fn services_that_were_stopped_held_or_killed_are_found() {
        let unit = "/sys/fs/cgroup/system.slice/linerate-links.service";
        let machine = format!(
            "{unit}/cpu.stat:\n|nr_throttled 1\n|throttled_usec 1000\n{unit}/memory.events:\n|max 1\n|oom_kill 0\nlater\n\
             {unit}/cpu.stat:\n|nr_throttled 3\n|throttled_usec 501000\n{unit}/memory.events:\n|max 1\n|oom_kill 1\n"
        );
        let found = symptoms(&THROTTLED, &machine, 2.0);
        assert_eq!((found[0].found.as_str(), found[0].effect), ("stopped 2 times, 500 ms", Some(0.25)));
        let found = symptoms(&MEMORY, &machine, 2.0);
        assert_eq!(
            (found[0].severity, found[0].subject.as_str()),
            (Severity::Critical, "linerate-links.service")
        );
    }

    #[test]
    fn stolen_time_and_stalls_are_found() {
        let machine = "/proc/stat:\n|cpu  100 0 0 100 0 0 0 0 0 0\n/proc/vmstat:\n|compact_stall 5\nlater\n\
                       /proc/stat:\n|cpu  150 0 0 140 0 0 0 10 0 0\n/proc/vmstat:\n|compact_stall 7\n";
        let found = symptoms(&STOLEN, machine, 1.0);
        assert_eq!((found[0].effect, found[0].severity), (Some(0.1), Severity::Warning));
        assert_eq!(symptoms(&HUGE_PAGES, machine, 1.0)[0].severity, Severity::Warning);
        assert_eq!(symptoms(&HUGE_PAGES, machine, 10.0)[0].severity, Severity::Notice);
    }
}
