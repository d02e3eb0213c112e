//! Forms. After an error, a form is shown again with each error next to its field.

use std::cell::RefCell;

use maud::{Markup, html};
use service::problem::Problem;

/// The errors of a form.
pub(super) struct Faults<'a> {
    problem: Option<&'a Problem>,
    /// The fields that the form shows; their errors are next to them.
    placed: RefCell<Vec<String>>,
}

/// The values for a field's attributes `aria-describedby` and `aria-invalid`.
pub(super) struct Told {
    pub(super) described: Option<String>,
    pub(super) wrong: Option<&'static str>,
}

impl<'a> Faults<'a> {
    /// The errors in a problem document.
    pub(super) fn new(problem: Option<&'a Problem>) -> Self {
        Self { problem, placed: RefCell::default() }
    }

    /// The error of a field or of a part of it. A field's name is a JSON pointer without its first slash.
    pub(super) fn of(&self, name: &str) -> Option<&'a str> {
        let faults = self.problem.map_or(&[][..], |problem| &problem.errors);
        faults.iter().find(|fault| concerns(&fault.pointer, name)).map(|fault| fault.detail.as_str())
    }

    /// A field with its label, its error and its hint.
    pub(super) fn field(
        &self,
        name: &str,
        label: &str,
        hint: &str,
        input: impl FnOnce(&Told) -> Markup,
    ) -> Markup {
        self.placed.borrow_mut().push(name.to_owned());
        let wrong = self.of(name);
        let error_id = wrong.map(|_| format!("{name}-error"));
        let hint_id = (!hint.is_empty()).then(|| format!("{name}-hint"));
        let described: Vec<String> = [error_id, hint_id].into_iter().flatten().collect();
        let described = (!described.is_empty()).then(|| described.join(" "));
        html! {
            div.field {
                label for=(name) { (label) }
                (input(&Told { described, wrong: wrong.map(|_| "true") }))
                @if let Some(wrong) = wrong { p.error id={ (name) "-error" } { (wrong) } }
                @if !hint.is_empty() { p.hint id={ (name) "-hint" } { (hint) } }
            }
        }
    }

    /// A single-line text field for at most this many bytes.
    pub(super) fn text(&self, name: &str, label: &str, hint: &str, value: &str, most: usize) -> Markup {
        self.field(name, label, hint, |told| {
            html! {
                input id=(name) name=(name) type="text" value=(value) maxlength=(most) autocomplete="off" spellcheck="false"
                    autofocus[told.wrong.is_some()] aria-describedby=[&told.described] aria-invalid=[told.wrong];
            }
        })
    }

    /// A text field with several lines.
    pub(super) fn lines(&self, name: &str, label: &str, hint: &str, value: &str, rows: usize) -> Markup {
        self.field(name, label, hint, |told| {
            html! {
                textarea id=(name) name=(name) rows=(rows) spellcheck="false" autofocus[told.wrong.is_some()]
                    aria-describedby=[&told.described] aria-invalid=[told.wrong] { "\n" (value) }
            }
        })
    }

    /// A selection from several options.
    pub(super) fn select(&self, name: &str, label: &str, now: &str, options: &[(&str, &str)]) -> Markup {
        self.field(name, label, "", |told| {
            html! {
                select id=(name) name=(name) aria-describedby=[&told.described] aria-invalid=[told.wrong] {
                    @for (value, words) in options { option value=(value) selected[*value == now] { (words) } }
                }
            }
        })
    }

    /// The errors of the form as a whole, and those without a field. To be called after all fields are rendered.
    pub(super) fn summary(&self) -> Markup {
        let placed = self.placed.borrow();
        let elsewhere = |pointer: &str| !placed.iter().any(|name| concerns(pointer, name));
        html! {
            @if let Some(problem) = self.problem {
                div.alert role="alert" {
                    p { (problem.detail) }
                    @for fault in problem.errors.iter().filter(|fault| elsewhere(&fault.pointer)) {
                        p { (fault.pointer.trim_start_matches('/')) ": " (fault.detail) }
                    }
                }
            }
        }
    }
}

/// Whether a pointer belongs to a field or a part of it.
fn concerns(pointer: &str, name: &str) -> bool {
    let pointer = pointer.strip_prefix('/').unwrap_or(pointer);
    pointer.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_beside_its_field() {
        let problem = Problem::unprocessable("a field is wrong")
            .with_error("/target", "only http and https")
            .with_error("/tags/3", "too long")
            .with_error("/addresses/1/city", "empty");
        let faults = Faults::new(Some(&problem));
        for (name, wrong) in [
            ("target", Some("only http and https")),
            ("tags", Some("too long")),
            ("tag", None),
            ("addresses/1/city", Some("empty")),
            ("addresses/10/city", None),
        ] {
            assert_eq!(faults.of(name), wrong, "{name}");
        }
        assert_eq!(Faults::new(None).of("tags"), None);
    }

    #[test]
    fn what_has_no_field_is_said_above_all_of_them() {
        let problem =
            Problem::unprocessable("a field is wrong").with_error("/a", "one").with_error("/b/0", "<two>");
        let faults = Faults::new(Some(&problem));
        assert!(faults.text("a", "A", "", "", 1).into_string().contains("id=\"a-error\""));
        let summary = faults.summary().into_string();
        assert!(summary.contains("b/0: &lt;two&gt;") && !summary.contains("one"), "{summary}");
    }
}
