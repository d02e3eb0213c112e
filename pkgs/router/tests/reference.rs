//! Precedence against a reference that tries every route: what the crate's documentation says, and
//! nothing of how the tree does it.

use proptest::prelude::*;
use router::matcher::Builder;

/// A segment of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Static(String),
    Param { prefix: String, kind: Option<&'static str>, suffix: String },
    Rest,
}

/// What decides between routes at one segment: less is first.
type Rank = (u8, isize, isize, usize, String, String);

const KINDS: [&str; 3] = ["u8", "i32", "uuid"];

impl Piece {
    fn rank(&self) -> Rank {
        match self {
            Self::Static(_) => (0, 0, 0, 0, String::new(), String::new()),
            Self::Param { prefix, kind, suffix } => {
                let class = if kind.is_some() { 1 } else { 2 };
                let kind = kind.and_then(|kind| KINDS.iter().position(|known| *known == kind)).unwrap_or(0);
                let literal = (prefix.len() + suffix.len()) as isize;
                (class, -literal, -(prefix.len() as isize), kind, prefix.clone(), suffix.clone())
            }
            Self::Rest => (3, 0, 0, 0, String::new(), String::new()),
        }
    }

    fn text(&self, name: usize) -> String {
        match self {
            Self::Static(text) => text.clone(),
            Self::Param { prefix, kind: Some(kind), suffix } => format!("{prefix}{{p{name}:{kind}}}{suffix}"),
            Self::Param { prefix, kind: None, suffix } => format!("{prefix}{{p{name}}}{suffix}"),
            Self::Rest => format!("{{*p{name}}}"),
        }
    }
}

/// What the route's parameters are in the path, if it matches.
fn captures(route: &[Piece], path: &str) -> Option<Vec<String>> {
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let mut found = Vec::new();
    for (at, piece) in route.iter().enumerate() {
        let segment = segments.get(at)?;
        match piece {
            Piece::Static(text) => (text == segment).then_some(())?,
            Piece::Param { prefix, kind, suffix } => {
                let inner = segment.strip_prefix(prefix.as_str())?.strip_suffix(suffix.as_str())?;
                let accepted = match kind {
                    None => !inner.is_empty(),
                    Some("u8") => inner.parse::<u8>().is_ok(),
                    Some("i32") => inner.parse::<i32>().is_ok(),
                    Some(_) => {
                        let groups: Vec<&str> = inner.split('-').collect();
                        groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
                            && groups.concat().bytes().all(|byte| byte.is_ascii_hexdigit())
                    }
                };
                accepted.then(|| found.push(inner.to_owned()))?;
            }
            Piece::Rest => {
                let rest = segments[at..].join("/");
                return (!rest.is_empty()).then(|| {
                    found.push(rest);
                    found
                });
            }
        }
    }
    (segments.len() == route.len()).then_some(found)
}

fn piece() -> impl Strategy<Value = Piece> {
    let literal =
        || prop_oneof![Just(String::new()), Just("a".to_owned()), Just("b".to_owned()), Just("-".to_owned())];
    prop_oneof![
        4 => prop_oneof![Just(""), Just("a"), Just("b"), Just("aa"), Just("1"), Just("12"), Just("a1"), Just("segment-of-more-than-sixteen-bytes")]
            .prop_map(|text| Piece::Static(text.to_owned())),
        4 => (literal(), proptest::option::of(proptest::sample::select(&KINDS[..])), literal())
            .prop_map(|(prefix, kind, suffix)| Piece::Param { prefix, kind, suffix }),
    ]
}

fn route() -> impl Strategy<Value = Vec<Piece>> {
    (proptest::collection::vec(piece(), 1..5), any::<bool>()).prop_map(|(mut pieces, rest)| {
        if rest {
            pieces.push(Piece::Rest);
        }
        pieces
    })
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        4 => prop_oneof![Just(""), Just("a"), Just("b"), Just("aa"), Just("1"), Just("12"), Just("300"), Just("-5"), Just("a1"), Just("ab"), Just("a1b"), Just("-"), Just("b12-"), Just("segment-of-more-than-sixteen-bytes"), Just("67e55044-10b1-426f-9247-bb680e5fe0c8")]
            .prop_map(str::to_owned),
        1 => "[ab1-]{0,3}",
    ];
    proptest::collection::vec(segment, 1..6).prop_map(|segments| format!("/{}", segments.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_tree_finds_what_the_reference_finds(
        routes in proptest::collection::vec(route(), 1..25),
        paths in proptest::collection::vec(path(), 1..40),
    ) {
        let mut kept: Vec<&Vec<Piece>> = Vec::new();
        let mut builder = Builder::new();
        for route in &routes {
            let text: String = route.iter().enumerate().map(|(at, piece)| format!("/{}", piece.text(at))).collect();
            // The same route twice is the only conflict.
            let added = builder.insert(&text, kept.len());
            prop_assert_eq!(added.is_ok(), !kept.contains(&route), "{}", text);
            if added.is_ok() {
                kept.push(route);
            }
        }
        let matcher = builder.build().expect("few routes are never too ambiguous");
        for path in &paths {
            let expected = kept
                .iter()
                .enumerate()
                .filter_map(|(index, route)| Some((index, captures(route, path)?)))
                .min_by_key(|(index, _)| kept[*index].iter().map(Piece::rank).collect::<Vec<_>>());
            let found = matcher.find(path).map(|found| {
                (*found.value, found.params().map(|(_, value)| value.to_owned()).collect::<Vec<_>>())
            });
            prop_assert_eq!(found, expected, "{}", path);
        }
    }

    #[test]
    fn any_text_is_a_route_or_refused(text in "/[a-c{}*:/%?~é]{0,20}", path in "/[a-c/%~2F]{0,20}") {
        let mut builder = Builder::new();
        if builder.insert(&text, ()).is_ok() {
            let matcher = builder.build().expect("one route is never ambiguous");
            if let Some(found) = matcher.find(&path) {
                prop_assert_eq!(found.route(), text.as_str());
            }
        }
    }
}
