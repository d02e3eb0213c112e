//! Maps interrupts to queues by the names that drivers give their interrupts.

use serde::Serialize;

/// A line of `/proc/interrupts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number.
    pub irq: u32,
    /// The names under which it was requested; several if it is shared.
    pub actions: Vec<String>,
    /// How often it has occurred, one count per online CPU.
    pub counts: Vec<u64>,
}

/// Parses `/proc/interrupts`. Skips interrupts without a number, which belong to the architecture.
pub fn parse(text: &str) -> Vec<Line> {
    let mut lines = text.lines();
    let cpus = lines.next().map_or(0, |header| header.split_whitespace().count());
    lines.filter_map(|line| parse_line(line, cpus)).collect()
}

fn parse_line(line: &str, cpus: usize) -> Option<Line> {
    let (irq, rest) = line.split_once(':')?;
    let irq = irq.trim().parse().ok()?;
    let mut words = rest.split_whitespace();
    let counts = words.by_ref().take(cpus).map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    // Then come the chip, the hardware number, and the actions, separated by commas. Names contain no spaces.
    let words: Vec<&str> = words.collect();
    let last = words.iter().rposition(|word| !word.ends_with(',')).unwrap_or(0);
    let first = (0..last).rev().take_while(|&index| words[index].ends_with(',')).last().unwrap_or(last);
    let actions = words.get(first..)?.iter().map(|name| name.trim_end_matches(',').to_owned()).collect();
    Some(Line { irq, actions, counts })
}

/// What a queue's interrupt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Received packets.
    Receive,
    /// Sent packets.
    Transmit,
    /// Both.
    Both,
}

/// The queue that an action is for; none if it is for management, for another interface, or unknown.
///
/// These drivers pass the following names to `request_irq`: ENA `<if>-Tx-Rx-N`; ixgbe, igb, igc and bnxt `<if>-TxRx-N`,
/// or `<if>-rx-N` and `<if>-tx-N`; i40e, ice and iavf the same after `<driver>-`; virtio `virtioN-input.M` and
/// `virtioN-output.M`.
pub fn queue_of(action: &str, interface: &str, device: &str, driver: &str) -> Option<(usize, Direction)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { text.parse().ok() } else { None }
    };
    if let Some(queue) = action.strip_prefix(device).and_then(|rest| rest.strip_prefix('-')) {
        for (name, direction) in [("input.", Direction::Receive), ("output.", Direction::Transmit)] {
            if let Some(queue) = queue.strip_prefix(name).and_then(number) {
                return Some((queue, direction));
            }
        }
    }
    let own = action.strip_prefix(driver).and_then(|rest| rest.strip_prefix('-'));
    let queue = own.unwrap_or(action).strip_prefix(interface)?.strip_prefix('-')?;
    [
        ("TxRx-", Direction::Both),
        ("Tx-Rx-", Direction::Both),
        ("rx-", Direction::Receive),
        ("tx-", Direction::Transmit),
    ]
    .into_iter()
    .find_map(|(name, direction)| Some((queue.strip_prefix(name).and_then(number)?, direction)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_names_its_queue_exactly() {
        use Direction::{Both, Receive, Transmit};
        let cases = [
            ("eth0-TxRx-0", Some((0, Both))),
            ("eth0-TxRx-15", Some((15, Both))),
            ("eth0-Tx-Rx-3", Some((3, Both))),
            ("eth0-rx-1", Some((1, Receive))),
            ("eth0-tx-1", Some((1, Transmit))),
            ("ice-eth0-TxRx-7", Some((7, Both))),
            ("virtio2-input.0", Some((0, Receive))),
            ("virtio2-output.11", Some((11, Transmit))),
            // Interrupts for management, and names that only look similar.
            ("eth0", None),
            ("ena-mgmnt@pci:0000:00:05.0", None),
            ("virtio2-config", None),
            ("virtio2-virtqueues", None),
            ("virtio21-input.0", None),
            ("eth01-TxRx-0", None),
            ("xeth0-TxRx-0", None),
            ("eth0-TxRx-", None),
            ("eth0-TxRx-+1", None),
            ("eth0-TxRx-1x", None),
            ("eth0-fdir-TxRx-0", None),
            ("nvme0q1", None),
        ];
        for (action, queue) in cases {
            assert_eq!(queue_of(action, "eth0", "virtio2", "ice"), queue, "{action}");
        }
    }

    #[test]
    fn lines_are_read_whatever_the_chip_is_called() {
        let text = "           CPU0       CPU1       \n \
              24:          1          0  IO-APIC   5-edge      ACPI:Ged\n \
              38:          0      16755 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n \
              39:          2          3  IR-PCI-MSI 524288-edge      eth0-TxRx-0, other\n \
              40:          0          0  dummy\n\
             NMI:          0          0   Non-maskable interrupts\n\
             ERR:          0\n";
        let lines = parse(text);
        let names: Vec<(u32, Vec<&str>)> =
            lines.iter().map(|line| (line.irq, line.actions.iter().map(String::as_str).collect())).collect();
        assert_eq!(
            names,
            [
                (24, vec!["ACPI:Ged"]),
                (38, vec!["virtio2-input.0"]),
                (39, vec!["eth0-TxRx-0", "other"]),
                (40, vec!["dummy"]),
            ]
        );
        assert_eq!(lines[1].counts, [0, 16755]);
    }
}
