//! A million routes, and routes made to be slow.

use http::Method;
use router::{BuildError, Builder, Match, Router};

fn find<'r, 'p>(router: &'r Router<u32>, path: &'p str) -> Option<Match<'r, 'p, u32>> {
    router.find(&Method::GET, path).matched()
}

#[test]
fn a_million_routes_match_with_as_few_tries_as_one() {
    const RESOURCES: u32 = 250_000;
    let mut builder = Builder::new();
    let mut routes = 0;
    for resource in 0..RESOURCES {
        for tail in ["", "/{id}", "/{id}/children/{child}", "/static"] {
            builder
                .insert(Method::GET, &format!("/api/v1/resource{resource}{tail}"), routes)
                .expect("a route");
            routes += 1;
        }
    }
    assert_eq!(routes, 1_000_000);
    let router = builder.build().expect("a tree");
    assert_eq!(router.tries(), 7, "root, api/v1, resource, static, id, children, child");
    for resource in (0..RESOURCES).step_by(997).chain([RESOURCES - 1]) {
        let base = format!("/api/v1/resource{resource}");
        assert_eq!(find(&router, &base).map(|found| *found.value), Some(resource * 4));
        let child = format!("{base}/7/children/{resource}");
        let found = find(&router, &child).expect("a route");
        assert_eq!(
            (*found.value, found.param("child")),
            (resource * 4 + 2, Some(resource.to_string().as_str()))
        );
        assert_eq!(
            find(&router, &format!("{base}/static")).map(|found| *found.value),
            Some(resource * 4 + 3)
        );
        assert!(find(&router, &format!("{base}/static/x")).is_none());
    }
    assert!(find(&router, &format!("/api/v1/resource{RESOURCES}")).is_none());
}

/// All routes with `depth` segments, each of which is `a` or a parameter, and a unique last segment.
fn tangle(depth: u32) -> Builder<u32> {
    let mut builder = Builder::new();
    for bits in 0..1_u32 << depth {
        let segments: String = (0..depth)
            .map(|at| if bits >> at & 1 == 0 { "/a".to_owned() } else { format!("/{{p{at}}}") })
            .collect();
        builder.insert(Method::GET, &format!("{segments}/end{bits}"), bits).expect("a route");
    }
    builder
}

/// The number of nodes of that tree: those before the last segment; for each static last segment, one node with its
/// end; and for each parameter as the last segment, one node and its end.
fn nodes(depth: u32) -> u32 {
    (1 << depth) - 1 + (1 << (depth - 1)) * 3
}

#[test]
fn no_path_visits_more_nodes_than_the_tree_allows() {
    let depth = 10;
    let router = tangle(depth).build().expect("a tree");
    assert_eq!(router.tries(), nodes(depth));
    // The worst possible path: it fails in every branch.
    assert!(find(&router, &format!("{}/none", "/a".repeat(depth as usize))).is_none());
    let last = format!("{}/end1023", "/a".repeat(depth as usize));
    assert_eq!(find(&router, &last).map(|found| *found.value), Some(1023));
}

#[test]
fn a_tree_that_could_take_too_long_is_refused() {
    assert_eq!(tangle(12).build().err(), Some(BuildError::TooAmbiguous { tries: nodes(12) }));
}
