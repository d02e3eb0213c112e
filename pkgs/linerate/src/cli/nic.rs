//! `nic`: the queues of network interfaces.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::{Context, Error, Output, picture};
use crate::cpus::Cpus;
use crate::nic::apply::{self, Applied};
use crate::nic::device::{self, Device};
use crate::nic::plan::{Plan, Steering};
use crate::nic::rings::Memory;
use crate::nic::saved::{self, Store};
use crate::nic::services::Service;
use crate::nic::setting::Subject;
use crate::nic::{self, PlacementPlan, PlacementRequest, Policy, Rss, Setting};
use crate::system::{OpenError, System};
use crate::topology::Topology;

/// Commands for queues.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show where queues would be served; changes nothing.
    Plan(Args),
    /// Place queues as planned. Saves the original settings, and changes an interface completely or not at all.
    Apply(ApplyArgs),
    /// Apply, and apply again whenever a link comes back, channels change, or a minute has passed. If new channels also
    /// changed the rings, these are set again.
    Watch(ApplyArgs),
    /// Compare with the applied plan, or with the given policy; changes nothing.
    Verify(ApplyArgs),
    /// Restore the settings from before the first change.
    Undo(UndoArgs),
}

/// The interfaces, their placement, and where original settings are saved.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    /// The interfaces, and their placement.
    #[command(flatten)]
    pub placement: Args,

    /// Where original settings are saved.
    #[command(flatten)]
    pub state: StateArgs,
}

/// The interfaces to restore.
#[derive(Debug, clap::Args)]
pub struct UndoArgs {
    /// Interfaces. Default: all that were changed.
    #[arg(value_name = "IF")]
    pub interfaces: Vec<String>,

    /// Where original settings are saved.
    #[command(flatten)]
    pub state: StateArgs,
}

/// Where original settings are saved.
#[derive(Debug, clap::Args)]
pub struct StateArgs {
    /// Where to save the settings from before the first change. Default: /run/linerate; nowhere with --machine.
    #[arg(long, value_name = "DIR", env = "LINERATE_STATE")]
    pub state: Option<PathBuf>,
}

impl StateArgs {
    fn store(&self, context: &Context) -> Store {
        match &self.state {
            Some(directory) => Store::at(directory.clone()),
            None if context.rehearsal => Store::nowhere(),
            None => Store::at(PathBuf::from(saved::DIRECTORY)),
        }
    }
}

/// The interfaces, and their placement.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Interfaces. Default: all with a device behind them; for verify without a policy, those that were changed.
    #[arg(value_name = "IF")]
    pub interfaces: Vec<String>,

    /// Which CPUs may serve queues: spread (one per core before siblings, the near NUMA node first), local (only the
    /// near node), pin=LIST (these, in this order) or reserve=LIST (all except these, which are kept for services). A
    /// list is like 0-3,8. Default: spread; for verify, what was applied.
    #[arg(long)]
    pub policy: Option<Policy>,

    /// How many queues the interface should have; changing this restarts them. Default: as many as it has.
    #[arg(long, value_name = "N")]
    pub queues: Option<u32>,

    /// Let no queue pass packets on to CPUs that have none (RPS).
    #[arg(long)]
    pub no_rps: bool,
}

/// The plan, for programs.
#[derive(Debug, Serialize)]
struct Planned<'a> {
    interfaces: Vec<Interface<'a>>,
    services: Vec<Service>,
    irqbalance: Option<u32>,
}

/// An interface, for programs.
#[derive(Debug, Serialize)]
struct Interface<'a> {
    #[serde(flatten)]
    device: &'a Device,
    plan: &'a Plan,
    settings: &'a [Setting],
    #[serde(skip_serializing_if = "Option::is_none")]
    rss: Option<&'a Rss>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

/// Runs the command.
pub fn run(command: Command, context: &mut Context) -> Result<(), Error> {
    match command {
        Command::Plan(args) => plan(&args, context),
        Command::Apply(args) => apply(&args, context),
        Command::Watch(args) => watch(&args, context),
        Command::Verify(args) => verify(&args, context),
        Command::Undo(args) => undo(&args, context),
    }
}

/// The requested interfaces.
fn named(args: &Args, system: &dyn System) -> Result<Vec<String>, Error> {
    Ok(if args.interfaces.is_empty() { device::interfaces(system)? } else { args.interfaces.clone() })
}

/// The requested placement.
fn wish(args: &Args) -> PlacementRequest {
    let steering = if args.no_rps { Steering::Off } else { Steering::Auto };
    PlacementRequest { policy: args.policy.clone().unwrap_or_default(), steering, queues: args.queues }
}

/// Plans the requested interfaces.
fn place(args: &Args, context: &Context) -> Result<(Topology, Vec<PlacementPlan>), Error> {
    let system = &*context.system;
    let topology = Topology::read(system).map_err(Error::Topology)?;
    let place = |name: String| nic::place(system, &topology, &name, &wish(args));
    let placed = named(args, system)?.into_iter().map(place).collect::<Result<_, _>>()?;
    Ok((topology, placed))
}

fn plan(args: &Args, context: &mut Context) -> Result<(), Error> {
    let (topology, placed) = place(args, context)?;
    let why = |placed| if context.explain { nic::reasons(&topology, placed) } else { Vec::new() };
    let interfaces = placed.iter().map(|one| Interface {
        device: &one.device,
        plan: &one.plan,
        settings: &one.settings,
        rss: one.rss.as_ref(),
        reasons: why(one),
    });
    let system = &*context.system;
    let services = nic::services::running(system);
    let planned = Planned { interfaces: interfaces.collect(), services, irqbalance: nic::irqbalance(system) };
    context.output.show(&planned, |planned, output| {
        for interface in &planned.interfaces {
            print(interface, &topology, output)?;
            for Service { unit, cpus } in &planned.services {
                let queues: Cpus = interface.plan.placements.iter().map(|placement| placement.cpu).collect();
                let beside = queues.within(cpus).len();
                output.line(format_args!(
                    "{unit} works on CPUs {cpus}: {beside} of the {} CPUs with queues are among them",
                    queues.len()
                ))?;
            }
        }
        if let Some(pid) = planned.irqbalance {
            output.line(format_args!(
                "irqbalance (process {pid}) runs and would move the interrupts away again"
            ))?;
        }
        Ok(())
    })
}

/// The result for all interfaces, for programs.
#[derive(Debug, Serialize)]
struct Done<T> {
    interfaces: Vec<Explained<T>>,
}

/// The result for an interface, with an explanation if requested.
#[derive(Debug, Serialize)]
struct Explained<T> {
    #[serde(flatten)]
    what: T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

fn apply(args: &ApplyArgs, context: &mut Context) -> Result<(), Error> {
    let names = named(&args.placement, &*context.system)?;
    apply_to(&names, args, context, &mut Memory::default(), true)
}

/// Applies the placement to interfaces. Reports all results or only changes. If channels have changed, restores the
/// remembered rings.
fn apply_to(
    names: &[String],
    args: &ApplyArgs,
    context: &mut Context,
    memory: &mut Memory,
    all: bool,
) -> Result<(), Error> {
    let store = args.state.store(context);
    let system = &*context.system;
    let topology = Topology::read(system).map_err(Error::Topology)?;
    let wish = wish(&args.placement);
    let mut interfaces = Vec::new();
    let mut failed = None;
    for name in names {
        // Explain the plan with the state before the change.
        let reasons = match context.explain {
            true => nic::reasons(&topology, &nic::place(system, &topology, name, &wish)?),
            false => Vec::new(),
        };
        // Restore rings before placing, since that restarts the queues.
        let kept = memory.look(system, name);
        let kept = kept.map_err(|source| Error::Rings { interface: name.clone(), source })?;
        match apply::apply(system, &store, &topology, name, &wish) {
            Ok(what) => {
                let what = Applied { rings: what.rings.clone().or(kept), ..what };
                if all || what.anything() {
                    interfaces.push(Explained { what, reasons });
                }
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    // Interfaces before the failed one are done, so they are shown.
    if all || !interfaces.is_empty() {
        context.output.show(&Done { interfaces }, |done, output| {
            for Explained { what, reasons } in &done.interfaces {
                lines(reasons, output)?;
                let (changed, held) = (what.changed.len(), what.held);
                let channels =
                    what.channels.map_or_else(String::new, |count| format!("{count} channels set, "));
                let rings = if what.rings.is_some() { "rings set again, " } else { "" };
                let rss = if what.rss { "RSS table dealt out anew, " } else { "" };
                let interface = &what.interface;
                output.line(format_args!(
                    "{interface}: {channels}{rings}{rss}{changed} settings changed, {held} held"
                ))?;
                if what.rss_refused {
                    output.line("the driver refuses an even RSS table, left alone")?;
                }
                left_alone(&what.managed, &what.pending, output)?;
            }
            Ok(())
        })?;
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn watch(args: &ApplyArgs, context: &mut Context) -> Result<(), Error> {
    let watched = named(&args.placement, &*context.system)?;
    // Start to listen before the first check, so that nothing in between is missed.
    context.system.changes(Duration::ZERO).map_err(OpenError::Netlink)?;
    let mut memory = Memory::default();
    apply_to(&watched, args, context, &mut memory, true)?;
    loop {
        context.output.flush()?;
        let changed = nic::watch::settled(&*context.system, &watched).map_err(OpenError::Netlink)?;
        // One interface at a time: an interface that is gone or restarting doesn't delay the others, and is checked
        // again at its next notification.
        for name in changed {
            match apply_to(&[name], args, context, &mut memory, false) {
                Err(error @ Error::Output(_)) => return Err(error),
                Err(error) => drop(error.report()),
                Ok(()) => {}
            }
        }
    }
}

fn verify(args: &ApplyArgs, context: &mut Context) -> Result<(), Error> {
    let store = args.state.store(context);
    let system = &*context.system;
    let topology = Topology::read(system).map_err(Error::Topology)?;
    // Where nobody says how it should be, only what was applied does: no other card is wrong.
    let only_applied = args.placement.interfaces.is_empty() && args.placement.policy.is_none();
    let mut interfaces = Vec::new();
    for interface in named(&args.placement, system)? {
        let saved = store.load(&interface)?;
        if only_applied && saved.is_none() {
            continue;
        }
        let wish = match (&args.placement.policy, &saved) {
            (None, Some(saved)) => {
                let unknown = |source| Error::Policy { interface: interface.clone(), source };
                saved.wish().map_err(unknown)?
            }
            _ => wish(&args.placement),
        };
        // Compare with the existing queues: a wrong number of queues is then one finding, not one per queue.
        let placed = nic::place(system, &topology, &interface, &PlacementRequest { queues: None, ..wish })?;
        let what = apply::verify(system, &placed, saved.as_ref());
        let reasons = if context.explain { nic::reasons(&topology, &placed) } else { Vec::new() };
        interfaces.push(Explained { what, reasons });
    }
    let drifted = interfaces.iter().map(|interface| interface.what.wrong()).sum();
    context.output.show(&Done { interfaces }, |done, output| {
        if only_applied && done.interfaces.is_empty() {
            return output.line("Nothing was applied.");
        }
        for Explained { what, reasons } in &done.interfaces {
            lines(reasons, output)?;
            let (interface, policy, held) = (&what.interface, &what.policy, what.held);
            let drifted = what.drifted.len();
            output
                .line(format_args!("{interface}, policy {policy}: {held} settings hold, {drifted} do not"))?;
            if let Some(wanted) = what.channels {
                output.line(format_args!("{interface} should have {wanted} channels and has others"))?;
            }
            if what.uneven {
                output.line(format_args!("{interface}: the RSS table is uneven"))?;
            }
            if drifted > 0 {
                let row = |one: &Setting| {
                    [one.path.clone(), dash(one.now.to_string()), dash(one.wanted.to_string())]
                };
                output.table(["SETTING", "NOW", "PLANNED"], what.drifted.iter().map(row))?;
            }
            left_alone(&what.managed, &what.pending, output)?;
        }
        Ok(())
    })?;
    if drifted == 0 { Ok(()) } else { Err(Error::Drifted(drifted)) }
}

fn undo(args: &UndoArgs, context: &mut Context) -> Result<(), Error> {
    let store = args.state.store(context);
    let names = if args.interfaces.is_empty() { store.interfaces()? } else { args.interfaces.clone() };
    let mut interfaces = Vec::new();
    let mut failed = None;
    for interface in names {
        match apply::undo(&*context.system, &store, &interface) {
            Ok(what) => {
                let explain = |path: &String| format!("{path}: as it was before the first change");
                let reasons =
                    if context.explain { what.restored.iter().map(explain).collect() } else { Vec::new() };
                interfaces.push(Explained { what, reasons });
            }
            // Continue with the other interfaces.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    context.output.show(&Done { interfaces }, |done, output| {
        if done.interfaces.is_empty() {
            return output.line("Nothing to undo.");
        }
        for Explained { what, reasons } in &done.interfaces {
            lines(reasons, output)?;
            let (restored, gone) = (what.restored.len(), what.gone.len());
            let channels =
                what.channels.map_or_else(String::new, |count| format!("{count} channels again, "));
            let rss = if what.rss { "RSS table put back, " } else { "" };
            let interface = &what.interface;
            output.line(format_args!(
                "{interface}: {channels}{rss}{restored} settings put back, {gone} are gone"
            ))?;
        }
        Ok(())
    })?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Prints explanations, if there are any.
fn lines(reasons: &[String], output: &mut Output) -> Result<(), Error> {
    reasons.iter().try_for_each(|reason| output.line(reason))
}

/// Prints which interrupts were left alone, and which move later.
fn left_alone(managed: &[String], pending: &[String], output: &mut Output) -> Result<(), Error> {
    if !managed.is_empty() {
        output.line(format_args!("managed by the kernel, left alone: {}", managed.join(", ")))?;
    }
    if !pending.is_empty() {
        output.line(format_args!("move with their next interrupt: {}", pending.join(", ")))?;
    }
    Ok(())
}

/// Prints an interface for people.
fn print(interface: &Interface<'_>, topology: &Topology, output: &mut Output) -> Result<(), Error> {
    let Interface { device, plan, settings, reasons, rss } = interface;
    output.line(nic::headline(device, plan))?;
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
    lines(reasons, output)?;
    if rss.is_some_and(|rss| !rss.holds()) {
        output.line("The RSS table is uneven and would be dealt out anew.")?;
    }
    let changes = settings.iter().filter(|setting| !setting.holds()).count();
    output.line(match changes {
        0 => "Nothing to change.".to_owned(),
        _ => format!("{changes} of {} settings to change.", settings.len()),
    })
}

/// `0-15 → 0,8`, or the unchanged value.
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
