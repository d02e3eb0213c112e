//! Certificates of running services: whether they can be read, and how long they remain valid.

use std::collections::BTreeSet;
use std::io;

use service::certificate::Certificate;
use toml::{Table, Value};

use crate::doctor::{Finding, Rule, RuleContext, Severity};
use crate::nic::services::{GROUPS, processes};
use crate::system::System;

/// The rule.
pub const RULE: Rule = Rule {
    name: "certificate",
    about: "certificates that running services were told to show can be read, and are valid for 14 days yet",
    cost: "clients refuse to speak with a service by TLS once its certificate has ended",
    source: "RFC 5280, section 4.1.2.5; services' command lines, variables and files of settings",
    compares: None,
    check,
};

/// Settings that name certificates.
const SETTINGS: [&str; 2] = ["cert", "admin-cert"];

/// The setting that names the file of settings.
const CONFIG: &str = "config";

/// Where systemd puts the credentials of units: copies made when a unit starts.
const CREDENTIALS: &str = "/run/credentials/";

/// The credential's name if the file is in `/run/linerate-NAME/credentials/`, where a linerate unit keeps credentials
/// for all of its processes: `/run/linerate-links/credentials/certificate`.
fn credential_of_unit(file: &str) -> Option<String> {
    let (service, name) = file.strip_prefix("/run/linerate-")?.split_once("/credentials/")?;
    Some(format!("linerate-{service}.service/{name}"))
}

/// systemd's name for a credential, if a file is one: `linerate-links.service/certificate`.
fn credential(file: &str) -> Option<String> {
    file.strip_prefix(CREDENTIALS).map(str::to_owned).or_else(|| credential_of_unit(file))
}

/// Where the doctor's own unit has copies of the same credentials, because systemd hides each unit's credentials from
/// other units.
const SHOWN: &str = "/run/linerate-doctor/credentials/";

const DAY: i64 = 24 * 60 * 60;

/// A certificate should be replaced earlier than this before its end. certbot and lego renew 90-day certificates 30
/// days before the end, so at this time renewal has been failing for two weeks.
const SOON: i64 = 14 * DAY;

/// How many of a certificate's names are shown.
const TOLD: usize = 4;

fn check(context: &RuleContext<'_>) -> Vec<Finding> {
    let units = context.system.list(GROUPS).unwrap_or_default();
    let units = units.iter().filter(|unit| unit.starts_with("linerate-") && unit.ends_with(".service"));
    units
        .flat_map(|unit| {
            let files = files(context.system, unit);
            files.into_iter().flat_map(|file| of_file(context.system, unit, &file)).collect::<Vec<_>>()
        })
        .collect()
}

/// The findings about a file with certificates.
fn of_file(system: &dyn System, unit: &str, file: &str) -> Vec<Finding> {
    let status = format!("systemctl status {unit}");
    let text = match read(system, file) {
        Ok(text) => text,
        Err(error) => {
            // Without root, the doctor can't read the file; that is only a notice.
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            let severity = if denied { Severity::Notice } else { Severity::Warning };
            return vec![Finding::symptom(file, error).severity(severity).remedy(status)];
        }
    };
    let certificates = match Certificate::from_pem(text.as_bytes()) {
        Ok(certificates) => certificates,
        Err(error) => return vec![Finding::symptom(file, error).remedy(status)],
    };
    let remedy = if credential(file).is_some() {
        format!("systemctl restart {unit}  # once the file is new that its LoadCredential= names")
    } else {
        format!(
            "systemctl list-timers; {status}  # what should have made {file} anew; it is read without a restart"
        )
    };
    let endings = certificates.iter().enumerate().filter_map(|(index, certificate)| {
        let left = certificate.not_after - system.now();
        let shown = index == 0;
        let of = names(certificate);
        let found = match left {
            _ if left >= SOON => return None,
            _ if left < 0 => format!("ended {} ago, for {of}", days(-left)),
            _ => format!("{} left, for {of}", days(left)),
        };
        let subject = if shown { file.to_owned() } else { format!("{file}, number {}", index + 1) };
        let finding = Finding::drift(subject, format!("at least {} left", days(SOON)), found);
        // Never critical, even after expiry. A machine that was off for a while would otherwise fall back to an older
        // generation, which has no newer certificate either.
        Some(finding.severity(Severity::Warning).remedy(remedy.clone()))
    });
    endings.collect()
}

fn read(system: &dyn System, file: &str) -> io::Result<String> {
    let hidden = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match (system.read(file), credential(file)) {
        (Err(error), Some(credential)) if hidden(&error) => system.read(&format!("{SHOWN}{credential}")),
        (read, _) => read,
    }
}

/// `3 days`, or less than one.
fn days(seconds: i64) -> String {
    match seconds / DAY {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

/// The names that the certificate is for. If there are too many, only the first ones are shown.
fn names(certificate: &Certificate) -> String {
    let names = &certificate.names;
    let told = names.iter().take(TOLD).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > TOLD { format!("{told} and {} more", names.len() - TOLD) } else { told }
}

/// The certificate files that the settings of a unit's processes name.
fn files(system: &dyn System, unit: &str) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for pid in processes(system, unit) {
        let told = Told::read(system, unit, pid);
        for file in SETTINGS.iter().flat_map(|name| told.values(name)) {
            if file.starts_with('/') {
                files.insert(file);
            } else if let Ok(directory) = system.canonical(&format!("/proc/{pid}/cwd")) {
                files.insert(format!("{directory}/{file}"));
            }
        }
    }
    files
}

/// The settings that a process got when it started (`service::settings`).
struct Told {
    /// Its arguments, starting with the program.
    arguments: Vec<String>,
    /// Its environment; empty if this process may not read it.
    variables: Vec<String>,
    /// The prefix of its settings' variables: `LINERATE_LINKS_`.
    prefix: String,
    /// Its settings file.
    file: Table,
}

impl Told {
    fn read(system: &dyn System, unit: &str, pid: u32) -> Self {
        let parts = |name: &str| -> Vec<String> {
            let text = system.read(&format!("/proc/{pid}/{name}")).unwrap_or_default();
            text.trim_end().split('\0').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let prefix = format!("{}_", unit.trim_end_matches(".service").replace('-', "_").to_uppercase());
        let (arguments, variables) = (parts("cmdline"), parts("environ"));
        let mut told = Self { arguments, variables, prefix, file: Table::new() };
        let file = told.values(CONFIG).pop().and_then(|file| system.read(&file).ok());
        told.file = file.and_then(|text| text.parse().ok()).unwrap_or_default();
        told
    }

    /// The values of a setting, from the source with the highest precedence that has any.
    fn values(&self, name: &str) -> Vec<String> {
        let flag = format!("--{name}");
        let behind = |(index, argument): (usize, &String)| match argument.strip_prefix(&flag)? {
            "" => self.arguments.get(index + 1).cloned(),
            rest => rest.strip_prefix('=').map(str::to_owned),
        };
        let flags: Vec<String> = self.arguments.iter().enumerate().filter_map(behind).collect();
        if !flags.is_empty() {
            return flags;
        }
        let variable = format!("{}{}=", self.prefix, name.replace('-', "_").to_uppercase());
        if let Some(value) = self.variables.iter().find_map(|one| one.strip_prefix(&variable))
            && !value.is_empty()
        {
            return value
                .split(',')
                .map(|part| part.trim().to_owned())
                .filter(|part| !part.is_empty())
                .collect();
        }
        let mut values = Vec::new();
        below("", &self.file, name, &mut values);
        values
    }
}

/// Adds the strings with the key `name` in a table and in the tables inside it.
fn below(prefix: &str, table: &Table, name: &str, values: &mut Vec<String>) {
    for (key, value) in table {
        let key = format!("{prefix}{}", key.replace('_', "-"));
        match value {
            Value::Table(table) => below(&format!("{key}-"), table, name, values),
            Value::String(text) if key == name => values.push(text.clone()),
            Value::Array(several) if key == name => {
                values.extend(several.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::findings;

    /// 2030-01-02, when the certificates made here expire.
    const END: i64 = 1_893_542_400;

    /// A certificate for these names, as a file of a machine given as text.
    fn file(path: &str, names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).expect("names");
        params.not_after = rcgen::date_time_ymd(2030, 1, 2);
        let key = rcgen::KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        format!("{path}:\n{}", lines(&pem))
    }

    fn lines(text: &str) -> String {
        text.lines().map(|line| format!("|{line}\n")).collect()
    }

    /// The findings if links was started with `told`, `left` seconds before the certificates expire.
    fn found(told: &str, files: &str, left: i64) -> Vec<(Severity, String, String)> {
        let machine = format!(
            "/sys/fs/cgroup/system.slice/linerate-links.service/cgroup.procs = 700\n{told}\n{files}\nnow {}\n",
            END - left
        );
        let found = findings(&RULE, &machine, "{}").into_iter();
        found.map(|one| (one.severity, one.subject, one.found)).collect()
    }

    const BY_FLAG: &str = "/proc/700/cmdline = linerate-links\0serve\0--cert\0/a.pem\0--key\0/a.key\0";

    #[test]
    fn the_end_is_told_before_it_comes_and_after() {
        let file = file("/a.pem", &["a.example", "*.b.example"]);
        let found = |left| found(BY_FLAG, &file, left);
        assert_eq!(found(SOON), []);
        for (left, severity, told) in [
            (SOON - 1, Severity::Warning, "13 days left"),
            (DAY, Severity::Warning, "1 day left"),
            (0, Severity::Warning, "less than a day left"),
            (-1, Severity::Warning, "ended less than a day ago"),
            (-3 * DAY, Severity::Warning, "ended 3 days ago"),
        ] {
            let told = format!("{told}, for a.example, *.b.example");
            assert_eq!(found(left), [(severity, "/a.pem".to_owned(), told)], "{left}");
        }
    }

    #[test]
    fn certificates_are_found_wherever_the_service_was_told_of_them() {
        let files = ["/a.pem", "/b.pem", "/srv/c.pem"].map(|path| file(path, &["a.example"])).concat();
        let settings =
            |text: &str| format!("/proc/700/cmdline = x\0serve\0--config\0/x.toml\0\n/x.toml:\n{text}");
        let cases = [
            (BY_FLAG.to_owned(), &["/a.pem"][..]),
            ("/proc/700/cmdline = x\0serve\0--cert=/a.pem\0--admin-cert\0/b.pem".to_owned(), &["/a.pem", "/b.pem"]),
            ("/proc/700/cmdline = x\0serve\0--cert\0/a.pem\0--cert\0/b.pem".to_owned(), &["/a.pem", "/b.pem"]),
            (
                "/proc/700/cmdline = x\0serve\0--cert\0c.pem\0\n/proc/700/cwd -> /srv".to_owned(),
                &["/srv/c.pem"],
            ),
            (
                "/proc/700/cmdline = x\0serve\0\n/proc/700/environ = A=1\0LINERATE_LINKS_CERT=/a.pem,/b.pem\0"
                    .to_owned(),
                &["/a.pem", "/b.pem"],
            ),
            (settings("|cert = '/a.pem'\n"), &["/a.pem"]),
            (settings("|cert = ['/a.pem', '/b.pem']\n"), &["/a.pem", "/b.pem"]),
            (settings("|admin_cert = '/a.pem'\n"), &["/a.pem"]),
            (settings("|[admin]\n|cert = '/b.pem'\n"), &["/b.pem"]),
            // The flag takes precedence, so the certificate from the file isn't used.
            (
                "/proc/700/cmdline = x\0serve\0--config=/x.toml\0--cert\0/b.pem\n/x.toml:\n|cert = '/a.pem'"
                    .to_owned(),
                &["/b.pem"],
            ),
            (settings("|public-url = 'https://a.example'\n"), &[]),
            (settings("|no TOML\n"), &[]),
            (String::new(), &[]),
        ];
        for (told, expected) in cases {
            let found = found(&told, &files, -DAY);
            let subjects: Vec<&str> = found.iter().map(|(_, subject, _)| subject.as_str()).collect();
            assert_eq!(subjects, expected, "{told:?}");
        }
    }

    #[test]
    fn credentials_are_read_where_the_doctors_unit_has_them() {
        let file =
            file("/run/linerate-doctor/credentials/linerate-links.service/certificate", &["a.example"]);
        let told_as = [
            "/run/credentials/linerate-links.service/certificate",
            "/run/linerate-links/credentials/certificate",
        ];
        for subject in told_as {
            let told = format!("/proc/700/cmdline = x\0serve\0--cert\0{subject}\0");
            assert_eq!(found(&told, &file, SOON), []);
            let ended = "ended 1 day ago, for a.example".to_owned();
            assert_eq!(found(&told, &file, -DAY), [(Severity::Warning, subject.to_owned(), ended)]);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert_eq!(
            found(BY_FLAG, "", 0),
            [(Severity::Warning, "/a.pem".to_owned(), "No such file or directory (os error 2)".to_owned())]
        );
        assert_eq!(
            found(BY_FLAG, "/a.pem = nothing", 0),
            [(Severity::Warning, "/a.pem".to_owned(), "it has no certificate".to_owned())]
        );
    }

    #[test]
    fn those_that_signed_it_count_too_and_many_names_are_not_all_told() {
        let names = ["a.example", "b.example", "c.example", "d.example", "e.example"];
        let leaf = file("/a.pem", &names);
        let signer = file("/a.pem", &["authority"]);
        let chain = format!("{leaf}{}", signer.strip_prefix("/a.pem:\n").expect("its path"));
        let expected = [
            (
                Severity::Warning,
                "/a.pem".to_owned(),
                "ended 1 day ago, for a.example, b.example, c.example, d.example and 1 more".to_owned(),
            ),
            (Severity::Warning, "/a.pem, number 2".to_owned(), "ended 1 day ago, for authority".to_owned()),
        ];
        assert_eq!(found(BY_FLAG, &chain, -DAY), expected);
    }
}
