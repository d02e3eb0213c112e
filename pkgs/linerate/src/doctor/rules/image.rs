//! Whether the running system is the one that was built and signed. This applies to hosts that run an image
//! (`linerate.appliance.image`).
//!
//! The signed boot file contains the kernel command line, and that contains the store's root hash. The store must
//! therefore be mounted read-only from a device that dm-verity checks against that hash. The profile may also require
//! that written data is encrypted.

use std::io;

use crate::doctor::{Finding, Rule, RuleContext, Severity};

/// The kernel's command line (proc(5)).
const COMMAND_LINE: &str = "/proc/cmdline";
/// The mounts (proc_pid_mounts(5)).
const MOUNTS: &str = "/proc/self/mounts";
/// Whether the firmware starts only signed files (UEFI specification, "Globally Defined Variables"): a byte after four
/// bytes of attributes (`Documentation/filesystems/efivarfs.rst`).
const SECURE_BOOT: &str = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Where device-mapper's devices are.
const MAPPED: &str = "/dev/mapper/";
/// Block devices, with the names and UUIDs of device-mapper devices; a UUID that starts with `CRYPT-` is dm-crypt's
/// (`Documentation/ABI/testing/sysfs-block-dm`).
const BLOCK: &str = "/sys/class/block";
/// The remedy for a machine that runs another system: nothing on it can be trusted.
const REMEDY: &str = "systemctl poweroff  # look at its disk elsewhere, then write the image anew";

/// The rule.
pub const RULE: Rule = Rule {
    name: "image",
    about: "the store is the one that the boot file was built and signed with, and is checked as it is read; \
            what has to be encrypted is",
    cost: "what runs may be something else than was built and signed",
    source: "Documentation/admin-guide/device-mapper/verity.rst; systemd-veritysetup-generator(8)",
    compares: Some(|context| context.profile.image.is_some()),
    check,
};

fn check(context: &RuleContext<'_>) -> Vec<Finding> {
    let Some(image) = &context.profile.image else { return Vec::new() };
    let mut findings = Vec::new();
    let mut critical = |finding: Finding| {
        let remedy = finding.remedy.clone().unwrap_or_else(|| REMEDY.to_owned());
        findings.push(finding.severity(Severity::Critical).remedy(remedy));
    };

    let line = context.system.read(COMMAND_LINE).unwrap_or_default();
    let hash = line.split_whitespace().find_map(|word| word.strip_prefix("usrhash="));
    if hash.is_none() {
        let found = Finding::drift("usrhash", "on the kernel's command line", "not given");
        critical(found.remedy("systemctl reboot  # into a version of the image, by the boot loader's menu"));
    }

    let mounts = context.system.read(MOUNTS).unwrap_or_default();
    let mount = mounted(&mounts, &image.store);
    let mapped = mount.as_ref().and_then(|fields| fields[0].strip_prefix(MAPPED));
    match &mount {
        None => {
            critical(Finding::drift(&image.store, "mounted, from a device that is checked", "not mounted"))
        }
        Some(fields) if mapped.is_none() => {
            critical(Finding::drift(&image.store, "from a device that is checked", fields[0]));
        }
        Some(fields) if !fields[3].split(',').any(|option| option == "ro") => {
            critical(Finding::drift(&image.store, "mounted read-only", fields[3]));
        }
        Some(_) => {}
    }

    if let (Some(name), Some(hash)) = (mapped, hash) {
        match context.system.verity(name) {
            Ok(verity) => {
                if verity.root != hash {
                    critical(Finding::drift(name, hash, verity.root));
                }
                if verity.corrupt {
                    let found = Finding::drift(name, "every block as it was built", "a block is another");
                    critical(
                        found
                            .cost("what is read of that block is an error, whoever reads it")
                            .remedy("linerate update apply --reboot  # and replace the disk: it has lost what it was given"),
                    );
                }
            }
            // Only root may ask the kernel, and a service may have no access to the device. Both say nothing about the
            // image.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound) => {}
            Err(error) => critical(Finding::drift(name, hash, error)),
        }
    }

    for place in &image.encrypted {
        let device = mounted(&mounts, place).map_or("nothing", |fields| fields[0]);
        if !device.strip_prefix(MAPPED).is_some_and(|name| encrypts(context, name)) {
            let found = Finding::drift(place, "from a device that is encrypted", device);
            findings.push(found.cost("who has the disk reads what is on it").remedy(
                "systemctl poweroff  # keep what is on it elsewhere, then write the image anew: the first boot encrypts it",
            ));
        }
    }

    if image.secure_boot && !secure_boot(context) {
        let found = Finding::drift("Secure Boot", "on", "off");
        findings.push(found.cost("the firmware starts whatever is on the disk").remedy(
            "systemctl reboot --firmware-setup  # where it is turned on; in setup mode the boot loader enrolls the image's keys",
        ));
    }
    findings
}

/// The fields of the line that describes what is mounted at `place`. Later mounts cover earlier ones, so the last line
/// counts.
fn mounted<'a>(mounts: &'a str, place: &str) -> Option<Vec<&'a str>> {
    let mut lines = mounts.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    lines.find(|fields| fields.len() >= 4 && fields[1] == place)
}

/// Whether the device-mapper device with this name encrypts.
fn encrypts(context: &RuleContext<'_>, name: &str) -> bool {
    let told = |device: &str, what: &str| {
        context.system.read(&format!("{BLOCK}/{device}/dm/{what}")).unwrap_or_default()
    };
    let devices = context.system.list(BLOCK).unwrap_or_default();
    let mut mapped = devices.iter().filter(|device| device.starts_with("dm-"));
    mapped.any(|device| told(device, "name").trim_end() == name && told(device, "uuid").starts_with("CRYPT-"))
}

fn secure_boot(context: &RuleContext<'_>) -> bool {
    context.system.read(SECURE_BOOT).is_ok_and(|variable| variable.trim_end_matches('\n').ends_with('\u{1}'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::findings;

    /// The findings as `SUBJECT: FOUND`.
    fn found(machine: &str, profile: &str) -> Vec<String> {
        let findings = findings(&RULE, machine, profile);
        findings.into_iter().map(|one| format!("{}: {}", one.subject, one.found)).collect()
    }

    const IMAGE: &str = r#"{"image": {"store": "/nix/store", "secure_boot": false}}"#;
    const LINE: &str = "/proc/cmdline = init=/nix/store/x/init usrhash=ab12\n";
    const MOUNT: &str =
        "/proc/self/mounts:\n|tmpfs / tmpfs ro 0 0\n|/dev/mapper/usr /nix/store erofs ro,nodev 0 0\n";

    #[test]
    fn the_store_has_to_be_the_one_that_the_boot_file_names() {
        let cases: [(String, &[&str]); 7] = [
            (format!("{LINE}{MOUNT}verity usr root=ab12 corrupt=false\n"), &[]),
            // A service that may not ask the kernel.
            (format!("{LINE}{MOUNT}"), &[]),
            (format!("{LINE}{MOUNT}verity usr root=cd34 corrupt=false\n"), &["usr: cd34"]),
            (format!("{LINE}{MOUNT}verity usr root=ab12 corrupt=true\n"), &["usr: a block is another"]),
            (
                format!("/proc/cmdline = quiet\n{MOUNT}verity usr root=ab12 corrupt=false\n"),
                &["usrhash: not given"],
            ),
            (format!("{LINE}{}", MOUNT.replace("/dev/mapper/usr", "/dev/vda3")), &["/nix/store: /dev/vda3"]),
            (format!("{LINE}{MOUNT}|overlay /nix/store overlay rw 0 0\n"), &["/nix/store: overlay"]),
        ];
        for (machine, expected) in cases {
            assert_eq!(found(&machine, IMAGE), expected, "{machine}");
        }
        let writable = MOUNT.replace("erofs ro,", "erofs rw,");
        assert_eq!(found(&format!("{LINE}{writable}"), IMAGE), ["/nix/store: rw,nodev"]);
        assert_eq!(
            found("/proc/cmdline = quiet\n", IMAGE),
            ["usrhash: not given", "/nix/store: not mounted"]
        );
    }

    #[test]
    fn secure_boot_is_asked_for_where_the_image_is_signed_for_it() {
        let machine = format!("{LINE}{MOUNT}{SECURE_BOOT} = \u{6}\0\0\0");
        let signed = IMAGE.replace("false", "true");
        assert_eq!(found(&format!("{machine}\u{1}\n"), &signed), [""; 0]);
        assert_eq!(found(&format!("{machine}\0\n"), &signed), ["Secure Boot: off"]);
        assert_eq!(found(&format!("{LINE}{MOUNT}"), &signed), ["Secure Boot: off"]);
        assert_eq!(found(&format!("{machine}\0\n"), IMAGE), [""; 0]);
    }

    #[test]
    fn what_has_to_be_encrypted_is_on_a_device_that_encrypts() {
        let image = IMAGE.replace("false", r#"false, "encrypted": ["/var"]"#);
        let var = "|/dev/mapper/var /var ext4 rw 0 0\n";
        let device = |uuid| format!("{BLOCK}/dm-1/dm/name = var\n{BLOCK}/dm-1/dm/uuid = {uuid}\n");
        let cases = [
            ("LUKS", format!("{var}{}", device("CRYPT-LUKS2-ab12-var")), None),
            ("another mapping", format!("{var}{}", device("LVM-ab12")), Some("/var: /dev/mapper/var")),
            ("a partition", "|/dev/vda6 /var ext4 rw 0 0\n".to_owned(), Some("/var: /dev/vda6")),
            ("nothing there", String::new(), Some("/var: nothing")),
        ];
        for (what, machine, expected) in cases {
            let found = found(&format!("{LINE}{MOUNT}{machine}"), &image);
            assert_eq!(
                found.iter().map(String::as_str).collect::<Vec<_>>(),
                Vec::from_iter(expected),
                "{what}"
            );
        }
    }
}
