//! Finds the route for a path, and the positions of its parameters. The router also checks the method, which the others
//! don't.

use std::hint::black_box;

use criterion::{BenchmarkGroup, measurement::WallTime};

use crate::lines::Line;

/// Measures all peers that match.
pub fn measure(group: &mut BenchmarkGroup<'_, WallTime>, line: &Line) {
    let path = line.path;

    let mut builder = router::Builder::new();
    for (route, methods) in line.routes {
        for method in *methods {
            builder.insert(method.clone(), route, ()).expect("a route");
        }
    }
    let router = builder.build().expect("a tree");
    group.bench_function("router", |b| {
        b.iter(|| {
            line.each(|| router.find(black_box(&line.method), black_box(path)).matched().expect("a route"))
        });
    });

    let mut matchit = matchit::Router::new();
    for (route, _) in line.routes {
        matchit.insert(*route, ()).expect("a route");
    }
    group.bench_function("matchit", |b| {
        b.iter(|| line.each(|| matchit.at(black_box(path)).expect("a route")))
    });

    let mut path_tree = path_tree::PathTree::new();
    for (route, _) in line.routes {
        // path-tree's parameters are written `:name`.
        let _ = path_tree.insert(&route.replace('{', ":").replace('}', ""), ());
    }
    group.bench_function("path-tree", |b| {
        b.iter(|| line.each(|| path_tree.find(black_box(path)).expect("a route")))
    });

    let mut actix = actix_router::Router::<()>::build();
    for (route, _) in line.routes {
        actix.path(*route, ());
    }
    let actix = actix.finish();
    group.bench_function("actix-router", |b| {
        b.iter(|| {
            line.each(|| {
                let mut path = actix_router::Path::new(black_box(path));
                assert!(actix.recognize(&mut path).is_some());
                path
            });
        });
    });
}

impl Line {
    /// Runs `what` as often as the line has requests.
    fn each<T>(&self, mut what: impl FnMut() -> T) {
        for _ in 0..self.requests {
            black_box(what());
        }
    }
}
