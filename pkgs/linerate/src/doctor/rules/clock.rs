//! The clock.

use crate::doctor::{Finding, Rule, RuleContext};

/// The rule.
pub const RULE: Rule = Rule {
    name: "clock",
    about: "something keeps the clock in time, and it is off by no more than the profile says",
    cost: "links expire early or late, certificates seem invalid, and logs of two machines do not fit together",
    source: "adjtimex(2)",
    compares: Some(|context| context.profile.time.is_some()),
    check,
};

fn check(context: &RuleContext<'_>) -> Vec<Finding> {
    let Some(wanted) = &context.profile.time else { return Vec::new() };
    let most = wanted.max_error_ms;
    let (expected, found) = match context.system.clock() {
        Err(error) => ("synchronised".to_owned(), error.to_string()),
        Ok(clock) if !clock.synchronised => ("synchronised".to_owned(), "not synchronised".to_owned()),
        Ok(clock) => match most.filter(|&most| clock.max_error.as_millis() > u128::from(most)) {
            None => return Vec::new(),
            Some(most) => {
                (format!("at most {most} ms off"), format!("up to {} ms", clock.max_error.as_millis()))
            }
        },
    };
    // Without rtcsync, chrony keeps the clock, and leaves the kernel's flag that nobody does.
    let remedy = "chronyc tracking; systemctl restart chronyd  # chrony tells the kernel only with rtcsync in its \
                  settings";
    vec![Finding::drift("clock", expected, found).remedy(remedy)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::findings;

    #[test]
    fn a_clock_that_nobody_keeps_or_that_is_far_off_is_found() {
        let cases = [
            ("clock synchronised=true max_error_us=900", "{}", None),
            ("clock synchronised=true max_error_us=900000", r#"{"max_error_ms": 500}"#, Some("up to 900 ms")),
            ("clock synchronised=false max_error_us=1", "{}", Some("not synchronised")),
        ];
        for (machine, time, expected) in cases {
            let found = findings(&RULE, machine, &format!(r#"{{"time": {time}}}"#));
            assert_eq!(found.first().map(|one| one.found.as_str()), expected, "{machine}");
        }
    }
}
