//! What is running: the generation or version, whether it is on trial, and when it was installed.

use crate::system::System;
use crate::update::{Appliance, SETTINGS, Settings, Status, Trial};

/// Where NixOS keeps its generations and which one is current.
const GENERATIONS: &str = "/nix/var/nix/profiles";
const CURRENT: &str = "/run/current-system";

/// Where systemd-boot has an entry for each generation. The entry's name contains the number of tries (systemd,
/// Automatic Boot Assessment).
const ENTRIES: [&str; 2] = ["/boot/loader/entries", "/efi/loader/entries"];

/// A variable that systemd-boot sets if it counts the tries of this boot (systemd, Boot Loader Interface). Every user
/// may see whether it exists.
const COUNTED: &str = "/sys/firmware/efi/efivars/LoaderBootCountPath-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// What is running; anything unknown is absent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) generation: Option<String>,
    pub(super) version: Option<String>,
    pub(super) trial: Option<String>,
    pub(super) updated: Option<u64>,
}

impl Release {
    /// A machine's release. Images are considered only on this machine, since their settings are read from a local
    /// file.
    pub(super) fn of(system: &dyn System, here: bool) -> Self {
        if here && let Ok(settings) = Settings::load(SETTINGS.as_ref()) {
            return Self::of_image(system, settings);
        }
        let Some(number) = generation(system) else { return Self::default() };
        Self {
            trial: trial(system, number),
            updated: system.modified(&format!("{GENERATIONS}/system-{number}-link")).ok(),
            generation: Some(number.to_string()),
            version: None,
        }
    }

    fn of_image(system: &dyn System, settings: Settings) -> Self {
        let version = format!("{} {}", settings.id, settings.version);
        let files = settings.boot.join("EFI/Linux");
        let updated = system.modified(&files.to_string_lossy()).ok();
        let trial = match Appliance::new(settings).status() {
            Ok(status) => of_slots(&status),
            Err(error) => format!("root is told: {error}"),
        };
        Self { generation: None, version: Some(version), trial: Some(trial), updated }
    }
}

/// The state of each version in the image's slots.
fn of_slots(status: &Status) -> String {
    let words = |version: &dyn std::fmt::Display, trial: Trial| match trial {
        Trial::Good => format!("{version} is good"),
        Trial::Left { left: 0, .. } => format!("{version} has failed"),
        Trial::Left { left, .. } => format!("{version} is on trial, {}", tries(left)),
    };
    let all: Vec<String> = status.versions.iter().map(|entry| words(&entry.version, entry.trial)).collect();
    all.join("; ")
}

fn tries(left: u32) -> String {
    format!("{left} {} left", if left == 1 { "try" } else { "tries" })
}

/// The state of the running generation, and of newer ones that are on trial or have failed.
fn trial(system: &dyn System, running: u32) -> Option<String> {
    let entries = ENTRIES.iter().find_map(|place| system.list(place).ok());
    let Some(entries) = entries else {
        // On most hosts only root may read the EFI partition.
        return system.read(COUNTED).is_ok().then(|| {
            "this boot began on trial; root is told whether it counts as good: bootctl status".to_owned()
        });
    };
    let counted: Vec<(u32, Option<(u32, u32)>)> = entries.iter().filter_map(|name| entry(name)).collect();
    let words = |number: u32, left: u32| match left {
        0 => format!("{number} has failed"),
        left => format!("{number} is on trial, {}", tries(left)),
    };
    let own = counted.iter().find(|(number, _)| *number == running)?;
    let mut all = vec![match own.1 {
        None => "good".to_owned(),
        Some((left, _)) => words(running, left),
    }];
    let others = counted.iter().filter(|(number, _)| *number > running);
    all.extend(others.filter_map(|(number, tries)| Some(words(*number, (*tries)?.0))));
    Some(all.join("; "))
}

/// `nixos-generation-7.conf`, `nixos-generation-7+2.conf` or `nixos-generation-7+1-1.conf`: the generation, and how
/// many tries are left and done.
fn entry(name: &str) -> Option<(u32, Option<(u32, u32)>)> {
    let rest = name.strip_prefix("nixos-generation-")?.strip_suffix(".conf")?;
    let Some((number, counted)) = rest.split_once('+') else { return Some((rest.parse().ok()?, None)) };
    let (left, done) = counted.split_once('-').unwrap_or((counted, "0"));
    Some((number.parse().ok()?, Some((left.parse().ok()?, done.parse().ok()?))))
}

/// The number of the running generation: the one whose link leads to the running system.
fn generation(system: &dyn System) -> Option<u32> {
    let current = system.canonical(CURRENT).ok()?;
    let names = system.list(GENERATIONS).ok()?;
    let runs = |name: &String| {
        name.starts_with("system-")
            && system.canonical(&format!("{GENERATIONS}/{name}")).is_ok_and(|place| place == current)
    };
    // If several generations lead to the same system, take the newest.
    let numbers = names.into_iter().filter(runs);
    let numbers =
        numbers.filter_map(|name| name.strip_prefix("system-")?.strip_suffix("-link")?.parse().ok());
    numbers.max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Recorded;

    const GENERATION_12: &str = "\
/run/current-system -> /nix/store/b
/nix/store/b/init =
/nix/store/a/init =
/nix/var/nix/profiles/system-7-link -> /nix/store/a
/nix/var/nix/profiles/system-8-link -> /nix/store/b
/nix/var/nix/profiles/system-12-link -> /nix/store/b
/nix/var/nix/profiles/system -> /nix/store/b
";

    fn release(more: &str) -> Release {
        let machine: Recorded = format!("{GENERATION_12}{more}").parse().expect("a machine");
        Release::of(&machine, false)
    }

    #[test]
    fn the_generation_is_the_newest_that_is_the_running_system() {
        assert_eq!(release(""), Release { generation: Some("12".into()), ..Release::default() });
    }

    #[test]
    fn what_is_on_trial_is_told_from_the_boot_loaders_entries() {
        for (entries, trial) in [
            (&["12", "7"][..], "good"),
            (&["12+2", "7"], "12 is on trial, 2 tries left"),
            (&["12+0-3", "7"], "12 has failed"),
            (&["12", "13+1-2", "7+0-3"], "good; 13 is on trial, 1 try left"),
        ] {
            let files: String = entries
                .iter()
                .map(|name| format!("/boot/loader/entries/nixos-generation-{name}.conf =\n"))
                .collect();
            assert_eq!(release(&files).trial.as_deref(), Some(trial), "{entries:?}");
        }
        assert_eq!(release("/boot/loader/entries/other.conf =\n").trial, None);
        let counted = release(&format!("{COUNTED} = x\n")).trial;
        assert!(counted.is_some_and(|trial| trial.starts_with("this boot began on trial")));
    }
}
