//! Patterns and templates of rules: what is inserted into a location never leads to another host or ends a line, and a
//! path that is made is a valid path.
#![no_main]

use files::site::pattern::{Pattern, Template, glob};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str, &[u8])| {
    let (pattern, template, rest) = input;
    let path = [b"/", rest].concat();
    let globbing = Pattern::Glob(pattern.as_bytes().into());
    assert_eq!(globbing.matches(&path), globbing.captures(&path).is_some());
    assert_eq!(globbing.matches(&path), glob(pattern.as_bytes(), &path));
    // Replacing the stars with what they matched gives the path.
    if let Some(captures) = globbing.captures(&path) {
        let mut stars = captures.iter();
        let made: Vec<u8> = pattern
            .bytes()
            .flat_map(|byte| if byte == b'*' { stars.next().expect("one for each star").to_vec() } else { vec![byte] })
            .collect();
        assert_eq!(made, path);
    }
    for pattern in [Some(globbing), Pattern::regex(pattern).ok()].into_iter().flatten() {
        let Ok(template) = Template::parse(template, &pattern) else { continue };
        let Some(captures) = pattern.captures(&path) else { continue };
        let _ = template.expand(&path, &captures);
        let location = template.escape(&path, &captures);
        let controls = location.chars().filter(|one| one.is_control()).count();
        let own = template.escape(b"", &vec![&b""[..]; 9]).chars().filter(|one| one.is_control()).count();
        assert_eq!(controls, own, "{location:?}");
    }
});
