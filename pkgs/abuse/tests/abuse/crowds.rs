//! Clients that drip, stall, read nothing or say nothing, hundreds on each listener, all at once. Meanwhile other
//! clients are served, these are disconnected at their deadlines, and the service stays within its memory limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use abuse::crowd::{Crowd, Habit, Members};
use abuse::program::{PATIENCE, raise_file_limit};
use abuse::promise::memory_max;
use abuse::{http2, http3};

use crate::services::{Listener, Service, api, files, links};

/// Clients with each habit on each listener.
const EACH: usize = 40;

/// The same over HTTP/3. These clients take this process's CPU time, since no kernel makes their packets.
const EACH_BY_HTTP3: usize = 20;

/// Clients that send without end. Each makes a server answer some thousand requests.
const GREEDY: usize = 12;

/// Slots that the crowds on a service's public listeners leave for others, per listener.
const SPARE: usize = 16;

/// The time between visits, and between the bytes of clients that drip.
const BEAT: Duration = Duration::from_millis(50);

/// The crowds on an HTTP/1.1 listener.
fn plain(listener: &Listener) -> Vec<(&'static str, Habit, usize)> {
    let half = format!("{}Content-Length: 1000\r\n\r\n{{\"half", listener.form).into_bytes();
    let chunk = format!("{}Transfer-Encoding: chunked\r\n\r\n3e8\r\nhalf", listener.form).into_bytes();
    let dripping = format!("{}X: y", listener.form).into_bytes();
    // Between requests, an operator may be silent for a minute longer than --idle-timeout. A client that has sent a
    // request and doesn't read a short answer is in that state too.
    let silent = if listener.admin { 0 } else { EACH };
    vec![
        ("who ask without end and never read", Habit::Greedy(listener.largest.as_bytes().to_vec()), GREEDY),
        ("who ask once and never read", Habit::Deaf(listener.largest.as_bytes().to_vec()), silent),
        ("who say nothing", Habit::Silent, silent),
        ("who drip", Habit::Drip(dripping), EACH),
        ("who send half a form", Habit::Half(half), EACH),
        ("who send half a chunk", Habit::Half(chunk), EACH),
        ("who send half a head", Habit::Half(b"GET / HTTP/1.1\r\nHo".to_vec()), EACH),
    ]
}

/// The crowds on HTTP/2.
fn by_http2(listener: &Listener) -> Vec<(&'static str, Habit, usize)> {
    let target = listener.largest.split(' ').nth(1).expect("a target");
    let get = |stream| http2::request(stream, "GET", target, &[], true);
    let post = http2::request(1, "POST", "/v1/users", &[("content-type", "application/json")], false);
    let wide = u32::MAX >> 1;
    let many: Vec<u8> = (0..100).flat_map(|stream| get(2 * stream + 1)).collect();
    let rapid: Vec<u8> =
        (0..500).flat_map(|stream| [get(2 * stream + 1), http2::reset(2 * stream + 1)].concat()).collect();
    vec![
        ("who shake no hands", Habit::Mute, EACH),
        ("who say nothing", Habit::Silent, EACH),
        ("who drip", Habit::Drip(http2::hello(1 << 16)), EACH),
        (
            "who send half a form",
            Habit::Half([http2::hello(1 << 16), post, http2::data(1, b"{\"half")].concat()),
            EACH,
        ),
        ("who grant nothing", Habit::Half([http2::hello(0), get(1)].concat()), EACH),
        ("who ask a hundred times and never read", Habit::Deaf([http2::hello(wide), many].concat()), GREEDY),
        ("who take everything back", Habit::Half([http2::hello(wide), rapid].concat()), GREEDY),
        (
            "who knock without end and never read",
            Habit::Greedy([http2::hello(wide), http2::ping().repeat(1000)].concat()),
            GREEDY,
        ),
    ]
}

/// The crowds on HTTP/3, for a service where `public` is requested.
fn by_http3(public: &Listener) -> Vec<(&'static str, http3::Habit, usize)> {
    use http3::Habit::{Drip, Fill, Mute, Say, Silent, TakeBack};
    let target = |request: &str| request.split(' ').nth(1).expect("a target").to_owned();
    let media_type = public.form.lines().find_map(|line| line.strip_prefix("Content-Type: "));
    let get = http3::request("GET", &target(public.largest), &[]);
    let post = http3::request(
        "POST",
        &target(&public.form),
        &[("content-type", media_type.unwrap_or("text/plain"))],
    );
    let half_a_head = get[..get.len() / 2].to_vec();
    vec![
        ("who do not end their handshake", Mute, EACH_BY_HTTP3),
        ("who say nothing", Silent, EACH_BY_HTTP3),
        ("who drip a head", Drip(get.clone()), EACH_BY_HTTP3),
        ("who drip a body", Drip([&post[..], &http3::data(b"{").repeat(2)].concat()), EACH_BY_HTTP3),
        ("who send half a form", Say([&post[..], &http3::data(b"{\"half")].concat(), 1), EACH_BY_HTTP3),
        ("who ask and never read", Say(get.clone(), 1), EACH_BY_HTTP3),
        ("who begin a hundred heads", Say(half_a_head, 100), GREEDY),
        ("who ask ten times and never read", Say(get.clone(), 10), GREEDY),
        ("who take everything back", TakeBack(get, 500), GREEDY),
        ("who fill streams that are for nothing", Fill(http3::UNKNOWN), GREEDY),
        ("who fill streams of QPACK", Fill(http3::QPACK), GREEDY),
    ]
}

/// What is wrong with how a server handles crowds, while `visit` sends other clients' requests.
fn hold(
    name: &str,
    visit: impl Fn() -> Result<(), String> + Sync,
    withstand: impl FnOnce() -> Result<Vec<String>, String>,
) -> Vec<String> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let visiting = scope.spawn(|| visit_until(name, &visit, &over));
        let mut wrong = withstand().unwrap_or_else(|why| vec![why]);
        over.store(true, Ordering::Relaxed);
        wrong.extend(visiting.join().expect("no panic").err());
        wrong
    })
}

/// Sends requests again and again, as other clients do, until it is over.
fn visit_until(name: &str, visit: impl Fn() -> Result<(), String>, over: &AtomicBool) -> Result<(), String> {
    let started = Instant::now();
    let mut visits = 0;
    while !over.load(Ordering::Relaxed) {
        visit().map_err(|why| format!("{why}, after {visits} visits and {:?}", started.elapsed()))?;
        visits += 1;
        std::thread::sleep(BEAT);
    }
    println!("{name}: {visits} visits in {:?}", started.elapsed());
    if visits > 0 { Ok(()) } else { Err(format!("{name}: nobody was there to visit")) }
}

/// How long until the crowds of all listeners are gone. Each listener counts the sockets of all, and crowds of others may
/// still be coming.
const GONE: Duration = Duration::from_secs(600);

/// Sends the crowds and waits until the server has disconnected them. Returns what is wrong.
fn withstand(service: &Service, listener: &Listener) -> Result<Vec<String>, String> {
    let habits = if listener.http2 { by_http2(listener) } else { plain(listener) };
    let mut crowds = Vec::new();
    for (name, habit, count) in habits {
        let crowd = listener.door.crowd(name, habit, count);
        crowds.push(crowd.map_err(|why| format!("{}: those {name} are not let in: {why}", listener.name))?);
    }
    let started = Instant::now();
    let mut wrong = show_out(&listener.name, &mut crowds);
    // Clients that never read can't see the end, so this counts the service's sockets. The clients stay.
    let mut sockets = service.program.sockets();
    while sockets > RESERVED && started.elapsed() < GONE {
        std::thread::sleep(BEAT);
        sockets = service.program.sockets();
    }
    if sockets > RESERVED {
        let deaf: usize = crowds.iter().map(Crowd::len).sum();
        wrong.push(format!("{}: {sockets} sockets are still open, for {deaf} who never read", listener.name));
    }
    Ok(wrong)
}

/// The same over HTTP/3. There each client learns of its end, whether it reads or not.
fn withstand_by_http3(name: &str, door: &http3::Door, public: &Listener) -> Result<Vec<String>, String> {
    let mut crowds = Vec::new();
    for (habit_name, habit, count) in by_http3(public) {
        let crowd = door.crowd(habit_name, habit, count);
        crowds.push(crowd.map_err(|why| format!("{name}: those {habit_name} are not let in: {why}"))?);
    }
    Ok(show_out(name, &mut crowds))
}

/// Waits until all clients that can tell have been disconnected. Returns those that haven't.
fn show_out(name: &str, crowds: &mut [impl Members]) -> Vec<String> {
    let started = Instant::now();
    while crowds.iter_mut().map(Members::left).sum::<usize>() > 0 && started.elapsed() < GONE {
        crowds.iter_mut().for_each(Members::drip);
        std::thread::sleep(BEAT);
    }
    let mut wrong = Vec::new();
    for crowd in crowds {
        let left = crowd.left();
        if left > 0 {
            wrong.push(format!("{name}: {left} {} are there after {GONE:?}", crowd.name()));
        }
    }
    wrong
}

/// The sockets that a service has open without clients, and those for visitors of its other listeners.
const RESERVED: usize = 24;

/// Sends crowds to all listeners of a service, and then as many guests as it has room for.
fn hold_all(mut service: Service, room: usize, granted: u64) {
    let service = &mut service;
    let mut wrong: Vec<String> = std::thread::scope(|scope| {
        let shared = &*service;
        let mut holding: Vec<_> = shared
            .listeners
            .iter()
            .map(|listener| {
                let withstand = || withstand(shared, listener);
                scope.spawn(move || hold(&listener.name, || listener.visit(), withstand))
            })
            .collect();
        holding.extend(shared.http3.as_ref().map(|door| {
            scope.spawn(|| {
                let (name, public) = (format!("{}, HTTP/3", shared.name), &shared.listeners[0]);
                // The status of a redirect isn't in the static table, and the client knows only that table.
                let (path, status) =
                    if public.visited == 307 { ("/missing", 404) } else { (public.visit, public.visited) };
                let visit = || match door.get(path) {
                    Ok(told) if told == status => Ok(()),
                    told => Err(format!("{name}: a visitor gets {told:?}")),
                };
                hold(&name, visit, || withstand_by_http3(&name, door, public))
            })
        }));
        holding.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    service.program.assert_runs("a crowd");
    // As many clients as are allowed can connect again, all at the same time.
    let public = &service.listeners[0];
    let mut guests = 0;
    let started = Instant::now();
    while guests < room && started.elapsed() < PATIENCE {
        let let_in: Vec<_> = (0..room).map_while(|_| public.guest().ok()).collect();
        guests = let_in.len();
        drop(let_in);
        // The service needs a moment to see that these are gone.
        std::thread::sleep(BEAT);
    }
    if guests < room {
        wrong.push(format!("{}: {guests} of {room} slots came back", public.name));
    }
    let most = service.program.peak();
    println!("{}: {} MiB of {}", service.name, most >> 20, granted >> 20);
    if most >= granted {
        wrong.push(format!("{}: {} MiB were taken, {} are granted", service.name, most >> 20, granted >> 20));
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), service.program.log());
}

/// Room for the crowds of this many public TCP listeners.
fn room(listeners: usize) -> usize {
    listeners * (6 * EACH + 3 * GREEDY + SPARE)
}

/// The same over HTTP/3, of which there is at most one.
const ROOM_BY_HTTP3: usize = 6 * EACH_BY_HTTP3 + 5 * GREEDY + SPARE;

/// The flags for this room.
fn flags(room: &str) -> [&str; 4] {
    ["--max-connections", room, "--workers", "1"]
}

#[test]
fn links_holds_crowds_on_every_listener() {
    raise_file_limit();
    let room = room(3) + ROOM_BY_HTTP3;
    let cache = 1 << 20;
    let granted = memory_max("links", &[("max-connections", room as u64), ("cache-bytes", cache)]);
    let (text, cache) = (room.to_string(), cache.to_string());
    hold_all(links(&[&flags(&text)[..], &["--cache-bytes", &cache]].concat()), room, granted);
}

#[test]
fn api_holds_crowds_on_every_listener() {
    raise_file_limit();
    let room = room(3) + ROOM_BY_HTTP3;
    let granted = crate::sums::granted(room as u64);
    let (text, cache) = (room.to_string(), crate::sums::CACHE_BYTES.to_string());
    hold_all(api(&[&flags(&text)[..], &["--cache-bytes", &cache]].concat()), room, granted);
}

#[test]
fn files_holds_crowds_on_every_listener() {
    raise_file_limit();
    let room = room(3) + ROOM_BY_HTTP3;
    let text = room.to_string();
    hold_all(files(&flags(&text)), room, FILES_BYTES);
}

/// The memory for files. Its module sets no limit, since the page cache of the files it sends would count. Its flags
/// limit what it keeps itself, by default to 12 MiB. The rest is for a debug build and its connections.
const FILES_BYTES: u64 = 256 << 20;
