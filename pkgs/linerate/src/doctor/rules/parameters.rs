//! Parameters on the kernel's command line.

use crate::doctor::{Finding, Rule, RuleContext};

/// The kernel's command line (proc(5)).
const COMMAND_LINE: &str = "/proc/cmdline";

/// The rule.
pub const RULE: Rule = Rule {
    name: "parameters",
    about: "the kernel was started with the parameters of the profile",
    cost: "the kernel was started otherwise than it was measured",
    source: "Documentation/admin-guide/kernel-parameters.rst",
    compares: Some(|context| !context.profile.kernel.parameters.is_empty()),
    check,
};

fn check(context: &RuleContext<'_>) -> Vec<Finding> {
    let wanted = &context.profile.kernel.parameters;
    if wanted.is_empty() {
        return Vec::new();
    }
    let line = context.system.read(COMMAND_LINE).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let missing = wanted.iter().filter(|parameter| !words.contains(&parameter.as_str()));
    let finding = |parameter: &String| {
        let name = parameter.split('=').next().unwrap_or(parameter);
        let other = words.iter().rfind(|word| word.split('=').next() == Some(name));
        let found = other.map_or("not given", |other| other);
        Finding::drift(name, parameter, found)
            .remedy("systemctl reboot  # into the generation that was switched to")
    };
    missing.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::findings;

    #[test]
    fn a_parameter_counts_as_it_is_written() {
        let machine = "/proc/cmdline = root=fstab intel_idle.max_cstate=9 quiet\n";
        let profile =
            r#"{"kernel": {"parameters": ["root=fstab", "quiet", "intel_idle.max_cstate=1", "nosmt"]}}"#;
        let found: Vec<(String, String)> =
            findings(&RULE, machine, profile).into_iter().map(|one| (one.subject, one.found)).collect();
        let expected = [("intel_idle.max_cstate", "intel_idle.max_cstate=9"), ("nosmt", "not given")];
        assert_eq!(found, expected.map(|(name, found)| (name.to_owned(), found.to_owned())));
    }
}
