//! The rules for codes and targets.

use std::sync::Arc;

use crate::code::CodePolicy;
use crate::domains::SharedDomains;
use crate::target::{InvalidTarget, TargetPolicy};

/// The rules for codes and targets.
pub(super) struct Policy {
    pub codes: CodePolicy,
    pub targets: TargetPolicy,
    pub domains: Arc<SharedDomains>,
}

impl Policy {
    /// Validates a target and returns it as stored. Refuses a target at one of the domains.
    pub fn target(&self, target: &str) -> Result<String, InvalidTarget> {
        let domains = self.domains.now();
        self.targets.validate_besides(target, |host| domains.find(host.as_bytes()).is_some())
    }
}
