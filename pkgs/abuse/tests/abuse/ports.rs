//! Two processes never share a port by accident: the second one is refused.

use abuse::program::{PATIENCE, Place, Program};

use crate::services::{Service, all};

/// Starts a second process of a service, which should listen on the first one's address because of this flag. Checks
/// that it is refused.
fn second(service: &Service, flag: &str, address: &str) -> Result<(), String> {
    let place = Place::new();
    place.file("root/a", "a");
    let mut flags: Vec<String> = match service.name {
        "links" => ["--database", "links.db"].map(str::to_owned).to_vec(),
        "api" => ["--database-url", "sqlite:users.db"].map(str::to_owned).to_vec(),
        _ => ["--root", "root"].map(str::to_owned).to_vec(),
    };
    if flag == "--tls-listen" {
        flags.extend(place.tls_flags().into_iter().skip(2));
    }
    for other in ["--listen", "--admin"] {
        if other != flag {
            flags.extend([other.to_owned(), "127.0.0.1:0".to_owned()]);
        }
    }
    flags.extend([flag.to_owned(), address.to_owned()]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let rival = Program::try_serve(service.name, &place, &flags);
    if let Some(line) = rival.line(service.name) {
        return Err(format!("a second {} serves {line} as well, by {flag} {address}", service.name));
    }
    let status = rival.wait(PATIENCE);
    let said = rival.log();
    if status.code().is_some_and(|code| code > 0) && said.contains(address) {
        Ok(())
    } else {
        Err(format!("a second {} at {flag} {address} ends with {status:?} and says {said:?}", service.name))
    }
}

#[test]
fn a_second_process_is_refused_on_every_port() {
    let mut wrong = Vec::new();
    for service in all(&[]) {
        let flags: Vec<(&str, String)> = service
            .listeners
            .iter()
            .filter(|listener| !listener.http2)
            .map(|listener| {
                let flag = match (listener.admin, listener.door.secure.is_some()) {
                    (true, _) => "--admin",
                    (_, true) => "--tls-listen",
                    _ => "--listen",
                };
                (flag, listener.door.address.to_string())
            })
            .collect();
        for (flag, address) in flags {
            wrong.extend(second(&service, flag, &address).err());
        }
        service.program.assert_runs("a rival");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
