//! Queues: the planned and the actual CPU of each queue, and its traffic, updated each second.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::{Screen, csrf, live, operation, page as shown, text};
use crate::app::App;
use crate::fields::Fields;
use crate::machine::{Cpu, Interface, Queue, QueueChange, Queues};
use crate::visitor::Visitor;

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    screen(&app, &visitor, StatusCode::OK, None).await
}

/// Places an interface's queues, or restores the previous state. Then reports the new state.
pub(crate) async fn place(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, (Screen::Queues, "Queues")).await {
        return response;
    }
    let interface = fields.get("interface").to_owned();
    let change = match fields.get("action") {
        "apply" => QueueChange::Apply { interface: interface.clone() },
        "undo" => QueueChange::Undo { interface: interface.clone() },
        _ => {
            let why = Err("queues are either placed or put back".to_owned());
            return screen(&app, &visitor, StatusCode::UNPROCESSABLE_ENTITY, Some(why)).await;
        }
    };
    let known = app.queues().await.map(|(_, now)| now);
    if !known.is_ok_and(|queues| queues.interfaces.iter().any(|one| one.name == interface)) {
        let why = Err("no interface here is called that".to_owned());
        return screen(&app, &visitor, StatusCode::UNPROCESSABLE_ENTITY, Some(why)).await;
    }
    let action = if matches!(change, QueueChange::Apply { .. }) { "queues.apply" } else { "queues.undo" };
    let (machine, by) = (Arc::clone(&app.machine), operation::by(&visitor));
    // The change completes even if the visitor no longer waits for it.
    let done = tokio::task::spawn_blocking(move || machine.change(&change, &by)).await;
    let done = done.unwrap_or_else(|error| Err(error.to_string()));
    operation::note(&app, &visitor, action, &interface, done.is_ok()).await;
    let status = if done.is_ok() { StatusCode::OK } else { StatusCode::CONFLICT };
    let seen = app.queues_anew().await;
    let done = done.map(|done| format!("{done}. {}", afterwards(seen, &interface)));
    screen(&app, &visitor, status, Some(done)).await
}

/// The state of an interface after a change.
fn afterwards(seen: Result<Queues, String>, interface: &str) -> String {
    match seen {
        Err(why) => format!("What is so now cannot be told: {why}"),
        Ok(queues) => match queues.interfaces.iter().find(|one| one.name == interface) {
            None => "The interface is gone.".into(),
            Some(Interface { error: Some(why), .. }) => format!("What is so now cannot be told: {why}"),
            Some(Interface { changes: 0, .. }) => "Looked at again, all of it is as planned.".into(),
            Some(one) => format!(
                "Looked at again, {} of {} differ from the plan.",
                one.changes,
                text::number(one.settings, "setting", "settings")
            ),
        },
    }
}

/// The possible actions, for users who may use them.
fn actions(visitor: &Visitor, names: &[String]) -> Markup {
    html! {
        table.cards {
            thead { tr { th scope="col" { "Interface" } th scope="col" { "As planned" } th scope="col" { "As it was" } } }
            tbody { @for name in names { tr {
                th scope="row" { (name) }
                @for (action, label) in [("apply", "Apply the plan"), ("undo", "Undo")] {
                    td { form method="post" action="/queues" {
                        (csrf(visitor))
                        input type="hidden" name="interface" value=(name);
                        button name="action" value=(action) aria-label={ (label) ", " (name) } { (label) }
                    } }
                }
            } } }
        }
        p.hint { "Channels and rings that the plan sets restart the interface's queues. Undo puts back what was there before the first change since the machine has booted." }
    }
}

async fn screen(
    app: &Arc<App>,
    visitor: &Visitor,
    status: StatusCode,
    done: Option<Result<String, String>>,
) -> Response {
    let map = map(Arc::clone(app)).await;
    let names =
        app.queues().await.map(|(_, now)| now.interfaces.into_iter().map(|one| one.name).collect::<Vec<_>>());
    let names = names.unwrap_or_default();
    let may = app.machine.helped()
        && !names.is_empty()
        && operation::may_see_all(app, visitor).await.unwrap_or(false);
    let content = html! {
        h1 { "Queues" }
        @match &done {
            None => {},
            Some(Ok(done)) => p.done role="status" { (done) },
            Some(Err(why)) => p.alert role="alert" { "Nothing was changed: " (why) },
        }
        div hx-ext="sse" sse-connect="/live/queues" sse-close=(live::OVER) { div #map sse-swap="queues" { (map) } }
        h2 { "To change it" }
        @if may { (actions(visitor, &names)) p { "Or in a shell:" } }
        @else if app.machine.helped() && !names.is_empty() { p { "Keys of linerate-links that may write at all domains may place queues here; so may root, in a shell:" } }
        @else if !app.machine.helped() { p { "Root places queues; this console only looks." } }
        pre tabindex="0" { code { "linerate nic plan --explain\nsudo linerate nic apply\nsudo linerate nic undo" } }
    };
    shown(status, (app, visitor), (Screen::Queues, "Queues"), content)
}

/// The map, updated each second.
pub(crate) async fn live(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    live::events(&app, visitor, "queues", map)
}

/// The change per second since an earlier reading.
struct Since<'a> {
    before: Option<&'a Queues>,
    seconds: f64,
}

impl Since<'_> {
    /// `12.3 k`, or a dash if there is no earlier reading.
    fn rate(&self, before: Option<u64>, now: u64) -> String {
        text::or_none(self.grew(before, now), text::count)
    }

    fn grew(&self, before: Option<u64>, now: u64) -> Option<f64> {
        let grew = now.checked_sub(before?)?;
        (self.seconds > 0.0).then(|| grew as f64 / self.seconds)
    }

    fn interface(&self, name: &str) -> Option<&Interface> {
        self.before?.interfaces.iter().find(|interface| interface.name == name)
    }

    fn cpu(&self, id: usize) -> Option<&Cpu> {
        self.before?.cpus.iter().find(|cpu| cpu.id == id)
    }
}

/// The part that updates by itself.
async fn map(app: Arc<App>) -> Markup {
    match app.queues().await {
        Err(why) => html! { p.alert role="alert" { "The queues cannot be told: " (why) } },
        Ok((before, now)) => {
            let millis = before.as_ref().map_or(0, |before| now.at_millis.saturating_sub(before.at_millis));
            let since = Since { before: before.as_ref(), seconds: millis as f64 / 1000.0 };
            html! {
                @if let Some(pid) = now.irqbalance {
                    p.alert { "irqbalance (process " (pid) ") runs and moves interrupts away again." }
                }
                @if now.interfaces.is_empty() {
                    p.empty { "No network interface here has a device behind it, so there are no queues to place." }
                }
                @for interface in &now.interfaces { (of_interface(interface, &now, &since)) }
                (cpus(&now, &since))
                @if !now.services.is_empty() {
                    h2 { "Services" }
                    dl.pairs { @for (unit, cpus) in &now.services { div { dt { (unit) } dd { "CPUs " (cpus) } } } }
                }
            }
        }
    }
}

fn of_interface(interface: &Interface, all: &Queues, since: &Since<'_>) -> Markup {
    let before = since.interface(&interface.name);
    let rate = |before: Option<u64>, now| since.rate(before, now);
    html! {
        section.card.wide aria-label=(interface.name) {
            header {
                h2 { (interface.name) }
                @if interface.error.is_none() {
                    @if interface.changes == 0 { span.badge.good { "as planned" } }
                    @else { span.badge.warning { (interface.changes) " of " (text::number(interface.settings, "setting", "settings")) " to change" } }
                }
            }
            p.hint { (interface.about) @if !interface.policy.is_empty() { "; policy " (interface.policy) } }
            @if let Some(error) = &interface.error { p.alert { (error) } }
            dl {
                div { dt { "In" } dd { (rate(before.map(|b| b.packets.0), interface.packets.0)) " packets/s, "
                    (text::or_none(since.grew(before.map(|b| b.bytes.0), interface.bytes.0), |bytes| format!("{}/s", text::bytes(bytes)))) } }
                div { dt { "Out" } dd { (rate(before.map(|b| b.packets.1), interface.packets.1)) " packets/s, "
                    (text::or_none(since.grew(before.map(|b| b.bytes.1), interface.bytes.1), |bytes| format!("{}/s", text::bytes(bytes)))) } }
                div { dt { "Dropped" } dd { (text::grouped(interface.dropped)) @if let Some(rate) = since.grew(before.map(|b| b.dropped), interface.dropped) { ", " (text::count(rate)) "/s" } } }
            }
            table.cards {
                thead { tr {
                    th.number scope="col" { "Queue" } th scope="col" { "Interrupt" } th.number scope="col" { "Interrupts/s" }
                    th scope="col" { "CPU now" } th scope="col" { "CPU planned" } th scope="col" { "Core, node" }
                    th scope="col" { "RPS" } th scope="col" { "XPS" }
                } }
                tbody { @for queue in &interface.queues { (of_queue(queue, before, all, since)) } }
            }
            @if !interface.reasons.is_empty() {
                h3 { "What the plan would change, and why" }
                ul.reasons { @for reason in &interface.reasons { li { (reason) } } }
            }
        }
    }
}

fn of_queue(queue: &Queue, before: Option<&Interface>, all: &Queues, since: &Since<'_>) -> Markup {
    let before =
        before.and_then(|interface| interface.queues.get(queue.number)).map(|queue| queue.interrupts);
    let irqs: Vec<String> = queue.irqs.iter().map(u32::to_string).collect();
    let planned = queue.cpu.to_string();
    let misplaced = !queue.cpu_now.is_empty() && queue.cpu_now != planned;
    let core = all.cpus.iter().find(|cpu| cpu.id == queue.cpu);
    html! {
        tr class=[misplaced.then_some("off")] {
            th.number scope="row" { span.only-card { "Queue " } (queue.number) }
            td data-label="Interrupt" { (none(&irqs.join(", "))) }
            td.number data-label="Interrupts/s" { (since.rate(before, queue.interrupts)) }
            td data-label="CPU now" { (none(&queue.cpu_now)) @if misplaced { " " span.badge.warning { "elsewhere" } } }
            td data-label="CPU planned" { (planned) }
            td data-label="Core, node" { @if let Some(cpu) = core { (cpu.core) ", " (cpu.node) } }
            td data-label="RPS" { (change(queue.rps.as_ref())) }
            td data-label="XPS" { (change(queue.xps.as_ref())) }
        }
    }
}

/// `0-15 → 0,8`, or only the value if it doesn't change.
fn change(setting: Option<&(String, String)>) -> String {
    match setting {
        None => none("").to_owned(),
        Some((now, wanted)) if now == wanted => none(now).to_owned(),
        Some((now, wanted)) => format!("{} → {}", none(now), none(wanted)),
    }
}

fn none(text: &str) -> &str {
    if text.is_empty() { "–" } else { text }
}

fn cpus(all: &Queues, since: &Since<'_>) -> Markup {
    html! {
        section aria-labelledby="cpus" {
            h2 #cpus { "CPUs" }
            table.cards {
                thead { tr {
                    th.number scope="col" { "CPU" } th scope="col" { "Core, node" } th scope="col" { "Queues" }
                    th.number scope="col" { "Packets/s" } th.number scope="col" { "Softirq" } th.number scope="col" { "Busy" }
                    th.number scope="col" { "Dropped/s" } th.number scope="col" { "Squeezed/s" }
                } }
                tbody { @for cpu in &all.cpus { (of_cpu(cpu, all, since)) } }
            }
            p.hint {
                "Softirq is the share of a CPU's time that the kernel spends on packets. Dropped are packets that found the backlog full, "
                "squeezed rounds that ended with packets left (net.core.netdev_budget); beside each is how many since the boot."
            }
        }
    }
}

fn of_cpu(cpu: &Cpu, all: &Queues, since: &Since<'_>) -> Markup {
    let before = since.cpu(cpu.id);
    let share = |of: fn(&Cpu) -> u64| {
        let before = before?;
        let time = cpu.ticks.all.checked_sub(before.ticks.all).filter(|time| *time > 0)?;
        Some(of(cpu).checked_sub(of(before))? as f64 / time as f64)
    };
    let served = all.interfaces.iter().flat_map(|interface| {
        let queues = interface.queues.iter().filter(|queue| queue.cpu_now == cpu.id.to_string());
        queues.map(move |queue| format!("{} {}", interface.name, queue.number))
    });
    let served: Vec<String> = served.collect();
    let softirq = share(|cpu| cpu.ticks.softirq);
    let busy = share(|cpu| cpu.ticks.all.saturating_sub(cpu.ticks.idle));
    html! {
        tr {
            th.number scope="row" { span.only-card { "CPU " } (cpu.id) }
            td data-label="Core, node" { (cpu.core) ", " (cpu.node) }
            td data-label="Queues" { (none(&served.join(", "))) }
            td.number data-label="Packets/s" { (since.rate(before.map(|cpu| cpu.processed), cpu.processed)) }
            td.number data-label="Softirq" { (text::or_none(softirq, text::percent)) }
            td.number data-label="Busy" { (text::or_none(busy, text::percent)) @if let Some(busy) = busy { " " meter min="0" max="1" value=(format!("{busy:.3}")) aria-hidden="true" {} } }
            (lost("Dropped/s", since.rate(before.map(|cpu| cpu.dropped), cpu.dropped), cpu.dropped))
            (lost("Squeezed/s", since.rate(before.map(|cpu| cpu.squeezed), cpu.squeezed), cpu.squeezed))
        }
    }
}

/// The current rate of losses, and their number since boot if there were any.
fn lost(label: &str, rate: String, all: u64) -> Markup {
    html! { td.number data-label=(label) { (rate) @if all > 0 { " " span.hint { "(" (text::grouped(all)) ")" } } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cpu_loses_is_told_by_the_second() {
        let cpu = |dropped, squeezed| Cpu { dropped, squeezed, ..Cpu::default() };
        let before = Queues { cpus: vec![cpu(100, 7)], ..Queues::default() };
        let since = Since { before: Some(&before), seconds: 2.0 };
        let row = of_cpu(&cpu(140, 7), &before, &since).into_string();
        for cell in
            ["data-label=\"Dropped/s\">20 <span class=\"hint\">(140)", "data-label=\"Squeezed/s\">0 <"]
        {
            assert!(row.contains(cell), "{cell}: {row}");
        }
        let row = of_cpu(&cpu(0, 0), &before, &Since { before: None, seconds: 0.0 }).into_string();
        assert!(row.contains("data-label=\"Dropped/s\">–</td>"), "{row}");
    }

    #[test]
    fn rates_are_of_what_was_seen_before() {
        let since = Since { before: None, seconds: 2.0 };
        for (before, now, rate) in
            [(Some(10), 30, "10"), (None, 30, "–"), (Some(31), 30, "–"), (Some(30), 30, "0")]
        {
            assert_eq!(since.rate(before, now), rate, "{before:?} {now}");
        }
        assert_eq!(Since { before: None, seconds: 0.0 }.rate(Some(1), 2), "–");
    }

    #[test]
    fn settings_are_shown_as_they_are_and_shall_be() {
        let pair = |now: &str, wanted: &str| Some((now.to_owned(), wanted.to_owned()));
        assert_eq!(change(pair("0-3", "0").as_ref()), "0-3 → 0");
        assert_eq!(change(pair("", "1").as_ref()), "– → 1");
        assert_eq!([change(pair("1", "1").as_ref()), change(None)], ["1", "–"]);
    }
}
