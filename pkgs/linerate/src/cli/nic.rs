//! `nic`: the queues of network interfaces.

use serde::Serialize;

use super::{Context, Error, Output, picture};
use crate::nic::device::{self, Device};
use crate::nic::plan::{Plan, Steering};
use crate::nic::setting::Subject;
use crate::nic::{self, Placed, Policy, Setting};
use crate::topology::Topology;

/// What to do with queues.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show where queues would be served; changes nothing.
    Plan(Args),
}

/// Which interfaces, and how.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Interfaces; all that have a device behind them unless some are named.
    #[arg(value_name = "IF")]
    pub interfaces: Vec<String>,

    /// Which CPUs may serve queues: spread (a core each before siblings, the near NUMA node first), local (the near
    /// node alone), pin=LIST (these, in this order) or reserve=LIST (all but these, kept for services). A list is
    /// like 0-3,8.
    #[arg(long, default_value = "spread")]
    pub policy: Policy,

    /// Let no queue hand packets on to CPUs that have none (RPS).
    #[arg(long)]
    pub no_rps: bool,
}

/// What was planned, as programs get it.
#[derive(Debug, Serialize)]
struct Planned<'a> {
    interfaces: Vec<Interface<'a>>,
    irqbalance: Option<u32>,
}

/// One interface, as programs get it.
#[derive(Debug, Serialize)]
struct Interface<'a> {
    #[serde(flatten)]
    device: &'a Device,
    plan: &'a Plan,
    settings: &'a [Setting],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

/// Runs what is asked for.
pub fn run(command: Command, context: &mut Context) -> Result<(), Error> {
    match command {
        Command::Plan(args) => plan(&args, context),
    }
}

/// Plans the interfaces that were asked for.
fn place(args: &Args, context: &Context) -> Result<(Topology, Vec<Placed>), Error> {
    let system = &*context.system;
    let topology = Topology::read(system).map_err(Error::Topology)?;
    let names = match &args.interfaces[..] {
        [] => device::interfaces(system)?,
        names => names.to_vec(),
    };
    let steering = if args.no_rps { Steering::Off } else { Steering::Auto };
    let place = |name: &String| nic::place(system, &topology, name, &args.policy, steering);
    let placed = names.iter().map(place).collect::<Result<_, _>>()?;
    Ok((topology, placed))
}

fn plan(args: &Args, context: &mut Context) -> Result<(), Error> {
    let (topology, placed) = place(args, context)?;
    let why = |placed| if context.explain { nic::reasons(&topology, placed) } else { Vec::new() };
    let interfaces = placed.iter().map(|one| Interface {
        device: &one.device,
        plan: &one.plan,
        settings: &one.settings,
        reasons: why(one),
    });
    let planned = Planned { interfaces: interfaces.collect(), irqbalance: nic::irqbalance(&*context.system) };
    context.output.show(&planned, |planned, output| {
        for interface in &planned.interfaces {
            print(interface, &topology, output)?;
        }
        if let Some(pid) = planned.irqbalance {
            output.line(format_args!(
                "irqbalance (process {pid}) runs and would move the interrupts away again"
            ))?;
        }
        Ok(())
    })
}

/// Prints an interface for people.
fn print(interface: &Interface<'_>, topology: &Topology, output: &mut Output) -> Result<(), Error> {
    let Interface { device, plan, settings, reasons } = interface;
    output.line(headline(device, plan))?;
    output.line("")?;
    let rows = plan.placements.iter().enumerate().map(|(queue, placement)| {
        let of = |kind: fn(&Subject) -> bool| -> Vec<&Setting> {
            settings.iter().filter(|setting| setting.queue == queue && kind(&setting.subject)).collect()
        };
        let irqs = of(|subject| matches!(subject, Subject::Irq { .. }));
        let numbers = irqs.iter().filter_map(|setting| match setting.subject {
            Subject::Irq { irq, .. } => Some(irq.to_string()),
            _ => None,
        });
        [
            queue.to_string(),
            dash(numbers.collect::<Vec<_>>().join(",")),
            dash(irqs.first().map_or_else(String::new, |setting| setting.now.to_string())),
            placement.cpu.to_string(),
            change(of(|subject| *subject == Subject::Rps)),
            change(of(|subject| *subject == Subject::Xps)),
        ]
    });
    output.table(["QUEUE", "IRQ", "CPU NOW", "CPU", "RPS", "XPS"], rows)?;
    output.line("")?;
    for line in picture::draw(topology, plan) {
        output.line(line)?;
    }
    output.line("")?;
    for reason in reasons {
        output.line(reason)?;
    }
    let changes = settings.iter().filter(|setting| !setting.holds()).count();
    output.line(match changes {
        0 => "Nothing to change.".to_owned(),
        _ => format!("{changes} of {} settings to change.", settings.len()),
    })
}

/// `eth0: ena at 0000:00:05.0, node 0, 8 of 16 channels, 9 vectors; policy spread on CPUs 0-15`
fn headline(device: &Device, plan: &Plan) -> String {
    let mut text = format!("{}: {} at {}", device.interface, device.driver, device.device);
    if let Some(node) = device.node {
        text.push_str(&format!(", node {node}"));
    }
    text.push_str(&match device.channels {
        Some(channels) if channels.max_combined > 0 => {
            format!(", {} of {} channels", channels.combined, channels.max_combined)
        }
        _ => format!(", {} queues", device.queues.len()),
    });
    format!("{text}, {} vectors; policy {} on CPUs {}", device.vectors, plan.policy, plan.allowed)
}

/// `0-15 → 0,8`, or what stays.
fn change(settings: Vec<&Setting>) -> String {
    match settings.first() {
        None => dash(String::new()),
        Some(setting) if setting.holds() => dash(setting.now.to_string()),
        Some(setting) => {
            format!("{} → {}", dash(setting.now.to_string()), dash(setting.wanted.to_string()))
        }
    }
}

fn dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}
