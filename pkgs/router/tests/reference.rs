//! Compares precedence with a reference that tries every route. The reference implements the crate's documentation, and
//! shares nothing with the tree.

use http::Method;
use proptest::prelude::*;
use router::Builder;

/// A segment of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Static(String),
    Param { prefix: String, suffix: String },
    Rest,
}

/// The rank of a segment of a route. The route with the lowest rank comes first.
type Rank = (u8, isize, isize, String, String);

impl Piece {
    fn rank(&self) -> Rank {
        match self {
            Self::Static(_) => (0, 0, 0, String::new(), String::new()),
            Self::Param { prefix, suffix } => {
                let literal = (prefix.len() + suffix.len()) as isize;
                (1, -literal, -(prefix.len() as isize), prefix.clone(), suffix.clone())
            }
            Self::Rest => (2, 0, 0, String::new(), String::new()),
        }
    }

    fn text(&self, name: usize) -> String {
        match self {
            Self::Static(text) => text.clone(),
            Self::Param { prefix, suffix } => format!("{prefix}{{p{name}}}{suffix}"),
            Self::Rest => format!("{{*p{name}}}"),
        }
    }
}

/// The values of the route's parameters in the path, if it matches.
fn captures(route: &[Piece], path: &str) -> Option<Vec<String>> {
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let mut found = Vec::new();
    for (at, piece) in route.iter().enumerate() {
        let segment = segments.get(at)?;
        match piece {
            Piece::Static(text) => (text == segment).then_some(())?,
            Piece::Param { prefix, suffix } => {
                let inner = segment.strip_prefix(prefix.as_str())?.strip_suffix(suffix.as_str())?;
                (!inner.is_empty()).then(|| found.push(inner.to_owned()))?;
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
        4 => (literal(), literal()).prop_map(|(prefix, suffix)| Piece::Param { prefix, suffix }),
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
            // Adding the same route twice is the only conflict.
            let added = builder.insert(Method::GET, &text, kept.len());
            prop_assert_eq!(added.is_ok(), !kept.contains(&route), "{}", text);
            if added.is_ok() {
                kept.push(route);
            }
        }
        let router = builder.build().expect("few routes are never too ambiguous");
        for path in &paths {
            let expected = kept
                .iter()
                .enumerate()
                .filter_map(|(index, route)| Some((index, captures(route, path)?)))
                .min_by_key(|(index, _)| kept[*index].iter().map(Piece::rank).collect::<Vec<_>>());
            let found = router.find(&Method::GET, path).matched().map(|found| {
                (*found.value, found.params().map(|(_, value)| value.to_owned()).collect::<Vec<_>>())
            });
            prop_assert_eq!(found, expected, "{}", path);
        }
    }

    #[test]
    fn any_text_is_a_route_or_refused(text in "/[a-c{}*:/%?~é]{0,20}", path in "/[a-c/%~2F]{0,20}") {
        let mut builder = Builder::new();
        if builder.insert(Method::GET, &text, ()).is_ok() {
            let router = builder.build().expect("one route is never ambiguous");
            if let Some(found) = router.find(&Method::GET, &path).matched() {
                prop_assert_eq!(found.pattern(), text.as_str());
            }
        }
    }
}
