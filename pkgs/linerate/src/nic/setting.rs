//! Translates a plan into the contents of kernel files.

use std::io;

use serde::Serialize;

use super::device::{Device, queue_path};
use super::{Error, Plan};
use crate::cpus::Cpus;
use crate::system::System;

/// A file that names CPUs, with its current and its planned value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// What it is for.
    #[serde(flatten)]
    pub subject: Subject,
    /// The queue.
    pub queue: usize,
    /// The file.
    pub path: String,
    /// Its content, byte for byte.
    #[serde(skip)]
    pub content: String,
    /// The CPUs it names.
    pub now: Cpus,
    /// The CPUs it should name.
    pub wanted: Cpus,
}

/// What a setting is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Subject {
    /// The affinity of an interrupt, `/proc/irq/N/smp_affinity_list` (`Documentation/core-api/irq/irq-affinity.rst`).
    Irq {
        /// Its number.
        irq: u32,
        /// Its name.
        action: String,
    },
    /// Where received packets are passed to (`rps_cpus`).
    Rps,
    /// The CPUs that send through the queue (`xps_cpus`).
    Xps,
}

impl Subject {
    /// `cpus` in the format of its file.
    pub fn spell(&self, cpus: &Cpus) -> String {
        match self {
            Self::Irq { .. } => cpus.to_string(),
            Self::Rps | Self::Xps => cpus.mask(),
        }
    }

    /// The CPUs named by the content of its file.
    pub fn understand(&self, content: &str) -> Result<Cpus, crate::cpus::ParseError> {
        match self {
            Self::Irq { .. } => content.parse(),
            Self::Rps | Self::Xps => Cpus::from_mask(content),
        }
    }
}

impl Setting {
    /// Whether it is as planned.
    pub fn holds(&self) -> bool {
        self.now == self.wanted
    }
}

/// All settings of a plan, queue by queue. Settings that the device doesn't have are left out.
pub fn of(system: &dyn System, device: &Device, plan: &Plan) -> Result<Vec<Setting>, Error> {
    let mut settings = Vec::new();
    for (number, (queue, placement)) in device.queues.iter().zip(&plan.placements).enumerate() {
        let mut add = |subject: Subject, path: String, wanted: Cpus| {
            settings.extend(read(system, subject, number, path, wanted)?);
            Ok::<(), Error>(())
        };
        for interrupt in &queue.interrupts {
            let path = format!("/proc/irq/{}/smp_affinity_list", interrupt.irq);
            let subject = Subject::Irq { irq: interrupt.irq, action: interrupt.action.clone() };
            add(subject, path, Cpus::from_iter([placement.cpu]))?;
        }
        if queue.receives {
            let path = queue_path(&device.interface, "rx", number) + "/rps_cpus";
            add(Subject::Rps, path, placement.rps.clone())?;
        }
        if queue.transmits {
            let path = queue_path(&device.interface, "tx", number) + "/xps_cpus";
            add(Subject::Xps, path, placement.xps.clone())?;
        }
    }
    Ok(settings)
}

/// Reads a setting; none if the kernel reports ENOENT: there is no such file, or it is `xps_cpus` and the interface has
/// one queue.
fn read(
    system: &dyn System,
    subject: Subject,
    queue: usize,
    path: String,
    wanted: Cpus,
) -> Result<Option<Setting>, Error> {
    let content = match system.read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Read { path, source }),
        Ok(content) => content,
    };
    match subject.understand(&content) {
        Ok(now) => Ok(Some(Setting { subject, queue, path, content, now, wanted })),
        Err(error) => Err(Error::Read { path, source: io::Error::new(io::ErrorKind::InvalidData, error) }),
    }
}
