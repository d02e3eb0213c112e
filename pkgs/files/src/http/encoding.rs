//! The content coding of a file (RFC 9110, section 12.5.3).

use super::head::Values;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Brotli: RFC 7932.
    Brotli,
    /// Zstandard: RFC 8878.
    Zstd,
    /// gzip: RFC 1952.
    Gzip,
}

impl Coding {
    /// All codings. Of two with the same weight, the first is sent.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// Its name in `Accept-Encoding` and `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// The suffix of a file in this coding.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }
}

/// The preferred coding among those for which `has` is true; none if the plain file is preferred as much.
///
/// If nothing is acceptable, the plain file is sent, which RFC 9110 permits and all servers do.
pub fn choose(accepted: &Values<'_>, has: impl Fn(Coding) -> bool) -> Option<Coding> {
    if accepted.is_absent() {
        return None;
    }
    let weight = |name: &str| weight(accepted, name);
    let identity = weight("identity");
    let mut best = None;
    for coding in Coding::ALL {
        if !has(coding) {
            continue;
        }
        let weight = weight(coding.name()).or(weight_of_rest(accepted)).unwrap_or(0);
        // If identity is not named, it is acceptable, but named codings are preferred.
        let floor = best.map_or(identity.unwrap_or(1).max(1), |(_, weight)| weight + 1);
        if weight >= floor {
            best = Some((coding, weight));
        }
    }
    best.map(|(coding, _)| coding)
}

fn weight_of_rest(accepted: &Values<'_>) -> Option<u16> {
    weight(accepted, "*")
}

/// The weight of a coding in thousandths; none if it is not named.
fn weight(accepted: &Values<'_>, name: &str) -> Option<u16> {
    let elements = accepted.lines().flat_map(|line| line.split(|byte| *byte == b','));
    elements
        .filter_map(|element| {
            let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let coding = parts.next()?;
            let known = coding.eq_ignore_ascii_case(name.as_bytes())
                || (name == "gzip" && coding.eq_ignore_ascii_case(b"x-gzip"));
            known.then(|| parts.next().map_or(1000, quality))
        })
        .next()
}

/// `q=0.5` in thousandths. A malformed weight counts as 0.
fn quality(parameter: &[u8]) -> u16 {
    let Some(value) = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q=")) else {
        return 0;
    };
    let (whole, fraction) = match value {
        [whole] => (whole, &b""[..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return 0,
    };
    let mut digits = fraction.iter().chain(b"000").take(3);
    let thousandths = digits
        .try_fold(0, |sum: u16, digit| digit.is_ascii_digit().then(|| sum * 10 + u16::from(digit - b'0')));
    match (whole, thousandths) {
        (b'0', Some(thousandths)) => thousandths,
        (b'1', Some(0)) => 1000,
        _ => 0,
    }
}

/// Whether a name has the suffix of a coding.
pub fn is_of_coding(name: &[u8]) -> bool {
    Coding::ALL.into_iter().any(|coding| name.ends_with(coding.suffix().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_welcome_coding_is_chosen() {
        use Coding::{Brotli, Gzip, Zstd};
        let cases: [(&[&str], &[Coding], Option<Coding>); 21] = [
            (&[], &Coding::ALL, None),
            (&[""], &Coding::ALL, None),
            (&["gzip"], &Coding::ALL, Some(Gzip)),
            (&["x-gzip"], &Coding::ALL, Some(Gzip)),
            (&["gzip, br, zstd"], &Coding::ALL, Some(Brotli)),
            (&["gzip", "br"], &Coding::ALL, Some(Brotli)),
            (&["gzip, br"], &[Gzip], Some(Gzip)),
            (&["gzip;q=1.0, br;q=0.5"], &Coding::ALL, Some(Gzip)),
            (&["gzip;q=0.5, zstd;q=0.7 , br;q=0.6"], &Coding::ALL, Some(Zstd)),
            (&["GZIP"], &Coding::ALL, Some(Gzip)),
            (&["*"], &Coding::ALL, Some(Brotli)),
            (&["*;q=0.5, br;q=0"], &Coding::ALL, Some(Zstd)),
            (&["gzip;q=0"], &Coding::ALL, None),
            (&["gzip;q=0.000"], &Coding::ALL, None),
            (&["gzip;q=0.5, identity"], &Coding::ALL, None),
            (&["gzip;q=0.5, identity;q=0.5"], &Coding::ALL, Some(Gzip)),
            (&["identity;q=0, gzip;q=0.001"], &Coding::ALL, Some(Gzip)),
            (&["gzip;q=2"], &Coding::ALL, None),
            (&["gzip;q=x, br"], &Coding::ALL, Some(Brotli)),
            (&["br;q=0.+5, gzip"], &Coding::ALL, Some(Gzip)),
            (&["deflate"], &Coding::ALL, None),
        ];
        for (lines, has, expected) in cases {
            let values = lines.iter().map(|line| line.as_bytes()).collect();
            assert_eq!(choose(&values, |coding| has.contains(&coding)), expected, "{lines:?}");
        }
    }
}
