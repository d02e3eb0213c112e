//! Free space on file systems.

use crate::doctor::{Finding, Rule, RuleContext, Severity};

/// The rule.
pub const RULE: Rule = Rule {
    name: "disk",
    about: "file systems have as much room, and as many inodes free, as the profile says",
    cost: "databases stop taking what is written to them once it is full",
    source: "statvfs(3)",
    compares: Some(|context| !context.profile.disk.is_empty()),
    check,
};

fn check(context: &RuleContext<'_>) -> Vec<Finding> {
    let disks = context.profile.disk.iter().filter_map(|(path, disk)| {
        let wanted = disk.min_free_percent;
        let found = match context.system.free(path) {
            Ok(free) if free.bytes.min(free.inodes) >= wanted => return None,
            Ok(free) if free.bytes < wanted => format!("{} %", free.bytes),
            Ok(free) => format!("{} % of inodes", free.inodes),
            Err(error) => error.to_string(),
        };
        let finding = Finding::drift(path, format!("{wanted} % free"), found).severity(Severity::Critical);
        Some(
            finding.remedy(format!(
                "du -xh --max-depth=2 {path} | sort -h | tail; journalctl --vacuum-size=100M"
            )),
        )
    });
    disks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::findings;

    #[test]
    fn bytes_and_inodes_count() {
        let machine = "free / bytes=9 inodes=80\nfree /var bytes=50 inodes=2\nfree /srv bytes=10 inodes=10\n";
        let disk = r#"{"min_free_percent": 10}"#;
        let profile = format!(r#"{{"disk": {{"/": {disk}, "/srv": {disk}, "/var": {disk}}}}}"#);
        let found: Vec<String> =
            findings(&RULE, machine, &profile).into_iter().map(|one| one.found).collect();
        assert_eq!(found, ["9 %", "2 % of inodes"]);
    }
}
