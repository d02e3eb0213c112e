//! How a machine should be: the file that its image was built with.
//!
//! It is JSON, written by `modules/` and read by `linerate doctor --profile`. Every field is optional, and absent
//! fields aren't checked. Unknown names are refused, so that a mistake is found when the image is built and not when it
//! runs.
//!
//! ```
//! # let text = r#"
//! {
//!   "host": "aws-c6i",
//!   "kernel": {
//!     "sysctl": { "net.core.somaxconn": 16384, "net.ipv4.tcp_rmem": "4096 131072 16777216" },
//!     "parameters": ["intel_idle.max_cstate=1"]
//!   },
//!   "cpu": { "governor": "performance", "threads": 16 },
//!   "nic": {
//!     "front": {
//!       "driver": "ena",
//!       "mac": "02:00:00:00:00:01",
//!       "interface": "ens5",
//!       "mtu": 9001,
//!       "sustained_mbit": 6250,
//!       "channels": { "combined": 8 },
//!       "rings": { "rx": 4096, "tx": 1024 },
//!       "offloads": { "rx-gro": true, "rx-lro": false, "tx-tcp-segmentation": true },
//!       "coalescing": { "adaptive_rx": true, "rx_usecs": 1 },
//!       "qdisc": "fq",
//!       "placement": { "policy": "spread", "rps": true }
//!     }
//!   },
//!   "services": {
//!     "linerate-links.service": {
//!       "limits": { "open_files": 20480, "tasks": 1024, "memory_bytes": 805306368 },
//!       "listen": [":80", "127.0.0.1:8081"],
//!       "backlog": 16384,
//!       "cpus": "0-7",
//!       "ready": "http://127.0.0.1:8081/readyz"
//!     }
//!   },
//!   "disk": { "/": { "min_free_percent": 10 } },
//!   "image": { "store": "/nix/store", "secure_boot": true, "encrypted": ["/var"] },
//!   "time": { "max_error_ms": 1000 }
//! }
//! # "#;
//! # text.parse::<linerate::profile::Profile>().expect("a profile");
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};
use service::socket::Address;

use crate::cpus::Cpus;
use crate::nic::plan::Steering;
use crate::nic::{PlacementRequest, Policy};
use crate::system::{Coalescing, Rings};

/// How a machine should be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// The machine's name where it is defined; it is shown but not compared.
    pub host: Option<String>,
    /// The kernel.
    pub kernel: Kernel,
    /// Its CPUs.
    pub cpu: Cpu,
    /// Network cards, by any name.
    pub nic: BTreeMap<String, Nic>,
    /// Services, by the name of their unit: `linerate-links.service`.
    pub services: BTreeMap<String, Service>,
    /// File systems, by a path on them.
    pub disk: BTreeMap<String, Disk>,
    /// The image, if the machine runs one; without it, no rule checks the image.
    pub image: Option<Image>,
    /// The clock; not checked if left out.
    pub time: Option<Time>,
}

/// The kernel.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kernel {
    /// Settings by their `sysctl` names, with their values: numbers, or strings with single spaces between fields.
    pub sysctl: BTreeMap<String, Value>,
    /// Words that the kernel's command line has to contain, exactly as written.
    pub parameters: Vec<String>,
}

/// A value of a sysctl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(String);

impl Value {
    /// The value, with one space between fields. The kernel separates some fields with tabs.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The content of a kernel file, normalised like the values in a profile.
    pub fn read(content: &str) -> Self {
        Self(content.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number, true, false or a text")]
        enum Written {
            Number(i64),
            Truth(bool),
            Text(String),
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Number(number) => Self(number.to_string()),
            Written::Truth(truth) => Self(u8::from(truth).to_string()),
            Written::Text(text) => Self::read(&text),
        })
    }
}

/// CPUs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cpu {
    /// The frequency governor of every CPU; left out in virtual machines, whose frequency the hypervisor sets.
    pub governor: Option<String>,
    /// How many CPUs are online.
    pub threads: Option<usize>,
}

/// A network card: every interface with this driver and, if they are given, this address and name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// The kernel's driver: `ena`, `ixgbe`, `virtio_net`.
    pub driver: String,
    /// The card's address, in lower case.
    #[serde(default)]
    pub mac: Option<String>,
    /// The interface's name.
    #[serde(default)]
    pub interface: Option<String>,
    /// The size of packets in bytes.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// Its channels.
    #[serde(default)]
    pub channels: Channels,
    /// Its rings.
    #[serde(default)]
    pub rings: Rings,
    /// Offloads, by the kernel's own names (`net/ethtool/common.c`; the output of `ethtool --json -k` has most of them):
    /// `rx-gro`, `rx-lro`, `tx-tcp-segmentation`.
    #[serde(default)]
    pub offloads: BTreeMap<String, bool>,
    /// How long it collects packets before it interrupts.
    #[serde(default)]
    pub coalescing: Coalescing,
    /// The queueing discipline of the interface, or of each of its queues if it has several.
    #[serde(default)]
    pub qdisc: Option<String>,
    /// The bandwidth that it may use permanently in each direction, in megabits per second: the baseline of a cloud
    /// instance that may exceed it for a while.
    #[serde(default)]
    pub sustained_mbit: Option<u32>,
    /// Where its queues are served, as for `linerate nic apply`; not checked if left out.
    #[serde(default)]
    pub placement: Option<Placement>,
}

/// Channels of a card.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Channels {
    /// Pairs of queues, one to receive and one to send.
    pub combined: Option<u32>,
}

/// Where queues are served.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Placement {
    /// `spread`, `local`, `pin=LIST` or `reserve=LIST`, as for `linerate nic apply --policy`.
    #[serde(deserialize_with = "parsed")]
    pub policy: Policy,
    /// Whether queues may pass packets on when there are fewer queues than CPUs; false is `--no-rps`.
    pub rps: bool,
}

impl Placement {
    /// The same as a request, for this many queues, or as many as there are.
    pub fn wish(&self, queues: Option<u32>) -> PlacementRequest {
        let steering = if self.rps { Steering::Auto } else { Steering::Off };
        PlacementRequest { policy: self.policy.clone(), steering, queues }
    }
}

impl Default for Placement {
    fn default() -> Self {
        Self { policy: Policy::default(), rps: true }
    }
}

/// A service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// What its processes may use.
    pub limits: Limits,
    /// Where it listens: `IP:PORT`, `localhost:PORT`, `:PORT` (every address) or `unix:PATH`.
    #[serde(deserialize_with = "all_parsed")]
    pub listen: Vec<Address>,
    /// The number of connections that may wait to be accepted, on each TCP address of `listen`.
    pub backlog: Option<u32>,
    /// The only CPUs that its processes may run on: `0-7`. Interrupts may use the same CPUs: a packet that is processed
    /// on the CPU where it arrived is still in the cache.
    #[serde(deserialize_with = "maybe_parsed")]
    pub cpus: Option<Cpus>,
    /// A URL that answers 200 once the service is ready; only `http://`.
    pub ready: Option<String>,
}

/// What a service's processes may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open files of a process (`LimitNOFILE=`).
    pub open_files: Option<u64>,
    /// Processes and threads (`TasksMax=`).
    pub tasks: Option<u64>,
    /// Memory, in bytes (`MemoryMax=`).
    pub memory_bytes: Option<u64>,
}

/// A file system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// How much of it has to be free, in percent of its bytes and of its inodes.
    pub min_free_percent: u8,
}

/// An image. dm-verity checks each block of its store on reading, against the hash in the boot file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Where the store is mounted.
    pub store: String,
    /// Whether the firmware must start only signed files.
    pub secure_boot: bool,
    /// Mounts that have to be encrypted on the disk.
    #[serde(default)]
    pub encrypted: Vec<String>,
}

/// The clock: it has to be synchronised.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Time {
    /// The most that the clock may be off, by the kernel's own estimate (`maxerror` of adjtimex(2)), in milliseconds.
    /// Between two corrections, the kernel adds 0.5 ms per second.
    pub max_error_ms: Option<u64>,
}

/// Why a text isn't a profile.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct ParseError {
    /// The field with the error: `nic.front.rings.rx`.
    pub path: String,
    /// The error.
    pub source: serde_json::Error,
}

impl FromStr for Profile {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let failed = |path: String, source| ParseError { path, source };
        let profile = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| failed(error.path().to_string(), error.into_inner()))?;
        deserializer.end().map_err(|error| failed("end".to_owned(), error))?;
        Ok(profile)
    }
}

/// Deserialises a string with the type's own parser.
fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// Deserialises a string with the type's own parser, or null.
fn maybe_parsed<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
}

/// Deserialises strings with the type's own parser.
fn all_parsed<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_profile_asks_for_nothing() {
        let profile: Profile = "{}".parse().expect("a profile");
        assert!(profile.nic.is_empty() && profile.time.is_none());
    }

    #[test]
    fn values_are_compared_as_the_kernel_means_them() {
        let text =
            r#"{"kernel": {"sysctl": {"a": 1, "b": "1", "c": true, "d": "4096 16384  7", "e": null}}}"#;
        assert!(text.parse::<Profile>().is_err());
        let profile: Profile = text.replace(r#", "e": null"#, "").parse().expect("a profile");
        let sysctl = profile.kernel.sysctl;
        assert!(["a", "b", "c"].iter().all(|name| sysctl[*name] == Value::read("1\n")));
        assert_eq!(sysctl["d"], Value::read("4096\t16384\t7\n"));
    }

    #[test]
    fn a_slip_is_refused_with_its_place() {
        let cases = [
            ("{", "?"),
            (r#"{"kernal": {}}"#, "kernal"),
            (r#"{"nic": {"front": {"driver": "ena", "rings": {"rx": "4096"}}}}"#, "nic.front.rings.rx"),
            (r#"{"nic": {"front": {"mtu": 1500}}}"#, "nic.front"),
            (
                r#"{"nic": {"front": {"driver": "ena", "placement": {"policy": "fair"}}}}"#,
                "nic.front.placement.policy",
            ),
            (r#"{"services": {"a.service": {"listen": ["80"]}}}"#, "services.a.service.listen"),
            (r#"{"services": {"a.service": {"cpus": "x"}}}"#, "services.a.service.cpus"),
            (r#"{"disk": {"/": {"min_free_percent": 256}}}"#, "disk./.min_free_percent"),
            ("{} {}", "end"),
        ];
        for (text, path) in cases {
            assert_eq!(text.parse::<Profile>().expect_err(text).path, path, "{text}");
        }
    }
}
