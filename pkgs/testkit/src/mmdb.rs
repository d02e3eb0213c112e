//! Makes small files in the MaxMind DB format (maxmind.github.io/MaxMind-DB).

use std::net::IpAddr;

/// Nodes have two records of 24 bits.
const RECORD_BYTES: usize = 3;

/// The separator between the tree and the data.
const SEPARATOR: [u8; 16] = [0; 16];

/// The start of the metadata.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// A record of a node.
#[derive(Clone, Copy)]
enum Record {
    Nothing,
    Node(usize),
    /// Where its data start.
    Data(usize),
}

/// The bytes of a file with this type, such as `Test-Country`. Each network has an address, a prefix length, and a
/// country code; an empty code makes a record without a country. No network may be inside another.
///
/// # Panics
/// When one network is inside another.
pub fn mmdb(kind: &str, networks: &[(&str, u32, &str)]) -> Vec<u8> {
    let (mut nodes, mut data) = (vec![[Record::Nothing; 2]], Vec::new());
    for (address, length, code) in networks {
        // IPv4 addresses are at the start of the IPv6 address space.
        let (bits, length) = match address.parse().expect("an address") {
            IpAddr::V4(address) => (u128::from(address.to_bits()), length + 96),
            IpAddr::V6(address) => (address.to_bits(), *length),
        };
        let mut node = 0;
        for index in 0..length {
            let side = usize::from(bits >> (127 - index) & 1 == 1);
            if index + 1 == length {
                assert!(matches!(nodes[node][side], Record::Nothing), "{address} has another in it");
                nodes[node][side] = Record::Data(data.len());
                break;
            }
            node = match nodes[node][side] {
                Record::Node(next) => next,
                Record::Nothing => {
                    nodes.push([Record::Nothing; 2]);
                    nodes[node][side] = Record::Node(nodes.len() - 1);
                    nodes.len() - 1
                }
                Record::Data(_) => panic!("{address} is in another"),
            };
        }
        data.extend(match *code {
            "" => map(&[("autonomous_system_number", unsigned(6, 64_496, 4))]),
            code => map(&[("country", map(&[("iso_code", string(code))]))]),
        });
    }
    let mut file = Vec::new();
    for record in nodes.as_flattened() {
        let number = match *record {
            Record::Nothing => nodes.len(),
            Record::Node(node) => node,
            Record::Data(offset) => nodes.len() + SEPARATOR.len() + offset,
        };
        file.extend(&number.to_be_bytes()[size_of::<usize>() - RECORD_BYTES..]);
    }
    file.extend(SEPARATOR);
    file.extend(data);
    file.extend(MARKER);
    file.extend(map(&[
        ("binary_format_major_version", unsigned(5, 2, 2)),
        ("binary_format_minor_version", unsigned(5, 0, 2)),
        ("build_epoch", unsigned(9, 1_700_000_000, 8)),
        ("database_type", string(kind)),
        ("description", map(&[])),
        ("ip_version", unsigned(5, 6, 2)),
        ("languages", control(11, 0)),
        ("node_count", unsigned(6, nodes.len() as u64, 4)),
        ("record_size", unsigned(5, 8 * RECORD_BYTES as u64, 2)),
    ]));
    file
}

/// The start of a field with this type. Supports only sizes below 29.
fn control(kind: u8, size: usize) -> Vec<u8> {
    let size = u8::try_from(size).ok().filter(|&size| size < 29).expect("a small field");
    if kind > 7 { vec![size, kind - 7] } else { vec![kind << 5 | size] }
}

fn string(text: &str) -> Vec<u8> {
    [control(2, text.len()), text.as_bytes().to_vec()].concat()
}

fn unsigned(kind: u8, number: u64, bytes: usize) -> Vec<u8> {
    [control(kind, bytes), number.to_be_bytes()[8 - bytes..].to_vec()].concat()
}

fn map(fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let fields = fields.iter().flat_map(|(name, value)| [string(name), value.clone()]);
    std::iter::once(control(7, fields.clone().count() / 2)).chain(fields).flatten().collect()
}
