//! Where servers listen.

/// The address and the port of a `listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    address: String,
    port: String,
}

impl Default for Place {
    /// Where a server listens that says nothing of it.
    fn default() -> Self {
        Self::of("80")
    }
}

impl Place {
    /// Reads the first argument of a `listen`. 80 and 443 are the same port, since a site is answered with TLS and
    /// without.
    pub fn of(text: &str) -> Self {
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let (address, port) = match text.rsplit_once(':') {
            _ if text.starts_with("unix:") => (text, ""),
            Some((address, port)) if is_port(port) => (address, port),
            None if is_port(text) => ("*", text),
            _ => (text, "80"),
        };
        let address = if matches!(address, "0.0.0.0" | "[::]") { "*" } else { address };
        let port = if port == "443" { "80" } else { port };
        Self { address: address.to_ascii_lowercase(), port: port.to_owned() }
    }

    /// Whether it is at port 80 or 443.
    pub fn is_usual(&self) -> bool {
        self.port == "80"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_same_however_they_are_written() {
        for (text, address, port) in [
            ("80", "*", "80"),
            ("*:80", "*", "80"),
            ("[::]:443", "*", "80"),
            ("0.0.0.0", "*", "80"),
            ("[::]", "*", "80"),
            ("8000-8010", "*", "8000-8010"),
            ("127.0.0.1:8080", "127.0.0.1", "8080"),
            ("127.0.0.1", "127.0.0.1", "80"),
            ("[::1]", "[::1]", "80"),
            ("[::1]:8080", "[::1]", "8080"),
            ("Localhost:81", "localhost", "81"),
            ("unix:/run/nginx.sock", "unix:/run/nginx.sock", ""),
        ] {
            let place = Place { address: address.to_owned(), port: port.to_owned() };
            assert_eq!(Place::of(text), place, "{text}");
        }
        assert_eq!(Place::default(), Place::of("[::]:443"));
    }
}
