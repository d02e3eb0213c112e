//! Which codes and targets are taken.

use std::sync::Arc;

use crate::code::CodePolicy;
use crate::domains::SharedDomains;
use crate::target::{InvalidTarget, TargetPolicy};

/// Which codes and targets are taken.
pub(super) struct Policy {
    pub codes: CodePolicy,
    pub targets: TargetPolicy,
    pub domains: Arc<SharedDomains>,
}

impl Policy {
    /// A target as it is stored: at none of the domains.
    pub fn target(&self, target: &str) -> Result<String, InvalidTarget> {
        let domains = self.domains.now();
        self.targets.validate_besides(target, |host| domains.find(host.as_bytes()).is_some())
    }
}
