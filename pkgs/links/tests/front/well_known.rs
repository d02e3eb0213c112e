//! The few paths that aren't links: `/`, `/robots.txt`, `/favicon.ico`.

use crate::server::{Server, settings};

#[test]
fn the_root_says_what_this_is_the_favicon_is_404_and_robots_are_welcome_unless_configured() {
    let server = Server::start(settings());
    let mut client = server.connect();
    for path in ["", "?a=1"] {
        let root = client.get(path).unwrap();
        assert_eq!((root.status, root.value("content-type")), (200, Some("text/html; charset=utf-8")));
        assert!(root.text().contains("Short links are followed here"), "{}", root.text());
    }
    assert_eq!(client.get("favicon.ico").unwrap().status, 404);
    let robots = client.get("robots.txt").unwrap();
    assert_eq!((robots.status, robots.value("content-type")), (200, Some("text/plain")));
    assert_eq!(robots.text(), "User-agent: *\nDisallow:\n");
}

#[test]
fn the_root_the_favicon_and_robots_are_as_configured() {
    let mut configured = settings();
    configured.root_target = Some("https://home.example/".to_owned());
    configured.favicon_target = Some("https://home.example/icon.png".to_owned());
    configured.robots = "User-agent: *\nDisallow: /\n".to_owned();
    let server = Server::start(configured);
    let mut client = server.connect();
    for (path, location) in [("", "https://home.example/"), ("favicon.ico", "https://home.example/icon.png")]
    {
        let answer = client.get(path).unwrap();
        assert_eq!((answer.status, answer.location()), (302, location));
    }
    for path in ["robots.txt", "robots%2etxt", "%72obots.txt?a"] {
        assert_eq!(client.get(path).unwrap().text(), "User-agent: *\nDisallow: /\n", "{path}");
    }
    assert_eq!(client.get("/").unwrap().status, 404, "the path // is not the root");
}
